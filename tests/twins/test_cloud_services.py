"""Service Quotas, Lambda and CloudFormation of the local cloud, by boto3."""

import io
import json
import threading
import zipfile

import pytest

from rft_agent_sdk.twins.cloud import (
    Function,
    Quota,
    Role,
    Runtime,
    Stack,
    StackResource,
    trust,
)
from tests.twins.cloud_play import RUNTIME, ended, refused


def test_quotas_tell_how_many_jobs_may_run(play):
    quotas = play["service-quotas"]
    play.cloud.quotas.append(Quota("sagemaker", "L-1194F31A", "ml.g5 instances", 2.0))
    found = quotas.list_service_quotas(ServiceCode="sagemaker")["Quotas"]
    assert [quota["Value"] for quota in found] == [1.0, 1.0, 2.0]
    play.cloud.job_concurrency = 3
    one = quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=found[0]["QuotaCode"])
    assert "AgentRFT" in one["Quota"]["QuotaName"]
    assert one["Quota"]["Value"] == 3.0
    default = quotas.get_aws_default_service_quota(ServiceCode="sagemaker", QuotaCode="L-1194F31A")
    assert default["Quota"]["Adjustable"] is True
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode="L-NONE")
    with refused("NoSuchResourceException"):
        quotas.list_service_quotas(ServiceCode="ec2")
    with refused("IllegalArgumentException", "QuotaCode"):
        quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode="a b")


@pytest.fixture
def functions(play):
    play.cloud.roles["Forwarder"] = Role(trust=trust("lambda.amazonaws.com"))
    return play["lambda"]


def invoke(functions, **asked):
    """Invoke a function; the answer's body is read, so that its connection is free again."""
    answer = functions.invoke(**asked)
    return {**answer, "Payload": answer["Payload"].read()}


def zipped(source):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("lambda_function.py", source)
    return content.getvalue()


def test_a_function_lives_and_dies(play, functions):
    made = {
        "FunctionName": "SageMaker-forward",
        "Runtime": "python3.12",
        "Role": play.cloud.role_arn("Forwarder"),
        "Handler": "lambda_function.handler",
        "Code": {"ZipFile": zipped("handler = None")},
        "Timeout": 900,
        "MemorySize": 256,
        "Environment": {"Variables": {"URL": "https://agent.example"}},
    }
    arn = functions.create_function(**made)["FunctionArn"]
    assert arn == "arn:aws:lambda:us-west-2:123456789012:function:SageMaker-forward"
    functions.get_waiter("function_active_v2").wait(FunctionName=arn)
    found = functions.get_function(FunctionName=arn)["Configuration"]
    assert (found["Timeout"], found["State"]) == (900, "Active")
    assert found["Environment"]["Variables"] == {"URL": "https://agent.example"}
    sha = found["CodeSha256"]
    changed = functions.update_function_code(FunctionName=arn, ZipFile=zipped("handler = 1"))
    assert changed["CodeSha256"] != sha
    configuration = functions.get_function_configuration(FunctionName="SageMaker-forward")
    assert configuration["CodeSha256"] == changed["CodeSha256"]
    assert len(functions.list_functions()["Functions"]) == 1
    with refused("ResourceConflictException"):
        functions.create_function(**made)
    functions.delete_function(FunctionName=arn)
    for call in (functions.get_function, functions.delete_function, functions.invoke):
        with refused("ResourceNotFoundException", "SageMaker-forward"):
            call(FunctionName=arn)


def test_a_function_is_made_only_with_a_role_for_lambda_and_code_that_is_there(play, functions):
    made = {"FunctionName": "f", "Runtime": "python3.12", "Handler": "a.b"}
    code = {"ZipFile": zipped("")}
    with refused("InvalidParameterValueException", "cannot be assumed by Lambda"):
        functions.create_function(**made, Role=play.cloud.role_arn("JobRole"), Code=code)
    missing = {"S3Bucket": "data", "S3Key": "none.zip"}
    role = play.cloud.role_arn("Forwarder")
    with refused("InvalidParameterValueException", "none.zip"):
        functions.create_function(**made, Role=role, Code=missing)
    play.cloud.buckets["data"]["code.zip"] = zipped("x = 1")
    there = {"S3Bucket": "data", "S3Key": "code.zip"}
    functions.create_function(**made, Role=role, Code=there)
    assert play.cloud.functions["f"].code == zipped("x = 1")


def test_an_invocation_calls_what_the_test_registered(play, functions):
    play.cloud.functions["echo"] = Function(call=lambda event: {"got": event}, aliases=("PROD",))
    answer = invoke(functions, FunctionName="echo:PROD", Payload=b'{"prompt": "x"}')
    assert json.loads(answer["Payload"]) == {"got": {"prompt": "x"}}
    assert "FunctionError" not in answer
    dry = invoke(functions, FunctionName="echo", InvocationType="DryRun")
    assert dry["StatusCode"] == 204
    with refused("InvalidRequestContentException"):
        invoke(functions, FunctionName="echo", Payload=b"{")
    with refused("ResourceNotFoundException"):
        invoke(functions, FunctionName="echo", Qualifier="TEST")


def test_what_a_function_raises_is_its_answer(play, functions):
    def breaks(event):
        raise ValueError("no prompt")

    play.cloud.functions["breaks"] = Function(call=breaks)
    play.cloud.functions["empty"] = Function()
    answer = invoke(functions, FunctionName="breaks")
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"]) == {
        "errorType": "ValueError",
        "errorMessage": "no prompt",
    }
    assert invoke(functions, FunctionName="empty")["FunctionError"] == "Unhandled"


def test_an_event_is_answered_before_it_is_handled(play, functions):
    called = threading.Event()
    play.cloud.functions["later"] = Function(call=lambda event: called.set())
    answer = invoke(functions, FunctionName="later", InvocationType="Event", Payload=b"{}")
    assert answer["StatusCode"] == 202
    assert called.wait(10)


def test_a_job_may_call_a_function(play, functions):
    play.cloud.functions["SageMaker-forward"] = Function(aliases=("PROD",))
    arn = "arn:aws:lambda:us-west-2:123456789012:function:SageMaker-forward"
    document = play.document()
    document["AgentConfig"] = {"CustomAgentLambdaConfig": {"LambdaArn": f"{arn}:PROD"}}
    ended(play.create(document=document))
    document["AgentConfig"] = {"CustomAgentLambdaConfig": {"LambdaArn": f"{arn}:TEST"}}
    with refused("ResourceNotFound", "TEST"):
        play.create("second", document)


@pytest.fixture
def stacks(play):
    play.cloud.stacks["AgentCore-Wordle"] = Stack(
        resources=[StackResource("Agent", RUNTIME)],
        outputs={"RuntimeArn": play.cloud.runtime_arn(RUNTIME)},
        tags={"project": "wordle"},
    )
    play.cloud.runtimes["Other-aBcDeFgHiJ"] = Runtime(name="Other")
    return play["cloudformation"]


def test_a_stack_is_described_with_its_outputs_and_resources(play, stacks):
    (found,) = stacks.describe_stacks(StackName="AgentCore-Wordle")["Stacks"]
    assert found["StackStatus"] == "CREATE_COMPLETE"
    assert found["Tags"] == [{"Key": "project", "Value": "wordle"}]
    assert found["Outputs"] == [
        {"OutputKey": "RuntimeArn", "OutputValue": play.cloud.runtime_arn(RUNTIME)}
    ]
    listed = stacks.list_stack_resources(StackName="AgentCore-Wordle")["StackResourceSummaries"]
    assert [resource["PhysicalResourceId"] for resource in listed] == [RUNTIME]
    assert len(stacks.describe_stacks()["Stacks"]) == 1
    with refused("ValidationError", "none does not exist"):
        stacks.describe_stacks(StackName="none")


def test_deleting_a_stack_deletes_its_runtimes(play, stacks):
    (described,) = stacks.describe_stacks(StackName="AgentCore-Wordle")["Stacks"]
    stacks.delete_stack(StackName="AgentCore-Wordle")
    stacks.get_waiter("stack_delete_complete").wait(StackName="AgentCore-Wordle")
    assert list(play.cloud.runtimes) == ["Other-aBcDeFgHiJ"]
    with refused("ValidationError"):
        stacks.describe_stacks(StackName="AgentCore-Wordle")
    (by_id,) = stacks.describe_stacks(StackName=described["StackId"])["Stacks"]
    assert by_id["StackStatus"] == "DELETE_COMPLETE"
    assert stacks.describe_stacks()["Stacks"] == []
    gone = stacks.list_stacks(StackStatusFilter=["DELETE_COMPLETE"])["StackSummaries"]
    assert gone[0]["DeletionTime"]
    assert stacks.list_stacks(StackStatusFilter=["CREATE_COMPLETE"])["StackSummaries"] == []
    stacks.delete_stack(StackName="AgentCore-Wordle")


def test_a_stack_may_refuse_to_go(play, stacks):
    stack = play.cloud.stacks["AgentCore-Wordle"]
    stack.is_protected = True
    with refused("ValidationError", "TerminationProtection"):
        stacks.delete_stack(StackName="AgentCore-Wordle")
    stack.is_protected, stack.delete_fails = False, "the bucket is not empty"
    stacks.delete_stack(StackName="AgentCore-Wordle")
    (found,) = stacks.describe_stacks(StackName="AgentCore-Wordle")["Stacks"]
    assert (found["StackStatus"], found["StackStatusReason"]) == (
        "DELETE_FAILED",
        "the bucket is not empty",
    )
    assert RUNTIME in play.cloud.runtimes


def test_tags_are_told_by_the_service_that_owns_the_resource(play, functions):
    pair = {"Key": "rft-agent-sdk", "Value": "rehearsal"}
    sagemaker, control = play.sagemaker, play["bedrock-agentcore-control"]
    group = sagemaker.create_model_package_group(ModelPackageGroupName="tagged", Tags=[pair])
    app = sagemaker.create_mlflow_app(
        Name="tagged",
        ArtifactStoreUri="s3://data/mlflow",
        RoleArn=play.cloud.role_arn("JobRole"),
        Tags=[pair],
    )
    job = ended(play.create(Tags=[pair]))
    for arn in (group["ModelPackageGroupArn"], app["Arn"], job.arn):
        assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [pair]
    sagemaker.delete_tags(ResourceArn=job.arn, TagKeys=["rft-agent-sdk"])
    assert sagemaker.list_tags(ResourceArn=job.arn)["Tags"] == []
    sagemaker.add_tags(ResourceArn=play.output.arn, Tags=[pair])
    assert play.cloud.tags[play.output.arn] == {"rft-agent-sdk": "rehearsal"}
    runtime = play.cloud.runtime_arn(RUNTIME)
    assert control.list_tags_for_resource(resourceArn=runtime)["tags"] == {}
    control.tag_resource(resourceArn=runtime, tags={"a": "b"})
    assert control.list_tags_for_resource(resourceArn=runtime)["tags"] == {"a": "b"}
    made = functions.create_function(
        FunctionName="f",
        Runtime="python3.12",
        Handler="a.b",
        Role=play.cloud.role_arn("Forwarder"),
        Code={"ZipFile": zipped("")},
        Tags={"a": "b"},
    )
    assert functions.list_tags(Resource=made["FunctionArn"])["Tags"] == {"a": "b"}
