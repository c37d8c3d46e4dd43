"""Anthropic Messages on the gateway: as the real client speaks it, and as the bytes have it."""

import threading
from typing import Any

import anthropic
import httpx
import pytest
from strands import Agent
from strands.models.anthropic import AnthropicModel

from rft_agent_sdk.gateway import Delta, Faults, Gateway, Policy, Refusal, Reply
from rft_agent_sdk.gateway.canonical import reply_key
from rft_agent_sdk.gateway.dialects.anthropic_messages import signature
from rft_agent_sdk.types import Message, SamplingParams, ToolCall, Usage
from tests.gateway.serve import (
    JOB,
    bearer,
    echo,
    events,
    guess,
    job_headers,
    mint,
    served,
    url_of,
)
from tests.gateway.test_strands_agent import guess_word

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TOOL: dict[str, Any] = {
    "name": "guess_word",
    "input_schema": {"type": "object", "properties": {"guess": {"type": "string"}}},
}
SAY_GO: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "go"}],
}
SECOND_TURN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "SYS", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "I try."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "guess_word",
                    "input": {"guess": "CRANE"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and hurry"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [{"type": "text", "text": "bad"}, {"type": "text", "text": "word"}],
                },
            ],
        },
    ],
    "tools": [TOOL],
}
HISTORY = (
    Message("system", "SYS"),
    Message("user", "go"),
    Message("assistant", "I try.", "t", (ToolCall("guess_word", '{"guess":"CRANE"}', "toolu_1"),)),
    Message("tool", "bad\nword", tool_call_id="toolu_1", is_error=True),
    Message("user", "and hurry"),
)


async def stops(messages, tools) -> Reply:
    """A policy that thinks, talks, and calls a tool without arguments."""
    call = ToolCall("stop", "", "call_9")
    return Reply(Message("assistant", "Ok.", "r", (call,)), "tool_calls", Usage(21, 7))


@pytest.fixture
def gateway():
    return Gateway()


def client_of(http: httpx.Client, key: str, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url_of(http), api_key=key, **options)


def streamed_message(client: anthropic.Anthropic, body: dict[str, Any]) -> Any:
    with client.messages.stream(**body) as stream:
        return stream.get_final_message()


def named_events(text: str) -> list[tuple[str, Any]]:
    """Return a stream's events with the names on their `event:` lines."""
    names = [line.removeprefix("event: ") for line in text.splitlines() if line[:6] == "event:"]
    return list(zip(names, events(text), strict=True))


def test_a_second_turn_is_read_in_the_order_of_call_result_and_text(gateway):
    session = gateway.open(policy=stops)
    with served(gateway) as http, client_of(http, session.secret) as client:
        plain = client.messages.create(**SECOND_TURN)
        streamed = streamed_message(client, SECOND_TURN)
    assert [turn.messages for turn in session.turns] == [HISTORY, HISTORY]
    for reply in (plain, streamed):
        thinking, text, call = reply.content
        assert (thinking.type, thinking.thinking) == ("thinking", "r")
        assert (text.type, text.text) == ("text", "Ok.")
        assert (call.type, call.name, call.input) == ("tool_use", "stop", {})
        assert reply.stop_reason == "tool_use"
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (21, 7)


def test_the_bytes_of_a_plain_reply(gateway):
    session = gateway.open(policy=stops)
    with served(gateway) as http:
        reply = http.post(MESSAGES, json=SECOND_TURN, headers=bearer(session.secret)).json()
    assert reply.pop("id").startswith("msg_")
    mark = reply["content"][0].pop("signature")
    assert mark == signature("r")
    assert reply == {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "r"},
            {"type": "text", "text": "Ok."},
            {"type": "tool_use", "id": "call_9", "name": "stop", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 21, "output_tokens": 7},
    }


def test_the_events_of_a_stream(gateway):
    session = gateway.open(policy=stops)
    body = SECOND_TURN | {"stream": True}
    with served(gateway) as http:
        reply = http.post(MESSAGES, json=body, headers=bearer(session.secret))
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = named_events(reply.text)
    assert all(name == event["type"] for name, event in found)
    short = [
        (name.removeprefix("content_block_"), event.get("index"), event.get("delta", {}))
        for name, event in found
    ]
    mark = short[3][2].pop("signature")
    assert mark == signature("r")
    assert short == [
        ("message_start", None, {}),
        ("start", 0, {}),
        ("delta", 0, {"type": "thinking_delta", "thinking": "r"}),
        ("delta", 0, {"type": "signature_delta"}),
        ("stop", 0, {}),
        ("start", 1, {}),
        ("delta", 1, {"type": "text_delta", "text": "Ok."}),
        ("stop", 1, {}),
        ("start", 2, {}),
        ("delta", 2, {"type": "input_json_delta", "partial_json": ""}),
        ("stop", 2, {}),
        ("message_delta", None, {"stop_reason": "tool_use", "stop_sequence": None}),
        ("message_stop", None, {}),
    ]
    assert found[-2][1]["usage"] == {"input_tokens": 21, "output_tokens": 7}
    assert found[8][1]["content_block"]["input"] == {}


REPLIES = {
    "all": Reply(Message("assistant", "a", "b", (ToolCall("f", '{"x": [1, 2.5, "ü"]}', "c"),))),
    "parallel": Reply(
        Message("assistant", tool_calls=(ToolCall("f", "{}", "c1"), ToolCall("f", "null", "c2")))
    ),
    "no object": Reply(Message("assistant", tool_calls=(ToolCall("f", "{oops", "c"),))),
    "a list": Reply(Message("assistant", tool_calls=(ToolCall("f", "[1]", "c"),))),
    "cut off": Reply(Message("assistant", '<tool_call>{"na', "b"), "length", Usage(1, 9)),
    "thinking only": Reply(Message("assistant", "", "b"), "length"),
    "nothing": Reply(Message("assistant", "", "")),
    "surrogates": Reply(Message("assistant", "a\ud800", "b\ud800")),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_stream_adds_up_to_the_plain_reply(gateway, reply):
    async def policy(messages, tools):
        return reply

    session = gateway.open(policy=policy)
    with served(gateway) as http, client_of(http, session.secret) as client:
        plain = client.messages.create(**SAY_GO)
        streamed = streamed_message(client, SAY_GO)
    left_out = {"id", "content"}
    assert streamed.model_dump(exclude=left_out) == plain.model_dump(exclude=left_out)
    assert [block.to_dict() for block in streamed.content] == [
        block.to_dict() for block in plain.content
    ]


# No client can send a lone surrogate back.
@pytest.mark.parametrize("name", sorted(set(REPLIES) - {"surrogates"}))
def test_what_a_client_echoes_is_read_as_what_was_served(gateway, name):
    served_reply = REPLIES[name]

    async def policy(messages, tools):
        return served_reply

    session = gateway.open(policy=policy)
    with served(gateway) as http, client_of(http, session.secret) as client:
        for first in (client.messages.create(**SAY_GO), streamed_message(client, SAY_GO)):
            echo_of_it = {"role": "assistant", "content": [b.to_dict() for b in first.content]}
            history = [*SAY_GO["messages"], echo_of_it, {"role": "user", "content": "on"}]
            client.messages.create(**SAY_GO | {"messages": history})
    wanted = served_reply.message
    for turn in session.turns[2:]:
        got = turn.messages[1]
        assert reply_key(got) == reply_key(wanted)
        assert got.reasoning == (wanted.reasoning or None)
        assert [call.id for call in got.tool_calls] == [call.id for call in wanted.tool_calls]


class Pieces(Policy):
    """Streams pieces in an order of its own, then the whole."""

    def __init__(self, reply: Reply, *pieces: Delta) -> None:
        self._whole = reply
        self._pieces = pieces

    async def reply(self, request):
        return self._whole

    async def stream(self, request):
        for piece in self._pieces:
            yield piece
        yield self._whole


DISORDERLY = {
    "thinking after text": (
        Delta(reasoning="a"),
        Delta(text="x"),
        Delta(reasoning="b"),
        Delta(text="yz"),
    ),
    "both at once": (Delta(text="xy", reasoning="ab"), Delta(text="z")),
    "calls in turns": (
        Delta(reasoning="ab", text="xyz"),
        Delta(call_index=0, call_id="c0", call_name="f", call_arguments="{"),
        Delta(call_index=1, call_id="c1", call_name="g", call_arguments="{"),
        Delta(call_index=0, call_arguments="}"),
    ),
    "pieces that were never sent": (Delta(text="x"),),
    "none": (),
}


@pytest.mark.parametrize("pieces", DISORDERLY.values(), ids=DISORDERLY)
def test_pieces_in_any_order_make_blocks_one_after_the_other(gateway, pieces):
    calls = (ToolCall("f", "{}", "c0"), ToolCall("g", '{"n":1}', "c1"))
    whole = Reply(Message("assistant", "xyz", "ab", calls))
    session = gateway.open(policy=Pieces(whole, *pieces))
    body = SAY_GO | {"stream": True}
    with served(gateway) as http, client_of(http, session.secret) as client:
        found = events(http.post(MESSAGES, json=body, headers=bearer(session.secret)).text)
        message = streamed_message(client, SAY_GO)
    kinds = [event["type"] for event in found if "index" in event]
    indexes = [event["index"] for event in found if "index" in event]
    assert indexes == sorted(indexes)
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")
    assert indexes[-1] + 1 == kinds.count("content_block_stop")
    blocks = message.content
    thoughts = [block for block in blocks if block.type == "thinking"]
    assert "".join(block.thinking for block in thoughts) == "ab"
    assert all(block.signature == signature(block.thinking) for block in thoughts)
    assert "".join(block.text for block in blocks if block.type == "text") == "xyz"
    assert [block.input for block in blocks if block.type == "tool_use"] == [{}, {"n": 1}]


def test_thinking_and_text_are_passed_on_before_the_reply_is_whole(gateway):
    goes_on = threading.Event()

    class Halting(Policy):
        async def reply(self, request):
            raise AssertionError("the stream was asked for")

        async def stream(self, request):
            import asyncio

            yield Delta(reasoning="hm")
            yield Delta(text="one ")
            await asyncio.to_thread(goes_on.wait, 5)
            yield Delta(text="two")
            yield Reply(Message("assistant", "one two", "hm"))

    gateway = Gateway(keep_alive_s=0.05)
    session = gateway.open(policy=Halting())
    with served(gateway) as http, client_of(http, session.secret) as client:
        seen = []
        with client.messages.stream(**SAY_GO) as stream:
            for event in stream:
                if event.type == "text":
                    seen.append(event.text)
                    goes_on.wait(0.2)  # long enough for comments, which the client passes over
                    goes_on.set()
                if event.type == "message_stop":
                    assert len(session.turns) == 1
    assert seen == ["one ", "two"]


class Breaks(Policy):
    """Streams a word, then fails."""

    async def reply(self, request):
        raise Refusal(429, "slow down")

    async def stream(self, request):
        yield Delta(text="word")
        raise Refusal(429, "slow down")


def test_an_error_in_mid_stream_is_an_event_that_the_client_raises(gateway):
    session = gateway.open(policy=Breaks())
    body = SAY_GO | {"stream": True}
    with served(gateway) as http, client_of(http, session.secret) as client:
        raw = http.post(MESSAGES, json=body, headers=bearer(session.secret)).text
        with pytest.raises(anthropic.APIStatusError, match="slow down"):
            streamed_message(client, SAY_GO)
    assert named_events(raw)[-1] == (
        "error",
        {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}},
    )
    assert not session.turns


@pytest.mark.parametrize(
    "headers",
    [
        lambda key: {"x-api-key": key},
        bearer,
        lambda key: {"authorization": f"bearer {key}", "x-api-key": "another"},
    ],
)
def test_the_secret_comes_as_api_key_or_as_bearer(gateway, headers):
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        reply = http.post(MESSAGES, json=SAY_GO, headers=headers(session.secret))
    assert reply.json()["content"] == [{"type": "text", "text": "you said go"}]
    assert session.rollout.calls[0].auth == "session"
    assert session.secret not in repr(session.rollout.calls)


def test_an_unknown_secret_and_none_at_all_are_401(gateway):
    with served(gateway) as http:
        with (
            client_of(http, "not-a-session") as client,
            pytest.raises(anthropic.AuthenticationError, match="no session has this secret"),
        ):
            client.messages.create(**SAY_GO)
        for headers in ({"x-api-key": "not-a-session"}, {}):
            reply = http.post(MESSAGES, json=SAY_GO, headers=headers)
            assert reply.status_code == 401
            assert reply.json()["error"]["type"] == "authentication_error"


def test_a_sealed_session_is_a_conflict_the_client_does_not_retry(gateway):
    session = gateway.open(policy=echo)
    session.seal()
    with (
        served(gateway) as http,
        client_of(http, session.secret, max_retries=3) as client,
        pytest.raises(anthropic.ConflictError) as caught,
    ):
        client.messages.create(**SAY_GO)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.type == "conflict_error"
    assert len(session.rollout.calls) == 1


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        (Faults(throttle_first=2, retry_after_s=0.01), 429),
        (Faults(error_first=1), 500),
        (Faults(lose_reply_first=1), None),
    ],
)
def test_the_client_retries_what_will_pass(gateway, faults, status):
    session = gateway.open(policy=echo, faults=faults)
    with served(gateway) as http, client_of(http, session.secret, max_retries=2) as client:
        reply = client.messages.create(**SAY_GO)
    assert reply.content[0].text == "you said go"
    first, *_, last = session.rollout.calls
    assert (first.status, last.status) == (status, 200)
    assert first.operation == "Messages"
    assert last.headers["x-stainless-retry-count"] == str(len(session.rollout.calls) - 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (500, "api_error"),
        (502, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_type_that_belongs_to_their_status(gateway, status, kind):
    async def refuses(messages, tools):
        raise Refusal(status, "no", param="here")

    session = gateway.open(policy=refuses)
    with served(gateway) as http:
        reply = http.post(MESSAGES, json=SAY_GO, headers=bearer(session.secret))
    assert reply.status_code == status
    assert reply.json() == {"type": "error", "error": {"type": kind, "message": "here: no"}}


def test_a_full_context_is_told_in_the_words_that_agents_know(gateway):
    async def refuses(messages, tools):
        raise Refusal(400, "9000 tokens > 8192", code="context_length_exceeded")

    session = gateway.open(policy=refuses)
    with (
        served(gateway) as http,
        client_of(http, session.secret) as client,
        pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9000 tokens > 8192"),
    ):
        client.messages.create(**SAY_GO)


def test_a_large_body_and_one_that_is_no_json_are_told_in_the_same_shape():
    gateway = Gateway(max_body_bytes=2000)
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        key = bearer(session.secret)
        large = http.post(MESSAGES, json=SAY_GO | {"system": "x" * 3000}, headers=key)
        broken = http.post(MESSAGES, content=b"{", headers=key)
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_count_of_tokens_leaves_no_trace(gateway):
    session = gateway.open(policy=guess, faults=Faults(throttle_first=1))
    job = gateway.register_job(JOB, policy=echo)
    body = {name: value for name, value in SECOND_TURN.items() if name != "max_tokens"}
    with served(gateway) as http, client_of(http, session.secret, max_retries=0) as client:
        count = client.messages.count_tokens(**body)
        fewer = client.messages.count_tokens(model="m", messages=SAY_GO["messages"])
        wrong = http.post(COUNT, json={"messages": []}, headers=bearer(session.secret))
        lost = http.post(COUNT, json=SAY_GO, headers=bearer("not-a-session"))
        twin = http.post(COUNT, json=SAY_GO, headers=job_headers(mint()))
        with pytest.raises(anthropic.RateLimitError):  # the first fault was not spent
            client.messages.create(**SAY_GO)
        reply = client.messages.create(**SECOND_TURN)
        session.seal()
        assert client.messages.count_tokens(**body) == count
    assert count.input_tokens == reply.usage.input_tokens > fewer.input_tokens > 0
    assert (wrong.status_code, lost.status_code) == (400, 401)
    assert wrong.json()["type"] == lost.json()["type"] == "error"
    assert twin.json() == {"input_tokens": 1}
    assert [call.status for call in session.rollout.calls] == [429, 200]
    assert len(session.turns) == 1
    assert not gateway.stray_calls
    assert not job.trajectories


def test_a_count_comes_from_the_policy(gateway):
    class Counts(Policy):
        async def reply(self, request):
            raise AssertionError("nothing is sampled")

        async def count_tokens(self, request):
            return 100 * len(request.messages) + len(request.tools)

    session = gateway.open(policy=Counts())
    with served(gateway) as http, client_of(http, session.secret) as client:
        body = {name: value for name, value in SECOND_TURN.items() if name != "max_tokens"}
        assert client.messages.count_tokens(**body).input_tokens == 501


def test_a_history_that_ends_with_the_assistant_can_be_counted_but_not_gone_on_from(gateway):
    session = gateway.open(policy=echo)
    body = SAY_GO | {"messages": SECOND_TURN["messages"][:2]}
    with served(gateway) as http:
        counted = http.post(COUNT, json=body, headers=bearer(session.secret))
        refused = http.post(MESSAGES, json=body, headers=bearer(session.secret))
    assert (counted.status_code, refused.status_code) == (200, 400)
    assert "prefill" in refused.json()["error"]["message"]


def test_sampling_parameters_that_the_session_fixes_hold(gateway):
    seen = []

    class Watches(Policy):
        extras = frozenset({"top_k", "stop"})

        async def reply(self, request):
            seen.append(request)
            return Reply(Message("assistant", "ok"))

    session = gateway.open(policy=Watches(), sampling=SamplingParams(temperature=1.0))
    with served(gateway) as http, client_of(http, session.secret) as client:
        # which parameters the client has a keyword for differs with its version
        asked = {"temperature": 0.2, "top_p": 0.5, "top_k": 5, "stop_sequences": ["END"]}
        client.messages.create(**SAY_GO, extra_body=asked)
        with pytest.raises(anthropic.BadRequestError, match="thinking: the policy here cannot"):
            client.messages.create(**SAY_GO, thinking={"type": "disabled"})
    assert seen[0].sampling == SamplingParams(1.0, 0.5, 64)
    assert seen[0].extras == {"top_k": 5, "stop": ["END"]}
    assert session.rollout.counts["sampling_ignored"] == 1
    assert session.rollout.calls[0].body["max_tokens"] == 64
    assert not {"messages", "system", "tools"} & set(session.rollout.calls[0].body)


async def test_the_async_client_streams_and_asks_plainly(gateway):
    session = gateway.open(policy=guess)
    with served(gateway) as http:
        async with anthropic.AsyncAnthropic(
            base_url=url_of(http), auth_token=session.secret
        ) as client:
            plain = await client.messages.create(**SAY_GO)
            async with client.messages.stream(**SAY_GO) as stream:
                streamed = await stream.get_final_message()
    assert [block.to_dict() for block in plain.content] == [
        block.to_dict() for block in streamed.content
    ]


def test_a_job_is_sampled_by_bearer_token_and_headers(gateway):
    job = gateway.register_job(JOB, policy=echo)
    with served(gateway) as http:
        reply = http.post(MESSAGES, json=SAY_GO, headers=job_headers(mint()))
        unnamed = http.post(MESSAGES, json=SAY_GO, headers=bearer(mint()))
    assert reply.json()["content"][0]["text"] == "you said go"
    assert len(job.trajectories["t1"].turns) == 1
    assert (unnamed.status_code, unnamed.json()["error"]["type"]) == (401, "authentication_error")


async def test_a_strands_agent_plays_two_turns_and_sends_its_reasoning_back(gateway):
    session = gateway.open(policy=guess)
    with served(gateway) as http:
        model = AnthropicModel(
            client_args={"base_url": url_of(http), "api_key": session.secret},
            model_id="default",
            max_tokens=64,
        )
        agent = Agent(model=model, tools=[guess_word], system_prompt="SYS", callback_handler=None)
        result = await agent.invoke_async("go")
        await model.client.close()
    assert str(result).strip() == "done: Guess 1/6: CRANE"
    first, second = session.turns
    assert second.messages == (
        *first.messages,
        first.reply,
        Message("tool", "Guess 1/6: CRANE", tool_call_id="call_1"),
    )
    assert first.messages == (Message("system", "SYS"), Message("user", "go"))
    assert first.reply.reasoning == "think hard"
    assert result.metrics.accumulated_usage["outputTokens"] > 0
