"""Which rollouts a server of one's own takes up: so many at once, each one once, and none while it drains.

All of it lives on the server's event loop; only the counts are read from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rft_agent_sdk.types import JSON

BUSY_RETRY_S = 5
"""Seconds after which a caller who met a full server should ask again."""
DRAINING_RETRY_S = 1
"""The same for one who met a server that is stopping: another replica may be there already."""
REMEMBERED = 4096
"""Answers kept for callers who ask again with the same key."""

Answer = tuple[int, JSON]
"""HTTP status and body."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a rollout is not taken up now, and when to ask again."""

    status: int
    error: str
    retry_after_s: int


class Admission:
    """Counts rollouts in flight, refuses those beyond the limit, and plays a repeated one once."""

    def __init__(self, limit: int) -> None:
        """Take up `limit` rollouts at once."""
        self.limit = limit
        self.in_flight = 0
        """Rollouts taken up and not answered yet, those in the background too."""
        self.is_draining = False
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._by_key: dict[str, asyncio.Task[Answer]] = {}
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    @property
    def status(self) -> str:
        """`healthy`, `busy` with no room left, or `draining`."""
        if self.is_draining:
            return "draining"
        return "busy" if self.in_flight >= self.limit else "healthy"

    def drain(self) -> None:
        """Take up nothing new; what is in flight goes on."""
        self.is_draining = True

    def open(self) -> None:
        """Take up rollouts again: a new server is starting."""
        self.is_draining = False

    def known(self, key: str) -> asyncio.Future[Answer] | None:
        """Return what came, or is to come, of an earlier request with this key."""
        if not key:
            return None
        if key in self._by_key:
            return self._by_key[key]
        if key not in self._answers:
            return None
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.set_result(self._answers[key])
        return future

    def refusal(self) -> Refused | None:
        """Return why no new rollout is taken up now, or `None`."""
        if self.is_draining:
            return Refused(
                503, "the agent is draining and takes up no new rollout", DRAINING_RETRY_S
            )
        if self.in_flight >= self.limit:
            return Refused(
                429, f"the agent plays {self.limit} rollouts, as many as it may", BUSY_RETRY_S
            )
        return None

    def begin(self, key: str, work: Callable[[], Awaitable[Answer]]) -> asyncio.Task[Answer]:
        """Take up a rollout as a task of its own, which no caller's departure cancels.

        Args:
            key: What repetitions of the request carry too; empty for none.
            work: Plays it; must not raise what ends an event loop.
        """
        self.in_flight += 1
        task = asyncio.create_task(self._counted(key, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key:
            self._by_key[key] = task
        return task

    async def _counted(self, key: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await work()
            if key and _is_settled(answer):
                self._remember(key, answer)
            return answer
        finally:
            self.in_flight -= 1
            self._by_key.pop(key, None)

    def _remember(self, key: str, answer: Answer) -> None:
        # What the function returned besides may be large, and whoever asks twice does not need it.
        status, body = answer
        self._answers[key] = status, {name: body[name] for name in ("reward", "_rft")}
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)


def _is_settled(answer: Answer) -> bool:
    """Whether the rollout's reward was accepted: one whose was not may be played anew."""
    ours = answer[1].get("_rft")
    return answer[0] == 200 and isinstance(ours, dict) and ours.get("reported") is True
