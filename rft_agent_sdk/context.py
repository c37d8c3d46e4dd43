"""Which rollout am I in, and how much time has it left.

The rollout travels in one `ContextVar`: it follows threads and tasks that copy their context, and a
shared client can ask for it at the moment of each request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from rft_agent_sdk.errors import NoRolloutError

if TYPE_CHECKING:
    from rft_agent_sdk.rollout import Rollout

_current: ContextVar[Rollout | None] = ContextVar("rft_rollout", default=None)


class Deadline:
    """A point in time on a monotonic clock."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.at = clock() + seconds
        """Clock reading at which the time is up, in seconds."""

    def remaining(self) -> float:
        """Return the seconds left, 0 when the time is up."""
        return max(0.0, self.at - self._clock())

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self.at


def current_rollout() -> Rollout:
    """Return the rollout this code runs for.

    Raises:
        NoRolloutError: There is none: the call was made outside a rollout, or in a thread that did not
            copy the context of the rollout that started it.
    """
    rollout = _current.get()
    if rollout is None:
        raise NoRolloutError(
            "a policy call was made outside any rollout: call it from a function under @rft_handler; in "
            "a thread of your own, start it through contextvars.copy_context().run"
        )
    return rollout


@contextmanager
def rollout_context(rollout: Rollout) -> Iterator[None]:
    """Make `rollout` the current one inside the `with` block."""
    token = _current.set(rollout)
    try:
        yield
    finally:
        # A coroutine closed from another context: nothing to reset there.
        with suppress(ValueError):
            _current.reset(token)
