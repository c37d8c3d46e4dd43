"""The AgentCore project, checked for what `agentcore validate` lets through: no Node, no network."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rft_agent_sdk.payload import parse_request
from tests.test_project import locked

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "agentcore"
SPEC = json.loads((PROJECT / "agentcore.json").read_text(encoding="utf-8"))
TARGETS = json.loads((PROJECT / "aws-targets.json").read_text(encoding="utf-8"))

RUNTIME_KEYS = {
    "name",
    "description",
    "build",
    "entrypoint",
    "codeLocation",
    "runtimeVersion",
    "envVars",
    "networkMode",
    "networkConfig",
    "protocol",
    "instrumentation",
    "requestHeaderAllowlist",
    "executionRoleArn",
    "additionalPolicies",
    "authorizerType",
    "authorizerConfiguration",
    "lifecycleConfiguration",
    "filesystemConfigurations",
    "endpoints",
    "tags",
}
"""The CLI drops any other key of a runtime without a word."""
SUPPORTED = {"PYTHON_3_12", "PYTHON_3_13", "PYTHON_3_14"}
"""The schema takes older ones, which the service no longer updates."""
POLICY = "arn:aws:iam::aws:policy/AmazonSageMakerJobRuntimeAccess"
DEPLOYABLE = {
    "aws-opentelemetry-distro",
    "bedrock-agentcore",
    "botocore",
    "httpx",
    "openai",
    "pydantic",
    "requests",
    "strands-agents",
}
"""What may be deployed; one heavy addition multiplies the bundle and the cold start."""


@pytest.fixture(params=SPEC["runtimes"], ids=lambda runtime: runtime["name"])
def runtime(request):
    return request.param


def code_of(runtime: dict[str, str]) -> Path:
    return ROOT / runtime["codeLocation"]


def deployed(runtime) -> dict[str, Requirement]:
    project = tomllib.loads((code_of(runtime) / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = [Requirement(text) for text in project["project"]["dependencies"]]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_the_project_s_name_is_one_the_service_takes():
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,22}", SPEC["name"])


def test_a_runtime_has_known_keys_only(runtime):
    assert set(runtime) - RUNTIME_KEYS == set()


def test_a_runtime_s_name_is_one_the_service_takes(runtime):
    deployed_name = f"{SPEC['name']}_{runtime['name']}"
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", deployed_name)


def test_a_runtime_runs_a_python_the_service_still_supports(runtime):
    assert runtime["runtimeVersion"] in SUPPORTED


def test_the_code_of_a_runtime_is_there(runtime):
    assert not Path(runtime["codeLocation"]).is_absolute()
    assert (code_of(runtime) / runtime["entrypoint"]).is_file()
    assert (code_of(runtime) / "pyproject.toml").is_file()


def test_the_deployed_python_is_one_the_agent_s_project_takes(runtime):
    project = tomllib.loads((code_of(runtime) / "pyproject.toml").read_text(encoding="utf-8"))
    version = runtime["runtimeVersion"].removeprefix("PYTHON_").replace("_", ".")
    assert Requirement(f"x{project['project']['requires-python']}").specifier.contains(version)


def test_a_runtime_may_sample_and_report(runtime):
    assert POLICY in runtime["additionalPolicies"]


def test_tracing_is_on_exactly_where_its_distribution_is_deployed(runtime):
    enabled = runtime.get("instrumentation", {}).get("enableOtel", True)
    assert enabled == ("aws-opentelemetry-distro" in deployed(runtime))


def test_environment_variables_keep_the_service_s_limits(runtime):
    variables = runtime["envVars"]
    assert len({variable["name"] for variable in variables}) == len(variables) <= 50
    for variable in variables:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", variable["name"])
        assert isinstance(variable["value"], str)
        assert len(variable["value"]) <= 5000


def test_what_is_deployed_is_pinned_and_light(runtime):
    requirements = deployed(runtime)
    assert set(requirements) - DEPLOYABLE == set()
    for requirement in requirements.values():
        assert [specifier.operator for specifier in requirement.specifier] == ["=="]


def test_what_is_deployed_is_what_is_tested(runtime):
    versions = locked()
    for name, requirement in deployed(runtime).items():
        for version in versions.get(name, ()):
            assert requirement.specifier.contains(version), f"{requirement}, tested with {version}"


def test_everything_the_package_depends_on_is_deployed(runtime):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert needed - set(deployed(runtime)) == set()


@pytest.mark.parametrize("name", ["rft_agent_sdk", "environments"])
def test_the_agent_ships_the_package_it_stands_beside(name):
    link = PROJECT / "app" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / ".." / name
    assert link.resolve() == ROOT / name


def test_targets_are_placeholders_a_user_replaces():
    assert len({target["name"] for target in TARGETS}) == len(TARGETS) > 0
    for target in TARGETS:
        assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]{0,63}", target["name"])
        assert target["account"] == "111122223333"
        assert re.fullmatch(r"[a-z]{2}(-gov)?-[a-z]+-\d", target["region"])


def test_the_smoke_payload_is_a_managed_rollout_of_the_deployed_environment():
    request = parse_request(json.loads((ROOT / "payload.json").read_text(encoding="utf-8")))
    assert request.job is not None
    assert request.job.job_arn.split(":")[3] == TARGETS[0]["region"]
    assert request.job.job_arn.split(":")[4] == TARGETS[0]["account"]
    assert request.sampling.max_tokens == 8192
    assert set(json.loads(request.prompt)) == {"prompt", "answer", "id"}
