"""SIGTERM and Ctrl-C: running rollouts report what they have before the server stops.

A container is told to stop by SIGTERM and killed a little later. A rollout that dies without its
reward can fail a whole job, so each running one is cancelled, scores what was played, and reports. A server
of one's own can drain first: it takes up nothing new and lets what runs play on for a while.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from rft_agent_sdk.admission import Admission
from rft_agent_sdk.context import Deadline
from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.tracing import flush

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


@dataclass
class Drain:
    """How a server of one's own stops: nothing new, what runs plays on for so long, then it is cancelled."""

    admission: Admission
    patience_s: float
    """Seconds that rollouts in flight may play on after SIGTERM; Ctrl-C and a second signal end them."""
    _is_pressed: threading.Event = field(default_factory=threading.Event)
    _is_begun: bool = False

    def stop(self, name: str, running: Running, stop_server: Callable[[], None]) -> None:
        """Begin to stop; on a thread of its own, since the signal's handler must not wait."""
        if name == "SIGINT" and self._is_pressed.is_set():
            stop_server()  # somebody at the keyboard has had enough
        if name == "SIGINT" or self._is_begun:
            self._is_pressed.set()
        if not self._is_begun:
            self._is_begun = True
            args = (name, running, stop_server)
            threading.Thread(target=self._stop, args=args, daemon=True, name="rft-drain").start()

    def _stop(self, name: str, running: Running, stop_server: Callable[[], None]) -> None:
        self.admission.drain()
        left = self.admission.in_flight
        logger.info("signal=<%s> rollouts=<%d> | draining, %g s", name, left, self.patience_s)
        self._wait(Deadline(self.patience_s), self._is_pressed.is_set)
        if left := running.cancel(name):
            logger.warning("rollouts=<%d> | cancelled; they report what they have", left)
        # The server goes on answering meanwhile: health says why nothing is taken up.
        self._wait(Deadline(GRACE_S), lambda: False)
        stop_server()

    def _wait(self, until: Deadline, is_over: Callable[[], bool]) -> None:
        while self.admission.in_flight and not until.expired and not is_over():
            time.sleep(0.02)

    def reset(self) -> None:
        """Take up rollouts again: a new server is starting."""
        self._is_pressed.clear()
        self._is_begun = False
        self.admission.open()


def report_on_sigterm(app: Any, running: Running, drain: Drain | None = None) -> None:
    """Make an ASGI app of Starlette's kind cancel its rollouts when told to stop, and await their reports.

    The signal handler is set in the app's lifespan, which runs after the server has set its own; that
    one is called next, as before, or once the rollouts have drained.
    """
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope: Any) -> AsyncIterator[Any]:
        running.welcome()
        if drain is not None:
            drain.reset()
        with _on_stop_signal(running, drain):
            async with inner(scope) as state:
                yield state
            await _until_idle(running)
            await asyncio.to_thread(
                flush
            )  # the signal may end the process without its usual good-byes

    app.router.lifespan_context = lifespan


@contextmanager
def _on_stop_signal(running: Running, drain: Drain | None) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; a server on another one is stopped by its owner
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold any lock: leave
        # the work to a thread.
        name = signal.Signals(number).name
        following = previous[signal.Signals(number)]
        stop_server = (lambda: following(number, frame)) if callable(following) else (lambda: None)
        if drain is not None:
            drain.stop(name, running, stop_server)
            return
        threading.Thread(target=running.cancel, args=(name,), daemon=True).start()
        stop_server()

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
