"""Launches by the real client of `sagemaker-train`, against a local account."""

import json
import logging
import os
import sys
import time
from datetime import datetime
from importlib import import_module

import boto3
import pytest

from rft_agent_sdk.cli import main
from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.aws import Clients
from rft_agent_sdk.mtrl.hub import list_models
from rft_agent_sdk.mtrl.launch import (
    VALIDATE_ROLE,
    Launched,
    build_trainer,
    create_groups,
    load_sdk,
    resolve,
    train,
    without_role_check,
)
from rft_agent_sdk.mtrl.launch_data import LaunchData
from rft_agent_sdk.mtrl.launch_document import job_request
from rft_agent_sdk.mtrl.launch_lookups import look_up
from rft_agent_sdk.mtrl.launch_settings import settle
from rft_agent_sdk.twins.cloud import Function, LocalCloud
from tests.mtrl.launch_parts import (
    ACCOUNT,
    AGENT,
    APP,
    BUCKET,
    MODEL,
    ROLE,
    RUNTIME,
    changed,
    environment,
    furnish,
    launch,
    write_rows,
)

pytestmark = [
    pytest.mark.sagemaker,
    # What the client's own parts warn of.
    pytest.mark.filterwarnings("ignore"),
]
NOVA = "nova-textgeneration-lite-v2"
FUNCTION = f"arn:aws:lambda:us-west-2:{ACCOUNT}:function:SageMaker-forward"
GROUP = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:model-package-group"


@pytest.fixture
def cloud(monkeypatch):
    with LocalCloud() as cloud:
        cloud.job_concurrency = 9
        environment(monkeypatch, cloud)
        furnish(cloud)
        cloud.functions["SageMaker-forward"] = Function()
        cloud.buckets[BUCKET]["train.jsonl"] = b'{"prompt": "x"}\n'
        yield cloud


def in_s3(**values):
    """A launch whose datasets are there already."""
    uri = f"s3://{BUCKET}/train.jsonl"
    return launch(**{"dataset": uri, "validation_dataset": "", **values})


def launched(spec, **data):
    """Launch as the command does; returns the launch looked up, and the job."""
    with Clients(spec.region) as clients:
        seen = look_up(spec, clients)
        assert not seen.has_errors
        validation = spec.validation_dataset
        found = resolve(
            spec,
            seen,
            LaunchData(spec.dataset, spec.dataset),
            LaunchData(validation, validation) if validation else None,
        )
        create_groups(spec, seen, clients)
    return found, train(build_trainer(spec, found=found))


def sent_jobs(cloud):
    return [call.body for call in cloud.calls if call.operation == "CreateJob"]


SPECS = {
    "the least": {},
    "by the name at Hugging Face, from a bare id": {"model": "openai/gpt-oss-20b", "agent": RUNTIME},
    "everything": {
        "qualifier": "DEFAULT",
        "validation_dataset": f"s3://{BUCKET}/",
        "output_group": "trained",
        "checkpoint_group": f"{GROUP}/checkpoints",
        "mlflow_experiment": "wordle",
        "mlflow_run": "first",
        "security_groups": ["sg-0a"],
        "subnets": ["subnet-0a", "subnet-0b"],
        "kms_key": f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234-abcd",
        "job_name": "wordle_low",
        "tags": {"team": "rl", "cost": "a=b"},
        "max_epochs": 20,
        "max_steps": 7,
        "rollout_timeout": 900,
        "hyperparameters": {"pass_k_values": [1, 8], "loss_fn": "cispo", "clip_high_threshold": 6},
    },
    "a Lambda function": {"agent": FUNCTION},
    "a recipe and overrides": {
        "recipe": {
            "schedule": {"epochs": 3, "max_steps": 50},
            "batch": {"group_size": 16, "training_batch_size": 64},
            "sampling_params": {"max_tokens": 2048, "top_p": 0.9},
        },
        "overrides": {"training_config": {"max_steps": 60, "adam_eps": 1e-6}},
    },
    "Nova": {"model": NOVA, "hyperparameters": {"lora_rank": 16}},
    "another model": {"model": "huggingface-vlm-qwen3-6-27b"},
    "a registered dataset": {"dataset": f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:hub-content/h/DataSet/d/1.0.0"},
}  # fmt: skip


@pytest.mark.parametrize("values", SPECS.values(), ids=SPECS)
def test_what_the_client_sends_is_what_a_dry_run_shows(cloud, values):
    spec = in_s3(**values)
    found, job = launched(spec)
    (sent,) = sent_jobs(cloud)
    shown = job_request(spec, found, _time_of(job))
    assert json.loads(sent["JobConfigDocument"]) == json.loads(shown["JobConfigDocument"])
    assert sent == shown  # the text of the document, the tags and the name as well


def test_a_hub_that_takes_lists_gets_the_same_text(cloud):
    bucket = cloud.buckets["jumpstart-cache-prod-us-west-2"]
    for key in bucket.objects:
        today = json.loads(bucket[key])
        today["pass_k_values"] = {"type": "array", "default": [1, 2, 4, 8, 16, 32]}
        bucket[key] = json.dumps(today).encode()
    spec = in_s3(hyperparameters={"pass_k_values": [1, 8]})
    found, job = launched(spec)
    (sent,) = sent_jobs(cloud)
    assert sent == job_request(spec, found, _time_of(job))
    assert '"pass_k_values": "[1, 8]"' in sent["JobConfigDocument"]


def _time_of(job):
    stamp = job.name.rpartition("-")[2]
    return datetime.strptime(stamp, "%Y%m%d%H%M%S")  # noqa: DTZ007 - local time


def test_a_launch_makes_what_was_said_and_nothing_else(cloud):
    _, job = launched(in_s3())
    assert changed(cloud) == [
        "sagemaker CreateModelPackageGroup",
        "sagemaker CreateModelPackageGroup",
        "s3 PutObject",  # the client's empty object at the output's prefix
        "sagemaker CreateJob",
    ]
    assert job == Launched(
        job.name, f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:job/AgentRFT/{job.name}"
    )


def test_nobody_waits_and_the_trainer_tells_the_package_when_the_job_has_ended(cloud):
    cloud.make_model_package_group("trained")
    cloud.make_model_package_group("checkpoints")
    spec = in_s3(output_group="trained", checkpoint_group="checkpoints")
    trainer = build_trainer(spec)
    job = train(trainer)
    record = cloud.jobs[job.name]
    while not record.is_terminal:
        time.sleep(0.01)
    trainer._latest_job.refresh()
    (package,) = cloud.model_package_groups["trained"].packages.values()
    assert trainer.output_model_package_arn == package.arn


def test_a_bare_id_is_resolved_with_the_session_that_is_given(cloud, monkeypatch):
    Session = import_module("sagemaker.core.helper.session_helper").Session
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    session = Session(boto_session=boto3.Session(region_name="us-west-2"))
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(agent=RUNTIME, output_group="trained", checkpoint_group="checkpoints")
    assert build_trainer(spec, sagemaker_session=session).agent_env == AGENT


def test_under_a_pipeline_session_train_returns_a_step_s_arguments(cloud):
    PipelineSession = import_module("sagemaker.core.workflow.pipeline_context").PipelineSession
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(output_group="trained", checkpoint_group="checkpoints", max_steps=7)
    session = PipelineSession(
        boto_session=boto3.Session(region_name="us-west-2"), default_bucket=BUCKET
    )
    with without_role_check():
        step = build_trainer(spec, sagemaker_session=session).train()
        request = step.func(*step.func_args, **step.func_kwargs) or session.context.args
    assert type(step).__name__ == "_StepArguments"
    assert request["RoleArn"] == ROLE
    assert request["JobConfigDocument"]["TrainingConfig"]["HyperParameters"]["max_steps"] == "7"
    assert sent_jobs(cloud) == []


def test_an_agent_object_of_the_client_s_own_is_taken(cloud):
    function = import_module("sagemaker.train.custom_agent_lambda").CustomAgentLambda(FUNCTION)
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(agent="", output_group="trained", checkpoint_group="checkpoints")
    train(build_trainer(spec, agent_env=function))
    (sent,) = sent_jobs(cloud)
    assert json.loads(sent["JobConfigDocument"])["AgentConfig"] == {
        "CustomAgentLambdaConfig": {"LambdaArn": FUNCTION}
    }


def test_the_client_drops_a_published_recipe_which_is_why_it_is_given_none(cloud, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("schedule: {epochs: 3}\n")
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(output_group="trained", checkpoint_group="checkpoints")
    overrides = {"training_config": {"lora_rank": 16}, "sampling_params": {"max_tokens": 2048}}
    train(build_trainer(spec, recipe=str(recipe), overrides=overrides))
    (sent,) = sent_jobs(cloud)
    assert json.loads(sent["JobConfigDocument"])["TrainingConfig"]["HyperParameters"] == {
        "sampling_max_tokens": "8192",
        "lora_rank": "16",
    }
    read = settle(spec.with_(recipe={"schedule": {"epochs": 3}}, overrides=overrides))
    assert (read.values["max_epochs"], read.values["sampling_max_tokens"]) == (3, 2048)


def test_a_role_that_trusts_only_the_service_of_these_jobs_is_taken(cloud, monkeypatch):
    monkeypatch.delenv(VALIDATE_ROLE)
    launched(in_s3())
    assert len(sent_jobs(cloud)) == 1
    assert VALIDATE_ROLE not in os.environ


def test_the_client_s_own_check_of_the_role_would_refuse_it_and_can_be_asked_for(
    cloud, monkeypatch
):
    monkeypatch.setenv(VALIDATE_ROLE, "true")
    with pytest.raises(Exception, match=r"(?i)role"):
        launched(in_s3())
    assert sent_jobs(cloud) == []


def test_a_file_must_be_uploaded_before_a_trainer_is_built(cloud):
    with pytest.raises(UsageError, match="upload it first"):
        build_trainer(launch())
    assert cloud.calls == []


def test_what_the_client_refuses_is_told_without_a_traceback(cloud):
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(output_group="trained", checkpoint_group="checkpoints")
    with pytest.raises(UsageError, match="the client refuses the launch"):
        build_trainer(spec, hyperparameters={"unheard_of": 1})


def test_what_the_service_refuses_is_one_of_our_errors(cloud):
    cloud.faults.add("sagemaker", "CreateJob", "ResourceLimitExceeded", message="the quota is 1")
    with pytest.raises(CloudError, match="the job cannot be created: ResourceLimitExceeded"):
        launched(in_s3())


def test_the_hub_s_models_are_those_that_the_client_lists(cloud):
    with Clients("us-west-2") as clients:
        ours = list_models(clients)
    assert ours == load_sdk().MultiTurnRLTrainer.list_supported_models()


# The command


@pytest.fixture
def rft(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    names = (
        "botocore",
        "httpcore",
        "httpx",
        "openai",
        "sagemaker",
        "sagemaker.config",
        "strands",
        "urllib3",
        "uvicorn",
    )
    levels = {name: logging.getLogger(name).level for name in names}

    def rft(*args):
        with pytest.raises(SystemExit) as stopped:
            main(["mtrl", "launch", *map(str, args)])
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    yield rft
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def options(tmp_path):
    train, val = (
        write_rows(tmp_path / f"{name}.jsonl", 128, n) for n, name in enumerate(("train", "val"))
    )
    return (
        *("--model", MODEL, "--agent", RUNTIME, "--role", ROLE, "--accept-eula"),
        *("--dataset", train, "--validation-dataset", val, "--environment", "wordle"),
        *("--s3-output", f"s3://{BUCKET}/out", "--mlflow-app", APP),
    )


def test_the_command_launches_and_says_what_comes_next(rft, cloud, options, tmp_path):
    code, told, noted = rft(*options, "--yes")
    assert code == 0, noted
    (name,) = cloud.jobs
    assert f"job {name}\narn:aws:sagemaker:us-west-2:{ACCOUNT}:job/AgentRFT/{name}\nnext:\n" in told
    assert f"  rft mtrl wait {name} --region us-west-2\n" in told
    (sent,) = sent_jobs(cloud)
    uris = [
        channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in json.loads(sent["JobConfigDocument"])["InputDataConfig"]
    ]
    for uri, file in zip(uris, ("train.jsonl", "val.jsonl"), strict=True):
        key = uri.removeprefix(f"s3://{BUCKET}/")
        assert cloud.buckets[BUCKET][key] == (tmp_path / file).read_bytes()
    assert (
        json.loads((tmp_path / "runs" / "mtrl" / name / "lock.json").read_text())["agent"] == AGENT
    )


def test_launching_again_uploads_and_makes_nothing_twice(rft, cloud, options):
    assert rft(*options, "--yes", "--job-name", "first")[0] == 0
    cloud.calls.clear()
    assert rft(*options, "--yes", "--job-name", "second", "--allow-running")[0] == 0
    made = [one for one in changed(cloud) if one != "s3 PutObject"]
    assert made == ["sagemaker CreateJob"]


def test_a_no_at_the_question_changes_nothing(rft, cloud, options, monkeypatch):
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123 - closed with the process
    code, _, noted = rft(*options)
    assert code == 130
    assert (
        "Launch 1,280 rollouts with openai-reasoning-gpt-oss-20b in us-west-2 for about $" in noted
    )
    assert changed(cloud) == []


# A job that runs though the launch heard of a failure


def kept_locks(tmp_path):
    return [path.parent.name for path in (tmp_path / "runs" / "mtrl").glob("*/lock.json")]


@pytest.mark.parametrize("attempts", ["1", "3"])
def test_a_job_whose_creation_answered_with_a_failure_is_looked_for_and_told(
    rft, cloud, options, tmp_path, monkeypatch, attempts
):
    # Repeated by botocore, the call is then refused by ResourceInUse.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", attempts)
    cloud.faults.add("sagemaker", "CreateJob", "InternalFailure", status=500, after=True)
    code, told, noted = rft(*options, "--yes")
    assert code == 0, noted
    (name,) = cloud.jobs
    assert f"job {name}\narn:aws:sagemaker:" in told
    assert f"  rft mtrl stop {name} --region us-west-2\n" in told
    assert kept_locks(tmp_path) == [name]


def test_a_job_that_was_created_and_cannot_be_described_is_told(
    rft, cloud, options, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    cloud.faults.add("sagemaker", "DescribeJob", "ThrottlingException", times=None)
    code, told, noted = rft(*options, "--yes")
    assert code == 0, noted
    (name,) = cloud.jobs
    assert f"job {name}\narn:aws:sagemaker:" in told
    assert kept_locks(tmp_path) == [name]


def test_whether_a_job_was_created_may_stay_unknown_and_then_its_name_is_told(
    rft, cloud, options, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    cloud.faults.add("sagemaker", "CreateJob", "InternalFailure", status=500, after=True)
    cloud.faults.add("sagemaker", "DescribeJob", "AccessDeniedException", times=None)
    code, told, noted = rft(*options, "--yes")
    assert code == 1
    (name,) = cloud.jobs
    assert f"look before you launch again: rft mtrl status {name} --region us-west-2" in noted
    assert f"rft mtrl stop {name}" in told
    assert kept_locks(tmp_path) == [name]


def test_a_job_that_was_refused_leaves_no_folder(rft, cloud, options, tmp_path, caplog):
    cloud.faults.add("sagemaker", "CreateJob", "ValidationException")
    code, _, noted = rft(*options, "--yes")
    assert code == 1
    assert "the job cannot be created: ValidationException" in noted
    assert cloud.jobs == {}
    assert kept_locks(tmp_path) == []
    assert [one.name for one in caplog.records if one.name.startswith("sagemaker")] == []


def test_two_launches_in_one_second_are_two_jobs(cloud):
    for name in ("trained", "checkpoints"):
        cloud.make_model_package_group(name)
    spec = in_s3(output_group="trained", checkpoint_group="checkpoints")
    trainers = [build_trainer(spec) for _ in range(2)]
    assert trainers[0].base_job_name != trainers[1].base_job_name
    assert len({train(trainer).name for trainer in trainers}) == 2
