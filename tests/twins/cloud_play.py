"""A local cloud and real clients of it, for the tests of `rft_agent_sdk.twins.cloud`."""

import functools
import json
import time
from contextlib import contextmanager

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from rft_agent_sdk.twins.cloud import LocalCloud, Runtime

RUNTIME = "Wordle-aBcDeFgHiJ"
MODEL = "openai-reasoning-gpt-oss-20b"


@functools.cache
def models():
    """One session for all: it keeps the services' models, which are slow to read."""
    return boto3.Session()


class Play:
    """A cloud with all that a job needs, and clients by service."""

    def __init__(self, cloud):
        self.cloud = cloud
        self._clients = {}
        cloud.runtimes[RUNTIME] = Runtime(name="Wordle")
        self.app = cloud.make_mlflow_app("metrics")
        self.output = cloud.make_model_package_group("output")
        self.checkpoints = cloud.make_model_package_group("checkpoints")
        cloud.make_bucket("data")["train.jsonl"] = b'{"prompt": "play"}\n'

    def __getitem__(self, service):
        if service not in self._clients:
            self._clients[service] = models().client(
                service,
                region_name=self.cloud.region,
                endpoint_url=self.cloud.url,
                aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
                aws_secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            )
        return self._clients[service]

    @property
    def sagemaker(self):
        return self["sagemaker"]

    def close(self):
        for client in self._clients.values():
            client.close()

    def document(self, **hyper_parameters):
        """A training job's document, as the client builds it."""
        return {
            "AgentConfig": {
                "BedrockAgentCoreConfig": {
                    "AgentRuntimeArn": self.cloud.runtime_arn(RUNTIME),
                    "Qualifier": "DEFAULT",
                }
            },
            "InputDataConfig": [channel("train")],
            "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
            "ModelPackageConfig": {
                "OutputModelPackageGroupArn": self.output.arn,
                "IntermediateCheckpointModelPackageGroupArn": self.checkpoints.arn,
            },
            "TrainingConfig": {
                "BaseModelArn": self.cloud.hub.arn_of(MODEL),
                "MlflowConfig": {"MlflowResourceArn": self.app.arn},
                "AcceptEula": True,
                "HyperParameters": hyper_parameters,
            },
        }

    def evaluation(self, **hyper_parameters):
        """An evaluation job's document."""
        return {
            "AgentConfig": self.document()["AgentConfig"],
            "InputDataConfig": [channel("evaluation")],
            "OutputDataConfig": {
                "S3OutputPath": "s3://data/out",
                "MlflowConfig": {"MlflowResourceArn": self.app.arn},
            },
            "EvaluationConfig": {
                "BaseModelArn": self.cloud.hub.arn_of(MODEL),
                "AcceptEula": True,
                "HyperParameters": hyper_parameters,
            },
        }

    def create(self, name="job", document=None, **changes):
        """Create a job and return its record."""
        self.sagemaker.create_job(
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

    def describe(self, name="job", category="AgentRFT"):
        return self.sagemaker.describe_job(JobName=name, JobCategory=category)


def channel(name, uri="s3://data/train.jsonl"):
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
    return {"ChannelName": name, "DataSource": source}


def ended(job):
    """Wait for a job's end."""
    assert job.wait(10), f"the job is still {job.status}"
    return job


def until(condition, timeout_s=10.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)


@contextmanager
def playing(**options):
    """A running cloud and its clients."""
    with LocalCloud(**options) as cloud:
        play = Play(cloud)
        try:
            yield play
        finally:
            play.close()


@contextmanager
def refused(code, *words):
    """What is called within is refused with that code, and the message holds the words."""
    with pytest.raises(ClientError) as refusal:
        yield
    error = refusal.value.response["Error"]
    assert error["Code"] == code, error
    for word in words:
        assert word in error["Message"], error
