"""Blocking calls beside an event loop, each on a thread of its own, with a limit.

Not the loop's executor: a call that never returns would keep one of its few threads, and the end of the loop
would wait for it for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


async def on_thread(
    work: Callable[[], _T], timeout_s: float, *, name: str, daemon: bool = True
) -> _T:
    """Return what `work` returns, or raise what it raises.

    Args:
        work: Called on a new thread.
        timeout_s: Longest wait, in seconds. The thread goes on after it; nobody hears of its end.
        name: The thread's name.
        daemon: Whether the end of the process cuts it off.

    Raises:
        TimeoutError: It did not end in time.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(settle_one: Callable[[], None]) -> None:
        def once() -> None:
            if not done.done():
                settle_one()

        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(once)

    def run() -> None:
        try:
            value = work()
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
            settle(lambda: done.set_exception(error))
        else:
            settle(lambda: done.set_result(value))

    threading.Thread(target=run, name=name, daemon=daemon).start()
    try:
        # Not `wait_for`: on Python 3.11 it forgets that it was cancelled where `done` comes at the same moment.
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError:
        if done.done() and not done.cancelled():
            raise  # its own
        raise TimeoutError(f"{name} did not end within {timeout_s} s") from None
