"""What the agent tells about itself, on a real AgentCore app; nothing beyond loopback is asked."""

import asyncio
import base64
import json
import socket
import threading
import time

import pytest
import requests
from bedrock_agentcore import BedrockAgentCoreApp

from rft_agent_sdk import Rollout, credentials, rft_handler
from rft_agent_sdk.payload import is_self_check
from rft_agent_sdk.self_check import account_in, self_check
from tests.servers import ScriptedServer, serving

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def key_of(account: int, kind: str = "ASIA") -> str:
    """An access key id as one made in `account` looks."""
    number = (1 << 47 | account << 7).to_bytes(6, "big") + bytes(4)
    return kind + base64.b32encode(number).decode()


@pytest.fixture
def aws(monkeypatch):
    """A Job Runtime and an AWS endpoint on loopback, keys and a region."""
    with ScriptedServer(lambda seen, count: {}) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key_of(123456789012))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session-token-of-somebody")
        monkeypatch.setenv("AWS_REGION", "us-west-2")
        monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", server.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


def ask(payload=None, **options):
    """Ask a decorated function, served as AgentCore serves it; the function must not run."""
    played: list[Rollout] = []

    def function(rollout: Rollout):
        played.append(rollout)
        return 1.0

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(**options)(function))
    with serving(app) as url:
        answer = requests.post(
            f"{url}/invocations", json=payload or {"rft_doctor": True}, timeout=30
        )
    assert answer.status_code == 200
    return answer.json(), played


def report(**options):
    return asyncio.run(self_check(floor=-1.5, **options))["rft_doctor"]


def test_a_sound_agent_says_so_and_plays_and_sends_nothing(aws):
    body, played = ask(floor=-2.0)
    found = body["rft_doctor"]
    assert set(body) == {"rft_doctor"}
    assert [
        found[part]["ok"] for part in ("region", "identity", "token", "endpoint", "amazonaws")
    ] == [True] * 5
    assert found["region"]["name"] == "us-west-2"
    assert found["identity"] == {
        "ok": True, "method": "env", "account": "123456789012", "temporary": True,
    }  # fmt: skip
    assert found["endpoint"]["host"] == aws.host
    assert found["endpoint"]["addresses"] == ["127.0.0.1"]
    assert (found["budget_s"], found["floor"]) == (420, -2.0)
    assert found["packages"]["botocore"].count(".") == 2
    assert "AWS_SECRET_ACCESS_KEY" in found["variables"]
    assert "PATH" not in found["variables"]
    assert played == []
    assert aws.seen == []


def test_no_secret_and_no_token_is_in_the_answer(aws):
    text = json.dumps(ask()[0])
    for secret in (
        SECRET,
        "a-session-token-of-somebody",
        key_of(123456789012),
        "sagemaker-api-key",
    ):
        assert secret not in text


def test_without_credentials_that_is_said_at_once(monkeypatch):
    with ScriptedServer(lambda seen, count: {}) as server:
        monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", server.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_REGION", "us-west-2")
        found = report()
    assert "no AWS credentials" in found["identity"]["error"]
    assert "no AWS credentials" in found["token"]["error"]
    assert found["endpoint"]["ok"] is True
    assert found["elapsed_s"] < 5


def test_without_a_region_that_is_said_of_everything_that_needs_one():
    found = report()
    assert "AWS_REGION" in found["region"]["error"]
    for part in ("token", "endpoint", "amazonaws"):
        assert found[part]["ok"] is False
        assert "AWS_REGION" in found[part]["error"]


def test_an_endpoint_that_refuses_the_connection_is_told_from_one_that_answers(aws, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", f"http://127.0.0.1:{port}")
    found = report()
    assert found["endpoint"]["ok"] is False
    assert "could not connect: ConnectionRefusedError" in found["endpoint"]["error"]
    assert found["amazonaws"]["ok"] is True


def test_a_server_that_speaks_no_tls_is_not_taken_for_one_that_does(aws, monkeypatch):
    monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", aws.url.replace("http:", "https:"))
    found = report()
    assert "SSL" in found["endpoint"]["error"]


def test_a_link_local_endpoint_is_not_connected_to(aws, monkeypatch):
    monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", "http://169.254.169.254")
    assert "link-local" in report()["endpoint"]["error"]


def test_a_provider_that_hangs_costs_no_more_than_the_deadline(aws, monkeypatch):
    hang = threading.Event()

    def load():
        hang.wait(30)

    source = credentials.SharedCredentials(load=load)
    monkeypatch.setattr(credentials, "_shared_credentials", source)
    began = time.monotonic()
    found = report(deadline_s=0.3)
    hang.set()
    assert time.monotonic() - began < 5
    assert "time for the answer" in found["identity"]["error"]
    assert found["endpoint"]["ok"] is True


def test_what_a_provider_says_when_it_fails_stays_out(aws, monkeypatch):
    def load():
        raise RuntimeError(f"the process printed {SECRET}")

    monkeypatch.setattr(
        credentials, "_shared_credentials", credentials.SharedCredentials(load=load)
    )
    found = report()
    assert found["identity"] == {"ok": False, "error": "RuntimeError"}
    assert SECRET not in json.dumps(found)


@pytest.mark.parametrize(
    "payload",
    [
        {"rft_doctor": 1},
        {"rft_doctor": "true"},
        {"rft_doctor": True, "prompt": "go"},
        {"rft_doctor": False},
        {},
        ["rft_doctor"],
        None,
    ],
)
def test_only_that_very_payload_asks(payload):
    assert is_self_check(payload) is False


def test_another_payload_is_a_rollout_that_gets_its_floor(aws):
    body, played = ask({"rft_doctor": 1})
    assert body["reward"] == -1.5
    assert "rft_doctor" not in body
    assert played == []


@pytest.mark.parametrize(
    ("key", "account"),
    [
        (key_of(123456789012), "123456789012"),
        (key_of(12345), "000000012345"),
        (key_of(999999999999, "AKIA"), "999999999999"),
        ("AKIAIOSFODNN7EXAMPLE", None),
        ("dummy", None),
        ("ASIA" + "1" * 16, None),
    ],
)
def test_the_account_of_a_key_is_read_from_its_id(key, account):
    assert account_in(key) == account
