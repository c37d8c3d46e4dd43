"""The pool: bounded, patient where it helps, and weights swapped under calls in flight."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.backend import TransientRefusal
from rft_agent_sdk.gateway.samplers.pool import SamplerPool
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    SampleFault,
    Sampler,
    SampleRequest,
)
from tests.gateway.sampling import (
    IDS,
    LOGPROBS,
    REQUEST,
    SGLANG,
    VLLM,
    ask,
    collect,
    refused,
    streamed_or_not,
)


class Held(Sampler):
    """A sampler whose turns end when the test says so; each step of a stream too."""

    def __init__(self, version: int = 1) -> None:
        self._version = version
        self.waiting: list[Future[Any]] = []
        self.most = 0
        self.calls = 0
        self.cancelled = 0
        self.closings = 0
        self.min_new_tokens = version

    @property
    def version(self) -> int:
        return self._version

    async def step(self) -> Any:
        gate: Future[Any] = Future()
        self.waiting.append(gate)
        self.most = max(self.most, len(self.waiting))
        try:
            return await asyncio.wrap_future(gate)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting.remove(gate)

    async def sample(self, request: SampleRequest) -> Sampled:
        self.calls += 1
        await self.step()
        return Sampled(
            [self.version, *request.prompt],
            [None, *[-0.1] * len(request.prompt)],
            "stop",
            self.version,
        )

    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampledPiece | Sampled, None]:
        self.calls += 1
        for token in request.prompt:
            await self.step()
            yield SampledPiece([token], [-0.1])
        yield Sampled(list(request.prompt), [-0.1] * len(request.prompt), "stop", self.version)

    async def aclose(self) -> None:
        self.closings += 1

    def let_go(self, error: Exception | None = None) -> None:
        """Let the call or step that waits longest go on, or fail it."""
        gate = self.waiting[0]
        gate.set_exception(error) if error is not None else gate.set_result(None)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def transient(status: int = 502, retry_after_s: float | None = 0.0) -> TransientRefusal:
    return TransientRefusal(status, "busy", retry_after_s=retry_after_s)


@asynccontextmanager
async def started(pool: SamplerPool, count: int) -> AsyncIterator[list[asyncio.Task[Sampled]]]:
    """Start calls whose prompt is their number."""
    calls = [asyncio.create_task(pool.sample(SampleRequest([n]))) for n in range(count)]
    await settle()
    try:
        yield calls
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_calls_beyond_the_bound_wait_their_turn_in_order():
    sampler = Held()
    pool = SamplerPool(sampler, concurrency=2)
    async with started(pool, 5) as calls:
        assert (len(sampler.waiting), pool.in_flight, sampler.calls) == (2, 2, 2)
        for done in range(1, 6):
            sampler.let_go()
            await settle()
            assert [call.done() for call in calls] == [True] * done + [False] * (5 - done)
        assert [call.result().ids for call in calls] == [[1, n] for n in range(5)]
    assert (sampler.most, pool.in_flight, pool.missing_logprobs) == (2, 0, 5)


async def test_a_caller_that_is_cancelled_gives_its_place_to_the_next():
    sampler = Held()
    pool = SamplerPool(sampler, concurrency=1)
    async with started(pool, 4) as calls:
        calls[0].cancel()  # was running
        calls[1].cancel()  # was waiting
        await settle()
        assert (sampler.cancelled, len(sampler.waiting)) == (1, 1)
        sampler.let_go()
        await settle()
        assert calls[2].result().ids == [1, 2]
        calls[3].cancel()
        await settle()
        again = asyncio.create_task(pool.sample(SampleRequest([7])))
        await settle()
        sampler.let_go()
        assert (await again).ids == [1, 7]


async def test_a_stream_that_is_dropped_gives_its_place_to_the_next():
    sampler = Held()
    pool = SamplerPool(sampler, concurrency=1)
    pieces = pool.stream(SampleRequest([4, 5]))
    first = asyncio.ensure_future(anext(pieces))
    await settle()
    sampler.let_go()
    assert await first == SampledPiece([4], [-0.1])
    async with started(pool, 1) as (call,):
        assert sampler.waiting == []
        await pieces.aclose()
        await settle()
        sampler.let_go()
        assert (await call).ids == [1, 0]


async def test_new_calls_go_to_new_weights_and_old_ones_end_on_theirs():
    old, new = Held(1), Held(2)
    pool = SamplerPool(old, concurrency=9)
    async with started(pool, 2) as before:
        assert (pool.version, pool.min_new_tokens) == (1, 1)
        closed = pool.rebind(new)
        assert (pool.version, pool.min_new_tokens) == (2, 2)
        async with started(pool, 1) as (after,):
            new.let_go()
            assert (await after).version == 2
            old.let_go()
            assert (await before[0]).version == 1
            await settle()
            assert (old.closings, closed.done()) == (0, False)
            old.let_go()
            assert (await before[1]).version == 1
            await asyncio.wait_for(asyncio.wrap_future(closed), 5)
    assert (old.closings, new.closings, old.calls, new.calls) == (1, 0, 2, 1)


async def test_a_stream_ends_on_the_weights_it_began_with():
    old, new = Held(1), Held(2)
    pool = SamplerPool(old)
    stream = asyncio.create_task(collect(pool, SampleRequest([4, 5])))
    await settle()
    old.let_go()
    await settle()
    closed = pool.rebind(new)
    await settle()
    assert not closed.done()
    old.let_go()
    assert (await stream)[-1] == Sampled([4, 5], [-0.1, -0.1], "stop", 1)
    await asyncio.wait_for(asyncio.wrap_future(closed), 5)
    assert (old.closings, new.calls) == (1, 0)


async def test_an_idle_sampler_is_closed_at_once():
    old = Held(1)
    pool = SamplerPool(old)
    await asyncio.wait_for(asyncio.wrap_future(pool.rebind(Held(2))), 5)
    assert old.closings == 1


@pytest.mark.parametrize("has_loop", [False, True], ids=["plain", "with-a-loop-of-its-own"])
async def test_weights_may_be_swapped_from_another_thread(has_loop):
    old, new = Held(1), Held(2)
    pool = SamplerPool(old)
    closed_on: list[Any] = []

    async def close() -> None:
        closed_on.append(asyncio.get_running_loop())

    def swap() -> None:
        pool.rebind(new).result(5)

    async def swap_on_a_loop() -> None:
        await asyncio.wait_for(asyncio.wrap_future(pool.rebind(new)), 5)

    old.aclose = close  # type: ignore[method-assign]
    async with started(pool, 1) as (call,):
        old.let_go()
        await call
    await asyncio.to_thread(asyncio.run, swap_on_a_loop()) if has_loop else await asyncio.to_thread(
        swap
    )
    assert pool.version == 2
    assert closed_on == [asyncio.get_running_loop()]


def test_weights_may_be_swapped_where_no_loop_runs():
    pool = SamplerPool(Held(1))
    pool.rebind(Held(2)).result(0)

    async def one_call() -> None:
        async with started(pool, 1):
            pass

    asyncio.run(one_call())
    pool.rebind(Held(3)).result(0)
    assert pool.version == 3


async def test_a_sampler_that_stays_is_not_closed():
    stays, goes = Held(1), Held(1)
    pool = SamplerPool([stays, goes])
    await asyncio.wait_for(asyncio.wrap_future(pool.rebind([stays, Held(1)])), 5)
    assert (stays.closings, goes.closings) == (0, 1)


async def test_a_sampler_that_cannot_be_closed_is_told_of(caplog):
    old = Held(1)

    async def fails() -> None:
        raise OSError("stuck")

    old.aclose = fails  # type: ignore[method-assign]
    pool = SamplerPool(old)
    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(asyncio.wrap_future(pool.rebind(Held(2))), 5)
    assert "could not be closed: OSError('stuck')" in caplog.text


async def test_closing_the_pool_closes_its_samplers():
    old, new = Held(1), Held(2)
    pool = SamplerPool(old)
    pool.rebind(new)
    await pool.aclose()
    assert (old.closings, new.closings) == (1, 1)


async def test_a_passing_refusal_is_tried_again_as_often_as_allowed():
    sampler = Held()
    pool = SamplerPool(sampler, retries=2)
    async with started(pool, 1) as (call,):
        for _ in range(2):
            sampler.let_go(transient())
            await settle()
        sampler.let_go()
        assert (await call).ids == [1, 0]
    assert (sampler.calls, pool.retried) == (3, 2)
    async with started(pool, 1) as (call,):
        for _ in range(3):
            sampler.let_go(transient(429))
            await settle()
        with pytest.raises(TransientRefusal, match="busy"):
            await call
    assert (sampler.calls, pool.retried, pool.in_flight) == (6, 4, 0)


@pytest.mark.parametrize(
    "error", [Refusal(400, "bad"), SampleFault("odd"), KeyError("bug")], ids=repr
)
@streamed_or_not
async def test_nothing_else_is_tried_again(error, stream):
    sampler = Held()
    pool = SamplerPool(sampler)
    call = asyncio.create_task(ask(pool, SampleRequest([4]), stream=stream))
    await settle()
    sampler.let_go(error)
    with pytest.raises(type(error)):
        await call
    assert (sampler.calls, pool.retried) == (1, 0)


async def test_a_stream_is_tried_again_only_before_its_first_piece():
    sampler = Held()
    pool = SamplerPool(sampler, retries=5)
    pieces = pool.stream(SampleRequest([4, 5]))
    first = asyncio.ensure_future(anext(pieces))
    await settle()
    sampler.let_go(transient())
    await settle()
    sampler.let_go()
    assert await first == SampledPiece([4], [-0.1])
    second = asyncio.ensure_future(anext(pieces))
    await settle()
    sampler.let_go(transient())
    with pytest.raises(TransientRefusal):
        await second
    assert (sampler.calls, pool.retried, pool.in_flight) == (2, 1, 0)


async def test_another_try_goes_to_the_new_weights():
    old, new = Held(1), Held(2)
    pool = SamplerPool(old)
    async with started(pool, 1) as (call,):
        closed = pool.rebind(new)
        old.let_go(transient())
        await settle()
        new.let_go()
        assert (await call).version == 2
    assert closed.done()


async def test_the_pause_is_what_the_backend_asked_for_or_grows(monkeypatch):
    pauses: list[float] = []
    real_sleep, loop = asyncio.sleep, asyncio.get_running_loop()

    async def sleep(delay: float) -> None:
        if (
            asyncio.get_running_loop() is not loop
        ):  # servers of other tests, on threads of their own
            await real_sleep(delay)
            return
        pauses.append(delay)
        await real_sleep(0)

    class Halves:
        def uniform(self, low: float, high: float) -> float:
            return (low + high) / 2

    sampler = Held()
    rng: Any = Halves()
    pool = SamplerPool(sampler, retries=4, backoff_s=3.0, rng=rng)
    call = asyncio.create_task(pool.sample(REQUEST))
    await settle()
    monkeypatch.setattr("rft_agent_sdk.gateway.samplers.pool.asyncio.sleep", sleep)
    for asked in (None, None, 7.0, 500.0, None):
        sampler.let_go(transient(429, asked))
        for _ in range(20):
            await real_sleep(0)
    with pytest.raises(TransientRefusal):
        await call
    assert pauses == [3.0, 6.0, 7.0, 30.0]


async def test_a_turn_that_takes_too_long_is_a_504_and_frees_its_place():
    sampler = Held()
    pool = SamplerPool(sampler, concurrency=1, timeout_s=0.02)
    for stream in (False, True):
        refusal = await refused(pool, SampleRequest([4]), stream=stream)
        assert (refusal.status, refusal.message) == (504, "the sampler gave no token within 0.02 s")
        assert not isinstance(refusal, TransientRefusal)
    assert (sampler.cancelled, pool.in_flight, pool.retried) == (2, 0, 0)


async def test_waiting_for_a_place_does_not_count_as_time_of_the_turn():
    sampler = Held()
    pool = SamplerPool(sampler, concurrency=1, timeout_s=0.2)
    async with started(pool, 2) as (late, waited):
        with pytest.raises(Refusal, match="no token within"):
            await late
        await settle()
        sampler.let_go()
        assert (await waited).ids == [1, 1]


async def test_calls_go_to_the_replica_that_is_least_busy():
    replicas = [Held(1), Held(1), Held(1)]
    pool = SamplerPool(replicas)
    async with started(pool, 7):
        assert [len(one.waiting) for one in replicas] == [3, 2, 2]


async def test_a_session_keeps_its_replica_unless_that_is_far_busier():
    replicas = [Held(1), Held(1)]
    pool = SamplerPool(replicas)
    calls = [asyncio.create_task(pool.sample(SampleRequest([n], affinity="s1"))) for n in range(7)]
    await settle()
    assert sorted(len(one.waiting) for one in replicas) == [1, 6]
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"timeout_s": 0}, {"retries": -1}], ids=lambda value: str(value)
)
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError, match="concurrency >= 1"):
        SamplerPool(Held(), **options)
    with pytest.raises(UsageError, match="at least one sampler"):
        SamplerPool([])


async def test_a_pool_over_real_engines_swaps_them_in_flight():
    with VLLM.served(pause_after=0) as (old, first), SGLANG.served() as (_, second):
        pool = SamplerPool(first, concurrency=4)
        async with aclosing(pool):
            call = asyncio.create_task(pool.sample(REQUEST))
            assert await asyncio.to_thread(old.asked.wait, 5)
            closed = pool.rebind(second)
            assert (await pool.sample(REQUEST)).version == "default"
            assert not closed.done()
            old.go.set()
            assert (await call) == Sampled(IDS, LOGPROBS, "stop", 0)
            await asyncio.wait_for(asyncio.wrap_future(closed), 5)


async def test_a_pool_serves_several_event_loops():
    with VLLM.served() as (_, sampler):
        pool = SamplerPool(sampler, concurrency=1)
        found: list[Sampled] = []

        def on_a_thread() -> None:
            async def both() -> None:
                found.extend(await asyncio.gather(pool.sample(REQUEST), pool.sample(REQUEST)))
                await pool.aclose()

            asyncio.run(both())

        thread = threading.Thread(target=on_a_thread)
        thread.start()
        found.append(await pool.sample(REQUEST))
        await asyncio.to_thread(thread.join)
        await pool.aclose()
    assert [one.ids for one in found] == [IDS] * 3
