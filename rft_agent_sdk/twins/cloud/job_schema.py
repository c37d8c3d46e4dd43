"""The JSON schemas of job documents, 1.0.0, and the part of JSON Schema that they use.

The service publishes its schema only through DescribeJobSchemaVersion; this is a reading of documentation and
clients. `MlflowConfig` is taken both in `OutputDataConfig`, where the documentation has it, and in
`TrainingConfig`, where the client puts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rft_agent_sdk.types import JSON

VERSION = "1.0.0"

_TYPES: dict[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}


def _object(required: str, /, **properties: JSON) -> JSON:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _text(pattern: str) -> JSON:
    return {"type": "string", "pattern": pattern}


def _one_of(**choices: JSON) -> JSON:
    return {**_object("", **choices), "minProperties": 1, "maxProperties": 1}


def _list(items: JSON, low: int, high: int) -> JSON:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


_ANY_REGION = r"[a-z0-9-]+:\d{12}"
_S3_URI = _text(r"s3://[^/]+(/.*)?")
_GROUP_ARN = _text(
    rf"arn:aws[a-z-]*:sagemaker:{_ANY_REGION}:model-package-group/[a-zA-Z0-9-]{{1,63}}"
)
_PACKAGE_ARN = _text(
    rf"arn:aws[a-z-]*:sagemaker:{_ANY_REGION}:model-package/[a-zA-Z0-9-]{{1,63}}/\d+"
)
_AGENT = _one_of(
    BedrockAgentCoreConfig=_object(
        "AgentRuntimeArn",
        AgentRuntimeArn=_text(
            rf"arn:aws[a-z-]*:bedrock-agentcore:{_ANY_REGION}:runtime/[a-zA-Z][a-zA-Z0-9_]{{0,99}}-[a-zA-Z0-9]{{10}}"
        ),
        Qualifier=_text(r"[a-zA-Z][a-zA-Z0-9_]{0,47}"),
    ),
    CustomAgentLambdaConfig=_object(
        "LambdaArn",
        LambdaArn=_text(
            rf"arn:aws[a-z-]*:lambda:{_ANY_REGION}:function:[a-zA-Z0-9-_.]+(:(\$LATEST|[a-zA-Z0-9-_]+))?"
        ),
    ),
)
_MLFLOW = _object(
    "MlflowResourceArn",
    MlflowResourceArn=_text(rf"arn:aws[a-z-]*:sagemaker:{_ANY_REGION}:mlflow-app/.+"),
    MlflowExperimentName=_text(r".{1,256}"),
    MlflowRunName=_text(r".{1,256}"),
)
_OUTPUT = _object(
    "S3OutputPath",
    S3OutputPath=_S3_URI,
    KmsKeyArn=_text(rf"arn:aws[a-z-]*:kms:{_ANY_REGION}:key/.+"),
    MlflowConfig=_MLFLOW,
)
_VPC = _object(
    "SecurityGroupIds Subnets",
    SecurityGroupIds=_list(_text(r"sg-[0-9a-zA-Z]+"), 1, 5),
    Subnets=_list(_text(r"subnet-[0-9a-zA-Z]+"), 1, 16),
)
_BASE_MODEL = _text(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:(\d{12}|aws):hub-content/\S+")
# Values are checked against the model's table, which says more than a schema could.
_HYPER_PARAMETERS: JSON = {"type": "object"}


def _channels(*names: str) -> JSON:
    channel = _object(
        "ChannelName DataSource",
        ChannelName={"type": "string", "enum": list(names)},
        DataSource=_one_of(
            S3DataSource=_object(
                "S3DataType S3Uri",
                S3DataType={"type": "string", "enum": ["S3Prefix"]},
                S3Uri=_S3_URI,
            ),
            DatasetSource=_object("DatasetArn", DatasetArn=_text(r"arn:aws[a-z-]*:sagemaker:.+")),
        ),
    )
    return _list(channel, 1, len(names))


SCHEMAS: dict[str, JSON] = {
    "AgentRFT": _object(
        "AgentConfig InputDataConfig OutputDataConfig ModelPackageConfig TrainingConfig",
        AgentConfig=_AGENT,
        InputDataConfig=_channels("train", "validation"),
        OutputDataConfig=_OUTPUT,
        ModelPackageConfig=_object(
            "OutputModelPackageGroupArn IntermediateCheckpointModelPackageGroupArn",
            OutputModelPackageGroupArn=_GROUP_ARN,
            IntermediateCheckpointModelPackageGroupArn=_GROUP_ARN,
            InputModelPackageArn=_PACKAGE_ARN,
        ),
        TrainingConfig=_object(
            "BaseModelArn",
            BaseModelArn=_BASE_MODEL,
            MlflowConfig=_MLFLOW,
            AcceptEula={"type": "boolean"},
            HyperParameters=_HYPER_PARAMETERS,
        ),
        VpcConfig=_VPC,
    ),
    "AgentRFTEvaluation": _object(
        "AgentConfig InputDataConfig OutputDataConfig EvaluationConfig",
        AgentConfig=_AGENT,
        InputDataConfig=_channels("evaluation"),
        OutputDataConfig=_OUTPUT,
        EvaluationConfig=_object(
            "BaseModelArn",
            BaseModelArn=_BASE_MODEL,
            MlflowConfig=_MLFLOW,
            AcceptEula={"type": "boolean"},
            HyperParameters=_HYPER_PARAMETERS,
        ),
        ModelPackageConfig=_object("InputModelPackageArn", InputModelPackageArn=_PACKAGE_ARN),
        StoppingCondition=_object(
            "MaxRuntimeInSeconds",
            MaxRuntimeInSeconds={"type": "integer", "minimum": 1, "maximum": 259200},
        ),
        VpcConfig=_VPC,
    ),
}
"""By job category."""


def schema_faults(schema: JSON, value: Any, place: str = "$") -> list[str]:
    """Return where a value breaks a schema, one sentence each."""
    kind = schema["type"]
    is_odd_bool = isinstance(value, bool) and kind != "boolean"
    is_odd = not isinstance(value, _TYPES[kind])
    if is_odd or is_odd_bool:
        return [f"{place}: must be of type {kind}, not {type(value).__name__}"]
    match kind:
        case "object":
            return list(_object_faults(schema, value, place))
        case "array":
            low, high = schema["minItems"], schema["maxItems"]
            found = (
                [] if low <= len(value) <= high else [f"{place}: must have {low} to {high} items"]
            )
            for index, item in enumerate(value):
                found += schema_faults(schema["items"], item, f"{place}[{index}]")
            return found
        case "string" if "enum" in schema and value not in schema["enum"]:
            return [f"{place}: {value!r} is not one of {schema['enum']}"]
        case "string" if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
            return [f"{place}: {value!r} does not match {schema['pattern']}"]
        case "integer" if not schema["minimum"] <= value <= schema["maximum"]:
            return [f"{place}: {value} is not in [{schema['minimum']}, {schema['maximum']}]"]
    return []


def _object_faults(schema: JSON, value: JSON, place: str) -> Iterable[str]:
    properties = schema.get("properties")
    if properties is None:
        return
    for name in schema["required"]:
        if name not in value:
            yield f"{place}: {name!r} is required"
    if "minProperties" in schema and len(value) != 1:
        yield f"{place}: must have exactly one of {sorted(properties)}"
    for name, item in value.items():
        if name in properties:
            yield from schema_faults(properties[name], item, f"{place}.{name}")
        else:
            yield f"{place}: {name!r} is not allowed"
