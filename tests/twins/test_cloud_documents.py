"""What CreateJob of the local cloud refuses of a job's document, by boto3."""

import copy
import itertools
import json

import pytest

from tests.twins.cloud_play import MODEL, channel, ended, playing, refused

GONE = object()
NAMES = (f"job-{number}" for number in itertools.count())


def changed(document, path, value):
    document = copy.deepcopy(document)
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place[parent]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return document


PREFIX = "arn:aws:sagemaker:us-west-2:123456789012"
AGENT = "AgentConfig.BedrockAgentCoreConfig.AgentRuntimeArn"


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("AgentConfig", GONE, "AgentConfig"),
        ("InputDataConfig", [], "InputDataConfig"),
        ("OutputDataConfig.S3OutputPath", GONE, "S3OutputPath"),
        ("OutputDataConfig.S3OutputPath", "data/out", "S3OutputPath"),
        ("ModelPackageConfig.OutputModelPackageGroupArn", GONE, "OutputModelPackageGroupArn"),
        ("TrainingConfig.BaseModelArn", "openai/gpt-oss-20b", "BaseModelArn"),
        ("TrainingConfig.AcceptEula", "yes", "AcceptEula"),
        ("TrainingConfig.MlflowConfig", GONE, "MlflowConfig"),
        ("TrainingConfig.HyperParameters", [], "HyperParameters"),
        ("Extra", 1, "Extra"),
        ("AgentConfig.LambdaConfig", {"LambdaArn": "x"}, "exactly one"),
        ("InputDataConfig", [channel("test")], "test"),
        ("InputDataConfig", [channel("validation")], "channels"),
        ("InputDataConfig", [channel("train"), channel("train")], "channels"),
        ("VpcConfig", {"SecurityGroupIds": [], "Subnets": ["subnet-1"]}, "SecurityGroupIds"),
        (AGENT, "arn:aws:bedrock-agentcore::us-west-2:123456789012:runtime/AGENTID", "match"),
        (
            AGENT,
            "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/Wordle-aBcDeFgHiJ",
            "us-east-1",
        ),
        (
            "TrainingConfig.BaseModelArn",
            "arn:aws:sagemaker:us-east-1:aws:hub-content/SageMakerPublicHub/Model/openai-reasoning-gpt-oss-20b/1.0.0",
            "no model of this Region",
        ),
        (
            "TrainingConfig.MlflowConfig.MlflowResourceArn",
            f"{PREFIX}:mlflow-tracking-server/x",
            "match",
        ),
    ],
)
def test_a_document_that_is_not_to_the_schema_is_refused(standing, path, value, word):
    before = dict(standing.cloud.jobs)
    with refused("ValidationException", "JobConfigDocument", word):
        standing.create(document=changed(standing.document(), path, value))
    assert standing.cloud.jobs == before


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("max_turns", "5", "not known"),
        ("seed", "1", "not known"),
        ("save_every", "5", "not known"),
        ("lora_plus_lr_ratio", "32", "not known"),
        ("max_steps", 7, "text"),
        ("max_steps", "7.5", "integer"),
        ("max_steps", "0", "[1, 1000]"),
        ("global_batch_size", "8", "[32, 64, 128]"),
        ("group_size", "33", "[2, 32]"),
        ("sampling_max_tokens", "511", "[512, 8192]"),
        ("rollout_timeout", "299", "[300, 86400]"),
        ("rollout_max_concurrency", "97", "[32, 96]"),
        ("learning_rate", "nan", "[0, 0.01]"),
        ("learning_rate", "fast", "float"),
        ("loss_fn", "reinforce", "'ppo'"),
        ("advantage_method", "grpo", "group_based"),
        ("clip_high_threshold", "0.2", "[1, 10]"),
        ("pass_k_values", "[1; 8]", "character"),
    ],
)
def test_a_hyperparameter_that_the_recipe_does_not_take_is_refused(standing, name, value, word):
    with refused("ValidationException", "HyperParameters", name, word):
        standing.create(document=standing.document(**{name: value}))


def test_every_default_of_the_recipe_is_taken(standing):
    bucket = standing.cloud.buckets["jumpstart-cache-prod-us-west-2"]
    served = json.loads(bucket[f"recipes/{MODEL}/1.0.0/training.json"])
    values = {name: str(entry["default"]) for name, entry in served.items()}
    assert values["max_steps"] == "100"
    ended(standing.create(next(NAMES), document=standing.document(**values)))


@pytest.mark.parametrize(
    ("name", "value"), [("sampling_temperature", "0"), ("max_tokens", "512"), ("group_size", "8")]
)
def test_an_evaluation_takes_the_names_of_its_own(standing, name, value):
    with refused("ValidationException", name):
        standing.create(
            JobCategory="AgentRFTEvaluation",
            JobConfigDocument=json.dumps(standing.evaluation(**{name: value})),
        )


def test_nova_has_ranges_and_names_of_its_own_and_needs_restricted_groups(standing):
    groups = {}
    for name in ("nova", "nova-checkpoints"):
        groups[name] = standing.sagemaker.create_model_package_group(
            ModelPackageGroupName=name, ManagedConfiguration={"ManagedStorageType": "Restricted"}
        )["ModelPackageGroupArn"]
    base = standing.cloud.hub.arn_of("nova-textgeneration-lite-v2")
    values = {"global_batch_size": "8", "save_every": "5", "lora_plus_lr_ratio": "32"}
    document = changed(standing.document(**values), "TrainingConfig.BaseModelArn", base)
    with refused("ValidationException", "Restricted"):
        standing.create(document=document)
    document["ModelPackageConfig"] = {
        "OutputModelPackageGroupArn": groups["nova"],
        "IntermediateCheckpointModelPackageGroupArn": groups["nova-checkpoints"],
    }
    ended(standing.create(next(NAMES), document=document))
    with refused("ValidationException", "lora_rank"):
        standing.create(
            "second", changed(document, "TrainingConfig.HyperParameters.lora_rank", "64")
        )


def test_mlflow_may_stand_in_either_place(standing):
    document = standing.document()
    config = document["TrainingConfig"].pop("MlflowConfig")
    ended(
        standing.create(
            next(NAMES), document=changed(document, "OutputDataConfig.MlflowConfig", config)
        )
    )


def test_the_two_groups_must_differ(standing):
    path = "ModelPackageConfig.IntermediateCheckpointModelPackageGroupArn"
    with refused("ValidationException", "must differ"):
        standing.create(document=changed(standing.document(), path, standing.output.arn))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (AGENT, "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/Other-aBcDeFgHiJ"),
        (
            "AgentConfig",
            {
                "CustomAgentLambdaConfig": {
                    "LambdaArn": "arn:aws:lambda:us-west-2:123456789012:function:none"
                }
            },
        ),
        ("ModelPackageConfig.OutputModelPackageGroupArn", f"{PREFIX}:model-package-group/none"),
        ("ModelPackageConfig.InputModelPackageArn", f"{PREFIX}:model-package/output/9"),
        ("TrainingConfig.MlflowConfig.MlflowResourceArn", f"{PREFIX}:mlflow-app/none"),
    ],
)
def test_what_the_document_names_must_exist(standing, path, value):
    with refused("ResourceNotFound", "does not exist"):
        standing.create(document=changed(standing.document(), path, value))


def test_a_document_is_json_and_no_longer_than_the_service_takes(standing):
    with refused("ValidationException", "not JSON"):
        standing.create(JobConfigDocument="{")
    with refused("ValidationException", "262144"):
        standing.create(JobConfigDocument=" " * 262145)
    with refused("ValidationException", "type object"):
        standing.create(JobConfigDocument="[]")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"JobName": "a_b"}, "JobName"),
        ({"JobName": "x" * 64}, "63"),
        ({"JobCategory": "Other"}, "JobCategory"),
        ({"JobCategory": "DataTransformation"}, "DataTransformation"),
        ({"JobConfigSchemaVersion": "1.0.x"}, "JobConfigSchemaVersion"),
        ({"JobConfigSchemaVersion": "2.0.0"}, "2.0.0"),
        ({"RoleArn": "arn:aws:iam::123:role/JobRole"}, "RoleArn"),
        ({"Tags": [{"Key": "k", "Value": "v"}] * 51}, "Tags"),
    ],
)
def test_a_request_that_the_model_forbids_is_refused(standing, change, word):
    with refused("ValidationException", word):
        standing.sagemaker.create_job(
            **{
                "JobName": "job",
                "RoleArn": standing.cloud.role_arn("JobRole"),
                "JobCategory": "AgentRFT",
                "JobConfigSchemaVersion": "1.0.0",
                "JobConfigDocument": json.dumps(standing.document()),
                **change,
            }
        )


def test_another_region_has_other_models():
    with playing(region="us-east-1") as play:
        found = play.sagemaker.list_hub_contents(
            HubName="SageMakerPublicHub", HubContentType="Model"
        )["HubContentSummaries"]
        assert [entry["HubContentName"] for entry in found] == [
            "nova-textgeneration-lite-v2",
            "openai-reasoning-gpt-oss-20b",
        ]
        assert ended(play.create(next(NAMES))).arn.startswith("arn:aws:sagemaker:us-east-1:")
