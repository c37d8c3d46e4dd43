"""SIGTERM and Ctrl-C: running rollouts report what they have before the server stops.

A container is told to stop by SIGTERM and killed a little later. A rollout that dies without its
reward can fail a whole job, so each running one is cancelled, scores what was played, and reports.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

from rft_agent_sdk.context import Deadline
from rft_agent_sdk.rollout import Rollout

logger = logging.getLogger(__name__)

GRACE_S = 20.0
"""Seconds the server waits at most for cancelled rollouts to report."""


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Running:
    """The rollouts of one handler that have not ended."""

    def __init__(self) -> None:
        self._rollouts: set[Rollout] = set()
        self._lock = threading.Lock()
        self._stopping: str | None = None

    @contextmanager
    def holding(self, rollout: Rollout) -> Iterator[None]:
        """Count a rollout as running inside the `with` block; one that comes too late is cancelled."""
        with self._lock:
            self._rollouts.add(rollout)
            stopping = self._stopping
        if stopping is not None:
            rollout.cancel(stopping)
        try:
            yield
        finally:
            with self._lock:
                self._rollouts.discard(rollout)

    def cancel(self, reason: str) -> int:
        """Ask every running rollout, and each one to come, to stop and report; return how many run."""
        with self._lock:
            self._stopping = reason
            rollouts = list(self._rollouts)
        for rollout in rollouts:
            rollout.cancel(reason)
        return len(rollouts)

    def welcome(self) -> None:
        """Let rollouts run again after a `cancel`: a new server is starting."""
        with self._lock:
            self._stopping = None


def report_on_sigterm(app: Any, running: Running) -> None:
    """Make an ASGI app of Starlette's kind cancel its rollouts when told to stop, and await their reports.

    The signal handler is set in the app's lifespan, which runs after the server has set its own; that
    one is called next, as before.
    """
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope: Any) -> AsyncIterator[Any]:
        running.welcome()
        with _cancel_on_signal(running):
            async with inner(scope) as state:
                yield state
            await _until_idle(running)

    app.router.lifespan_context = lifespan


@contextmanager
def _cancel_on_signal(running: Running) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; a server on another one is stopped by its owner
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold any lock: leave
        # the work to a thread.
        name = signal.Signals(number).name
        threading.Thread(target=running.cancel, args=(name,), daemon=True).start()
        following = previous[signal.Signals(number)]
        if callable(following):
            following(number, frame)

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


async def _until_idle(running: Running) -> None:
    deadline = Deadline(GRACE_S)
    while left := running.cancel("the server is stopping"):
        if deadline.expired:
            logger.error(
                "rollouts=<%d> | still running after %g s; rewards are lost", left, GRACE_S
            )
            return
        await asyncio.sleep(0.05)
