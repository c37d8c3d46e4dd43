"""Hub, model packages and MLflow apps of the local cloud, by boto3."""

import json

import pytest

from tests.twins.cloud_play import MODEL, ended, refused

HUB = {"HubName": "SageMakerPublicHub", "HubContentType": "Model"}


def test_the_hub_lists_the_models_that_multi_turn_rl_trains(play):
    found = play.sagemaker.list_hub_contents(**HUB)["HubContentSummaries"]
    assert [entry["HubContentName"] for entry in found] == [
        "huggingface-vlm-gemma-4-31b-it",
        "huggingface-vlm-qwen3-6-27b",
        "nova-textgeneration-lite-v2",
        "openai-reasoning-gpt-oss-20b",
    ]
    assert "@recipe:finetuning_mtrl_lora" in found[0]["HubContentSearchKeywords"]
    first = play.sagemaker.list_hub_contents(**HUB, MaxResults=3)
    rest = play.sagemaker.list_hub_contents(**HUB, NextToken=first["NextToken"])
    assert len(first["HubContentSummaries"]) + len(rest["HubContentSummaries"]) == 4
    with refused("ValidationException", "NextToken"):
        play.sagemaker.list_hub_contents(**HUB, NextToken="elsewhere")
    notebooks = play.sagemaker.list_hub_contents(**{**HUB, "HubContentType": "Notebook"})
    assert notebooks["HubContentSummaries"] == []


def test_a_model_document_leads_to_its_overrides_in_s3(play):
    found = play.sagemaker.describe_hub_content(**HUB, HubContentName=MODEL)
    assert found["HubContentArn"] == play.cloud.hub.arn_of(MODEL)
    document = json.loads(found["HubContentDocument"])
    assert document["HuggingfaceId"] == "openai/gpt-oss-20b"
    training, evaluation = document["RecipeCollection"]
    assert (training["CustomizationTechnique"], evaluation["EvaluationType"]) == (
        "MTRL",
        "MTRLEvaluation",
    )
    bucket, _, key = training["SmtjOverrideParamsS3Uri"].removeprefix("s3://").partition("/")
    served = json.loads(play["s3"].get_object(Bucket=bucket, Key=key)["Body"].read())
    assert served["group_size"] == {
        "type": "integer",
        "default": 8,
        "required": False,
        "min": 2,
        "max": 32,
    }
    assert served["global_batch_size"]["enum"] == [32, 64, 128]


def test_the_hubs_bucket_is_readable_and_nobodys_here(play):
    name = "jumpstart-cache-prod-us-west-2"
    assert name not in [bucket["Name"] for bucket in play["s3"].list_buckets()["Buckets"]]
    with refused("AccessDenied"):
        play["s3"].put_object(Bucket=name, Key="x", Body=b"")


@pytest.mark.parametrize(
    "change",
    [
        {"HubName": "Other"},
        {"HubContentName": "other"},
        {"HubContentType": "Notebook"},
        {"HubContentVersion": "9.9.9"},
    ],
)
def test_what_the_hub_lacks_is_not_found(standing, change):
    with refused("ResourceNotFound", "does not exist"):
        standing.sagemaker.describe_hub_content(**{**HUB, "HubContentName": MODEL, **change})


def test_model_package_groups_live_and_die(play):
    client = play.sagemaker
    arn = client.create_model_package_group(
        ModelPackageGroupName="fresh",
        ModelPackageGroupDescription="for a test",
        ManagedConfiguration={"ManagedStorageType": "Restricted"},
    )["ModelPackageGroupArn"]
    for name in ("fresh", arn):
        found = client.describe_model_package_group(ModelPackageGroupName=name)
        assert found["ModelPackageGroupArn"] == arn
        assert found["ManagedConfiguration"] == {"ManagedStorageType": "Restricted"}
        assert found["ModelPackageGroupDescription"] == "for a test"
    with refused("ValidationException", "already exists"):
        client.create_model_package_group(ModelPackageGroupName="fresh")
    listed = client.list_model_package_groups(SortBy="Name", SortOrder="Ascending")
    names = [entry["ModelPackageGroupName"] for entry in listed["ModelPackageGroupSummaryList"]]
    assert names == ["checkpoints", "fresh", "output"]
    client.delete_model_package_group(ModelPackageGroupName="fresh")
    with refused("ValidationException", "does not exist"):
        client.describe_model_package_group(ModelPackageGroupName="fresh")
    elsewhere = arn.replace("us-west-2", "us-east-1").replace("fresh", "output")
    with refused("ValidationException", "does not exist"):
        client.describe_model_package_group(ModelPackageGroupName=elsewhere)


def test_model_packages_are_listed_described_and_deleted_before_their_group(play):
    client = play.sagemaker
    ended(play.create(document=play.document(max_steps="3")))
    listed = client.list_model_packages(ModelPackageGroupName="checkpoints")
    packages = listed["ModelPackageSummaryList"]
    assert [package["ModelPackageVersion"] for package in packages] == [3, 2, 1]
    assert len(client.list_model_packages(NameContains="check")["ModelPackageSummaryList"]) == 3
    assert len(client.list_model_packages()["ModelPackageSummaryList"]) == 4
    found = client.describe_model_package(ModelPackageName=packages[0]["ModelPackageArn"])
    (container,) = found["InferenceSpecification"]["Containers"]
    assert container["IsCheckpoint"] is True
    assert container["BaseModel"] == {"HubContentName": MODEL}
    source = container["ModelDataSource"]["S3DataSource"]
    assert source["S3Uri"] == "s3://data/out/job/checkpoint/"
    with refused("ConflictException", "3 model packages"):
        client.delete_model_package_group(ModelPackageGroupName="checkpoints")
    for package in packages:
        client.delete_model_package(ModelPackageName=package["ModelPackageArn"])
    with refused("ValidationException", "does not exist"):
        client.delete_model_package(ModelPackageName=packages[0]["ModelPackageArn"])
    client.delete_model_package_group(ModelPackageGroupName="checkpoints")
    with refused("ValidationException", "does not exist"):
        client.list_model_packages(ModelPackageGroupName="checkpoints")


def test_a_deleted_version_is_not_given_out_again(play):
    first = play.cloud.make_model_package_group("g")
    ended(play.create(document=play.document(max_steps="1")))
    arn = f"{play.output.arn.replace('-group', '')}/1"
    play.sagemaker.delete_model_package(ModelPackageName=arn)
    ended(play.create("second", play.document(max_steps="1")))
    assert list(play.output.packages) == [2]
    assert first.packages == {}


def test_mlflow_apps_live_and_die(play):
    client = play.sagemaker
    role = play.cloud.role_arn("JobRole")
    made = {"Name": "second", "ArtifactStoreUri": "s3://data/mlflow", "RoleArn": role}
    arn = client.create_mlflow_app(**made, AccountDefaultStatus="ENABLED")["Arn"]
    found = client.describe_mlflow_app(Arn=arn)
    assert (found["Status"], found["MlflowVersion"]) == ("Created", "3.10.0")
    assert (found["ArtifactStoreUri"], found["AccountDefaultStatus"]) == (
        "s3://data/mlflow",
        "ENABLED",
    )
    with refused("ResourceInUse", "second"):
        client.create_mlflow_app(**made)
    listed = client.list_mlflow_apps(SortBy="Name", SortOrder="Ascending")["Summaries"]
    assert [entry["Name"] for entry in listed] == ["metrics", "second"]
    assert "AccountDefaultStatus" not in listed[1]
    assert len(client.list_mlflow_apps(AccountDefaultStatus="ENABLED")["Summaries"]) == 1
    assert client.list_mlflow_apps(Status="Deleting")["Summaries"] == []
    url = client.create_presigned_mlflow_app_url(Arn=arn)["AuthorizedUrl"]
    assert url.startswith(play.cloud.url)
    assert client.delete_mlflow_app(Arn=arn)["Arn"] == arn
    for call in (
        client.describe_mlflow_app,
        client.delete_mlflow_app,
        client.create_presigned_mlflow_app_url,
    ):
        with refused("ResourceNotFound", "does not exist"):
            call(Arn=arn)


def test_training_sessions_are_listed_and_stopped(play):
    from rft_agent_sdk.twins.cloud import SessionEntry

    client = play.sagemaker
    assert client.list_training_sessions()["TrainingSessionSummaries"] == []
    play.cloud.training_sessions["left-over"] = SessionEntry()
    (found,) = client.list_training_sessions(StatusEquals="Running")["TrainingSessionSummaries"]
    assert found["TrainingSessionArn"].endswith(":training-session/left-over")
    with refused("ValidationException", "Running"):
        client.delete_training_session(TrainingSessionName="left-over")
    client.stop_training_session(TrainingSessionName="left-over")
    detail = client.describe_training_session(TrainingSessionName="left-over")
    assert detail["TrainingSessionDetail"]["TrainingSessionStatus"] == "Stopped"
    with refused("ValidationException", "invalid session state transition"):
        client.stop_training_session(TrainingSessionName="left-over")
    client.delete_training_session(TrainingSessionName="left-over")
    with refused("ResourceNotFound"):
        client.stop_training_session(TrainingSessionName="left-over")
