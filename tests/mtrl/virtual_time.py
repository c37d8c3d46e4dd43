"""An event loop whose time passes at once: what would be waited for is over, and nothing is slept.

It is asyncio's own loop; only the selector that it sleeps in is replaced.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Instant(selectors.DefaultSelector):
    """Moves its loop's time on instead of sleeping."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self.loop.now += timeout
        if not found and timeout is None:
            raise RuntimeError("the loop waits for something that nobody will do")
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 1000 s."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Instant()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def clock() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
