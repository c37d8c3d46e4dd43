"""A policy behind another OpenAI-compatible server: forwarded, streamed through, its errors mapped."""

from typing import Any

import httpx
import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Gateway, GatewayServer, OpenAIPolicy, Session
from rft_agent_sdk.types import SamplingParams
from tests.gateway.serve import BODY, GUESS_TOOL, bearer, events, guess, served
from tests.servers import Answer, ScriptedServer, completion

CHAT = "/v1/chat/completions"
STREAMED = BODY | {"stream": True}


def ask(policy: Any, body: Any = BODY, **options: Any) -> tuple[httpx.Response, Session]:
    """Ask a gateway with this policy once; returns the reply and the session."""
    gateway = Gateway()
    session = gateway.open(policy=policy, **options)
    with served(gateway) as http:
        return http.post(CHAT, json=body, headers=bearer(session.secret)), session


def test_the_request_goes_through_with_its_further_fields_and_the_fixed_sampling(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    body = BODY | {
        "tools": [GUESS_TOOL],
        "tool_choice": "required",
        "temperature": 0.1,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    with ScriptedServer(lambda seen, count: completion("hello")) as upstream:
        policy = OpenAIPolicy(upstream.url, model="real-name")
        reply, session = ask(policy, body, sampling=SamplingParams(temperature=1.0))
    (seen,) = upstream.samples
    assert seen.headers["authorization"] == "Bearer a-key"
    assert seen.json == body | {"temperature": 1.0, "model": "real-name", "stream": False}
    assert reply.json()["choices"][0]["message"]["content"] == "hello"
    assert (session.turns[0].usage.prompt_tokens, session.turns[0].usage.completion_tokens) == (
        3,
        2,
    )


def test_a_conversation_with_calls_and_reasoning_goes_through_whole():
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "content": "r", "tool_call_id": "c1"},
    ]
    with ScriptedServer(lambda seen, count: completion()) as upstream:
        ask(f"openai:{upstream.url}#m", {"messages": messages})
    assert upstream.samples[0].json["messages"] == messages
    assert upstream.samples[0].json["model"] == "m"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_gateway_behind_a_gateway_gives_the_same_turn(monkeypatch, streamed):
    inner = Gateway()
    behind = inner.open(policy=guess)
    monkeypatch.setenv("OPENAI_API_KEY", behind.secret)
    with GatewayServer(inner) as upstream:
        policy = OpenAIPolicy(upstream.url)
        reply, session = ask(policy, BODY | {"stream": streamed, "tools": [GUESS_TOOL]})
    assert reply.status_code == 200
    assert session.turns == behind.turns


def test_the_stream_is_passed_on_piece_by_piece():
    with ScriptedServer(lambda seen, count: completion("hi", calls=[("f", "{}")])) as upstream:
        reply, session = ask(OpenAIPolicy(upstream.url), STREAMED)
    assert upstream.samples[0].json["stream_options"] == {"include_usage": True}
    found = events(reply.text)
    assert found[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert found[1]["choices"][0]["delta"]["content"] == "hi"
    assert found[2]["choices"][0]["delta"]["tool_calls"][0]["id"] == "call_0"
    assert session.turns[0].reply.tool_calls[0].id == "call_0"
    assert session.turns[0].usage.prompt_tokens == 3


ERROR = {"error": {"message": "too long", "code": "context_length_exceeded", "param": "messages"}}


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (Answer(400, ERROR), 400, "too long"),
        (Answer(429, {"detail": "busy"}, {"retry-after": "7"}), 429, "busy"),
        (Answer(401, {"error": {"message": "bad key"}}), 502, "answered 401: bad key"),
        (Answer(404, {"message": "no such model"}), 502, "no such model"),
        (Answer(503, b"<html>"), 502, "answered 503"),
        (Answer(200, {"choices": []}), 502, "no chat completion"),
        (Answer(200, b"nonsense"), 502, "no chat completion"),
        (Answer(drop=True), 502, "the policy server failed"),
    ],
)
def test_errors_of_the_server_are_mapped_and_leave_no_turn(answer, status, text):
    with ScriptedServer(lambda seen, count: answer) as upstream:
        reply, session = ask(OpenAIPolicy(upstream.url))
    assert reply.status_code == status
    assert text in reply.json()["error"]["message"]
    assert not session.turns
    if status == 429:
        assert reply.headers["retry-after"] == "7"
    if answer.body == ERROR:
        assert reply.json()["error"]["code"] == "context_length_exceeded"


HEAD = b'data: {"choices":[{"index":0,"delta":{"content":"par"},"finish_reason":null}]}\n\n'


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (HEAD, "ended before the reply did"),
        (HEAD + b"data: [DONE]\n\n", "ended before the reply did"),
        (HEAD + b'data: {"error":{"message":"out of memory"}}\n\n', "out of memory"),
        (HEAD + b"data: {\n\n", "not JSON"),
        (HEAD + b'data: {"choices":[3]}\n\n', "cannot be read"),
    ],
)
def test_a_stream_that_breaks_off_is_an_error_and_no_turn(stream, text):
    with ScriptedServer(lambda seen, count: Answer(body=stream)) as upstream:
        reply, session = ask(OpenAIPolicy(upstream.url), STREAMED)
    assert text in events(reply.text)[-1]["error"]["message"]
    assert not session.turns


def test_calls_without_ids_or_indexes_of_their_own_get_ids_once():
    chunks = (
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}\n\n'
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"name":"g"}}]}}]}\n\n'
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    with ScriptedServer(lambda seen, count: Answer(body=chunks)) as upstream:
        reply, session = ask(OpenAIPolicy(upstream.url), STREAMED)
    calls = session.turns[0].reply.tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("f", "{}"), ("g", "")]
    sent = [
        entry["id"]
        for event in events(reply.text)[:-1]
        for entry in event["choices"][0]["delta"].get("tool_calls", [])
        if "id" in entry
    ]
    assert sent == [call.id for call in calls]
    assert len(set(sent)) == 2
    assert session.turns[0].finish_reason == "tool_calls"


def test_silence_of_the_server_is_a_504():
    with ScriptedServer(lambda seen, count: Answer(delay_s=0.5)) as upstream:
        reply, session = ask(OpenAIPolicy(upstream.url, timeout_s=0.1))
    assert reply.status_code == 504
    assert not session.turns


def test_a_server_that_is_not_there_is_a_502():
    reply, _ = ask(OpenAIPolicy("http://127.0.0.1:1"))
    assert reply.status_code == 502


@pytest.mark.parametrize("spec", ["openai:", "openai:ftp://x", "gpt"])
def test_a_spec_that_names_no_server_is_refused(spec):
    with pytest.raises(UsageError):
        Gateway().open(policy=spec)


def test_a_policy_outlives_the_server_it_was_first_used_by():
    with ScriptedServer(lambda seen, count: completion("hi")) as upstream:
        policy = OpenAIPolicy(upstream.url)
        replies = [ask(policy)[0] for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 200]
    assert isinstance(replies[0], httpx.Response)
