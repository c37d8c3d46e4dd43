"""Texts of a config that have to be of a form: their types, and how the form is told to people."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

_ARN = r"arn:aws[a-z-]*"

Role = Annotated[str, StringConstraints(pattern=rf"^$|^{_ARN}:iam::\d{{12}}:role/\S+$")]
Model = Annotated[
    str,
    StringConstraints(pattern=rf"^$|^{_ARN}:sagemaker:[a-z0-9-]+:(aws|\d{{12}}):hub-content/\S+$"),
]
Bucket = Annotated[str, StringConstraints(pattern=r"^$|^s3://[^/\s]+(/\S*)?$")]
Group = Annotated[
    str,
    StringConstraints(
        pattern=rf"^$|^{_ARN}:sagemaker:[a-z0-9-]+:\d{{12}}:model-package-group/\S+$"
    ),
]
Package = Annotated[
    str, StringConstraints(pattern=rf"^$|^{_ARN}:sagemaker:[a-z0-9-]+:\d{{12}}:model-package/\S+$")
]
Runtime = Annotated[
    str,
    StringConstraints(pattern=rf"^$|^{_ARN}:bedrock-agentcore:[a-z0-9-]+:\d{{12}}:runtime/[\w-]+$"),
]
Url = Annotated[str, StringConstraints(pattern=r"^$|^https?://[^/\s]+\S*$")]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]

_ACCOUNT, _AWS = "123456789012", "arn:aws"
FORMS = {
    "region": "an AWS region such as us-west-2",
    "role_arn": f"the ARN of an IAM role such as {_AWS}:iam::{_ACCOUNT}:role/NAME",
    "base_model_arn": f"the ARN of hub content such as {_AWS}:sagemaker:REGION:aws:hub-content/HUB/Model/NAME",
    "s3_output_path": "an S3 prefix such as s3://BUCKET/PREFIX",
    "model_package_group_arn": (
        f"the ARN of a model package group such as {_AWS}:sagemaker:REGION:{_ACCOUNT}:model-package-group/NAME"
    ),
    "resume_from_model_package": (
        f"the ARN of a model package such as {_AWS}:sagemaker:REGION:{_ACCOUNT}:model-package/GROUP/VERSION"
    ),
    "agent_runtime_arn": (
        f"the ARN of a runtime such as {_AWS}:bedrock-agentcore:REGION:{_ACCOUNT}:runtime/ID"
    ),
    "agent_url": "an address such as http://127.0.0.1:8080",
}
"""What is wanted of keys that have to be of a form, for people."""
