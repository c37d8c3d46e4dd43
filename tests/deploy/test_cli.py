"""The AgentCore CLI takes the project: it validates, packages and serves it, and would deploy it."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from environments.wordle import environment
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.mtrl.bundle_check import check_bundle
from rft_agent_sdk.mtrl.project_check import check_project
from rft_agent_sdk.testing import FakeCredentials
from rft_agent_sdk.twins.cloud import LocalCloud
from rft_agent_sdk.twins.cloud.stacks import Stack
from tests.deploy.checkout import CLI, RUNTIME, Checkout

pytestmark = pytest.mark.deploy

SESSION = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "smoke-test-" + "0" * 30}


def answered(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_project_is_valid(checkout):
    assert answered(checkout.agentcore("validate", "--json")) == {"success": True}


def test_what_validate_is_to_refuse_it_refuses(own_checkout):
    spec = own_checkout.spec()
    spec["runtimes"][0]["networkMode"] = "VPC"
    own_checkout.rewrite(spec)
    done = own_checkout.agentcore("validate", "--json")
    assert done.returncode == 1
    assert "networkConfig" in answered(done)["error"]


def test_validate_lets_through_what_our_check_finds(own_checkout):
    spec = own_checkout.spec()
    (runtime,) = spec["runtimes"]
    runtime |= {"entrypoint": "missing.py", "entryPoint": "main.py", "additionalPolicies": ["x"]}
    own_checkout.rewrite(spec)
    assert answered(own_checkout.agentcore("validate", "--json")) == {"success": True}
    found = {finding.id for finding in check_project(own_checkout.root)}
    assert found == {"unknown-key", "policy", "managed-policy", "entrypoint", "placeholder-account"}


def test_the_package_is_light_and_for_the_runtime_s_machine(checkout):
    done = checkout.agentcore("package")
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_bundle(checkout.bundle, python="3.13") == []


@contextmanager
def serving(checkout: Checkout, port: int, environ: dict[str, str]) -> Iterator[str]:
    """Run `agentcore dev` until its agent answers, and stop it by the interrupt it waits for."""
    log = checkout.temporary / "dev.log"
    command = [str(CLI), "dev", "--logs", "--skip-deploy", "--no-traces", "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=checkout.root,
            env=checkout.environ(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    # It installs the agent's dependencies first, and stays up where the agent does not start.
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        try:
            if requests.get(f"{url}/ping", timeout=5).json()["status"] == "Healthy":
                return
        except (requests.RequestException, ValueError):
            time.sleep(0.2)
    raise AssertionError(f"the agent does not answer: {log.read_text()}")


def test_the_local_server_plays_the_smoke_payload(own_checkout):
    payload = json.loads((own_checkout.root / "payload.json").read_text("utf-8"))
    keys = FakeCredentials()
    gateway = Gateway(secrets={keys.access_key: keys.secret_key})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with GatewayServer(gateway) as server:
        settings = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "RFT_RUNTIME_ENDPOINT": server.url,
        }
        with serving(own_checkout, port, settings) as url:
            unknown = requests.post(
                f"{url}/invocations", json=payload, headers=SESSION, timeout=60
            ).json()
            job = gateway.register_job(
                payload["metadata"]["jobArn"], policy=environment.policies()["solver"]
            )
            known = requests.post(
                f"{url}/invocations", json=payload, headers=SESSION, timeout=60
            ).json()
    assert (unknown["reward"], unknown["_rft"]["reported"]) == (environment.floor, False)
    assert "Could not find job" in unknown["_rft"]["error"]
    assert (known["_rft"]["outcome"], known["_rft"]["reported"]) == ("completed", True)
    assert job.trajectories[payload["metadata"]["rolloutId"]].rewards == (known["reward"],)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the agent outlives agentcore dev"


def test_a_deployment_would_go_through(own_checkout):
    (target,) = json.loads((own_checkout.root / "agentcore" / "aws-targets.json").read_text())
    before = (own_checkout.stack / "package.json").read_text()
    with LocalCloud(region=target["region"], account=target["account"]) as cloud:
        cloud.stacks["CDKToolkit"] = Stack(
            outputs={"BootstrapVersion": "31", "BucketName": "assets"}
        )
        done = own_checkout.agentcore(
            "deploy", "--dry-run", "--json", "--target", target["name"], environ=cloud.environment()
        )
        called = {call.operation for call in cloud.calls}
    told = answered(done)
    assert told["success"] is True
    assert told["stackName"] == "AgentCore-RftAgent-default"
    # What `agentcore/README.md` says a deployment does to the stack's dependencies.
    sync = told["dependencySyncResult"]
    assert [change["name"] for change in sync["changes"]] == ["@aws/agentcore-cdk"]
    assert {one["name"] for one in sync["restored"]} == {
        "jest",
        "ts-jest",
        "@types/jest",
        "prettier",
    }
    assert (own_checkout.stack / "package.json").read_text() == before
    assert called == {"GetCallerIdentity", "DescribeStacks"}


def test_a_deployment_to_another_account_is_refused(own_checkout):
    (target,) = json.loads((own_checkout.root / "agentcore" / "aws-targets.json").read_text())
    with LocalCloud(region=target["region"], account="210987654321") as cloud:
        done = own_checkout.agentcore(
            "deploy", "--dry-run", "--json", "--target", target["name"], environ=cloud.environment()
        )
    assert done.returncode == 1
    assert "210987654321" in answered(done)["error"]


def test_what_takes_the_stack_down_empties_one_file(own_checkout):
    folder = own_checkout.root / "agentcore"
    names = ("agentcore.json", "aws-targets.json", "cdk/package.json", "app/pyproject.toml")
    before = {name: (folder / name).read_text() for name in names}
    done = own_checkout.agentcore("remove", "all", "-y", "--json")
    assert answered(done)["success"] is True
    assert {name for name in names if (folder / name).read_text() != before[name]} == {
        "agentcore.json"
    }
    assert "no-runtime" in {finding.id for finding in check_project(own_checkout.root)}


def test_the_runtime_has_the_name_the_documents_use(checkout):
    assert [runtime["name"] for runtime in checkout.spec()["runtimes"]] == [RUNTIME]
