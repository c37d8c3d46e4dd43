"""The chat route as the OpenAI client speaks it, sync and async, plain and streamed."""

from typing import Any

import httpx
import openai
import pytest

from rft_agent_sdk.gateway import Faults, Gateway, Reply
from rft_agent_sdk.types import Message, SamplingParams, ToolCall, Usage
from tests.gateway.serve import (
    BODY,
    GUESS_TOOL,
    JOB,
    bearer,
    echo,
    guess,
    job_headers,
    mint,
    served,
    url_of,
)

SAY_GO: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": "go"}]}


@pytest.fixture
def gateway():
    return Gateway()


def openai_client(http: httpx.Client, key: str, **options: Any) -> Any:
    return openai.OpenAI(base_url=f"{url_of(http)}/v1", api_key=key, **options)


def test_a_plain_completion_carries_text_reasoning_calls_and_usage(gateway):
    session = gateway.open(policy=guess)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        reply = client.chat.completions.create(**SAY_GO, tools=[GUESS_TOOL])
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I try."
    assert choice.message.reasoning_content == "think hard"
    assert choice.message.tool_calls[0].function.arguments == '{"guess":"CRANE"}'
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
    assert session.turns[0].reply.reasoning == "think hard"


def test_a_stream_adds_up_to_the_plain_reply(gateway):
    session = gateway.open(policy=guess)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        with client.chat.completions.stream(
            **SAY_GO, tools=[GUESS_TOOL], stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()
        plain = client.chat.completions.create(**SAY_GO, tools=[GUESS_TOOL])
    got, wanted = streamed.choices[0], plain.choices[0]
    assert got.finish_reason == wanted.finish_reason
    assert got.message.content == wanted.message.content
    assert got.message.tool_calls[0].id == wanted.message.tool_calls[0].id == "call_1"
    assert (
        got.message.tool_calls[0].function.arguments
        == wanted.message.tool_calls[0].function.arguments
    )
    assert streamed.usage == plain.usage
    first, second = session.turns
    assert first == second


def test_usage_is_streamed_only_when_asked_for(gateway):
    session = gateway.open(policy=echo)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        chunks = list(client.chat.completions.create(**SAY_GO, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_the_async_client_streams_and_asks_plainly(gateway):
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        async with openai.AsyncOpenAI(
            base_url=f"{url_of(http)}/v1", api_key=session.secret
        ) as client:
            plain = await client.chat.completions.create(**SAY_GO)
            stream = await client.chat.completions.create(**SAY_GO, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert plain.choices[0].message.content == "".join(parts) == "you said go"


def test_parallel_calls_get_distinct_ids_that_the_stored_turn_shares(gateway):
    def twice(messages, tools):
        calls = (ToolCall("guess_word", '{"guess":"CRANE"}'), ToolCall("guess_word", "{}"))
        return Message("assistant", "Two openers.", tool_calls=calls)

    session = gateway.open(policy=twice)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        reply = client.chat.completions.create(**SAY_GO, tools=[GUESS_TOOL])
        with client.chat.completions.stream(**SAY_GO, tools=[GUESS_TOOL]) as stream:
            streamed = stream.get_final_completion()
    for turn, seen in zip(session.turns, (reply, streamed), strict=True):
        ids = [call.id for call in seen.choices[0].message.tool_calls]
        assert len(set(ids)) == 2
        assert ids == [call.id for call in turn.reply.tool_calls]


def test_a_call_that_a_backend_ended_with_stop_is_reported_as_tool_calls(gateway):
    async def stops(messages, tools):
        call = ToolCall("guess_word", "{}", "c")
        return Reply(Message("assistant", tool_calls=(call,)), "stop", Usage(3, 4))

    session = gateway.open(policy=stops)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        reply = client.chat.completions.create(**SAY_GO, tools=[GUESS_TOOL])
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.content is None
    assert reply.usage.prompt_tokens == 3


def test_a_cut_off_reply_is_reported_as_length(gateway):
    async def cut(messages, tools):
        return Reply(Message("assistant", '<tool_call>{"name": "gue'), "length", Usage(1, 9))

    session = gateway.open(policy=cut)
    with served(gateway) as http, openai_client(http, session.secret) as client:
        plain = client.chat.completions.create(**SAY_GO)
        chunks = list(client.chat.completions.create(**SAY_GO, stream=True))
    assert plain.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "length"
    assert plain.choices[0].message.tool_calls is None


def test_a_job_is_sampled_by_bearer_token_and_headers(gateway):
    job = gateway.register_job(JOB, policy=echo)
    token = mint()
    headers = {name: value for name, value in job_headers(token).items() if name != "authorization"}
    with served(gateway) as http, openai_client(http, token, default_headers=headers) as client:
        client.chat.completions.create(**SAY_GO, temperature=0.7, max_tokens=64)
    call = job.trajectories["t1"].calls[0]
    assert call.auth == "bearer"
    assert call.body == {"model": "default", "temperature": 0.7, "max_tokens": 64}
    assert call.signed_at
    assert token not in repr(job.trajectories["t1"].calls)


def test_an_unknown_job_is_told_in_openais_shape_with_the_services_words(gateway):
    token = mint()
    with (
        served(gateway) as http,
        openai_client(http, token, max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="Could not find job") as caught,
    ):
        client.chat.completions.create(**SAY_GO, extra_headers=job_headers(token))
    assert caught.value.code == "ValidationException"


def test_a_sealed_session_is_a_conflict_the_client_does_not_retry(gateway):
    session = gateway.open(policy=echo)
    session.seal()
    with (
        served(gateway) as http,
        openai_client(http, session.secret, max_retries=3) as client,
        pytest.raises(openai.ConflictError),
    ):
        client.chat.completions.create(**SAY_GO)
    assert len(session.rollout.calls) == 1


def test_an_unknown_secret_and_no_secret_at_all_are_401(gateway):
    with served(gateway) as http:
        with (
            openai_client(http, "not-a-session") as client,
            pytest.raises(openai.AuthenticationError, match="no session has this secret"),
        ):
            client.chat.completions.create(**SAY_GO)
        bare = http.post("/v1/chat/completions", json=BODY)
        uncounted = http.post("/v1/chat/completions", json=BODY, headers=bearer(mint()))
    for reply in (bare, uncounted):
        assert reply.status_code == 401
        assert "X-Amzn-SageMaker-Job-Arn" in reply.json()["error"]["message"]


def test_sampling_parameters_that_the_session_fixes_hold(gateway):
    seen = []

    def watch(messages, tools):
        return Message("assistant", "ok")

    session = gateway.open(policy=watch, sampling=SamplingParams(temperature=1.0))
    reply = session.rollout.terms.policy.reply

    async def spy(request):
        seen.append(request.sampling)
        return await reply(request)

    session.rollout.terms.policy.reply = spy
    with served(gateway) as http, openai_client(http, session.secret) as client:
        client.chat.completions.create(**SAY_GO, temperature=0.2, top_p=0.5)
    assert seen == [SamplingParams(temperature=1.0, top_p=0.5)]
    assert session.rollout.counts["sampling_ignored"] == 1


def test_throttling_says_how_long_to_wait(gateway):
    session = gateway.open(policy=echo, faults=Faults(throttle_first=1, retry_after_s=0.01))
    with served(gateway) as http, openai_client(http, session.secret) as client:
        client.chat.completions.create(**SAY_GO)
    refused, answered = session.rollout.calls
    assert (refused.status, answered.status) == (429, 200)
    assert answered.at - refused.at < 0.4  # the client's own pause would be half a second at least
