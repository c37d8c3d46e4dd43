"""What the local cloud remembers, what fails in it on request, and how clients are pointed at it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.twins.cloud import Call, LocalCloud
from tests.twins.cloud_play import RUNTIME, ended, refused

LISTED = Call("sagemaker", "ListJobs", {"JobCategory": "AgentRFT"})


def test_every_call_is_remembered_as_its_caller_wrote_it(play):
    play.sagemaker.list_jobs(JobCategory="AgentRFT")
    play["s3"].put_object(Bucket="data", Key="k", Body=b"x", Metadata={"a": "b"})
    play["iam"].simulate_principal_policy(
        PolicySourceArn=play.cloud.role_arn("JobRole"), ActionNames=["s3:GetObject", "s3:PutObject"]
    )
    listed, put, simulated = play.cloud.calls
    assert listed == LISTED
    assert (put.service, put.operation, put.body["Body"]) == ("s3", "PutObject", b"x")
    assert (put.body["Key"], put.body["Metadata"]) == ("k", {"a": "b"})
    assert simulated.body["ActionNames"] == ["s3:GetObject", "s3:PutObject"]


def test_mutations_are_those_that_change_something_also_the_refused_ones(play):
    play["sts"].get_caller_identity()
    play.sagemaker.list_jobs(JobCategory="AgentRFT")
    play.sagemaker.create_presigned_mlflow_app_url(Arn=play.app.arn)
    play["s3"].head_bucket(Bucket="data")
    assert play.cloud.mutations == []
    ended(play.create())
    with refused("NoSuchBucket"):
        play["s3"].put_object(Bucket="none", Key="k", Body=b"")
    assert [call.operation for call in play.cloud.mutations] == ["CreateJob", "PutObject"]


def test_a_fault_hits_as_often_as_it_is_told_and_changes_nothing(play):
    play.cloud.faults.add("sagemaker", "CreateJob", "ThrottlingException", times=2, message="slow")
    for _ in range(2):
        with refused("ThrottlingException", "slow"):
            play.create()
    assert play.cloud.jobs == {}
    ended(play.create())


def test_a_fault_may_hit_after_the_call_has_done_its_work(play):
    play.cloud.faults.add(
        "sagemaker", "CreateJob", "InternalFailure", status=500, after=True, times=None
    )
    with refused("InternalFailure"):
        play.create()
    assert list(play.cloud.jobs) == ["job"]
    play.cloud.faults.clear()
    ended(play.cloud.jobs["job"])
    with refused("ResourceInUse"):
        play.create()


def test_a_whole_service_may_fail_in_its_own_protocol(play):
    for service in ("s3", "sts", "iam", "logs", "bedrock-agentcore-control", "lambda"):
        play.cloud.faults.add(service, "*", "AccessDenied", status=403, times=None)
    calls = (
        play["s3"].list_buckets,
        play["sts"].get_caller_identity,
        lambda: play["iam"].get_role(RoleName="JobRole"),
        play["logs"].describe_log_groups,
        play["bedrock-agentcore-control"].list_agent_runtimes,
        play["lambda"].list_functions,
    )
    for call in calls:
        with refused("AccessDenied", "told to fail"):
            call()


def test_a_typed_error_is_raised_as_its_own_class(play):
    play.cloud.faults.add("logs", "DescribeLogGroups", "ServiceUnavailableException")
    with pytest.raises(play["logs"].exceptions.ServiceUnavailableException):
        play["logs"].describe_log_groups()
    with pytest.raises(play.sagemaker.exceptions.ResourceNotFound):
        play.describe("none")


def test_an_operation_that_is_not_served_is_unknown(play):
    with refused("UnknownOperationException", "ListEndpoints"):
        play.sagemaker.list_endpoints()
    assert play.cloud.calls == []


def test_a_request_of_a_service_that_is_not_served_is_unknown_in_its_own_protocol(play):
    with refused("UnknownOperationException", "GET /data"):
        play["s3"].get_bucket_policy(Bucket="data")
    with refused("UnknownOperationException", "ListUsers"):
        play["iam"].list_users()
    with refused("UnknownOperationException", "POST /complete-rollout"):
        play["sagemakerjobruntime"].complete_rollout(
            JobArn="arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/job",
            TrajectoryId="t",
            Status="ready",
        )


def test_an_answer_that_the_model_forbids_is_the_twins_own_failure(play):
    play.cloud.runtimes[RUNTIME].status = "ASLEEP"
    with refused("InternalFailure", "ASLEEP", "READY"):
        play["bedrock-agentcore-control"].get_agent_runtime(agentRuntimeId=RUNTIME)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("SageMaker.ListJobs", b"{"),
        ("SageMaker.ListJobs", b"[]"),
        ("SageMaker.ListJobs", b'{"JobCategory": 5}'),
        ("SageMaker.ListJobs", b"{}"),
        ("SageMaker.ListJobs", b'{"JobCategory": "AgentRFT", "Extra": 1}'),
        ("SageMaker.ListJobs", b'{"JobCategory": "AgentRFT", "MaxResults": true}'),
        ("SageMaker.ListJobs", b'{"JobCategory": "AgentRFT", "MaxResults": 101}'),
        ("Other.ListJobs", b"{}"),
    ],
)
def test_what_no_client_would_send_is_refused_too(standing, target, body):
    request = Request(standing.cloud.url, body, {"X-Amz-Target": target})
    with pytest.raises(HTTPError) as refusal:
        urlopen(request)
    with refusal.value as answer:
        assert 400 <= answer.code < 500
        assert json.load(answer)["__type"].endswith("Exception")


def test_the_environment_points_every_client_here(play):
    script = "\n".join(
        (
            "import boto3",
            "for service, call in (('sagemaker', 'list_model_package_groups'), ('s3', 'list_buckets'),",
            "    ('sts', 'get_caller_identity'), ('iam', 'list_roles'), ('logs', 'describe_log_groups'),",
            "    ('bedrock-agentcore-control', 'list_agent_runtimes')):",
            "    getattr(boto3.client(service), call)()",
        )
    )
    environment = {"PATH": os.environ["PATH"], **play.cloud.environment()}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    assert [call.service for call in play.cloud.calls] == [
        "sagemaker",
        "s3",
        "sts",
        "iam",
        "logs",
        "bedrock-agentcore-control",
    ]


def test_what_the_environment_names_goes_with_the_cloud():
    with LocalCloud(region="us-east-1") as cloud:
        environment = cloud.environment()
        assert environment == cloud.environment()
        assert environment["AWS_REGION"] == "us-east-1"
        path = environment["SAGEMAKER_USER_CONFIG_OVERRIDE"]
        assert Path(path).exists()
    assert not Path(path).exists()
    with pytest.raises(UsageError):
        cloud.url  # noqa: B018
