"""Samplers behind one door: bounded concurrency, timeouts, retries, and weights swapped in flight."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import zlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from weakref import WeakKeyDictionary

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.backend import TransientRefusal
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    Sampler,
    SampleRequest,
    Version,
)

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0


class _Binding:
    """Samplers of one policy version, and how many calls each is busy with."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self.samplers = tuple(samplers)
        self.busy = [0] * len(self.samplers)
        self.is_retired = False
        self.closed: Future[None] = Future()

    def pick(self, affinity: str) -> int:
        """Return which sampler is to serve: the one whose cache knows the session, else the least busy.

        A session keeps its replica unless that has more than twice the least of the others, plus 4.
        """
        least = min(range(len(self.busy)), key=self.busy.__getitem__)
        if not affinity:
            return least
        home = zlib.crc32(affinity.encode()) % len(self.samplers)
        return home if self.busy[home] <= 2 * self.busy[least] + 4 else least


class SamplerPool(Sampler):
    """A `Sampler` over one or several, replicas of the same weights.

    May be used on several event loops, where the samplers may; `rebind` may be called from any thread.
    """

    def __init__(
        self,
        samplers: Sampler | Sequence[Sampler],
        *,
        concurrency: int = 256,
        timeout_s: float = 600.0,
        retries: int = 2,
        backoff_s: float = 0.5,
        rng: random.Random | None = None,
    ) -> None:
        """Take over samplers: the pool closes them.

        Args:
            samplers: One, or replicas that hold the same weights.
            concurrency: Most calls at one time on an event loop, all samplers together; others queue.
            timeout_s: Longest wait, in seconds, for a whole turn or for the next piece of a streamed
                one; time spent in the queue does not count.
            retries: How often a call that met a `TransientRefusal` is made again, if no piece of its
                turn was passed on yet.
            backoff_s: Mean pause before the first retry, in seconds; it doubles each time. What the
                backend asks for goes before.
            rng: Source of the pauses' jitter.

        Raises:
            UsageError: No samplers, or a number that makes no sense.
        """
        if concurrency < 1 or timeout_s <= 0 or retries < 0:
            raise UsageError(
                "wanted concurrency >= 1, timeout_s > 0 and retries >= 0,"
                f" got {concurrency!r}, {timeout_s!r} and {retries!r}"
            )
        self._binding = _Binding(_listed(samplers))
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._retries = retries
        self._backoff_s = backoff_s
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._closing: set[asyncio.Task[None]] = set()
        self.retried = 0
        """Calls made again so far."""

    @property
    def version(self) -> Version:
        """The policy version that a call made now samples."""
        return self._binding.samplers[0].version

    @property
    def min_new_tokens(self) -> int:  # type: ignore[override]
        """The largest minimum of the samplers."""
        return max(sampler.min_new_tokens for sampler in self._binding.samplers)

    @property
    def in_flight(self) -> int:
        """Calls that the present samplers are busy with."""
        return sum(self._binding.busy)

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one turn, once there is a place for it."""
        async with self._place():
            attempt = 0
            while True:
                try:
                    with self._borrowed(request) as sampler:
                        async with asyncio.timeout(self._timeout_s):
                            return self._counted(await sampler.sample(request))
                except TimeoutError as error:
                    raise self._late() from error
                except TransientRefusal as refusal:
                    await self._pause(attempt, refusal)
                attempt += 1

    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampledPiece | Sampled, None]:
        """Yield one turn as it is sampled; what was passed on is never sampled again."""
        async with self._place():
            attempt = 0
            while True:
                is_started = False
                try:
                    with self._borrowed(request) as sampler:
                        async with aclosing(sampler.stream(request)) as pieces:
                            while (piece := await self._next(pieces)) is not None:
                                is_started = True
                                yield piece
                    return
                except TransientRefusal as refusal:
                    if is_started:
                        raise
                    await self._pause(attempt, refusal)
                attempt += 1

    def rebind(self, samplers: Sampler | Sequence[Sampler]) -> Future[None]:
        """Send calls from now on to other samplers; those in flight end where they began.

        Returns:
            A future that is done when the last of them has ended and the old samplers are closed.
        """
        fresh = _Binding(_listed(samplers))
        with self._lock:
            old, self._binding = self._binding, fresh
            old.is_retired = True
            is_idle = not any(old.busy)
        logger.info(
            "version=<%s>, was=<%s>, in_flight=<%s> | samplers rebound",
            *(fresh.samplers[0].version, old.samplers[0].version, sum(old.busy)),
        )
        if is_idle:
            self._close(old)
        return old.closed

    async def aclose(self) -> None:
        """Close the samplers, and wait for those that are being closed."""
        await _closed(self._binding.samplers)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._closing if task.get_loop() is loop))

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
            slots = self._slots.get(loop)
            if slots is None:
                slots = self._slots[loop] = asyncio.Semaphore(self._concurrency)
        return slots

    @contextmanager
    def _borrowed(self, request: SampleRequest) -> Iterator[Sampler]:
        with self._lock:
            binding = self._binding
            index = binding.pick(request.affinity)
            binding.busy[index] += 1
        try:
            yield binding.samplers[index]
        finally:
            with self._lock:
                binding.busy[index] -= 1
                is_over = binding.is_retired and not any(binding.busy)
            if is_over:
                self._close(binding)

    async def _next(
        self, pieces: AsyncGenerator[SampledPiece | Sampled, None]
    ) -> SampledPiece | Sampled | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise self._late() from error
        return self._counted(piece) if isinstance(piece, Sampled) else piece

    def _counted(self, sampled: Sampled) -> Sampled:
        self.missing_logprobs += sampled.logprobs.count(None)
        return sampled

    async def _pause(self, attempt: int, refusal: TransientRefusal) -> None:
        """Wait before the next attempt; raise the refusal if there is none."""
        if attempt >= self._retries:
            raise refusal
        self.retried += 1
        pause_s = refusal.retry_after_s
        if pause_s is None:
            pause_s = self._rng.uniform(0, 2) * self._backoff_s * 2**attempt
        logger.warning(
            "status=<%s>, attempt=<%s>, pause_s=<%.2f> | sampling again after: %s",
            *(refusal.status, attempt + 1, pause_s, refusal.message),
        )
        await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S))

    def _late(self) -> Refusal:
        return Refusal(504, f"the sampler gave no token within {self._timeout_s} s")

    def _close(self, binding: _Binding) -> None:
        """Close a retired binding's samplers, on the loop that used them: connections belong to one."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        used = self._loop or here
        if used is not None and used is here:
            self._start_closing(used, binding)
        elif used is not None and used.is_running():
            used.call_soon_threadsafe(self._start_closing, used, binding)
        else:  # the loop ended and took its connections along, or there never was one
            binding.closed.set_result(None)

    def _start_closing(self, loop: asyncio.AbstractEventLoop, binding: _Binding) -> None:
        task = loop.create_task(self._finish(binding))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _finish(self, binding: _Binding) -> None:
        kept = {id(sampler) for sampler in self._binding.samplers}
        try:
            await _closed([one for one in binding.samplers if id(one) not in kept])
        finally:
            binding.closed.set_result(None)


async def _closed(samplers: Sequence[Sampler]) -> None:
    """Close samplers; one that fails to is logged, the policy having no further use for it."""
    found = await asyncio.gather(*(one.aclose() for one in samplers), return_exceptions=True)
    for sampler, error in zip(samplers, found, strict=True):
        if isinstance(error, BaseException):
            logger.warning("sampler=<%r> | could not be closed: %r", sampler, error)


def _listed(samplers: Sampler | Sequence[Sampler]) -> Sequence[Sampler]:
    found = [samplers] if isinstance(samplers, Sampler) else list(samplers)
    if not found:
        raise UsageError("a pool needs at least one sampler, got none")
    return found
