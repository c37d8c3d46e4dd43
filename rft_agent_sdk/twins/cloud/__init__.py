r"""An AWS account on this machine, for rehearsal and tests: real clients drive it, and nothing leaves loopback.

    with LocalCloud(region="us-west-2", account="123456789012") as cloud:
        os.environ.update(cloud.environment())        # keys that are nobody's, endpoints, no telemetry
        cloud.runtimes["Wordle-aBcDeFgHiJ"] = Runtime(name="Wordle", url="http://127.0.0.1:8080")
        cloud.make_bucket("data")["train.jsonl"] = b'{"prompt": "..."}\n'
        ...                                           # boto3, botocore, sagemaker-train
        assert [call.operation for call in cloud.mutations] == ["CreateJob"]
        assert cloud.jobs["my-job"].status == "Completed"

Served: SageMaker (jobs, hub, model packages, MLflow apps), S3 path-style, STS, the reading half of IAM,
CloudWatch Logs, Service Quotas, Lambda, CloudFormation (list and delete), MLflow's tracking server (reading),
Bedrock AgentCore's control and data plane. What boto3 sends is checked against botocore's
model of the service, and so is what it gets. Signatures are not verified.

Where the service's behaviour is not published this takes the strict reading: what a job's document names must
exist, both places of `MlflowConfig` are taken but one must be there, a job's data must lie in S3 by the time it
downloads, and a job that has ended cannot be stopped.

A job is driven by a `JobRunner`: `WalkThrough` goes to Completed, `FailsWith` fails, or write one:

    def runner(job: JobRecord) -> None:
        job.move("Training")
        job.progress(current_step=1, max_steps=1, train_tokens=100)
        job.complete(job.publish("output"))
"""

from rft_agent_sdk.twins.cloud.calls import Call, Faults
from rft_agent_sdk.twins.cloud.functions import Function
from rft_agent_sdk.twins.cloud.job_record import JobRecord, JobRunner, StopRequested
from rft_agent_sdk.twins.cloud.local_cloud import LocalCloud
from rft_agent_sdk.twins.cloud.policies import statement, trust
from rft_agent_sdk.twins.cloud.quotas import Quota
from rft_agent_sdk.twins.cloud.roles import Role
from rft_agent_sdk.twins.cloud.runners import FailsWith, WalkThrough
from rft_agent_sdk.twins.cloud.runtimes import Runtime
from rft_agent_sdk.twins.cloud.session_list import SessionEntry
from rft_agent_sdk.twins.cloud.stacks import Stack, StackResource

__all__ = [
    "Call",
    "FailsWith",
    "Faults",
    "Function",
    "JobRecord",
    "JobRunner",
    "LocalCloud",
    "Quota",
    "Role",
    "Runtime",
    "SessionEntry",
    "Stack",
    "StackResource",
    "StopRequested",
    "WalkThrough",
    "statement",
    "trust",
]
