"""Each fault that `agentcore validate` lets through, put into a sound project, is found, and no other."""

import copy
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.project_check import check_project

TODAY = date(2026, 12, 1)
POLICY = "arn:aws:iam::aws:policy/AmazonSageMakerJobRuntimeAccess"
ACCOUNT = "210987654321"
VPC = {
    "networkMode": "VPC",
    "networkConfig": {
        "subnets": ["subnet-1a2b3c4d", "subnet-5e6f7a8b"],
        "securityGroups": ["sg-0a1b2c3d4e5f6a7b8"],
    },
}
RUNTIME: dict[str, Any] = {
    "name": "Game",
    "build": "CodeZip",
    "entrypoint": "main.py",
    "codeLocation": "agentcore/app",
    "runtimeVersion": "PYTHON_3_13",
    "envVars": [{"name": "RFT_ENVIRONMENT", "value": "game"}],
    "additionalPolicies": [POLICY],
}
PYPROJECT = """
[project]
name = "agent"
requires-python = ">=3.11"
dependencies = ["aws-opentelemetry-distro==0.21.0", "strands-agents[openai]==1.62.0"]
"""
MAIN = """
import os
from bedrock_agentcore import BedrockAgentCoreApp
from rft_agent_sdk import load_environment
app = BedrockAgentCoreApp()
environment = load_environment(os.environ["RFT_ENVIRONMENT"])
"""


class Project:
    """A sound project in a folder; tests spoil one thing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.app = root / "agentcore" / "app"
        self.write("agentcore/cdk/package.json", "{}")
        self.write("agentcore/app/main.py", MAIN)
        self.write("agentcore/app/pyproject.toml", PYPROJECT)
        self.write("rft_agent_sdk/__init__.py", "")
        self.write("environments/game/__init__.py", "")
        for name in ("rft_agent_sdk", "environments"):
            (self.app / name).symlink_to(Path("..") / ".." / name)
        self.spec: Any = {
            "name": "Agent",
            "version": 1,
            "runtimes": [copy.deepcopy(RUNTIME)],
            "memories": [],
        }
        self.targets: Any = [{"name": "default", "account": ACCOUNT, "region": "us-west-2"}]
        self.payload: Any = {
            "metadata": {"jobArn": f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:job/AgentRFT/smoke-test"}
        }

    @property
    def runtime(self) -> dict[str, Any]:
        return self.spec["runtimes"][0]

    def set(self, **variables: str) -> None:
        self.runtime["envVars"] += [{"name": name, "value": variables[name]} for name in variables]

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, today: date = TODAY) -> list[Finding]:
        self.write("agentcore/agentcore.json", json.dumps(self.spec))
        self.write("agentcore/aws-targets.json", json.dumps(self.targets))
        self.write("payload.json", json.dumps(self.payload))
        return check_project(self.root, today=today)


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


def found(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.id, finding.where) for finding in findings}


def test_a_sound_project_has_no_findings(project):
    assert project.check() == []


AT = "agentcore/agentcore.json: runtimes[0]"


@pytest.mark.parametrize(
    ("change", "id", "where"),
    [
        ({"entryPoint": "main.py"}, "unknown-key", ".entryPoint"),
        ({"lifecycleConfiguration": {"maxLifeTime": 600}}, "unknown-key", ".lifecycleConfiguration.maxLifeTime"),
        ({"instrumentation": {"enableOTel": False}}, "unknown-key", ".instrumentation.enableOTel"),
        ({"networkMode": True}, "wrong-type", ".networkMode"),
        ({"name": "9lives"}, "runtime-name", ".name"),
        ({"name": "G" * 43}, "runtime-name", ".name"),
        ({"build": "Zip"}, "build", ".build"),
        ({"runtimeVersion": "PYTHON_3_11"}, "runtime-version", ".runtimeVersion"),
        ({"runtimeVersion": "NODE_22"}, "runtime-version", ".runtimeVersion"),
        ({"protocol": "MCP"}, "protocol", ".protocol"),
        ({"authorizerType": "CUSTOM_JWT"}, "authorizer", ".authorizerType"),
        ({"networkMode": "PRIVATE"}, "network-mode", ".networkMode"),
        ({"networkConfig": VPC["networkConfig"]}, "network-config", ".networkConfig"),
        ({"lifecycleConfiguration": {"maxLifetime": 59}}, "lifecycle", ".lifecycleConfiguration.maxLifetime"),
        (
            {"lifecycleConfiguration": {"idleRuntimeSessionTimeout": 900, "maxLifetime": 600}},
            "lifecycle",
            ".lifecycleConfiguration",
        ),
        ({"additionalPolicies": []}, "managed-policy", ".additionalPolicies"),
        ({"additionalPolicies": [POLICY, "AdministratorAccess"]}, "policy", ".additionalPolicies"),
        ({"additionalPolicies": [POLICY, "missing.json"]}, "policy", ".additionalPolicies"),
        ({"additionalPolicies": [POLICY, "a\0.json"]}, "policy", ".additionalPolicies"),
        (
            {"additionalPolicies": [POLICY, "arn:aws-us-gov:iam::aws:policy/ReadOnlyAccess"]},
            "policy-partition",
            ".additionalPolicies",
        ),
        ({"executionRoleArn": "AgentRole"}, "execution-role", ".executionRoleArn"),
        ({"codeLocation": "agentcore/App"}, "code-missing", ".codeLocation"),
        ({"codeLocation": "../elsewhere"}, "code-missing", ".codeLocation"),
        ({"codeLocation": "a\0b"}, "code-missing", ".codeLocation"),
        ({"entrypoint": "app.py"}, "entrypoint", ".entrypoint"),
        ({"entrypoint": "main.ts"}, "entrypoint", ".entrypoint"),
        ({"entrypoint": "main.py:application"}, "entrypoint", ".entrypoint"),
    ],
)  # fmt: skip
def test_a_fault_in_a_runtime_is_an_error_at_its_place(project, change, id, where):
    project.runtime.update(change)
    findings = project.check()
    assert found(findings) == {(id, AT + where)}
    assert findings[0].severity is Severity.ERROR


def test_the_message_about_a_typo_names_what_may_have_been_meant(project):
    project.runtime["additionalPolices"] = [POLICY]
    assert "'additionalPolicies'" in project.check()[0].fix


def test_a_key_that_a_runtime_lacks_is_found_missing_under_a_typo(project):
    project.runtime["additionalPolices"] = project.runtime.pop("additionalPolicies")
    assert {id for id, _ in found(project.check())} == {"unknown-key", "managed-policy"}


@pytest.mark.parametrize("key", ["name", "entrypoint", "codeLocation", "build"])
def test_what_a_runtime_must_have_is_missed(project, key):
    del project.runtime[key]
    assert AT + "." + key in {where for _, where in found(project.check())}


def test_a_python_near_the_end_of_its_support_is_a_warning(project):
    (finding,) = project.check(date(2029, 3, 1))
    assert (finding.id, finding.severity) == ("runtime-version", Severity.WARNING)
    assert "PYTHON_3_14" in finding.fix
    (finding,) = project.check(date(2029, 7, 1))
    assert finding.severity is Severity.ERROR


def test_a_version_left_to_the_cli_is_a_warning(project):
    del project.runtime["runtimeVersion"]
    assert found(project.check()) == {("runtime-version", AT + ".runtimeVersion")}


def test_an_entrypoint_may_name_what_it_makes_or_imports(project):
    for name in ("app", "load_environment"):
        project.runtime["entrypoint"] = f"main.py:{name}"
        assert project.check() == []


def test_an_entrypoint_that_is_no_python_is_found(project):
    project.write("agentcore/app/main.py", "def (:")
    assert found(project.check()) >= {("entrypoint", AT + ".entrypoint")}


def test_a_role_of_the_user_s_own_needs_no_policy_here_and_is_noted(project):
    del project.runtime["additionalPolicies"]
    project.runtime["executionRoleArn"] = f"arn:aws:iam::{ACCOUNT}:role/Agent"
    (finding,) = project.check()
    assert (finding.id, finding.severity) == ("execution-role", Severity.NOTE)


def test_a_policy_beside_the_code_may_allow_the_calls(project):
    actions = ["sagemaker:Sample", "sagemaker:CompleteRollout", "sagemaker:UpdateReward"]
    policy = {"Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}
    project.write("agentcore/app/policy.json", json.dumps(policy))
    project.runtime["additionalPolicies"] = ["policy.json"]
    assert project.check() == []
    project.write("agentcore/app/policy.json", json.dumps({"Statement": [{"Action": actions[:1]}]}))
    assert [finding.id for finding in project.check()] == ["managed-policy"]


def test_a_runtime_in_a_vpc_is_noted_to_need_a_way_out(project):
    project.runtime.update(copy.deepcopy(VPC))
    (finding,) = project.check()
    assert (finding.id, finding.severity) == ("vpc-egress", Severity.NOTE)


@pytest.mark.parametrize(
    ("key", "ids", "expected"),
    [
        ("subnets", [], "network-config"),
        ("subnets", ["subnet-1a2b3c4d"], "one-subnet"),
        ("subnets", ["subnet-1a2b3c4d", "subnet-XYZ"], "network-config"),
        ("subnets", ["subnet-1a2b3c4d", "subnet-0123456789abcdef0"], "placeholder-network"),
        ("subnets", ["subnet-1a2b3c4d", "subnet-aaaaaaaa"], "placeholder-network"),
        ("securityGroups", ["subnet-1a2b3c4d"], "network-config"),
        ("securityGroups", ["sg-1a2b3c4d"] * 17, "network-config"),
        ("securityGroups", [7], "network-config"),
    ],
)
def test_a_network_that_cannot_be_meant_is_found(project, key, ids, expected):
    project.runtime.update(copy.deepcopy(VPC))
    project.runtime["networkConfig"][key] = ids
    assert found(project.check()) >= {(expected, f"{AT}.networkConfig.{key}")}


def test_vpc_mode_without_a_network_is_found(project):
    project.runtime["networkMode"] = "VPC"
    assert {id for id, _ in found(project.check())} == {"network-config", "vpc-egress"}


@pytest.mark.parametrize(
    ("entry", "id"),
    [
        ({"name": "1ST", "value": ""}, "variable-name"),
        ({"name": "N" * 101, "value": ""}, "variable-name"),
        ({"name": "LONG", "value": "x" * 5001}, "variable-value"),
        ({"name": "EMPTY"}, "variable-value"),
        ({"name": "NUMBER", "value": 7}, "wrong-type"),
        ({"name": "A", "value": "b", "secret": True}, "unknown-key"),
        ({"name": "RFT_ENVIRONMENT", "value": "game"}, "variable-twice"),
        ({"name": "DB_PASSWORD", "value": "hunter2"}, "variable-secret"),
        ({"name": "SETTING", "value": "AKIAIOSFODNN7EXAMPLE"}, "variable-secret"),
        ("RFT_ENVIRONMENT=game", "wrong-type"),
    ],
)
def test_a_fault_in_a_variable_is_found(project, entry, id):
    project.runtime["envVars"].append(entry)
    ((kind, where),) = found(project.check())
    assert kind == id
    assert where.startswith(AT + ".envVars[1]")


def test_no_finding_shows_the_value_of_a_variable_that_may_be_secret(project):
    project.set(API_KEY="hunter2", PASSWORD="hunter2" * 1000)
    findings = project.check()
    assert len(findings) == 3
    assert "hunter2" not in repr(findings)


def test_names_that_only_resemble_a_secret_s_are_left_alone(project):
    project.set(MAX_TOKENS="8192", TOKENIZER="toy", KEYBOARD="us", API_KEY="")
    assert project.check() == []


def test_more_variables_than_the_service_takes_are_found(project):
    project.set(**{f"NAME_{index}": "" for index in range(49)})
    assert project.check() == []
    project.set(ONE_MORE="")
    assert found(project.check()) == {("variables", AT + ".envVars")}


def test_a_setting_of_ours_that_nothing_reads_is_a_warning(project):
    project.set(RFT_ENVIROMENT="game")
    assert found(project.check()) == {("variable-unread", AT + ".envVars.RFT_ENVIROMENT")}
    project.write("rft_agent_sdk/late.py", "RFT_ENVIROMENT = 1")
    assert project.check() == []


def test_code_that_links_to_itself_is_read_once(project):
    (project.app / "again").symlink_to(project.app)
    project.set(RFT_MISSING="1")
    assert [finding.id for finding in project.check()] == ["variable-unread"]


@pytest.mark.parametrize("name", ["gane", "environments.gane:environment", "../game", "a\0"])
def test_an_environment_that_is_not_deployed_is_found(project, name):
    project.runtime["envVars"] = [{"name": "RFT_ENVIRONMENT", "value": name}]
    assert found(project.check()) == {("environment-missing", AT + ".envVars.RFT_ENVIRONMENT")}


@pytest.mark.parametrize("name", ["game", "environments.game:environment", "my_package.game:make"])
def test_an_environment_may_be_deployed_or_installed(project, name):
    project.runtime["envVars"] = [{"name": "RFT_ENVIRONMENT", "value": name}]
    assert project.check() == []


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [
        ("510", None),
        ("511", Severity.WARNING),
        ("810", Severity.WARNING),
        ("811", Severity.ERROR),
        ("0", Severity.ERROR),
        ("-5", Severity.ERROR),
        ("nan", Severity.ERROR),
        ("inf", Severity.ERROR),
        ("seven minutes", Severity.ERROR),
    ],
)
def test_a_budget_is_held_against_what_waits_for_the_rollout(project, seconds, severity):
    project.write("rft_agent_sdk/rollout.py", "ROLLOUT_BUDGET_SECONDS = 1")
    project.set(ROLLOUT_BUDGET_SECONDS=seconds)
    findings = [(finding.id, finding.severity) for finding in project.check()]
    assert findings == ([("rollout-budget", severity)] if severity else [])


def test_a_budget_of_a_background_rollout_is_held_against_its_session(project):
    project.write(
        "agentcore/app/main.py",
        MAIN
        + """# ROLLOUT_BUDGET_SECONDS, and no background=True here
from rft_agent_sdk import rft_handler
@app.entrypoint
@rft_handler(app=app, background = False)
async def invoke(payload):
    return None
""",
    )
    project.set(ROLLOUT_BUDGET_SECONDS="1800")
    (finding,) = project.check()
    assert finding.severity is Severity.ERROR
    main = project.root / "agentcore/app/main.py"
    main.write_text(main.read_text("utf-8").replace("= False", "= True"), "utf-8")
    (finding,) = project.check()
    assert finding.severity is Severity.WARNING
    project.runtime["lifecycleConfiguration"] = {"maxLifetime": 1800}
    (finding,) = project.check()
    assert finding.severity is Severity.ERROR
    assert "maxLifetime" in finding.fix


def test_an_effort_that_is_none_is_found(project):
    project.write("rft_agent_sdk/agent.py", "REASONING_EFFORT = 1")
    project.set(REASONING_EFFORT="lowest")
    assert [finding.id for finding in project.check()] == ["reasoning-effort"]


def test_an_endpoint_of_another_region_is_found(project):
    project.write("rft_agent_sdk/endpoint.py", "RFT_RUNTIME_ENDPOINT = 1")
    url = "https://job-runtime.sagemaker.{}.api.aws"
    project.set(RFT_RUNTIME_ENDPOINT=url.format("us-east-1"))
    assert [finding.id for finding in project.check()] == ["endpoint-region"]
    project.runtime["envVars"][-1]["value"] = url.format("us-west-2")
    assert project.check() == []


@pytest.mark.parametrize(
    ("dependencies", "ids"),
    [
        (["aws-opentelemetry-distro==0.21.0", "strands-agents>=1.62"], ["unpinned-dependency"]),
        (["aws-opentelemetry-distro==0.21.*"], ["unpinned-dependency"]),
        (["aws-opentelemetry-distro==0.21.0,<1"], ["unpinned-dependency"]),
        (["AWS_OpenTelemetry.Distro == 0.21.0 ; python_version > '3'"], []),
        (["aws-opentelemetry-distro==0.21.0", "sagemaker-train==1.27.0"], ["heavy-dependency"]),
        (["aws-opentelemetry-distro==0.21.0", "mine @ file:///mine.tar.gz"], ["source-dependency"]),
        (["strands-agents==1.62.0"], ["tracing"]),
        ([], ["tracing"]),
    ],
)
def test_what_is_installed_is_looked_through(project, dependencies, ids):
    text = f'[project]\nname = "agent"\ndependencies = {json.dumps(dependencies)}\n'
    project.write("agentcore/app/pyproject.toml", text)
    assert [finding.id for finding in project.check()] == ids


def test_the_distribution_that_traces_is_superfluous_where_nothing_is_traced(project):
    project.runtime["instrumentation"] = {"enableOtel": False}
    (finding,) = project.check()
    assert (finding.id, finding.severity) == ("tracing", Severity.WARNING)
    project.write("agentcore/app/pyproject.toml", '[project]\nname = "a"\ndependencies = []\n')
    assert project.check() == []


@pytest.mark.parametrize("wanted", [">=3.14", ">=3.11,<3.13"])
def test_a_python_that_the_agent_s_project_refuses_is_found(project, wanted):
    text = PYPROJECT.replace(">=3.11", wanted)
    project.write("agentcore/app/pyproject.toml", text)
    assert [finding.id for finding in project.check()] == ["requires-python"]


@pytest.mark.parametrize(
    ("text", "id"), [(None, "pyproject-missing"), ("=", "pyproject-unreadable")]
)
def test_a_pyproject_that_is_none_is_found(project, text, id):
    if text is None:
        (project.app / "pyproject.toml").unlink()
    else:
        project.write("agentcore/app/pyproject.toml", text)
    assert found(project.check()) == {(id, "agentcore/app/pyproject.toml")}


def test_a_link_that_leads_nowhere_is_found(project):
    (project.app / "rft_agent_sdk").unlink()
    (project.app / "rft_agent_sdk").symlink_to("../rft_agent_sdk")
    kinds = {id for id, _ in found(project.check())}
    assert kinds == {"broken-link", "package-missing"}


def test_a_link_that_was_checked_out_as_text_is_found(project):
    (project.app / "environments").unlink()
    project.write("agentcore/app/environments", "../../environments")
    kinds = found(project.check())
    assert ("link-as-text", "agentcore/app: environments") in kinds


def test_the_package_may_be_installed_in_place_of_linked(project):
    (project.app / "rft_agent_sdk").unlink()
    project.runtime["envVars"] = []
    assert [finding.id for finding in project.check()] == ["package-missing"]
    text = PYPROJECT.replace('"strands', '"rft-agent-sdk==0.1.0", "strands')
    project.write("agentcore/app/pyproject.toml", text)
    assert project.check() == []


@pytest.mark.parametrize(
    ("change", "id", "where"),
    [
        ({"account": "111122223333"}, "placeholder-account", ".account"),
        ({"account": "12345678901"}, "account", ".account"),
        ({"account": 210987654321}, "wrong-type", ".account"),
        ({"region": "us-west-9"}, "region", ".region"),
        ({"region": "eu-north-1"}, "region-without-jobs", ".region"),
        ({"name": "no_underscores"}, "target-name", ".name"),
        ({"profile": "prod"}, "unknown-key", ".profile"),
    ],
)
def test_a_fault_in_a_target_is_found(project, change, id, where):
    project.targets[0].update(change)
    assert (id, f"agentcore/aws-targets.json: [0]{where}") in {
        (kind, at.replace(": .", ": ")) for kind, at in found(project.check())
    }


@pytest.mark.parametrize("targets", [[], {}, None, "default"])
def test_targets_that_name_none_are_found(project, targets):
    project.targets = targets
    findings = [
        one for one in project.check() if one.where.startswith("agentcore/aws-targets.json")
    ]
    assert [one.severity for one in findings] == [Severity.ERROR]


def test_two_targets_of_one_name_are_found(project):
    project.targets *= 2
    assert [finding.id for finding in project.check()] == ["target-name"]


def test_targets_without_a_default_are_noted(project):
    project.targets[0]["name"] = "west"
    (finding,) = project.check()
    assert (finding.id, finding.severity) == ("no-default-target", Severity.NOTE)
    assert "--target west" in finding.fix


@pytest.mark.parametrize(
    ("arn", "id"),
    [
        ("arn:aws:sagemaker:us-west-2:111122223333:job/AgentRFT/smoke-test", "payload-account"),
        (f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:job/AgentRFT/smoke-test", "payload-region"),
        ("smoke-test", "payload-job"),
    ],
)
def test_a_smoke_test_of_another_place_is_found(project, arn, id):
    project.payload["metadata"]["jobArn"] = arn
    (finding,) = project.check()
    assert (finding.id, finding.severity) == (id, Severity.WARNING)


@pytest.mark.parametrize("name", ["Strands", "build", "has-hyphen", "X" * 24, ""])
def test_a_name_that_the_cli_refuses_is_found(project, name):
    project.spec["name"] = name
    assert ("project-name", "agentcore/agentcore.json: name") in found(project.check())


def test_a_project_without_a_runtime_is_said_to_take_the_stack_down(project):
    project.spec["runtimes"] = []
    (finding,) = project.check()
    assert finding.id == "no-runtime"
    assert "takes the stack down" in finding.message


def test_two_runtimes_of_one_name_are_found(project):
    project.spec["runtimes"] *= 2
    assert [finding.id for finding in project.check()] == ["runtime-name"]


def test_every_runtime_is_looked_at(project):
    second = {**copy.deepcopy(RUNTIME), "name": "Second", "entrypoint": "second.py"}
    project.spec["runtimes"].append(second)
    assert found(project.check()) == {
        ("entrypoint", "agentcore/agentcore.json: runtimes[1].entrypoint")
    }


@pytest.mark.parametrize("name", ["agentcore/agentcore.json", "agentcore/aws-targets.json"])
@pytest.mark.parametrize(
    ("text", "id"),
    [(None, "file-missing"), ("{", "file-unreadable"), ("null", "wrong-type"), ("7", "wrong-type")],
)
def test_a_file_that_is_none_is_found(project, name, text, id):
    project.check()
    if text is None:
        (project.root / name).unlink()
    else:
        project.write(name, text)
    assert (id, name) in found(check_project(project.root, today=TODAY))


def test_a_folder_without_a_project_says_what_is_missing(tmp_path):
    assert [finding.id for finding in check_project(tmp_path)] == [
        "file-missing",
        "file-missing",
        "stack-missing",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99999) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(data=st.data())
def test_no_value_of_any_key_makes_the_check_fail_itself(tmp_path_factory, data):
    project = Project(tmp_path_factory.mktemp("project"))
    project.runtime.update(copy.deepcopy(VPC))
    keys = [*RUNTIME, *VPC, "lifecycleConfiguration", "instrumentation", "protocol"]
    for key in data.draw(st.sets(st.sampled_from(keys), min_size=1)):
        project.runtime[key] = data.draw(JSON)
    project.targets[0][data.draw(st.sampled_from(["name", "account", "region"]))] = data.draw(JSON)
    project.payload = data.draw(JSON)
    project.spec[data.draw(st.sampled_from(["name", "tags", "version"]))] = data.draw(JSON)
    assert project.check()


def test_a_name_longer_than_any_file_s_is_no_failure_of_the_check(project):
    project.runtime.update(entrypoint="x" * 5000 + ".py", codeLocation="agentcore/app")
    project.runtime["envVars"] = [{"name": "RFT_ENVIRONMENT", "value": "e" * 5000}]
    assert {id for id, _ in found(project.check())} == {"entrypoint", "environment-missing"}
    project.runtime["codeLocation"] = "y" * 5000
    assert {id for id, _ in found(project.check())} == {"code-missing"}
