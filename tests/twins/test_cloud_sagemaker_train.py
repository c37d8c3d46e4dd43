"""The local cloud under the real `sagemaker-train` client: a trainer, its jobs, and exactly what it sends."""

import importlib
import itertools

import boto3
import pytest

from rft_agent_sdk.twins.cloud import FailsWith, Role, WalkThrough, statement, trust
from tests.twins.cloud_play import MODEL, RUNTIME, ended, playing

pytestmark = [
    pytest.mark.sagemaker,
    # Its modules warn of themselves when they are first read, and its HTTP sessions are left open.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = (f"wordle{number}" for number in itertools.count())
PREFIX = "arn:aws:sagemaker:us-west-2:123456789012"


@pytest.fixture(scope="module")
def module_play():
    """One cloud for all: the client keeps its connections by Region, for as long as the process lives."""
    with playing() as made:
        yield made


@pytest.fixture
def play(module_play, monkeypatch):
    for name, value in module_play.cloud.environment().items():
        monkeypatch.setenv(name, value)
    cloud = module_play.cloud
    cloud.calls.clear()
    cloud.faults.clear()
    cloud.runner = WalkThrough()
    yield module_play
    for job in cloud.jobs.values():
        job.request_stop()
        ended(job)


@pytest.fixture
def session(play):
    session_of = sdk("core.helper.session_helper").Session
    return session_of(boto_session=boto3.Session(region_name="us-west-2"))


def sdk(module):
    """A module of the client, which only its own environment has."""
    return importlib.import_module(f"sagemaker.{module}")


def trainer_class():
    return sdk("train.multi_turn_rl_trainer").MultiTurnRLTrainer


def trainer(play, session, **options):
    return trainer_class()(
        **{
            "model": MODEL,
            "agent_env": play.cloud.runtime_arn(RUNTIME),
            "training_dataset": "s3://data/train.jsonl",
            "mlflow_app_arn": play.app.arn,
            "s3_output_path": "s3://data/out",
            "output_model_package_group": "output",
            "intermediate_checkpoint_model_package_group": "checkpoints",
            "accept_eula": True,
            "role": play.cloud.role_arn("JobRole"),
            "base_job_name": next(NAMES),
            "sagemaker_session": session,
            **options,
        }
    )


def launched(play, session, **options):
    """Launch a job without waiting for it, and return the client's handle and the record."""
    job = trainer(play, session, **options).train(wait=False)
    return job, play.cloud.jobs[job.job_name]


def operations(play):
    return [call.operation for call in play.cloud.calls]


def test_a_trainer_with_groups_of_its_own_creates_nothing(play, session):
    assert trainer(play, session).hyperparameters.group_size == 8
    assert [call.operation for call in play.cloud.mutations] in ([], ["PutObject"])
    assert operations(play).count("DescribeHubContent") == 2


def test_a_trainer_without_groups_creates_them(play, session):
    trainer(
        play,
        session,
        output_model_package_group=None,
        intermediate_checkpoint_model_package_group=None,
    )
    made = [
        call.body["ModelPackageGroupName"]
        for call in play.cloud.mutations
        if call.operation == "CreateModelPackageGroup"
    ]
    assert made == [f"{MODEL}-mtrl-mpg", f"{MODEL}-mtrl-checkpoint-mpg"]


def test_the_default_bucket_is_made(play, session):
    trainer(play, session, s3_output_path=None)
    assert "sagemaker-us-west-2-123456789012" in play.cloud.buckets


def test_a_dry_run_creates_no_job(play, session):
    made = trainer(play, session)
    before = len(play.cloud.mutations)
    assert made.train(dry_run=True) is None
    assert len(play.cloud.mutations) == before


def test_the_document_is_exactly_what_the_contract_says(play, session):
    made = trainer(
        play,
        session,
        validation_dataset="s3://data/val.jsonl",
        mlflow_experiment_name="wordle",
        mlflow_run_name="first",
    )
    made.hyperparameters.max_steps = 7
    made.hyperparameters.learning_rate = 4e-5
    made.hyperparameters.pass_k_values = "[1, 8]"
    play.cloud.buckets["data"]["val.jsonl"] = b'{"prompt": "play"}\n'
    job = made.train(wait=False)
    assert operations(play)[-2:] == ["CreateJob", "DescribeJob"]

    def channel(name, uri):
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
        return {"ChannelName": name, "DataSource": source}

    assert play.cloud.jobs[job.job_name].document == {
        "AgentConfig": {
            "BedrockAgentCoreConfig": {
                "AgentRuntimeArn": play.cloud.runtime_arn(RUNTIME),
                "Qualifier": "DEFAULT",
            }
        },
        "InputDataConfig": [
            channel("train", "s3://data/train.jsonl"),
            channel("validation", "s3://data/val.jsonl"),
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
        "ModelPackageConfig": {
            "OutputModelPackageGroupArn": f"{PREFIX}:model-package-group/output",
            "IntermediateCheckpointModelPackageGroupArn": f"{PREFIX}:model-package-group/checkpoints",
        },
        "TrainingConfig": {
            "BaseModelArn": f"arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{MODEL}/1.0.0",
            "MlflowConfig": {
                "MlflowResourceArn": play.app.arn,
                "MlflowExperimentName": "wordle",
                "MlflowRunName": "first",
            },
            "AcceptEula": True,
            "HyperParameters": {
                "max_steps": "7",
                "learning_rate": "4e-05",
                "pass_k_values": "[1, 8]",
            },
        },
    }
    tags = {tag["Key"]: tag["Value"] for tag in play.cloud.jobs[job.job_name].request.tags}
    assert tags["sagemaker-sdk:jumpstart-model-id"] == MODEL


def test_a_job_is_waited_for_and_leaves_its_package_and_its_metrics(play, session):
    job, _ = launched(play, session)
    attached = trainer_class().attach(job.job_name, session=session.boto_session)
    attached.wait(poll=1)
    assert attached.job_status == "Completed"
    assert attached.output_model_package_arn.startswith(f"{PREFIX}:model-package/output/")
    assert attached.billable_token_usage
    rows = attached.get_training_metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[-1]["rollout/reward/mean"] == pytest.approx(0.7)


def test_waiting_on_a_job_that_failed_returns_with_the_reason(play, session):
    play.cloud.runner = FailsWith("The agent signaled that the trajectory failed")
    job, _ = launched(play, session)
    job.wait(poll=1)
    assert (job.job_status, job.failure_reason) == (
        "Failed",
        "The agent signaled that the trajectory failed",
    )


def test_a_job_is_stopped(play, session):
    play.cloud.runner = WalkThrough(step_s=60)
    job, record = launched(play, session)
    job.stop()
    ended(record)
    job.refresh()
    assert job.job_status == "Stopped"


def test_jobs_are_listed(play, session):
    job, record = launched(play, session)
    ended(record)
    listed = sdk("train.agent_rft_job").AgentRFTJob.get_all(session=session.boto_session)
    assert job.job_name in [found.job_name for found in listed]


def test_models_and_runtimes_are_listed(play, session):
    assert trainer_class().list_supported_models(session=session) == sorted(play.cloud.hub.models)
    (found,) = trainer_class().list_bedrock_agentcore_runtimes(session=session.boto_session)
    assert found == {
        "name": "Wordle",
        "runtime_id": RUNTIME,
        "arn": play.cloud.runtime_arn(RUNTIME),
        "status": "READY",
    }


def test_a_bare_runtime_id_is_resolved(play, session):
    made = trainer(play, session, agent_env=RUNTIME)
    assert made.agent_env == play.cloud.runtime_arn(RUNTIME)
    assert "GetAgentRuntime" in operations(play)


def test_a_hyperparameter_out_of_range_never_leaves_the_client(play, session):
    made = trainer(play, session)
    with pytest.raises(ValueError, match="sampling_max_tokens"):
        made.hyperparameters.sampling_max_tokens = 511
    assert made.hyperparameters.max_steps == 100


def test_the_clients_own_check_of_a_role_goes_by_trust_and_simulation(play, session, monkeypatch):
    refusal = sdk("core.helper.iam_role_resolver").RoleValidationError
    monkeypatch.setenv("SAGEMAKER_VALIDATE_ROLE", "true")
    made = trainer(play, session)
    # The documentation asks for a role that the job service alone may take on; the client wants more.
    with pytest.raises(refusal, match=r"sagemaker\.amazonaws\.com"):
        made.train(dry_run=True)
    services = ("sagemaker.amazonaws.com", "job.sagemaker.amazonaws.com")
    lacking = Role(trust=trust(*services), attached=play.cloud.roles["JobRole"].attached)
    monkeypatch.setitem(play.cloud.roles, "Lacking", lacking)
    full = Role(trust=trust(*services), policies={"all": statement("*")})
    monkeypatch.setitem(play.cloud.roles, "Full", full)
    made.role = play.cloud.role_arn("Lacking")
    with pytest.raises(refusal, match=r"cloudwatch:PutMetricData"):
        made.train(dry_run=True)
    made.role = play.cloud.role_arn("Full")
    assert made.train(dry_run=True) is None
    assert "SimulatePrincipalPolicy" in operations(play)
