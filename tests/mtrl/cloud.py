"""A local cloud with what jobs need, real clients of it, and jobs whose steps a test decides."""

import io
import json
import queue
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from rft_agent_sdk.cli import main
from rft_agent_sdk.mtrl.aws import Clients
from rft_agent_sdk.mtrl.job import Job, Transition, describe_job
from rft_agent_sdk.twins.cloud import JobRecord, LocalCloud, Runtime

ROOT = Path(__file__).parents[2]
RUNTIME = "Wordle_Wordle-aBcDeFgHiJ"
MODEL = "openai-reasoning-gpt-oss-20b"
START = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Script:
    """A runner that does what a test puts into it, and waits for more."""

    def __init__(self):
        self._steps: queue.Queue = queue.Queue()

    def __call__(self, job):
        while not job.is_terminal:
            try:
                step = self._steps.get(timeout=0.01)
            except queue.Empty:
                job.sleep(0)
                continue
            step(job)
            self._steps.task_done()

    def do(self, *steps):
        """Let the running job take steps, functions of its record, and wait until it has."""
        for step in steps:
            self._steps.put(step)
        self._steps.join()


class Account:
    """A local cloud, with an agent, a dataset and an MLflow app."""

    def __init__(self, cloud: LocalCloud):
        self.cloud = cloud
        self.clients = Clients(cloud.region)
        cloud.runtimes[RUNTIME] = Runtime(
            name="Wordle_Wordle",
            environment={"REASONING_EFFORT": "low", "API_KEY": "a secret"},
            updated=datetime.now(UTC) - timedelta(days=1),
        )
        self.app = cloud.make_mlflow_app("metrics")
        self.output = cloud.make_model_package_group("wordle-output")
        self.checkpoints = cloud.make_model_package_group("wordle-checkpoints")
        cloud.make_bucket("data")["wordle/train.jsonl"] = b'{"prompt": "play"}\n'
        cloud.make_bucket("data")["wordle/val.jsonl"] = b'{"prompt": "play"}\n'

    def document(self, **values):
        """A training job's document."""
        return {
            "AgentConfig": self.agent_config,
            "InputDataConfig": [channel("train", "s3://data/wordle/train.jsonl")],
            "OutputDataConfig": {"S3OutputPath": "s3://data/wordle/out"},
            "ModelPackageConfig": {
                "OutputModelPackageGroupArn": self.output.arn,
                "IntermediateCheckpointModelPackageGroupArn": self.checkpoints.arn,
            },
            "TrainingConfig": {
                "BaseModelArn": self.cloud.hub.arn_of(MODEL),
                "MlflowConfig": {"MlflowResourceArn": self.app.arn},
                "AcceptEula": True,
                "HyperParameters": values,
            },
        }

    @property
    def agent_config(self):
        arn = self.cloud.runtime_arn(RUNTIME)
        return {"BedrockAgentCoreConfig": {"AgentRuntimeArn": arn, "Qualifier": "DEFAULT"}}

    def create(self, name="wordle-1", document=None, **changes) -> JobRecord:
        """Create a job and return the twin's record of it."""
        self.clients("sagemaker").create_job(
            **{
                "JobName": name,
                "RoleArn": self.cloud.role_arn("JobRole"),
                "JobCategory": "AgentRFT",
                "JobConfigSchemaVersion": "1.0.0",
                "JobConfigDocument": json.dumps(document or self.document()),
                **changes,
            }
        )
        return self.cloud.jobs[name]

    def scripted(self, name="wordle-1", **more) -> tuple[JobRecord, Script]:
        """Create a job that waits for what a test has it do."""
        script = Script()
        self.cloud.runner = script
        return self.create(name, **more), script

    def job(self, name="wordle-1") -> Job:
        """Return a job as our code reads it."""
        return describe_job(self.clients("sagemaker"), name)

    def redeploy(self, version="2", **environment):
        """Deploy another version of the agent, as of now."""
        runtime = self.cloud.runtimes[RUNTIME]
        runtime.version, runtime.updated = version, datetime.now(UTC)
        runtime.environment = {**runtime.environment, **environment}

    def calls(self, operation):
        """Return the bodies of the calls of an operation."""
        return [call.body for call in self.cloud.calls if call.operation == operation]


def channel(name, uri):
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
    return {"ChannelName": name, "DataSource": source}


class Done(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


def rft(*args, cwd=ROOT):
    """Run `rft mtrl` with arguments in a folder, within this process: starting one takes most of a second."""
    out, err = io.StringIO(), io.StringIO()
    path = list(sys.path)
    with redirect_stdout(out), redirect_stderr(err), chdir(cwd):
        try:
            main(["mtrl", *map(str, args)])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        else:
            code = 0
    sys.path[:] = path
    return Done(code, out.getvalue(), err.getvalue())


def a_job(**changes):
    """A job as of 13:00, an hour after it began, training for the last half hour."""
    given = {
        "name": "wordle-1",
        "arn": "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/wordle-1",
        "category": "AgentRFT",
        "status": "InProgress",
        "phase": "Training",
        "created": START,
        "ended": None,
        "failure_reason": "",
        "transitions": (
            Transition("Starting", START, START + timedelta(minutes=30), ""),
            Transition("Training", START + timedelta(minutes=30), None, ""),
        ),
    }
    return Job(**{**given, **changes})


@pytest.fixture
def account(monkeypatch):
    """An account that clients of this process, and of those it starts, find by the environment."""
    with LocalCloud() as cloud:
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        made = Account(cloud)
        with made.clients:
            yield made
