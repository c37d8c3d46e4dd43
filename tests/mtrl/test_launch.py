"""A launch: what is refused before any call, what AWS is asked, and the request that would be sent."""

import dataclasses
import hashlib
import json
import time
from datetime import UTC, datetime

import pytest

from environments.gsm8k import environment as gsm8k
from environments.wordle import environment as wordle
from rft_agent_sdk.errors import CloudError, CredentialsError, UsageError
from rft_agent_sdk.mtrl.agent_arn import parse_agent
from rft_agent_sdk.mtrl.aws import Clients
from rft_agent_sdk.mtrl.findings import Severity
from rft_agent_sdk.mtrl.hub import list_models, read_hub_model
from rft_agent_sdk.mtrl.hyperparameters import published
from rft_agent_sdk.mtrl.launch import create_groups, resolve, trainer_arguments
from rft_agent_sdk.mtrl.launch_checks import check_spec
from rft_agent_sdk.mtrl.launch_data import LaunchData, bucket_and_key, download, upload, upload_uri
from rft_agent_sdk.mtrl.launch_document import Resolved, document, job_name, job_request
from rft_agent_sdk.mtrl.launch_lookups import look_up, resolve_runtime
from rft_agent_sdk.mtrl.launch_schema import check_document, read_schema
from rft_agent_sdk.mtrl.launch_settings import (
    Budget,
    check_run,
    default_budget,
    plan_of,
    project_budget,
    settle,
    worst_solve_of,
)
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec, read_spec
from rft_agent_sdk.mtrl.trust import JOB_SERVICE, TRUST_ACTIONS, trusted_actions
from rft_agent_sdk.twins.cloud import Function, JobRecord, LocalCloud, Role, Runtime, trust
from rft_agent_sdk.twins.cloud.model_packages import ModelPackage
from tests.mtrl.launch_parts import (
    ACCOUNT,
    AGENT,
    APP,
    BUCKET,
    MODEL,
    ROLE,
    RUNTIME,
    account,
    changed,
    environment,
    furnish,
    launch,
)

NOVA = "nova-textgeneration-lite-v2"
OTHER = "999999999999"
FUNCTION = f"arn:aws:lambda:us-west-2:{ACCOUNT}:function:SageMaker-forward:PROD"
HUB_ARN = f"arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{MODEL}/1.0.0"
PACKAGE = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:model-package/checkpoints/3"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GROUP = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:model-package-group"


@pytest.fixture(scope="module")
def served():
    """One account and one set of clients for all tests: clients are slow to make."""
    with LocalCloud() as cloud, Clients("us-west-2") as clients:
        yield cloud, clients, dict(cloud.hub.models)


@pytest.fixture
def cloud(served, monkeypatch):
    cloud, _, models = served
    environment(monkeypatch, cloud)
    furnish(cloud)
    cloud.hub.models.update(models)
    return cloud


@pytest.fixture
def clients(served, cloud):
    return served[1]


@pytest.fixture
def looked_up(clients):
    return lambda spec: look_up(spec, clients)


def ids(findings, severity=None):
    return [one.id for one in findings if severity is None or one.severity is severity]


def errors(findings):
    return ids(findings, Severity.ERROR)


def found_for(spec, **values):
    settings = settle(spec)
    found = Resolved(
        model_name=spec.model_name or MODEL,
        base_model_arn=HUB_ARN,
        agent=parse_agent(spec.agent, qualifier=spec.qualifier),
        dataset=LaunchData("train.jsonl", "s3://b/train.jsonl", 640),
        validation=None,
        chosen=settings.chosen,
        rules=settings.rules,
        token="0a1b",
    )
    return dataclasses.replace(found, **values)


# What is told before any call


def test_a_sound_launch_has_nothing_against_it():
    assert check_spec(launch()) == []


def test_every_fault_of_a_launch_is_named_at_once():
    findings = check_spec(
        launch(
            model="gpt-5",
            agent="arn:aws:bedrock-agentcore::us-west-2:123456789012:runtime/AGENTID",
            role="arn:aws:iam::123456789012:user/me",
            accept_eula=False,
            dataset="train.txt",
            s3_output="https://bucket",
            mlflow_app="arn:aws:sagemaker:us-west-2:123456789012:mlflow-tracking-server/x",
            output_group="same",
            checkpoint_group="same",
            subnets=["subnet-0123"],
            kms_key="alias/mine",
            job_name="a" * 49,
            tags={"aws:mine": "x"},
            notify_events=["Completed"],
        )
    )
    assert errors(findings) == [
        "eula",
        "role-arn",
        "model-unlisted",
        "agent-arn",
        "mlflow-arn",
        "groups-equal",
        "s3-uri",
        "dataset",
        "vpc",
        "kms-key",
        "job-name-long",
        "tags",
        "notify",
    ]
    assert all(one.fix and one.where for one in findings)


def test_what_is_missing_is_named_in_one_line():
    (missing, eula) = check_spec(LaunchSpec())
    assert missing.message == (
        "missing, and required: model, agent, role, region, dataset, s3_output, mlflow_app"
    )
    assert "--s3-output" in missing.fix
    assert eula.id == "eula"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"region": "us-east-1"}, "agent-place"),
        ({"region": "west"}, "region"),
        ({"role": f"arn:aws:iam::{OTHER}:role/x"}, "agent-place"),
        ({"mlflow_app": APP.replace("us-west-2", "us-east-1")}, "other-region"),
        ({"mlflow_app": APP.replace(ACCOUNT, OTHER)}, "other-account"),
        ({"output_group": f"{GROUP}/out".replace("us-west-2", "us-east-1")}, "other-region"),
        ({"checkpoint_group": f"{GROUP}/x".replace(ACCOUNT, OTHER)}, "other-account"),
        ({"output_group": "under_score"}, "group"),
        ({"model": "huggingface-vlm-qwen3-6-27b", "region": "us-east-1"}, "model-region"),
        ({"model": "s3://bucket/model"}, "model"),
        ({"model": HUB_ARN.replace("us-west-2", "us-east-1")}, "other-region"),
        ({"dataset": "s3://"}, "dataset"),
        ({"dataset": "arn:aws:s3:::bucket"}, "dataset"),
        ({"dataset": "rows.ndjson"}, "dataset"),
        ({"s3_data": "bucket/prefix"}, "s3-uri"),
        ({"security_groups": ["sg-1"], "subnets": ["net-1"]}, "vpc-id"),
        ({"kms_key": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234-abcd"}, "other-region"),
        ({"kms_key": f"arn:aws:kms:us-west-2:{ACCOUNT}:key/mrk-1234abcd"}, "kms-key"),
        ({"job_name": "-wordle"}, "job-name"),
        ({"tags": {f"k{n}": "v" for n in range(49)}}, "tags"),
        ({"notify_topic": "arn:aws:sqs:us-west-2:1:x"}, "notify"),
        (
            {"notify_topic": f"arn:aws:sns:us-west-2:{ACCOUNT}:t", "notify_events": ["Done"]},
            "notify",
        ),
    ],
)
def test_a_single_fault_is_refused(values, kind):
    assert kind in errors(check_spec(launch(**values)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"model": HUB_ARN}, "model-version"),
        ({"subnets": ["subnet-0123"], "security_groups": ["sg-0123"]}, "vpc-subnets"),
        ({"validation_dataset": "train.jsonl"}, "same-dataset"),
        ({"notify_topic": f"arn:aws:sns:us-west-2:{ACCOUNT}:t"}, "notify-rule"),
        ({"agent": FUNCTION.replace("SageMaker-", "")}, "lambda-name"),
        ({"model": "gpt-5", "allow_unlisted_model": True}, "model-unlisted"),
    ],
)
def test_what_may_be_right_is_warned_about_and_launched(values, kind):
    findings = check_spec(launch(**values))
    assert ids(findings) == [kind]
    assert errors(findings) == []


def test_a_runtime_in_another_region_is_refused_by_naming_both():
    (finding,) = check_spec(launch(region="us-east-1", mlflow_app=APP.replace("west-2", "east-1")))
    assert "'us-west-2'" in finding.message
    assert "'us-east-1'" in finding.message


def test_a_job_name_that_would_lose_its_time_is_refused_and_one_less_is_not():
    assert errors(check_spec(launch(job_name="a" * 44))) == ["job-name-long"]
    spec = launch(job_name="a" * 43)
    assert check_spec(spec) == []
    assert job_name(spec, found_for(spec), NOW) == "a" * 43 + "-0a1b-20260102030405"


def test_parts_of_several_partitions_are_refused():
    chinese = AGENT.replace("arn:aws:", "arn:aws-cn:")
    assert "partition" in errors(check_spec(launch(agent=chinese)))
    assert "partition" in errors(check_spec(launch(region="us-gov-west-1")))


def test_going_on_from_a_package_needs_both_groups_and_says_what_it_means():
    assert "package-groups" in errors(check_spec(launch(model=PACKAGE)))
    groups = {"output_group": "trained", "checkpoint_group": "checkpoints"}
    assert ids(check_spec(launch(model=PACKAGE, **groups))) == ["package-resume"]
    groups = {"output_group": "trained", "checkpoint_group": "others"}
    assert ids(check_spec(launch(model=PACKAGE, **groups))) == ["package-iterate"]


def test_unknown_keys_and_wrong_types_are_named_at_once():
    with pytest.raises(UsageError) as refused:
        read_spec({"modle": "x", "max_steps": "10", "accept_eula": 1}, "config 'x.yaml'")
    assert str(refused.value).splitlines() == [
        "config 'x.yaml' needs 3 corrections:",
        "  accept_eula: wanted a valid boolean, got 1",
        "  max_steps: wanted a valid integer, got '10'",
        "  modle: is no key of a launch; did you mean 'model'?",
    ]


# The run: hyperparameters, time, rewards


def test_what_is_said_wins_over_overrides_and_they_over_a_recipe():
    spec = launch(
        max_steps=7,
        overrides={"max_steps": 8, "max_epochs": 9},
        recipe={"schedule": {"max_steps": 10, "epochs": 11}, "batch": {"group_size": 4}},
    )
    values = settle(spec).values
    assert (values["max_steps"], values["max_epochs"], values["group_size"]) == (7, 9, 4)
    assert values["learning_rate"] == 1e-5


def test_a_hyperparameter_said_twice_is_refused():
    settings = settle(launch(max_steps=7, hyperparameters={"max_steps": 8, "lora_rank": 99}))
    assert sorted(ids(settings.findings)) == ["hyperparameter-value", "said-twice"]
    assert not settings.is_sound


def run_findings(spec, budget=420.0, worst_solve=1.0):
    return check_run(spec, settle(spec), budget=Budget(budget, "test"), worst_solve=worst_solve)


@pytest.mark.parametrize(("timeout", "refused"), [(421, []), (420, ["budget"]), (300, ["budget"])])
def test_an_agent_s_budget_must_be_below_the_service_s_patience(timeout, refused):
    assert errors(run_findings(launch(rollout_timeout=timeout))) == refused


def test_a_budget_refusal_says_why():
    (finding,) = run_findings(launch(), budget=600)
    assert "the agent allows itself 600 s (test), and the service waits 600 s" in finding.message
    assert "fails the whole job" in finding.message


def test_the_budget_comes_from_whoever_knows_best(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_budget(launch()).seconds == 420
    project = tmp_path / "agentcore" / "agentcore.json"
    project.parent.mkdir()
    variables = [{"name": "ROLLOUT_BUDGET_SECONDS", "value": "500"}]
    project.write_text(json.dumps({"runtimes": [{"envVars": variables}, {"name": "other"}]}))
    assert default_budget(launch()) == Budget(
        500, "ROLLOUT_BUDGET_SECONDS in agentcore/agentcore.json"
    )
    assert default_budget(launch(), Budget(450, "deployed")).seconds == 450
    assert default_budget(launch(agent_budget_s=100.0), Budget(450, "deployed")).seconds == 100


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"runtimes": [{"envVars": [1]}]}', '{"runtimes": 1}']
)
def test_a_project_that_cannot_be_read_says_no_budget(tmp_path, text):
    path = tmp_path / "agentcore.json"
    assert project_budget(path) is None
    path.write_text(text)
    assert project_budget(path) is None


def test_the_environments_worst_solves_clear_the_service_s_threshold():
    assert worst_solve_of(wordle) == pytest.approx(1.005)
    assert worst_solve_of(gsm8k) == pytest.approx(1.045)
    assert errors(run_findings(launch(), worst_solve=worst_solve_of(wordle))) == []


def test_a_threshold_above_the_worst_solve_is_refused_with_its_reason():
    findings = run_findings(launch(success_threshold=1.2), worst_solve=worst_solve_of(wordle))
    assert errors(findings) == ["worst-solve"]
    assert "the worst solve pays 1.005, below the success_threshold of 1.2" in findings[0].message


def test_an_unknown_worst_solve_is_a_note():
    assert ids(run_findings(launch(), worst_solve=None)) == ["worst-solve-unknown"]


def test_a_lambda_function_s_time_is_warned_about():
    spec = launch(rollout_timeout=1200)
    budget = Budget(420, "test")
    findings = check_run(spec, settle(spec), budget=budget, worst_solve=1, is_lambda=True)
    assert ids(findings) == ["lambda-time"]


def test_a_package_s_base_model_tells_how_long_a_conversation_may_be():
    spec = launch(model=PACKAGE, sampling_max_tokens=8192)
    for name, told in ((MODEL, []), (NOVA, ["sequence-length"])):
        budget = Budget(420, "test")
        assert ids(check_run(spec, settle(spec, name), budget=budget, worst_solve=1)) == told


def test_a_plan_takes_rows_from_the_file_or_from_what_is_said():
    data = LaunchData("train.jsonl", "s3://b/k", 1280)
    spec = launch(max_epochs=2)
    plan, _ = plan_of(spec, settle(spec), data, LaunchData("val", "s3://b/v", 9))
    assert plan is not None
    assert (plan.rows, plan.validation_rows, plan.steps) == (1280, 9, 20)
    unknown = LaunchData("s3://b/prefix/", "s3://b/prefix/")
    assert plan_of(spec, settle(spec), unknown, None)[0] is None
    assert "rows-unknown" in ids(plan_of(spec, settle(spec), unknown, None)[1])
    said = launch(rows=2560)
    plan, _ = plan_of(said, settle(said), unknown, None)
    assert plan is not None
    assert plan.rows == 2560


# The request


def test_a_request_by_hand():
    spec = launch(
        qualifier="PROD",
        output_group="trained",
        checkpoint_group=f"{GROUP}/checkpoints",
        mlflow_experiment="wordle",
        mlflow_run="first",
        security_groups=["sg-0a"],
        subnets=["subnet-0a", "subnet-0b"],
        kms_key=f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234-abcd",
        job_name="wordle_low",
        tags={"team": "rl"},
        max_epochs=20,
        hyperparameters={"pass_k_values": [1, 8]},
    )
    found = found_for(spec, validation=LaunchData("v", "arn:aws:sagemaker:us-west-2:1:x"))
    request = job_request(spec, found, NOW)
    text = request.pop("JobConfigDocument")
    assert request == {
        "JobName": "wordle-low-0a1b-20260102030405",
        "RoleArn": ROLE,
        "JobCategory": "AgentRFT",
        "JobConfigSchemaVersion": "1.0.0",
        "Tags": [
            {"Key": "sagemaker-sdk:jumpstart-model-id", "Value": MODEL},
            {"Key": "sagemaker-sdk:jumpstart-hub-name", "Value": "SageMakerPublicHub"},
            {"Key": "team", "Value": "rl"},
        ],
    }
    assert json.loads(text) == {
        "AgentConfig": {"BedrockAgentCoreConfig": {"AgentRuntimeArn": AGENT, "Qualifier": "PROD"}},
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/train.jsonl"}
                },
            },
            {
                "ChannelName": "validation",
                "DataSource": {"DatasetSource": {"DatasetArn": "arn:aws:sagemaker:us-west-2:1:x"}},
            },
        ],
        "OutputDataConfig": {
            "S3OutputPath": f"s3://{BUCKET}/out",
            "KmsKeyArn": f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234-abcd",
        },
        "ModelPackageConfig": {
            "OutputModelPackageGroupArn": f"{GROUP}/trained",
            "IntermediateCheckpointModelPackageGroupArn": f"{GROUP}/checkpoints",
        },
        "TrainingConfig": {
            "BaseModelArn": HUB_ARN,
            "MlflowConfig": {
                "MlflowResourceArn": APP,
                "MlflowExperimentName": "wordle",
                "MlflowRunName": "first",
            },
            "AcceptEula": True,
            "HyperParameters": {
                "max_epochs": "20",
                "sampling_max_tokens": "8192",
                "pass_k_values": "[1, 8]",
            },
        },
        "VpcConfig": {"SecurityGroupIds": ["sg-0a"], "Subnets": ["subnet-0a", "subnet-0b"]},
    }


def test_a_lambda_function_and_a_package_to_go_on_from_stand_in_the_document():
    spec = launch(
        agent=FUNCTION, model=PACKAGE, output_group="trained", checkpoint_group="checkpoints"
    )
    made = document(spec, found_for(spec))
    assert made["AgentConfig"] == {"CustomAgentLambdaConfig": {"LambdaArn": FUNCTION}}
    assert made["ModelPackageConfig"]["InputModelPackageArn"] == PACKAGE
    assert trainer_arguments(spec, found_for(spec))["model"] == PACKAGE


def test_the_client_gets_all_of_a_launch():
    spec = launch(
        notify_topic=f"arn:aws:sns:us-west-2:{ACCOUNT}:t", notify_events=["Failed"], tags={"a": "b"}
    )
    arguments = trainer_arguments(spec, found_for(spec))
    assert arguments["notifications"] == {
        "sns_topic_arn": f"arn:aws:sns:us-west-2:{ACCOUNT}:t",
        "events": ["Failed"],
    }
    assert arguments["tags"] == [{"key": "a", "value": "b"}]
    assert arguments["base_job_name"] == f"{MODEL}-mtrl-0a1b"
    assert arguments["hyperparameters"]["sampling_max_tokens"] == 8192
    assert None not in (arguments["output_model_package_group"], arguments["mlflow_app_arn"])


def test_a_place_that_the_service_s_schema_does_not_know_is_warned_about():
    schema = {
        "properties": {
            "A": {"$ref": "#/$defs/a"},
            "L": {"items": {"properties": {"x": {}}, "additionalProperties": False}},
        },
        "required": ["A", "B"],
        "additionalProperties": False,
        "$defs": {"a": {"properties": {"b": {}}, "required": ["b"]}},
    }
    found = list(check_document({"A": {"c": 1}, "L": [{"x": 1}, {"y": 1}], "Z": 1}, schema))
    assert [(one.where, one.message) for one in found] == [
        ("the job's document: B", "is required by the service's schema"),
        ("the job's document: A.b", "is required by the service's schema"),
        ("the job's document: L[1].y", "is not known to the service's schema there"),
        ("the job's document: Z", "is not known to the service's schema there"),
    ]
    assert {one.severity for one in found} == {Severity.WARNING}


def test_the_document_fits_the_schema_that_the_service_serves(cloud, clients):
    schema = read_schema(clients)
    spec = launch()
    assert list(check_document(document(spec, found_for(spec)), schema)) == []
    assert changed(cloud) == []


# Datasets


def test_a_file_goes_under_its_content_s_hash_byte_for_byte_and_once(cloud, clients, tmp_path):
    content = '{"prompt": "a\u2028b"}\r\n'.encode()
    path = tmp_path / "my rows.jsonl"
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    data = LaunchData("rows", upload_uri(f"s3://{BUCKET}/data", digest, path.name), 1, path)
    assert data.uri == f"s3://{BUCKET}/data/{digest}/my-rows.jsonl"
    assert upload(clients("s3"), data, ACCOUNT) is True
    assert upload(clients("s3"), data, ACCOUNT) is False
    assert changed(cloud) == ["s3 PutObject"]
    assert cloud.buckets[BUCKET][bucket_and_key(data.uri)[1]] == content


def test_nothing_is_uploaded_into_a_bucket_of_somebody_else(cloud, clients, tmp_path):
    cloud.buckets[BUCKET].owner = OTHER
    path = tmp_path / "train.jsonl"
    path.write_text("{}")
    with pytest.raises(CloudError):
        upload(clients("s3"), LaunchData("t", f"s3://{BUCKET}/k/train.jsonl", 1, path), ACCOUNT)
    assert changed(cloud) == []


def test_one_file_in_s3_can_be_looked_into_and_a_prefix_cannot(cloud, clients, tmp_path):
    cloud.buckets[BUCKET]["rows/train.jsonl"] = b'{"prompt": "x"}'
    copy = download(clients("s3"), f"s3://{BUCKET}/rows/train.jsonl", tmp_path)
    assert copy is not None
    assert copy.read_bytes() == b'{"prompt": "x"}'
    assert download(clients("s3"), f"s3://{BUCKET}/rows/", tmp_path) is None


# What AWS is asked


def test_a_sound_launch_is_looked_up_without_changing_anything(cloud, looked_up):
    seen = looked_up(launch())
    assert seen.findings == []
    assert seen.model_name == MODEL
    assert seen.recipe is not None
    assert seen.recipe.arn == cloud.hub.arn_of(MODEL)
    assert seen.missing_groups == [f"{MODEL}-mtrl-mpg", f"{MODEL}-mtrl-checkpoint-mpg"]
    assert seen.is_prefix_empty
    assert changed(cloud) == []


def test_a_bare_id_is_resolved_in_the_launch_s_region_and_not_in_the_environment_s(
    cloud, clients, looked_up, monkeypatch
):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    seen = looked_up(launch(agent=RUNTIME))
    assert seen.agent is not None
    assert seen.agent.arn == AGENT
    assert resolve_runtime(clients, RUNTIME) == AGENT
    with pytest.raises(UsageError, match="there is no runtime 'Other-aBcDeFgHiJ' in us-west-2"):
        resolve_runtime(clients, "Other-aBcDeFgHiJ")


def remove_app(cloud):
    cloud.mlflow_apps.clear()


def replace_runtime(**values):
    return lambda cloud: cloud.runtimes.__setitem__(RUNTIME, Runtime(name="Wordle", **values))


def replace_role(policy):
    return lambda cloud: cloud.roles.__setitem__("JobRole", Role(trust=policy))


@pytest.mark.parametrize(
    ("change", "values", "kind", "told"),
    [
        (lambda cloud: cloud.roles.clear(), {}, "role-missing", "there is no role 'JobRole'"),
        (replace_role(trust("sagemaker.amazonaws.com")), {}, "role-trust", "lacks sts:AssumeRole and"),
        (replace_role(trust(JOB_SERVICE, actions=["sts:AssumeRole"])), {}, "role-trust", "lacks sts:TagSession"),
        (None, {"role": f"arn:aws:iam::{ACCOUNT}:role/team/JobRole"}, "role-path", "has the ARN"),
        (lambda cloud: cloud.runtimes.clear(), {}, "agent-missing", "there is no agent"),
        (lambda cloud: cloud.runtimes.clear(), {"agent": RUNTIME}, "agent-missing", "there is no runtime"),
        (replace_runtime(status="UPDATING"), {}, "agent-not-ready", "it is UPDATING"),
        (replace_runtime(status="CREATE_FAILED", failure_reason="no image"), {}, "agent-not-ready", "no image"),
        (None, {"qualifier": "PROD"}, "endpoint-missing", "has no endpoint 'PROD'"),
        (None, {"agent": FUNCTION}, "agent-missing", "there is no agent"),
        (remove_app, {}, "mlflow-missing", "there is no MLflow app"),
        (lambda cloud: setattr(cloud.mlflow_apps[APP], "status", "Creating"), {}, "mlflow-not-ready", "it is Creating"),
        (lambda cloud: setattr(cloud.mlflow_apps[APP], "version", "3.9.1"), {}, "mlflow-old", "it has 3.9.1"),
        (lambda cloud: cloud.hub.models.pop(MODEL), {}, "model-missing", "has no model"),
        (lambda cloud: cloud.buckets.pop(BUCKET), {}, "bucket", "does not exist"),
        (lambda cloud: setattr(cloud.buckets[BUCKET], "owner", OTHER), {}, "bucket", "is not of account"),
        (lambda cloud: setattr(cloud.buckets[BUCKET], "region", "us-east-1"), {}, "bucket-region", "is in 'us-east-1'"),
        (None, {"dataset": f"s3://{BUCKET}/nothing.jsonl"}, "dataset-missing", "nothing lies under"),
    ],
)  # fmt: skip
def test_what_only_aws_can_tell_is_refused_with_its_reason(
    cloud, looked_up, change, values, kind, told
):
    if change:
        change(cloud)
    cloud.calls.clear()
    seen = looked_up(launch(**values))
    assert kind in errors(seen.findings)
    assert any(told in one.message for one in seen.findings)
    assert changed(cloud) == []


def test_credentials_of_another_account_are_refused(monkeypatch):
    with account(monkeypatch, account=OTHER), Clients("us-west-2") as clients:
        assert "caller-account" in errors(look_up(launch(), clients).findings)


def test_a_running_job_is_refused_unless_one_insists(monkeypatch):
    def forever(job: JobRecord):
        while True:
            job.sleep(0.01)

    spec = launch()
    with account(monkeypatch, runner=forever) as cloud, Clients("us-west-2") as clients:
        for group in (f"{MODEL}-mtrl-mpg", f"{MODEL}-mtrl-checkpoint-mpg"):
            cloud.make_model_package_group(group)
        clients("sagemaker").create_job(**job_request(spec, found_for(spec), NOW))
        (refused,) = look_up(spec, clients).findings
        assert (refused.id, refused.severity) == ("job-running", Severity.ERROR)
        assert f"{MODEL}-mtrl-0a1b-20260102030405 runs already" in refused.message
        (warned,) = look_up(launch(allow_running=True), clients).findings
        assert (warned.id, warned.severity) == ("job-running", Severity.WARNING)


def test_what_the_caller_may_not_look_at_stops_nothing(cloud, looked_up):
    cloud.faults.add("iam", "GetRole", "AccessDenied", status=403)
    seen = looked_up(launch())
    assert ids(seen.findings) == ["role-unseen"]
    assert not seen.has_errors


def test_a_refusal_that_is_none_of_these_is_an_error(cloud, looked_up):
    cloud.faults.add("sagemaker", "DescribeMlflowApp", "ValidationException", times=None)
    assert errors(looked_up(launch()).findings) == ["mlflow-refused"]


def test_without_credentials_nothing_is_looked_up(monkeypatch, cloud):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with Clients("us-west-2") as clients, pytest.raises(CredentialsError):
        look_up(launch(), clients)
    assert cloud.calls == []


def test_the_deployed_runtime_tells_its_budget(cloud, looked_up):
    replace_runtime(environment={"ROLLOUT_BUDGET_SECONDS": "550"})(cloud)
    budget = looked_up(launch()).budget
    assert budget == Budget(550, "ROLLOUT_BUDGET_SECONDS in the deployed runtime")


def test_a_lambda_function_is_found_and_tells_its_budget(cloud, looked_up):
    cloud.functions["SageMaker-forward"] = Function(
        environment={"ROLLOUT_BUDGET_SECONDS": "100"}, aliases=("PROD",)
    )
    seen = looked_up(launch(agent=FUNCTION))
    assert errors(seen.findings) == []
    assert seen.budget is not None
    assert seen.budget.seconds == 100


def test_a_package_tells_its_base_model(monkeypatch):
    groups = {"output_group": "trained", "checkpoint_group": "checkpoints"}
    spec = launch(**groups)

    def publishes(job: JobRecord):
        job.complete(job.publish("checkpoint"))

    with account(monkeypatch, runner=publishes) as cloud, Clients("us-west-2") as clients:
        for group in groups.values():
            cloud.make_model_package_group(group)
        clients("sagemaker").create_job(**job_request(spec, found_for(spec), NOW))
        (job,) = cloud.jobs.values()
        while not job.is_terminal:
            time.sleep(0.01)
        (package,) = cloud.model_package_groups["checkpoints"].packages.values()
        seen = look_up(launch(model=package.arn, **groups), clients)
        assert seen.findings == []
        assert (seen.model_name, seen.missing_groups) == (MODEL, [])


def test_a_package_without_a_base_model_is_refused(cloud, clients, looked_up):
    group = cloud.make_model_package_group("checkpoints")
    stranger = ModelPackage(
        f"{GROUP.removesuffix('-group')}/checkpoints/1", group.name, 1, "s3://x"
    )
    group.packages[1] = stranger
    spec = launch(model=stranger.arn, output_group="trained", checkpoint_group="checkpoints")
    assert "package-base" in errors(looked_up(spec).findings)


def test_missing_groups_are_made_and_nova_s_as_managed_ones(cloud, clients, looked_up):
    for model, storage in ((MODEL, None), (NOVA, {"ManagedStorageType": "Restricted"})):
        spec = launch(model=model)
        seen = looked_up(spec)
        assert len(seen.missing_groups) == 2
        create_groups(spec, seen, clients)
        assert cloud.model_package_groups[f"{model}-mtrl-mpg"].managed == storage
        seen = looked_up(spec)
        assert seen.missing_groups == []
        assert errors(seen.findings) == []


def test_a_group_that_nova_cannot_use_is_refused(cloud, looked_up):
    cloud.make_model_package_group("plain")
    seen = looked_up(launch(model=NOVA, output_group="plain"))
    assert errors(seen.findings) == ["group-storage"]


def test_what_is_looked_up_becomes_the_request(cloud, looked_up):
    spec = launch(agent=RUNTIME)
    found = resolve(spec, looked_up(spec), LaunchData("t", "s3://b/t", 640), None)
    assert found.agent.arn == AGENT
    assert found.base_model_arn == cloud.hub.arn_of(MODEL)
    assert document(spec, found)["TrainingConfig"]["HyperParameters"] == {
        "sampling_max_tokens": "8192"
    }


def test_the_hub_lists_what_these_jobs_train(cloud, clients):
    assert list_models(clients) == sorted(cloud.hub.models)


def test_the_hub_s_recipe_has_the_published_hyperparameters(cloud, clients):
    for model in cloud.hub.models:
        today = read_hub_model(clients, model).rules
        assert set(published(model)) <= set(today)


# Trust policies


def policy(**statement):
    return {"Statement": [{"Effect": "Allow", **statement}]}


@pytest.mark.parametrize(
    ("document", "trusted"),
    [
        (
            policy(Principal={"Service": JOB_SERVICE}, Action=["sts:AssumeRole", "sts:TagSession"]),
            2,
        ),
        (policy(Principal={"Service": ["x", JOB_SERVICE]}, Action="sts:*"), 2),
        (policy(Principal="*", Action="*"), 2),
        (policy(Principal={"Service": JOB_SERVICE}, Action="STS:assumerole"), 1),
        (policy(Principal={"Service": "sagemaker.amazonaws.com"}, Action="sts:*"), 0),
        (policy(Principal={"AWS": JOB_SERVICE}, Action="sts:*"), 0),
        (policy(Principal={"Service": JOB_SERVICE}, Action="sts:Ass*"), 1),
        ({"Statement": {"Effect": "Deny", "Principal": "*", "Action": "*"}}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_a_trust_policy_tells_what_a_service_may_do(document, trusted):
    assert len(trusted_actions(document, JOB_SERVICE)) == trusted


def test_a_denial_takes_back_what_another_statement_allows():
    document = policy(Principal={"Service": JOB_SERVICE}, Action="sts:*")
    document["Statement"].append({"Effect": "Deny", "Principal": "*", "Action": "sts:TagSession"})
    assert trusted_actions(document, JOB_SERVICE) == {"sts:AssumeRole"} < TRUST_ACTIONS
