"""A turn on its way, and those who wait for it: whoever started it, and resends that joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable

from rft_agent_sdk.gateway.samplers.base import Delta, Reply


class Flight:
    """Samples one turn, whoever goes away; tells it to any number of listeners, late ones from its start."""

    def __init__(self, *, is_live: bool) -> None:
        """Make a flight; `start` it with the work.

        Args:
            is_live: Whether it was asked for in pieces, so that sampling is to be streamed.
        """
        self.is_live = is_live
        self.task: asyncio.Task[Reply]
        self._said: list[Delta] = []
        self._more = asyncio.Event()

    def start(self, work: Coroutine[object, object, Reply]) -> asyncio.Task[Reply]:
        """Begin; the flight says all of the reply before `work` returns it."""
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(self._land)
        return self.task

    def say(self, deltas: Iterable[Delta]) -> None:
        """Tell those who listen, and who will."""
        before = len(self._said)
        self._said.extend(deltas)
        if len(self._said) > before:
            self._wake()

    async def whole(self) -> Reply:
        """Wait for the reply. Shielded: who goes away leaves it to whoever asks again."""
        return await asyncio.shield(self.task)

    async def pieces(self) -> AsyncGenerator[Delta | Reply, None]:
        """Yield what was said so far, then what is said, then the reply."""
        told = 0
        while True:
            more = self._more  # before the look at what was said, and so before anything further is
            while told < len(self._said):
                yield self._said[told]
                told += 1
            if self.task.done():
                break
            await more.wait()
        yield self.task.result()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _land(self, task: asyncio.Task[Reply]) -> None:
        if not task.cancelled():
            task.exception()  # told to those who wait; there may be nobody left
        self._wake()
