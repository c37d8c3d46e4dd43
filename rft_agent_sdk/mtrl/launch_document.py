"""The CreateJob request of a launch, to the byte as the client sends it. Pure: nothing is looked up.

The client itself makes buckets, objects and model package groups before it can show what it would send, so a
rehearsal builds the request here. A test holds the two against each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rft_agent_sdk.mtrl.agent_arn import Agent
from rft_agent_sdk.mtrl.created import TOKEN_LENGTH, name_token
from rft_agent_sdk.mtrl.hyperparameters import Chosen, Rule, sent
from rft_agent_sdk.mtrl.launch_data import LaunchData
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.mtrl.models import HUB, read_model
from rft_agent_sdk.types import JSON

JOB_CATEGORY = "AgentRFT"
SCHEMA_VERSION = "1.0.0"
MAX_NAME = 63
"""Characters of a job's name; the client cuts a longer one, and its time with it."""
_TIME = "%Y%m%d%H%M%S"
MAX_BASE_NAME = MAX_NAME - len("-20260102030405") - 1 - TOKEN_LENGTH


@dataclass(frozen=True, slots=True)
class Resolved:
    """A launch with every name looked up."""

    model_name: str
    """The base model's name in the hub."""
    base_model_arn: str
    """Its hub content ARN, with the version."""
    agent: Agent
    dataset: LaunchData
    validation: LaunchData | None
    chosen: Chosen
    """The hyperparameters that the launch settles."""
    rules: Mapping[str, Rule]
    """All there are, with the defaults that are not sent."""
    hub: str = HUB
    """Where the model comes from."""
    token: str = field(default_factory=name_token)
    """Part of the job's name: the client adds no more than the time to the second."""


def job_request(spec: LaunchSpec, found: Resolved, now: datetime) -> JSON:
    """Return the parameters of CreateJob.

    Args:
        spec: The launch.
        found: The same with every name looked up.
        now: Local time, as the client takes it for the job's name.
    """
    tags = {
        "sagemaker-sdk:jumpstart-model-id": found.model_name,
        "sagemaker-sdk:jumpstart-hub-name": found.hub,
        **spec.tags,
    }
    return {
        "JobName": job_name(spec, found, now),
        "RoleArn": spec.role,
        "JobCategory": JOB_CATEGORY,
        "JobConfigSchemaVersion": SCHEMA_VERSION,
        "JobConfigDocument": json.dumps(document(spec, found), indent=2),
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


def document(spec: LaunchSpec, found: Resolved) -> JSON:
    """Return the job's configuration, schema 1.0.0."""
    package = read_model(spec.model)
    channels = [("train", found.dataset)]
    if found.validation is not None:
        channels.append(("validation", found.validation))
    made: JSON = {
        "AgentConfig": found.agent.config,
        "InputDataConfig": [
            {"ChannelName": name, "DataSource": data.channel} for name, data in channels
        ],
        "OutputDataConfig": {
            "S3OutputPath": spec.s3_output,
            **({"KmsKeyArn": spec.kms_key} if spec.kms_key else {}),
        },
        "ModelPackageConfig": {
            "OutputModelPackageGroupArn": group_arn(spec, output_group(spec, found.model_name)),
            **(
                {"InputModelPackageArn": package.package}
                if package is not None and package.package
                else {}
            ),
            "IntermediateCheckpointModelPackageGroupArn": group_arn(
                spec, checkpoint_group(spec, found.model_name)
            ),
        },
        "TrainingConfig": _training(spec, found),
    }
    if spec.subnets:
        made["VpcConfig"] = {
            "SecurityGroupIds": list(spec.security_groups),
            "Subnets": list(spec.subnets),
        }
    return made


def _training(spec: LaunchSpec, found: Resolved) -> JSON:
    mlflow = {
        "MlflowResourceArn": spec.mlflow_app,
        "MlflowExperimentName": spec.mlflow_experiment,
        "MlflowRunName": spec.mlflow_run,
    }
    made: JSON = {
        "BaseModelArn": found.base_model_arn,
        "MlflowConfig": {key: value for key, value in mlflow.items() if value},
        "AcceptEula": spec.accept_eula,
    }
    if texts := sent(found.chosen, found.rules):
        made["HyperParameters"] = texts
    return made


def base_name(spec: LaunchSpec, model_name: str) -> str:
    """Return the start of a job's name, underscores as the hyphens that the client makes of them."""
    return (spec.job_name or f"{model_name}-mtrl").replace("_", "-")


def own_name(spec: LaunchSpec, found: Resolved) -> str:
    """Return the start of a job's name that no other launch has; the client adds the time."""
    return f"{base_name(spec, found.model_name)}-{found.token}"


def job_name(spec: LaunchSpec, found: Resolved, now: datetime) -> str:
    """Return a job's name."""
    return f"{own_name(spec, found)}-{now:{_TIME}}"[:MAX_NAME]


def output_group(spec: LaunchSpec, model_name: str) -> str:
    """Return the name of the group that gets the trained model."""
    return (spec.output_group or f"{model_name}-mtrl-mpg").rpartition("/")[2]


def checkpoint_group(spec: LaunchSpec, model_name: str) -> str:
    """Return the name of the group that gets the checkpoints."""
    return (spec.checkpoint_group or f"{model_name}-mtrl-checkpoint-mpg").rpartition("/")[2]


def group_arn(spec: LaunchSpec, name: str) -> str:
    """Return the ARN that a group of the launch's account and region has."""
    partition = spec.role.split(":")[1]
    return f"arn:{partition}:sagemaker:{spec.region}:{spec.account}:model-package-group/{name}"
