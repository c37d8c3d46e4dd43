"""Server-sent events: at once, kept alive, and never ended before the turn is stored."""

import threading
import time

import httpx
import pytest

from rft_agent_sdk.gateway import Delta, Gateway, Policy, Refusal, Reply
from rft_agent_sdk.types import Message
from tests.gateway.serve import BODY, bearer, echo, events, served

STREAMED = BODY | {"stream": True, "stream_options": {"include_usage": True}}
CHAT = "/v1/chat/completions"


def test_headers_and_role_come_before_the_policy_has_answered():
    gateway = Gateway(keep_alive_s=0.05)
    answer = threading.Event()

    def waits(messages, tools):
        answer.wait(5)
        return Message("assistant", "at last")

    session = gateway.open(policy=waits)
    with (
        served(gateway) as http,
        http.stream("POST", CHAT, json=STREAMED, headers=bearer(session.secret)) as reply,
    ):
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        assert '"role":"assistant"' in next(lines)
        assert next(line for line in lines if line) == ": keep-alive"
        assert not session.turns
        answer.set()
        assert "at last" in "".join(lines)


def test_the_stream_has_role_text_finish_usage_and_end_in_order():
    gateway = Gateway()
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        reply = http.post(CHAT, json=STREAMED, headers=bearer(session.secret))
    role, text, finish, usage, done = events(reply.text)
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert text["choices"][0]["delta"] == {"content": "you said go"}
    assert text["usage"] is None
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0
    assert done == "[DONE]"
    assert len({event["id"] for event in (role, text, finish, usage)}) == 1


def test_the_turn_is_stored_when_the_finish_reason_arrives():
    gateway = Gateway()
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        for _ in range(20):
            before = len(session.turns)
            with http.stream("POST", CHAT, json=STREAMED, headers=bearer(session.secret)) as reply:
                next(line for line in reply.iter_lines() if '"finish_reason":"stop"' in line)
                assert len(session.turns) == before + 1


def test_a_client_that_hangs_up_loses_no_turn():
    gateway = Gateway()
    asked, answer = threading.Event(), threading.Event()

    def waits(messages, tools):
        asked.set()
        answer.wait(5)
        return Message("assistant", "too late for you")

    for body in (BODY, STREAMED):
        asked.clear()
        answer.clear()
        session = gateway.open(policy=waits)
        with served(gateway) as http:
            with pytest.raises(httpx.ReadTimeout):
                http.post(CHAT, json=body, headers=bearer(session.secret), timeout=0.2)
            assert asked.wait(5)
            http.close()
            answer.set()
            deadline = time.monotonic() + 5
            while not session.turns and time.monotonic() < deadline:
                time.sleep(0.01)
        assert [turn.reply.text for turn in session.turns] == ["too late for you"]


def test_a_reply_that_comes_after_the_end_is_dropped_and_counted():
    gateway = Gateway()
    asked, answer = threading.Event(), threading.Event()

    def waits(messages, tools):
        asked.set()
        answer.wait(5)
        return Message("assistant", "late")

    session = gateway.open(policy=waits)
    replies: list[httpx.Response] = []
    with served(gateway) as http:

        def send():
            replies.append(http.post(CHAT, json=BODY, headers=bearer(session.secret)))

        thread = threading.Thread(target=send)
        thread.start()
        assert asked.wait(5)
        trajectory = session.seal()
        answer.set()
        thread.join()
    assert replies[0].status_code == 409
    assert (session.turns, trajectory.turns) == ((), 0)
    assert session.rollout.counts["late"] == 1


class Breaks(Policy):
    """Streams a word, then fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def reply(self, request):
        raise self._error

    async def stream(self, request):
        yield Delta(text="word")
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Refusal(429, "slow down"), 429, "slow down"),
        (ValueError("holds a secret"), 500, "the policy failed: ValueError"),
    ],
)
def test_a_failing_policy_is_an_error_and_no_turn(error, status, text, caplog):
    gateway = Gateway()
    session = gateway.open(policy=Breaks(error))
    with served(gateway) as http:
        plain = http.post(CHAT, json=BODY, headers=bearer(session.secret))
        streamed = http.post(CHAT, json=STREAMED, headers=bearer(session.secret))
    assert plain.status_code == status
    assert plain.json()["error"]["message"] == text
    _, word, last = events(streamed.text)
    assert word["choices"][0]["delta"]["content"] == "word"
    assert last["error"]["message"] == text
    assert not session.turns
    assert session.rollout.counts["stream_broken"] == 1


class Slow(Policy):
    """Streams two words with a pause between them."""

    async def reply(self, request):
        raise AssertionError("the stream was asked for")

    async def stream(self, request):
        import asyncio

        yield Delta(reasoning="hm")
        await asyncio.sleep(0.2)
        yield Delta(text="two")
        yield Reply(Message("assistant", "two", "hm"))


def test_pieces_are_passed_on_as_they_come():
    gateway = Gateway(keep_alive_s=0.05)
    session = gateway.open(policy=Slow())
    with served(gateway) as http:
        reply = http.post(CHAT, json=STREAMED, headers=bearer(session.secret))
    assert reply.text.count(": keep-alive") >= 2
    assert reply.text.index("hm") < reply.text.index(": keep-alive") < reply.text.index("two")
    assert session.turns[0].reply.reasoning == "hm"
