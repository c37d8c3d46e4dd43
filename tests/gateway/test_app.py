"""Routes, limits, and errors that belong to no rollout."""

import json

import pytest

from rft_agent_sdk.gateway import Gateway
from rft_agent_sdk.types import Message
from tests.gateway.serve import BODY, JOB, bearer, echo, job_headers, mint, served

CHAT = "/v1/chat/completions"


@pytest.fixture
def gateway():
    return Gateway(max_body_bytes=2000)


def test_probes_are_answered_without_a_key_and_touch_nothing(gateway):
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        assert http.get("/health").json() == {"status": "ok"}
        models = http.get("/v1/models", headers=bearer(session.secret)).json()
    assert [model["id"] for model in models["data"]] == ["default"]
    assert not session.rollout.calls


def test_an_unknown_route_or_method_is_json_for_either_client(gateway):
    with served(gateway) as http:
        lost = http.post("/v1/embeddings", json={})
        wrong = http.get("/sample")
    assert (lost.status_code, wrong.status_code) == (404, 405)
    assert wrong.headers["allow"] == "POST"
    for reply in (lost, wrong):
        assert reply.json()["error"]["message"] == reply.json()["Message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"a": NaN}', b"\xff", b"[" * 1500])
def test_a_body_that_is_no_json_object_is_400_in_the_routes_shape(gateway, body):
    session = gateway.open(policy=echo)
    gateway.register_job(JOB, policy=echo)
    with served(gateway) as http:
        chat = http.post(CHAT, content=body, headers=bearer(session.secret))
        sample = http.post("/sample", content=body, headers=job_headers(mint()))
        report = http.post("/update-reward", content=body, headers=bearer(session.secret))
    assert chat.status_code == sample.status_code == report.status_code == 400
    assert chat.json()["error"]["type"] == "invalid_request_error"
    for reply in (sample, report):
        assert reply.json()["Message"]
        assert reply.headers["x-amzn-errortype"] == "ValidationException"


def test_a_large_body_is_413_whether_or_not_its_length_is_told(gateway):
    session = gateway.open(policy=echo)
    large = json.dumps(BODY | {"user": "x" * 300_000}).encode()
    halves = (large[:100_000], large[100_000:])
    with served(gateway) as http:
        told = http.post(CHAT, content=large, headers=bearer(session.secret))
        untold = http.post(CHAT, content=iter(halves), headers=bearer(session.secret))
        after = http.post(CHAT, json=BODY, headers=bearer(session.secret))
    assert (told.status_code, untold.status_code, after.status_code) == (413, 413, 200)


def test_a_body_in_chunks_is_put_together(gateway):
    session = gateway.open(policy=echo)
    body = json.dumps(BODY).encode()
    with served(gateway) as http:
        chunks = (body[index : index + 7] for index in range(0, len(body), 7))
        reply = http.post(CHAT, content=chunks, headers=bearer(session.secret))
    assert reply.status_code == 200


def test_text_that_is_no_valid_unicode_still_reaches_the_client(gateway):
    session = gateway.open(policy=lambda messages, tools: Message("assistant", "a\ud800b"))
    with served(gateway) as http:
        plain = http.post(CHAT, json=BODY, headers=bearer(session.secret))
        streamed = http.post(CHAT, json=BODY | {"stream": True}, headers=bearer(session.secret))
    assert plain.status_code == 200
    assert "\\ud800" in plain.text
    assert "\\ud800" in streamed.text


def test_a_policy_that_returns_no_message_is_a_500_that_keeps_its_secrets(gateway, caplog):
    session = gateway.open(policy=lambda messages, tools: "just text")
    with served(gateway) as http:
        reply = http.post(CHAT, json=BODY, headers=bearer(session.secret))
    assert reply.status_code == 500
    assert reply.json()["error"]["message"] == "the policy failed: TypeError"
    assert session.secret not in caplog.text
    assert "just text" in caplog.text
