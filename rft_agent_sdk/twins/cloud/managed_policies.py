"""What AWS's managed policies for SageMaker jobs allow, as far as it matters here."""

from __future__ import annotations

from rft_agent_sdk.twins.cloud.policies import statement
from rft_agent_sdk.types import JSON

_PREFIX = "arn:aws:iam::aws:policy/"

_JOB_FULL_ACCESS = statement(
    "s3:GetObject",
    "s3:PutObject",
    "s3:ListBucket",
    "kms:Decrypt",
    "kms:GenerateDataKey",
    "kms:DescribeKey",
    "sagemaker:DescribeHubContent",
    "sagemaker:CreateModelPackage",
    "sagemaker:DescribeModelPackage",
    "sagemaker:AccessModelPackage",
    "sagemaker:DescribeModelPackageGroup",
    "sagemaker:DescribeMlflowApp",
    "sagemaker:CallMlflowAppApi",
    "sagemaker-mlflow:*",
    "bedrock-agentcore:InvokeAgentRuntime",
    "bedrock-agentcore:StopRuntimeSession",
    "bedrock-agentcore:GetAgentRuntime",
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeVpcs",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:CreateTags",
    "logs:CreateLogGroup",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "logs:DescribeLogStreams",
    "lambda:InvokeFunction",
)
_JOB_RUNTIME_ACCESS = statement(
    "sagemaker:Sample",
    "sagemaker:SampleWithResponseStream",
    "sagemaker:CompleteRollout",
    "sagemaker:UpdateReward",
    "sagemaker:CallWithBearerToken",
    "kms:Decrypt",
    "kms:GenerateDataKey",
)

MANAGED: dict[str, JSON] = {
    f"{_PREFIX}AmazonSageMakerJobFullAccess": _JOB_FULL_ACCESS,
    f"{_PREFIX}AmazonSageMakerJobRuntimeAccess": _JOB_RUNTIME_ACCESS,
    f"{_PREFIX}AdministratorAccess": statement("*"),
}
"""Documents by ARN. Contents are a reading of the documentation, not a copy of the documents."""
