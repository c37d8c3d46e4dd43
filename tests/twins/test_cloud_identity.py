"""STS and IAM of the local cloud, by boto3."""

import pytest

from rft_agent_sdk.twins.cloud import Role, statement, trust
from tests.twins.cloud_play import refused

FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerJobFullAccess"


@pytest.fixture
def iam(play):
    return play["iam"]


def decisions(iam, source, actions, **asked):
    found = iam.simulate_principal_policy(PolicySourceArn=source, ActionNames=actions, **asked)
    return [result["EvalDecision"] for result in found["EvaluationResults"]]


def test_the_caller_is_who_the_test_says(play):
    sts = play["sts"]
    found = sts.get_caller_identity()
    assert found["Account"] == "123456789012"
    assert found["Arn"] == "arn:aws:iam::123456789012:user/developer"
    play.cloud.caller_arn = "arn:aws:sts::123456789012:assumed-role/Admin/me"
    assert sts.get_caller_identity()["Arn"].endswith("assumed-role/Admin/me")


def test_a_role_is_taken_on_by_whom_it_trusts(play):
    sts = play["sts"]
    account = {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "sts:AssumeRole"}
    play.cloud.roles["Open"] = Role(trust={"Statement": [{"Effect": "Allow", **account}]})
    arn = play.cloud.role_arn("Open")
    found = sts.assume_role(RoleArn=arn, RoleSessionName="me", DurationSeconds=900)
    assert found["AssumedRoleUser"]["Arn"].endswith("assumed-role/Open/me")
    assert found["Credentials"]["Expiration"]
    denial = {"Effect": "Deny", "Principal": "*", "Action": "sts:*"}
    play.cloud.roles["Open"].trust["Statement"].append(denial)
    for role in (arn, play.cloud.role_arn("JobRole"), "arn:aws:iam::123456789012:role/Nobody"):
        with refused("AccessDenied", "sts:AssumeRole", role):
            sts.assume_role(RoleArn=role, RoleSessionName="me")


def test_a_role_is_described_with_its_trust_and_its_policies(play, iam):
    inline = statement("s3:GetObject", resource="arn:aws:s3:::data/*")
    play.cloud.roles["Mine"] = Role(policies={"data": inline}, attached=[FULL_ACCESS])
    role = iam.get_role(RoleName="Mine")["Role"]
    assert role["Arn"] == play.cloud.role_arn("Mine")
    assert role["AssumeRolePolicyDocument"] == trust("job.sagemaker.amazonaws.com")
    attached = iam.list_attached_role_policies(RoleName="Mine")["AttachedPolicies"]
    assert attached == [{"PolicyName": "AmazonSageMakerJobFullAccess", "PolicyArn": FULL_ACCESS}]
    assert iam.list_role_policies(RoleName="Mine")["PolicyNames"] == ["data"]
    found = iam.get_role_policy(RoleName="Mine", PolicyName="data")
    assert found["PolicyDocument"] == inline
    with refused("NoSuchEntity"):
        iam.get_role_policy(RoleName="Mine", PolicyName="other")
    names = [role["RoleName"] for role in iam.list_roles()["Roles"]]
    assert names == ["AgentRole", "JobRole", "Mine"]


@pytest.mark.parametrize("call", ["get_role", "list_attached_role_policies", "list_role_policies"])
def test_a_role_that_is_not_there_is_no_such_entity(standing, call):
    with refused("NoSuchEntity", "Nobody"):
        getattr(standing["iam"], call)(RoleName="Nobody")


def test_simulation_decides_by_inline_and_managed_policies(play, iam):
    job = play.cloud.role_arn("JobRole")
    actions = ["s3:GetObject", "ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"]
    assert decisions(iam, job, actions) == ["allowed", "implicitDeny", "implicitDeny"]
    assert decisions(iam, play.cloud.caller_arn, ["sagemaker:CreateJob"]) == ["allowed"]
    agent = play.cloud.role_arn("AgentRole")
    assert decisions(iam, agent, ["sagemaker:UpdateReward"]) == ["allowed"]
    session = "arn:aws:sts::123456789012:assumed-role/JobRole/job"
    assert decisions(iam, session, ["s3:GetObject"]) == ["allowed"]
    with refused("NoSuchEntity"):
        decisions(iam, "arn:aws:iam::123456789012:role/Nobody", ["s3:GetObject"])


def test_denials_resources_and_conditions_count(play, iam):
    passed = {"StringEquals": {"iam:PassedToService": "job.sagemaker.amazonaws.com"}}
    play.cloud.roles["Mine"] = Role(
        policies={
            "read": statement("s3:Get*", resource=["arn:aws:s3:::data/*"]),
            "not": statement("s3:GetObjectAcl", effect="Deny"),
            "pass": statement("iam:PassRole", condition=passed),
        }
    )
    mine = play.cloud.role_arn("Mine")
    both = ["s3:GetObject", "s3:GetObjectAcl"]
    assert decisions(iam, mine, both, ResourceArns=["arn:aws:s3:::data/x"]) == [
        "allowed",
        "explicitDeny",
    ]
    assert decisions(iam, mine, both[:1], ResourceArns=["arn:aws:s3:::other/x"]) == ["implicitDeny"]

    def passes(service):
        entry = {
            "ContextKeyName": "iam:PassedToService",
            "ContextKeyType": "string",
            "ContextKeyValues": [service],
        }
        return decisions(iam, mine, ["iam:PassRole"], ContextEntries=[entry])

    assert passes("job.sagemaker.amazonaws.com") == ["allowed"]
    assert passes("sagemaker.amazonaws.com") == ["implicitDeny"]
    assert decisions(iam, mine, ["iam:PassRole"]) == ["implicitDeny"]


def test_what_is_no_name_is_a_validation_error(iam):
    with refused("ValidationError", "RoleName"):
        iam.get_role(RoleName="a b")
