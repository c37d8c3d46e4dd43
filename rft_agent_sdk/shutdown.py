"""SIGTERM: running rollouts report what they have before the server stops.

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


class Running:
    """The rollouts of one handler that have not ended."""

    def __init__(self) -> None:
        self._rollouts: set[Rollout] = set()
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, rollout: Rollout) -> Iterator[None]:
        """Count a rollout as running inside the `with` block."""
        with self._lock:
            self._rollouts.add(rollout)
        try:
            yield
        finally:
            with self._lock:
                self._rollouts.discard(rollout)

    def cancel(self, reason: str) -> int:
        """Ask every running rollout to stop and report; return how many there are."""
        with self._lock:
            rollouts = list(self._rollouts)
        for rollout in rollouts:
            rollout.cancel(reason)
        return len(rollouts)


def report_on_sigterm(app: Any, running: Running) -> None:
    """Make an ASGI app of Starlette's kind cancel its rollouts on SIGTERM, and wait for their reports.

    The signal handler is set in the app's lifespan, which runs after the server has set its own; that
    one is called next, as before.
    """
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope: Any) -> AsyncIterator[Any]:
        with _cancel_on_sigterm(running):
            async with inner(scope) as state:
                yield state
            await _until_idle(running)

    app.router.lifespan_context = lifespan


@contextmanager
def _cancel_on_sigterm(running: Running) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; a server on another one is stopped by its owner
        return
    previous = signal.getsignal(signal.SIGTERM)

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold any lock: leave
        # the work to a thread.
        threading.Thread(target=running.cancel, args=("SIGTERM",), daemon=True).start()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


async def _until_idle(running: Running) -> None:
    deadline = Deadline(GRACE_S)
    while left := running.cancel("the server is stopping"):
        if deadline.expired:
            logger.error(
                "rollouts=<%d> | still running after %g s; rewards are lost", left, GRACE_S
            )
            return
        await asyncio.sleep(0.05)
