"""An evaluation as the service takes it: one job's document for one model at one temperature. Pure.

Built here and sent to CreateJob directly: the client's own evaluator sends other names for the sampling settings,
which the service refuses, so that through it no temperature could be set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.agent_arn import DEFAULT_QUALIFIER
from rft_agent_sdk.mtrl.created import name_token
from rft_agent_sdk.mtrl.hyperparameters import Rule, check
from rft_agent_sdk.mtrl.job import EVALUATION, Job
from rft_agent_sdk.types import JSON

SCHEMA_VERSION = "1.0.0"
BASE = "base"
"""Label of the model before training."""
RULES = {
    "eval_group_size": Rule("integer", 1, 1, 128),
    "pass_k_values": Rule("array", [1, 2, 4, 8, 16, 32]),
    "success_threshold": Rule("float", 1.0),
    "temperature": Rule("float", 0.0, 0, 2),
    "sampling_top_p": Rule("float", 1.0, 0, 1),
    "sampling_max_tokens": Rule("integer", 4096, 512, 8192),
    "rollout_timeout": Rule("float", 600.0, 300, 86_400),
    "rollout_max_concurrency": Rule("integer", 96, 32, 96),
    "rollout_max_retries": Rule("integer", 3, 1, 10),
}
"""What an evaluation takes, flat and under these names only."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model to evaluate."""

    label: str
    """What results call it: letters, digits and hyphens."""
    package: str | None = None
    """ARN of its model package; `None` for the base model."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all jobs of a series have in common."""

    role: str
    """ARN of the jobs' role."""
    agent: JSON
    """`AgentConfig` of a job's document."""
    base_model: str
    """ARN of the base model in the hub."""
    dataset: str
    """S3 URI of the tasks."""
    output: str
    """S3 URI below which the jobs write."""
    mlflow_app: str
    """ARN of the MLflow app."""
    experiment: str
    """MLflow experiment that all of them log to."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Those that are set, the temperature aside; see `RULES`."""
    kms_key: str | None = None
    vpc: JSON | None = None
    max_runtime_s: int = 86_400
    """Seconds after which the service ends a job."""
    accept_eula: bool = False
    """Whether somebody has accepted the base model's licence."""

    @property
    def group_size(self) -> int:
        """Rollouts of each task."""
        return int(self.hyperparameters.get("eval_group_size", 1))

    def to_json(self) -> JSON:
        """Return it as one JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


def setting_of(document: JSON) -> Setting:
    """Return the setting kept as a JSON object.

    Raises:
        UsageError: It is none.
    """
    try:
        return Setting(**document)
    except TypeError as error:
        raise UsageError(
            f"wanted the setting of an evaluation, got something else: {error}"
        ) from error


def check_setting(setting: Setting, temperatures: Sequence[float]) -> None:
    """See that the service would take a series.

    Raises:
        UsageError: It would not; all that is wrong is said at once.
    """
    wrong = [
        f"{finding.where.removeprefix('hyperparameters.')}: {finding.message}"
        for temperature in temperatures
        for finding in check(
            {**setting.hyperparameters, "temperature": temperature}, RULES, "an evaluation's"
        )
    ]
    if not temperatures:
        wrong.append("wanted at least one temperature")
    if not 1 <= setting.max_runtime_s <= 259_200:
        wrong.append(f"max runtime: wanted 1 to 259200 s, got {setting.max_runtime_s!r}")
    for name in ("dataset", "output"):
        if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", getattr(setting, name)):
            wrong.append(
                f"{name}: wanted an S3 URI such as s3://bucket/key, got {getattr(setting, name)!r}"
            )
    for k in setting.hyperparameters.get("pass_k_values", []):
        if isinstance(k, int) and k > setting.group_size:
            wrong.append(
                f"pass_k_values: pass@{k} needs {k} rollouts of each task, eval_group_size is {setting.group_size}"
            )
    if wrong:
        raise UsageError("an evaluation would be refused: " + "; ".join(dict.fromkeys(wrong)))


def evaluation_document(setting: Setting, model: Evaluated, temperature: float) -> JSON:
    """Return the document of one evaluation job."""
    values = {**setting.hyperparameters, "temperature": float(temperature)}
    output: JSON = {"S3OutputPath": setting.output}
    if setting.kms_key:
        output["KmsKeyArn"] = setting.kms_key
    output["MlflowConfig"] = {
        "MlflowResourceArn": setting.mlflow_app,
        "MlflowExperimentName": setting.experiment,
        "MlflowRunName": f"{model.label}-temperature-{temperature:g}",
    }
    document: JSON = {
        "AgentConfig": _agent_config(setting.agent),
        "InputDataConfig": [
            {
                "ChannelName": "evaluation",
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": setting.dataset}
                },
            }
        ],
        "OutputDataConfig": output,
        "EvaluationConfig": {
            "BaseModelArn": setting.base_model,
            "AcceptEula": setting.accept_eula,
            "HyperParameters": {name: str(value) for name, value in values.items()},
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": setting.max_runtime_s},
    }
    if model.package is not None:
        document["ModelPackageConfig"] = {"InputModelPackageArn": model.package}
    if setting.vpc:
        document["VpcConfig"] = setting.vpc
    return document


def evaluation_request(
    setting: Setting, model: Evaluated, temperature: float, job_name: str
) -> dict[str, Any]:
    """Return the parameters of CreateJob for one evaluation."""
    return {
        "JobName": job_name,
        "RoleArn": setting.role,
        "JobCategory": EVALUATION,
        "JobConfigSchemaVersion": SCHEMA_VERSION,
        "JobConfigDocument": json.dumps(evaluation_document(setting, model, temperature)),
    }


def evaluation_name(
    prefix: str, model: Evaluated, temperature: float, at: datetime, token: str | None = None
) -> str:
    """Return a job's name that no other has, of 63 characters at most.

    It says prefix, model, temperature and second, and ends in a random part.
    Where they are too many, the prefix gives way and never the end.

    Args:
        prefix: What the name begins with.
        model: What is evaluated.
        temperature: That it is sampled at.
        at: The time.
        token: The random part; `None` takes one.
    """
    unique = f"{at.strftime('%Y%m%d%H%M%S')}-{token or name_token()}"
    end = re.sub("[^a-zA-Z0-9]+", "-", f"{model.label}-t{temperature:g}-{unique}")[-62:].strip("-")
    start = re.sub("[^a-zA-Z0-9]+", "-", prefix)[: 62 - len(end)].strip("-")
    return f"{start}-{end}" if start else end


def pass_ks(group_size: int) -> list[int]:
    """Return the ks worth asking for: the powers of two up to a group's size, and that size."""
    return sorted({1 << i for i in range(group_size.bit_length())} | {group_size})


def from_training(job: Job) -> dict[str, Any]:
    """Return what an evaluation takes over from a training job: fields of `Setting`, where it has them."""
    document = job.document
    training = document.get("TrainingConfig") or {}
    output = document.get("OutputDataConfig") or {}
    found = {
        "role": job.role,
        "agent": document.get("AgentConfig"),
        "base_model": training.get("BaseModelArn"),
        "accept_eula": training.get("AcceptEula"),
        "output": output.get("S3OutputPath"),
        "kms_key": output.get("KmsKeyArn"),
        "vpc": document.get("VpcConfig"),
        "mlflow_app": job.mlflow_app,
        "experiment": f"mtrl-eval-{job.name}",
    }
    return {name: value for name, value in found.items() if value}


def _agent_config(config: JSON) -> JSON:
    """Return who plays as an evaluation has it: the endpoint that every runtime has goes without saying."""
    runtime = config.get("BedrockAgentCoreConfig")
    if not isinstance(runtime, dict) or runtime.get("Qualifier") != DEFAULT_QUALIFIER:
        return config
    return {"BedrockAgentCoreConfig": {"AgentRuntimeArn": runtime["AgentRuntimeArn"]}}
