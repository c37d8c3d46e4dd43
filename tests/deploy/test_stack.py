"""The stack that is deployed: what its template says, in public mode and in a VPC."""

import json
import re
from typing import Any

import pytest

from rft_agent_sdk.mtrl.bundle_check import check_bundle
from rft_agent_sdk.mtrl.project_check import check_project
from tests.deploy.checkout import ROOT, RUNTIME

pytestmark = pytest.mark.deploy

RUNTIME_TYPE = "AWS::BedrockAgentCore::Runtime"
README = (ROOT / "agentcore" / "README.md").read_text("utf-8")


def of_type(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    found = template["Resources"].values()
    return [resource["Properties"] for resource in found if resource["Type"] == kind]


@pytest.fixture(scope="module")
def synthesized(compiled, tmp_path_factory):
    """The folder of a synthesis, and its template."""
    folder = tmp_path_factory.mktemp("synthesis") / "cdk.out"
    return folder, compiled.synthesize(folder)


@pytest.fixture
def runtime(synthesized) -> dict[str, Any]:
    (found,) = of_type(synthesized[1], RUNTIME_TYPE)
    return found


def test_the_runtime_starts_the_agent_traced_on_python_3_13(runtime):
    code = runtime["AgentRuntimeArtifact"]["CodeConfiguration"]
    assert code["Runtime"] == "PYTHON_3_13"
    assert code["EntryPoint"] == ["opentelemetry-instrument", "main.py"]


def test_the_runtime_has_the_project_s_name_and_variables(runtime, checkout):
    (spec,) = checkout.spec()["runtimes"]
    assert runtime["AgentRuntimeName"] == "RftAgent_Wordle"
    assert runtime["EnvironmentVariables"] == {
        item["name"]: item["value"] for item in spec["envVars"]
    }
    assert runtime["EnvironmentVariables"]["RFT_ENVIRONMENT"] == "wordle"


def test_the_runtime_is_public_and_speaks_http(runtime):
    assert runtime["NetworkConfiguration"] == {"NetworkMode": "PUBLIC"}
    assert "ProtocolConfiguration" not in runtime  # HTTP is the default
    assert "AuthorizerConfiguration" not in runtime  # callers sign with IAM


def test_a_session_ends_when_it_idles_or_hangs(runtime):
    life = runtime["LifecycleConfiguration"]
    assert life == {"IdleRuntimeSessionTimeout": 600, "MaxLifetime": 3600}


def test_the_role_is_agentcore_s_and_may_sample_and_report(synthesized, runtime):
    (role,) = of_type(synthesized[1], "AWS::IAM::Role")
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "bedrock-agentcore.amazonaws.com"}
    assert (statement["Action"], statement["Effect"]) == ("sts:AssumeRole", "Allow")
    policy = "arn:aws:iam::aws:policy/AmazonSageMakerJobRuntimeAccess"
    assert role["ManagedPolicyArns"] == [policy]
    (logical,) = [
        name for name, it in synthesized[1]["Resources"].items() if it["Type"] == "AWS::IAM::Role"
    ]
    assert runtime["RoleArn"] == {"Fn::GetAtt": [logical, "Arn"]}


def test_the_stack_holds_a_runtime_and_its_role_and_nothing_else(synthesized):
    kinds = sorted(resource["Type"] for resource in synthesized[1]["Resources"].values())
    assert kinds == [RUNTIME_TYPE, "AWS::IAM::Policy", "AWS::IAM::Role"]


def test_the_stack_tells_the_runtime_s_arn_under_the_name_that_the_cli_reads(synthesized):
    exported = {
        value["Export"]["Name"]: name
        for name, value in synthesized[1]["Outputs"].items()
        if "Export" in value
    }
    output = exported["AgentCore-RftAgent-default-Wordle-RuntimeArn"]
    assert re.match(r"ApplicationAgentWordleRuntimeArnOutput[0-9A-F]{8}$", output)


def test_the_stack_s_account_and_region_are_the_target_s(synthesized, checkout):
    (target,) = json.loads((checkout.root / "agentcore" / "aws-targets.json").read_text())
    manifest = json.loads((synthesized[0] / "manifest.json").read_text())
    stack = manifest["artifacts"]["AgentCore-RftAgent-default"]
    assert stack["environment"] == f"aws://{target['account']}/{target['region']}"


def test_the_uploaded_zip_is_the_package(synthesized):
    (asset,) = synthesized[0].glob("asset.*.zip")
    assert check_bundle(asset, python="3.13") == []


@pytest.fixture(scope="module")
def documented() -> dict[str, Any]:
    """The lines that `agentcore/README.md` puts in the place of the public network."""
    (lines,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    parsed: dict[str, Any] = json.loads("{" + lines + "}")
    return parsed


def test_the_documented_lines_put_the_runtime_into_a_vpc(own_compiled, documented, tmp_path):
    spec = own_compiled.spec()
    spec["runtimes"][0] |= documented
    own_compiled.rewrite(spec)
    assert json.loads(own_compiled.agentcore("validate", "--json").stdout) == {"success": True}
    (runtime,) = of_type(own_compiled.synthesize(tmp_path / "cdk.out"), RUNTIME_TYPE)
    network = documented["networkConfig"]
    assert runtime["NetworkConfiguration"] == {
        "NetworkMode": "VPC",
        "NetworkModeConfig": {
            "Subnets": network["subnets"],
            "SecurityGroups": network["securityGroups"],
        },
    }


def test_both_networks_may_stand_beside_each_other(own_checkout, documented):
    spec = own_checkout.spec()
    public = spec["runtimes"][0]
    spec["runtimes"].append({**public, **documented, "name": f"{RUNTIME}Vpc"})
    own_checkout.rewrite(spec)
    assert json.loads(own_checkout.agentcore("validate", "--json").stdout) == {"success": True}
    assert {finding.id for finding in check_project(own_checkout.root)} == {
        "placeholder-account",
        "placeholder-network",
        "vpc-egress",
    }


def test_a_project_without_a_target_says_so(own_compiled):
    (own_compiled.root / "agentcore" / "aws-targets.json").write_text("[]")
    done = own_compiled.run("node", "dist/bin/cdk.js", folder=own_compiled.stack)
    assert done.returncode == 1
    assert "aws-targets.json names no target" in done.stderr
