"""Clients of the policy: whose request it is, for how long, with what, and how it is counted."""

import asyncio
import contextvars
import gc
import json
import logging
import ssl
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from strands import Agent

from rft_agent_sdk import Rollout, policy, tls
from rft_agent_sdk.context import rollout_context
from rft_agent_sdk.errors import NoRolloutError, RolloutCancelled, RolloutOver
from rft_agent_sdk.faults import classify
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.policy import (
    async_openai_client,
    openai_client,
    sample_once,
    strands_model,
)
from rft_agent_sdk.testing import FakeClock
from rft_agent_sdk.types import Outcome, Usage
from tests.servers import Answer, ScriptedServer, as_stream, completion, managed_payload

HELLO: Any = [{"role": "user", "content": "hello"}]
KEY = "key-of-this-session"


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.setattr(policy, "_refused_fields", set())


def managed(server, rollout_id="r1", *, temperature=1.0, **options) -> Rollout:
    payload = managed_payload(server.url, rollout_id)
    payload["inferenceParams"]["temperature"] = temperature
    return Rollout(parse_request(payload), allow_hosts=[server.host], **options)


def at_gateway(server, **options) -> Rollout:
    config = {"base_url": server.url, "api_key": KEY, "model_id": "m"}
    return Rollout(parse_request({"prompt": "go", "_config": config}), **options)


def ask(client, **kwargs):
    return client.chat.completions.create(**{"model": "mine", "messages": HELLO, **kwargs})


def ask_sync(rollout, *, stream=False, **kwargs):
    """Ask once with the synchronous client and return the text."""
    with rollout_context(rollout):
        reply = ask(rollout.openai(), stream=stream, **kwargs)
        if not stream:
            return reply.choices[0].message.content
        return "".join(part.choices[0].delta.content or "" for part in reply if part.choices)


async def ask_async(rollout, *, stream=False, **kwargs):
    with rollout_context(rollout):
        reply = await ask(rollout.async_openai(), stream=stream, **kwargs)
        if not stream:
            return reply.choices[0].message.content
        parts = [part async for part in reply]
        return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


def ask_in_a_loop(rollout, **kwargs):
    return asyncio.run(ask_async(rollout, **kwargs))


def ask_strands(rollout, *, stream=False):
    with rollout_context(rollout):
        agent = Agent(model=rollout.model(stream=stream), callback_handler=None)
        return str(agent("hello")).strip()


EVERY_CLIENT = pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop, ask_strands])
BOTH_MODES = pytest.mark.parametrize("stream", [False, True])


# ------------------------------------------------------------------ whose request it is

ROLLOUTS = 50


def refuse_then_fail_then_answer():
    """A script: the first request of each trajectory gets a 403, the second a 500, then answers."""
    asked: Counter[str] = Counter()

    def script(seen, count):
        asked[seen.trajectory] += 1
        first_answers = {
            1: Answer(403, {"Message": "Authentication failed"}),
            2: Answer(500, {"Message": "try again"}, headers={"retry-after-ms": "1"}),
        }
        return first_answers.get(asked[seen.trajectory], completion(f"for {seen.trajectory}"))

    return script


def in_threads(one, rollouts):
    def run(rollout):
        answers[rollout.request.rollout_id] = one(rollout)

    answers: dict[str, str] = {}
    threads = [threading.Thread(target=run, args=(rollout,)) for rollout in rollouts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def on_one_loop(one, rollouts):
    async def run():
        tasks = [asyncio.create_task(one(rollout)) for rollout in rollouts]
        return dict(
            zip((r.request.rollout_id for r in rollouts), await asyncio.gather(*tasks), strict=True)
        )

    return asyncio.run(run())


def openai_in_threads(rollouts, stream):
    return in_threads(lambda rollout: ask_sync(rollout, stream=stream), rollouts)


def openai_on_one_loop(rollouts, stream):
    return on_one_loop(lambda rollout: ask_async(rollout, stream=stream), rollouts)


def strands_in_threads(rollouts, stream):
    model = strands_model(stream=stream)  # one object for all of them

    def one(rollout):
        with rollout_context(rollout):
            return str(Agent(model=model, callback_handler=None)("hello")).strip()

    return in_threads(one, rollouts)


def strands_on_one_loop(rollouts, stream):
    model = strands_model(stream=stream)

    async def one(rollout):
        with rollout_context(rollout):
            agent = Agent(model=model, callback_handler=None)
            return str(await agent.invoke_async("hello")).strip()

    return on_one_loop(one, rollouts)


@BOTH_MODES
@pytest.mark.parametrize(
    "play", [openai_in_threads, openai_on_one_loop, strands_in_threads, strands_on_one_loop]
)
def test_rollouts_that_share_a_client_send_their_own_id_endpoint_and_parameters(play, stream):
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ScriptedServer(refuse_then_fail_then_answer())) for _ in range(2)
        ]
        rollouts = [
            managed(servers[i % 2], f"r{i}", temperature=i / 100, budget_s=50)
            for i in range(ROLLOUTS)
        ]
        answers = play(rollouts, stream)
    assert answers == {f"r{i}": f"for r{i}" for i in range(ROLLOUTS)}
    for parity, server in enumerate(servers):
        sent = [(seen.trajectory, seen.json["temperature"]) for seen in server.samples]
        mine = range(parity, ROLLOUTS, 2)
        assert Counter(sent) == {(f"r{i}", i / 100): 3 for i in mine}  # 403, 500, 200
        assert all(seen.json["max_tokens"] == 256 for seen in server.samples)
        assert all(
            seen.headers["authorization"].startswith("Bearer sagemaker-api-key-")
            for seen in server.samples
        )
    for rollout in rollouts:
        calls = rollout.calls
        assert (calls.attempted, calls.succeeded, calls.failed) == (3, 1, 2)


def open_files():
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
def test_hundreds_of_rollouts_leave_no_socket_open():
    """Answered, failed, dropped and broken-off, plain and streamed, in both clients."""

    def script(seen, count):
        faults = {0: Answer(500, headers={"retry-after-ms": "1"}), 9: Answer(drop=True)}
        return {**faults, 5: Answer(body=completion("half"), cut=40)}.get(count % 19, completion())

    def asks_twelve_times(rollout):
        for i in range(12):
            asking, stream = (ask_sync, ask_in_a_loop)[i % 2], i % 4 > 1
            with suppress(httpx.RemoteProtocolError):  # a broken stream is not the SDK's to retry
                asking(rollout, stream=stream)

    with ScriptedServer(script) as server:
        asks_twelve_times(managed(server))
        before = open_files()
        in_threads(asks_twelve_times, [managed(server, f"r{i}", budget_s=60) for i in range(25)])
        until = time.monotonic() + 5
        while (after := open_files()) > before and time.monotonic() < until:
            time.sleep(0.05)  # the server's side closes on its own threads
    assert len(server.samples) > 300
    assert after <= before


def test_one_tls_context_is_made_however_many_threads_ask(monkeypatch):
    made = []
    make = ssl.create_default_context

    def counted(**options):
        made.append(1)
        return make(**options)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    tls._tls_context.cache_clear()
    contexts = in_threads(
        lambda rollout: id(tls.tls_context()),
        [Rollout(parse_request(managed_payload("http://x.invalid", f"r{i}"))) for i in range(30)],
    )
    assert len(made) == 1
    assert len(set(contexts.values())) == 1


def test_closing_the_client_in_one_rollout_leaves_it_open_for_the_others():
    with ScriptedServer(lambda seen, count: completion()) as server:
        rollout = at_gateway(server)

        async def closes():
            async with rollout.async_openai() as client:
                await ask(client)
            await async_openai_client().close()
            return await ask_async(rollout)

        with rollout_context(rollout):
            with rollout.openai() as client:
                ask(client)
            openai_client().close()
            assert ask_sync(rollout) == "hi"
            assert asyncio.run(closes()) == "hi"


def test_a_clients_variants_are_bound_as_well():
    with ScriptedServer(lambda seen, count: completion()) as server:
        rollout = managed(server, "r7")
        client = openai_client().with_options(max_retries=0, timeout=5)
        chat = client.chat.completions
        with rollout_context(rollout):
            ask(client)
            chat.with_raw_response.create(model="x", messages=HELLO).parse()
            with chat.with_streaming_response.create(model="x", messages=HELLO) as reply:
                reply.read()
    assert [seen.trajectory for seen in server.samples] == ["r7"] * 3


# ------------------------------------------------------------------ not outside, and not for ever


@BOTH_MODES
def test_a_call_outside_any_rollout_is_refused_at_once_and_as_what_it_is(stream):
    started = time.monotonic()
    with pytest.raises(NoRolloutError, match="outside any rollout"):
        ask(openai_client(), stream=stream)
    with pytest.raises(NoRolloutError):
        asyncio.run(ask(async_openai_client(), stream=stream))
    agent = Agent(model=strands_model(stream=stream), callback_handler=None)
    with pytest.raises(NoRolloutError):
        agent("hello")
    with pytest.raises(NoRolloutError):
        asyncio.run(agent.invoke_async("hello"))
    assert time.monotonic() - started < 3  # eight retries would take forty seconds


def test_a_thread_that_does_not_copy_the_context_is_outside():
    with ScriptedServer(lambda seen, count: completion()) as server:
        rollout = managed(server)
        errors = []

        def bare():
            try:
                ask(openai_client())
            except NoRolloutError as error:
                errors.append(error)

        with rollout_context(rollout):
            context = contextvars.copy_context()
            for target in (bare, lambda: context.run(ask, openai_client())):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join(10)
    assert len(errors) == 1
    assert len(server.samples) == 1


@EVERY_CLIENT
def test_no_call_starts_past_the_deadline(asking):
    with ScriptedServer(lambda seen, count: completion()) as server:
        clock = FakeClock()
        rollout = managed(server, budget_s=10, clock=clock)
        clock.advance(10)
        with pytest.raises(RolloutOver):
            asking(rollout)
        assert server.seen == []
    assert rollout.calls.attempted == 0


@EVERY_CLIENT
def test_no_call_starts_in_a_rollout_that_was_cancelled_or_closed(asking):
    with ScriptedServer(lambda seen, count: completion()) as server:
        cancelled, closed = managed(server), managed(server)
        cancelled.cancel("test")
        closed.close()
        with pytest.raises(RolloutCancelled):
            asking(cancelled)
        with pytest.raises(RolloutOver):
            asking(closed)
        assert server.seen == []


@EVERY_CLIENT
@BOTH_MODES
def test_a_server_that_hangs_is_left_when_the_time_is_up(asking, stream):
    with ScriptedServer(lambda seen, count: Answer(body=completion(), delay_s=4)) as server:
        rollout = managed(server, budget_s=0.4)
        started = time.monotonic()
        with pytest.raises(RolloutOver) as caught:
            asking(rollout, stream=stream)
    assert time.monotonic() - started < 3
    assert classify(caught.value, rollout) is Outcome.TIMEOUT
    assert len(server.seen) == 1


@EVERY_CLIENT
def test_a_reply_that_still_comes_past_the_deadline_is_stopped(asking):
    slow = Answer(body=completion("a " * 40), trickle_s=0.15)
    with ScriptedServer(lambda seen, count: slow) as server:
        rollout = managed(server, budget_s=0.4)
        started = time.monotonic()
        with pytest.raises(RolloutOver) as caught:
            asking(rollout, stream=True)
    assert time.monotonic() - started < 1.5
    assert classify(caught.value, rollout) is Outcome.TIMEOUT
    assert (rollout.calls.succeeded, rollout.calls.failing) == (0, False)


@EVERY_CLIENT
def test_a_pause_that_the_server_asks_for_ends_with_the_rollouts_time(asking):
    slow = Answer(429, {"error": {"message": "slow down"}}, headers={"retry-after": "60"})
    with ScriptedServer(lambda seen, count: slow) as server:
        rollout = managed(server, budget_s=0.5)
        started = time.monotonic()
        with pytest.raises(RolloutOver) as caught:
            asking(rollout)
    assert 0.4 < time.monotonic() - started < 3
    assert classify(caught.value, rollout) is Outcome.INFRASTRUCTURE_ERROR
    assert len(server.seen) == 1


@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_the_callers_own_timeout_counts_where_it_is_shorter(asking):
    def asking_less(rollout, **kwargs):
        with pytest.raises(openai.APITimeoutError):
            asking(rollout, **kwargs)

    with ScriptedServer(lambda seen, count: Answer(body=completion(), delay_s=1)) as server:
        rollout = managed(server, budget_s=30)
        with rollout_context(rollout), pytest.raises(openai.APITimeoutError):
            ask(openai_client().with_options(timeout=0.1, max_retries=0))
        with rollout_context(rollout), pytest.raises(openai.APITimeoutError):
            ask(openai_client().with_options(max_retries=0), timeout=httpx.Timeout(0.1))
        assert asking(rollout, timeout=20) == "hi"
    assert rollout.calls.failed == 2


def test_a_client_that_gives_up_at_the_deadline_is_a_timeout_of_the_rollout():
    with ScriptedServer(lambda seen, count: Answer(body=completion(), delay_s=2)) as server:
        rollout = managed(server, budget_s=0.2)
        with rollout_context(rollout), pytest.raises(openai.APITimeoutError) as caught:
            ask(openai_client().with_options(max_retries=0))
    assert classify(caught.value, rollout) is Outcome.TIMEOUT


# ------------------------------------------------------------------ what is sent


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.1, "top_p": 0.2, "max_tokens": 7},
        {"extra_body": {"temperature": 0.1, "top_p": 0.2, "max_tokens": 7, "model": "theirs"}},
        {"max_completion_tokens": 7},
        {},
    ],
)
@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_the_jobs_parameters_and_model_win_over_the_callers(asking, given):
    with ScriptedServer(lambda seen, count: completion()) as server:
        asking(managed(server), seed=3, **given)
    assert server.samples[0].json == {
        "model": "default",
        "messages": HELLO,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 256,
        "seed": 3,
        **({"stream": False} if "stream" in server.samples[0].json else {}),
    }


def test_strands_parameters_yield_to_the_jobs():
    with ScriptedServer(lambda seen, count: completion()) as server:
        rollout = managed(server)
        with rollout_context(rollout):
            model = rollout.model(
                model_id="mine",
                params={"temperature": 0.0, "seed": 3, "extra_body": {"max_tokens": 7, "top_k": 5}},
            )
            Agent(model=model, callback_handler=None)("hello")
    sent = server.samples[0].json
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("default", 1.0, 256)
    assert (sent["seed"], sent["top_k"]) == (3, 5)


def test_the_callers_parameters_go_through_where_the_trainer_sets_none():
    with ScriptedServer(lambda seen, count: completion()) as server:
        ask_sync(at_gateway(server), temperature=0.1, max_completion_tokens=7)
    sent = server.samples[0].json
    assert (sent["model"], sent["temperature"], sent["max_completion_tokens"]) == ("m", 0.1, 7)
    assert "max_tokens" not in sent


def test_a_caller_cannot_add_a_second_id_or_another_key_by_header():
    headers = {
        "x-amzn-sagemaker-trajectory-id": "another",
        "authorization": "Bearer another",
        "accept-encoding": "gzip",
        "x-mine": "kept",
    }
    with ScriptedServer(lambda seen, count: completion()) as server:
        ask_sync(managed(server, "r1"), extra_headers=headers)
    sent = server.samples[0].headers
    assert sent["x-amzn-sagemaker-trajectory-id"] == "r1"
    assert sent["accept-encoding"] == "identity"
    assert sent["x-mine"] == "kept"
    assert sent["authorization"].startswith("Bearer sagemaker-api-key-")


@EVERY_CLIENT
def test_a_redirect_is_not_followed_with_the_token(asking):
    with ScriptedServer(lambda seen, count: completion()) as other:
        location = {"location": other.url + "/v1/chat/completions"}
        script = lambda seen, count: Answer(307, completion(), headers=location)  # noqa: E731
        with ScriptedServer(script) as server:
            rollout = managed(server)
            with pytest.raises(openai.APIStatusError) as caught:
                asking(rollout)
            assert "307" in str(sample_once(rollout, {"messages": HELLO}, timeout_s=5))
    assert other.seen == []
    assert caught.value.status_code == 307
    assert (rollout.calls.succeeded, rollout.calls.failed) == (0, 1)


def refuses(field):
    """A script: 400 while the body has this field."""
    refusal = Answer(400, {"error": {"message": "unknown field", "param": field}})
    return lambda seen, count: refusal if field in seen.json else completion()


@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_a_refused_optional_field_is_dropped_for_this_call_and_every_later_one(asking, monkeypatch):
    monkeypatch.setenv("REASONING_EFFORT", "low")
    with ScriptedServer(refuses("reasoning_effort")) as server:
        assert asking(managed(server)) == "hi"
        assert asking(managed(server)) == "hi"
    assert ["reasoning_effort" in seen.json for seen in server.samples] == [True, False, False]


def test_a_request_signed_anew_and_one_without_the_refused_field_go_together(monkeypatch):
    monkeypatch.setenv("REASONING_EFFORT", "low")
    leaner = refuses("reasoning_effort")

    def script(seen, count):  # the key is rejected before and after the field is
        return Answer(403, {}) if count in (0, 2) else leaner(seen, count)

    for asking in (ask_sync, ask_in_a_loop):
        policy._refused_fields.clear()
        with ScriptedServer(script) as server:
            assert asking(managed(server)) == "hi"
        assert len(server.samples) == 4
        tokens = [seen.headers["authorization"] for seen in server.samples]
        assert tokens[0] != tokens[1] == tokens[2] != tokens[3]


def test_a_400_for_something_that_is_no_chat_completion_surfaces_at_once(monkeypatch):
    monkeypatch.setenv("REASONING_EFFORT", "low")
    with ScriptedServer(lambda seen, count: Answer(400, {"error": {"message": "no"}})) as server:
        with rollout_context(at_gateway(server)), pytest.raises(openai.BadRequestError):
            openai_client().completions.with_raw_response.create(model="x", prompt="a")
        assert len(server.seen) == 1


# ------------------------------------------------------------------ how it is counted


@EVERY_CLIENT
@BOTH_MODES
def test_a_completion_is_counted_with_its_tokens(asking, stream):
    with ScriptedServer(lambda seen, count: completion("hi")) as server:
        rollout = managed(server)
        asking(rollout, stream=stream)
        asking(rollout, stream=stream)
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed, calls.truncated) == (2, 2, 0, 0)
    assert calls.usage == Usage(6, 4)
    assert calls.first_body is not None
    assert calls.first_body["model"] == "default"


@BOTH_MODES
@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_a_completion_at_the_token_limit_is_counted_as_truncated(asking, stream):
    with ScriptedServer(lambda seen, count: completion("hm", finish="length")) as server:
        rollout = managed(server)
        asking(rollout, stream=stream)
    assert (rollout.calls.succeeded, rollout.calls.truncated) == (1, 1)


@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_throttling_and_failures_are_counted_apart(asking):
    soon = {"retry-after-ms": "1"}
    script = [
        Answer(429, {}, headers=soon),
        Answer(503, {}, headers=soon),
        Answer(drop=True),
        Answer(body=completion()),
    ]
    with ScriptedServer(lambda seen, count: script[count]) as server:
        rollout = managed(server)
        asking(rollout)
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed, calls.throttled) == (4, 1, 3, 1)
    assert calls.failing is False


@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop, ask_strands])
@pytest.mark.parametrize("cut", [0, 30, 160])
def test_a_stream_that_breaks_off_is_no_success(asking, cut):
    with ScriptedServer(lambda seen, count: Answer(body=completion(), cut=cut)) as server:
        rollout = managed(server, budget_s=20)
        with pytest.raises(httpx.RemoteProtocolError) as caught:
            asking(rollout, stream=True)
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed) == (1, 0, 1)
    assert calls.failing is True
    assert classify(caught.value, rollout) is Outcome.INFRASTRUCTURE_ERROR


@pytest.mark.parametrize("asking", [ask_sync, ask_in_a_loop])
def test_a_plain_reply_that_breaks_off_is_asked_for_again(asking):
    answers = [Answer(body=completion(), cut=30), Answer(body=completion())]
    with ScriptedServer(lambda seen, count: answers[count]) as server:
        rollout = managed(server)
        assert asking(rollout) == "hi"
    assert (rollout.calls.attempted, rollout.calls.succeeded, rollout.calls.failed) == (2, 1, 1)


GARBAGE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"choices": []}',
    b'{"choices": [null]}',
    b'{"choices": {"0": 1}}',
    b'{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 1e999}}',
    b'{"choices": [{"finish_reason": "stop"}], "usage": [1]}',
    b"[" * 100_000,
    b"<html>gateway</html>",
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
def test_a_200_with_anything_but_a_completion_is_no_success(body):
    with ScriptedServer(lambda seen, count: Answer(body=body)) as server:
        rollout = managed(server)
        with rollout_context(rollout):
            openai_client().chat.completions.with_raw_response.create(model="x", messages=HELLO)
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed, calls.failing) == (1, 0, 1, True)


@pytest.mark.parametrize(
    "events",
    [
        b"data: [DONE]\n\n",
        b'data: ["finish_reason", "usage"]\n\n',
        b'data: {"choices": [null], "usage": 3, "finish_reason": 1}\n\n',
        b'data: {"choices": [{"finish_reason": null}]}\n\n',
        b'data: {"finish_reason"',
        b'data: {"choices": 7, "finish_reason": "stop"}\n\n',
    ],
)
def test_events_of_any_other_kind_are_no_success_and_no_crash(events):
    stream = Answer(body=events, headers={"content-type": "text/event-stream"})
    with ScriptedServer(lambda seen, count: stream) as server:
        rollout = managed(server)
        with rollout_context(rollout), httpx.Client(transport=_transport()) as client:
            client.post(server.url + "/v1/chat/completions", json={"messages": HELLO})
    assert (rollout.calls.succeeded, rollout.calls.failed) == (0, 1)


def _transport():
    from rft_agent_sdk.transport import CountingTransport

    return CountingTransport()


def test_a_stream_in_other_line_endings_counts_as_well():
    events = as_stream(completion("hi", finish="length")).replace(b"\n", b"\r\n")
    stream = Answer(body=events, headers={"content-type": "text/event-stream; charset=utf-8"})
    with ScriptedServer(lambda seen, count: stream) as server:
        rollout = managed(server)
        assert ask_sync(rollout, stream=True) == "hi"
    assert (rollout.calls.succeeded, rollout.calls.truncated) == (1, 1)
    assert rollout.calls.usage == Usage(3, 2)


def test_a_stream_that_the_caller_leaves_early_is_not_held_against_the_endpoint():
    long = Answer(body=completion("hi"), trickle_s=0.05)
    with ScriptedServer(lambda seen, count: long) as server:
        rollout = managed(server)
        with rollout_context(rollout), ask(openai_client(), stream=True) as stream:
            next(iter(stream))
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed, calls.failing) == (1, 0, 1, False)


def test_a_cancelled_call_counts_as_tried_only():
    with ScriptedServer(lambda seen, count: Answer(body=completion(), delay_s=1)) as server:
        rollout = managed(server)

        async def cancelled():
            task = asyncio.create_task(ask_async(rollout))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
    calls = rollout.calls
    assert (calls.attempted, calls.succeeded, calls.failed) == (1, 0, 0)


# ------------------------------------------------------------------ the rescue


def test_the_rescue_waits_out_faults_and_drops_a_refused_field(monkeypatch):
    monkeypatch.setenv("REASONING_EFFORT", "low")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    leaner = refuses("reasoning_effort")
    script = [Answer(403, {}), Answer(429, {}), Answer(drop=True), Answer(500, {})]

    def answer(seen, count):
        return script[count] if count < len(script) else leaner(seen, count)

    with ScriptedServer(answer) as server:
        rollout = managed(server)
        body = policy.bound_body({"messages": HELLO, "stream": True}, rollout)
        assert body["reasoning_effort"] == "low"
        assert sample_once(rollout, body, timeout_s=20) is None
    assert len(server.samples) == 6
    assert all(seen.trajectory == "r1" for seen in server.samples)
    assert "stream" not in server.samples[-1].json
    assert rollout.calls.attempted == 0


def test_the_rescue_takes_no_page_of_a_proxy_for_a_turn():
    def page_first(seen, count):
        return completion() if count else Answer(body=b"<html>OK</html>")

    with ScriptedServer(page_first) as server:
        assert sample_once(managed(server), {"messages": HELLO}, timeout_s=20) is None
        assert len(server.samples) == 2


def test_the_rescue_gives_up_on_a_refusal_and_in_time():
    with ScriptedServer(lambda seen, count: Answer(400, {"Message": "no"})) as server:
        assert sample_once(managed(server), {"messages": HELLO}, timeout_s=5) == (
            'HTTP 400: {"Message": "no"}'
        )
        assert len(server.samples) == 1
    with ScriptedServer(lambda seen, count: Answer(delay_s=3)) as server:
        started = time.monotonic()
        error = sample_once(managed(server), {"messages": HELLO}, timeout_s=0.3)
        assert time.monotonic() - started < 2
        assert "Timeout" in str(error)


# ------------------------------------------------------------------ no secret anywhere


def test_no_token_or_key_is_logged_or_shown(caplog):
    for name in (None, "openai", "httpx", "httpcore"):  # the command line quiets them for good
        caplog.set_level(logging.DEBUG, logger=name)
    script = [Answer(403, {"Message": "bad"}), Answer(500, {}), Answer(drop=True)]

    def answer(seen, count):
        return script[count % 5] if count % 5 < 3 else completion()

    with ScriptedServer(answer) as server:
        rollouts = [managed(server, budget_s=20), at_gateway(server, budget_s=20)]
        shown = []
        for rollout in rollouts:
            for asking in (ask_sync, ask_in_a_loop, ask_strands):
                try:
                    asking(rollout)
                except openai.APIError as error:
                    shown += [repr(error), str(error), repr(error.__cause__)]
                    shown += [repr(error.request), repr(error.request.headers)]
            shown += [repr(rollout), repr(rollout.request), repr(rollout.endpoint)]
            shown += [repr(rollout.calls), str(rollout.calls.last_error)]
        shown += [repr(openai_client()), repr(async_openai_client()), repr(vars(openai_client()))]
        secrets = {seen.headers["authorization"].removeprefix("Bearer ") for seen in server.seen}
    assert KEY in secrets
    assert len(secrets) > 2
    records = [
        json.dumps(vars(record), default=repr) + record.getMessage() for record in caplog.records
    ]
    assert {"openai._base_client", "httpx", "httpcore.http11"} <= {r.name for r in caplog.records}
    for text in [caplog.text, *records, *shown]:
        assert not any(secret in text for secret in secrets)
        assert "sagemaker-api-key" not in text
