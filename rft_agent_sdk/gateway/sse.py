"""Server-sent events: encoding, and comments that keep a silent connection open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from rft_agent_sdk.gateway.refusal import to_json

DONE = b"data: [DONE]\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": keep-alive\n\n"
"""Clients skip it; proxies and idle timeouts count it as traffic."""


def event(data: Any, name: str = "") -> bytes:
    """Return one event with `data` as JSON; with a name, where clients go by it."""
    named = b"event: %s\n" % name.encode() if name else b""
    return named + b"data: " + to_json(data) + b"\n\n"


class KeptAlive:
    """Writes parts of a stream, and a comment whenever none was written for `every_s` seconds.

    A timer and not a wait around the policy: most streams never need a comment, and a task for every
    piece would cost more than the piece.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], every_s: float) -> None:
        self._send = send
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Future[None] | None = None

    async def write(self, part: bytes) -> None:
        """Write a part, which must hold whole events."""
        if part:
            self._last = self._loop.time()
            await self._send(part)

    def __enter__(self) -> KeptAlive:
        self._timer = self._loop.call_later(self._every_s, self._tick)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        silent_s = self._loop.time() - self._last
        if silent_s >= self._every_s:
            silent_s = 0.0
            if self._comment is None or self._comment.done():  # else the client does not read
                self._comment = asyncio.ensure_future(self.write(_COMMENT))
        self._timer = self._loop.call_later(self._every_s - silent_s, self._tick)
