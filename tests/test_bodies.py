"""Streamed replies: wherever their reader stops, no generator is left for the event loop to close."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import pytest

from rft_agent_sdk import Rollout, policy
from rft_agent_sdk.context import rollout_context
from rft_agent_sdk.errors import RolloutCancelled
from rft_agent_sdk.gateway import OpenAIPolicy, PolicyRequest
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.types import Message
from tests.servers import Answer, ScriptedServer, as_stream, completion

LATE = as_stream(completion()) + b": bye\n"
"""The end of the body comes after the last event, in a packet of its own."""
EVENTS = {"content-type": "text/event-stream"}
ENDS = {
    "late": Answer(200, LATE, EVENTS, trickle_s=0.02),
    "broken off": Answer(200, LATE, EVENTS, trickle_s=0.02, cut=len(LATE) - 3),
    "with the last event": Answer(200, as_stream(completion()), EVENTS),
}
EVERY_END = pytest.mark.parametrize("answer", ENDS.values(), ids=ENDS)


@contextmanager
def dropped() -> Iterator[list[str]]:
    """Give the names of the generators that this loop is left to close from now on."""
    names: list[str] = []
    first, close = sys.get_asyncgen_hooks()
    assert close is not None

    def note(generator: Any) -> None:
        names.append(generator.__qualname__)
        close(generator)

    sys.set_asyncgen_hooks(first, note)
    try:
        yield names
    finally:
        sys.set_asyncgen_hooks(first, close)


def rollout_at(server: ScriptedServer) -> Rollout:
    config = {"base_url": server.url, "api_key": "key-of-this-session", "model_id": "m"}
    return Rollout(parse_request({"prompt": "go", "_config": config}))


async def streamed() -> Any:
    hello: Any = [{"role": "user", "content": "hello"}]
    client = policy.async_openai_client()
    return await client.chat.completions.create(model="m", messages=hello, stream=True)


async def assert_read_whole(server):
    """A reply of three parts is read, counts as answered, and leaves nothing behind."""
    rollout = rollout_at(server)
    with rollout_context(rollout), dropped() as left:
        parts = await read(await streamed())
        await asyncio.sleep(0)
    assert len(parts) == 3
    assert left == []
    assert (rollout.calls.succeeded, rollout.calls.failed) == (1, 0)


async def read(stream: Any) -> list[Any]:
    return [
        part async for part in stream._iterator
    ]  # as `async for` does, without one more generator


@EVERY_END
async def test_a_reply_of_the_policy_is_over_with_its_last_event(answer):
    with ScriptedServer(lambda seen, count: answer) as server:
        await assert_read_whole(server)


async def test_a_body_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(policy, "_TAIL_S", 0.05)
    endless = Answer(200, LATE + b": and again\n" * 2, EVENTS, trickle_s=0.1)
    with ScriptedServer(lambda seen, count: endless) as server:
        await assert_read_whole(server)


async def test_a_rollout_s_end_leaves_nothing_of_the_connection_it_cuts():
    slow = Answer(200, as_stream(completion()), EVENTS, trickle_s=0.02)
    with ScriptedServer(lambda seen, count: slow) as server:
        rollout = rollout_at(server)
        with rollout_context(rollout), dropped() as left:
            stream = await streamed()
            assert await anext(stream) is not None
            rollout.cancel("stopped")
            with pytest.raises(RolloutCancelled):
                await read(stream)
            del stream
            await asyncio.sleep(0.05)
    assert [name for name in left if "HTTP11" in name or "ByteStream" in name] == []


@EVERY_END
@pytest.mark.parametrize("is_read", [True, False])
async def test_a_sampler_s_stream_leaves_nothing(answer, is_read):
    request = PolicyRequest((Message("user", "go"),))
    with ScriptedServer(lambda seen, count: answer) as server:
        upstream = OpenAIPolicy(server.url)
        with dropped() as left:
            async with aclosing(upstream.stream(request)) as pieces:
                async for _ in pieces:
                    if not is_read:
                        break
            await asyncio.sleep(0)
            await upstream.aclose()
    assert left == []
