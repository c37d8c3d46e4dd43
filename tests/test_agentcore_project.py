"""The AgentCore project as it is shipped: what the checks find in it, and what only this project promises."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rft_agent_sdk.mtrl.project_check import check_project
from rft_agent_sdk.mtrl.project_targets import PLACEHOLDERS
from rft_agent_sdk.payload import parse_request
from tests.test_project import locked

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "agentcore"
SPEC = json.loads((PROJECT / "agentcore.json").read_text(encoding="utf-8"))
TARGETS = json.loads((PROJECT / "aws-targets.json").read_text(encoding="utf-8"))
APP = tomllib.loads((PROJECT / "app" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
REDACTED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

from strands.telemetry.tracer import Tracer

tracer = Tracer()
said = [{"role": "user", "content": [{"text": "SAID"}]}]
tracer.end_agent_span(tracer.start_agent_span(messages=said, agent_name="agent", system_prompt="SAID"))
tracer.start_model_invoke_span(messages=said, model_id="default").end()
tracer.start_tool_call_span({"name": "guess", "toolUseId": "1", "input": {"word": "SAID"}}).end()
print(len(spans.get_finished_spans()), "SAID" in "".join(span.to_json() for span in spans.get_finished_spans()))
"""


def variables() -> dict[str, str]:
    (runtime,) = SPEC["runtimes"]
    return {item["name"]: item["value"] for item in runtime["envVars"]}


def deployed() -> dict[str, Requirement]:
    requirements = [Requirement(text) for text in APP["dependencies"]]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_nothing_is_wrong_with_the_project_but_the_account_a_user_fills_in():
    assert [finding.id for finding in check_project(ROOT)] == ["placeholder-account"]


def test_what_is_deployed_is_pinned_and_light():
    assert set(deployed()) - DEPLOYABLE == set()


def test_what_is_deployed_is_what_is_tested():
    versions = locked()
    for name, requirement in deployed().items():
        for version in versions.get(name, ()):
            assert requirement.specifier.contains(version), f"{requirement}, tested with {version}"


def test_everything_the_package_depends_on_is_deployed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert needed - set(deployed()) == set()


@pytest.mark.parametrize("name", ["rft_agent_sdk", "environments"])
def test_the_agent_ships_the_package_it_stands_beside(name):
    link = PROJECT / "app" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / ".." / name
    assert link.resolve() == ROOT / name


def test_the_runtime_s_traces_hold_nothing_of_what_was_said():
    values = {name: value for name, value in variables().items() if name.startswith("OTEL_")}
    told = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", REDACTED],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for environ in (values, {})
    ]
    assert told == [["3", "False"], ["3", "True"]]


def test_the_smoke_payload_is_a_managed_rollout_of_the_target_s_account_and_region():
    request = parse_request(json.loads((ROOT / "payload.json").read_text(encoding="utf-8")))
    (target,) = TARGETS
    assert request.job is not None
    assert request.job.job_arn.split(":")[3:5] == [target["region"], target["account"]]
    assert target["account"] in PLACEHOLDERS
    assert request.sampling.max_tokens == 8192
    assert set(json.loads(request.prompt)) == {"prompt", "answer", "id"}


@pytest.mark.parametrize("folder", ["agentcore/cdk", "tests/deploy"])
def test_the_node_packages_are_locked_by_hash_and_without_addresses(folder):
    manifest = json.loads((ROOT / folder / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((ROOT / folder / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert lock["packages"][""]["dependencies"] == manifest["dependencies"]
    for name, entry in packages.items():
        resolved = entry.get("resolved", "")
        assert not re.search(r"[:@]", resolved), f"{name} comes from {resolved}"
        is_local = entry.get("link") or not name.startswith("node_modules/")
        assert is_local or entry.get("inBundle") or entry["integrity"].startswith("sha512-"), name
    assert "omit-lockfile-registry-resolved=true" in (ROOT / folder / ".npmrc").read_text("utf-8")
