"""One HTTP request and its reply, straight on ASGI, since this is the hot path.

Not a web framework: it reads a bounded body, writes a reply once, and can hang up on purpose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from rft_agent_sdk.gateway.refusal import Refusal, to_json

Scope = MutableMapping[str, Any]
ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
Header = tuple[bytes, bytes]

_JSON_TYPE = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client hung up before its request was whole; there is nobody to answer."""


class Exchange:
    """One request and its reply."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started = False
        """Whether a status line went out, after which no other status can."""
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> str | None:
        """Return a request header by its lower-case name, `None` when absent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, limit: int) -> bytes:
        """Return the whole request body.

        Raises:
            Refusal: 413, more than `limit` bytes; the rest is left unread.
            ClientGone: The client hung up first.
        """
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return bytes(message.get("body", b""))  # the usual case, without a copy
        parts, size = [], 0
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()

    async def start(self, status: int, headers: Iterable[Header]) -> None:
        """Send the status line and headers."""
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, part: bytes, *, more: bool = True) -> None:
        """Send a piece of the reply's body; a client that is gone is not an error."""
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    async def reply(self, status: int, value: Any, headers: Iterable[Header] = ()) -> None:
        """Send a whole JSON reply."""
        body = to_json(value)
        length = (b"content-length", b"%d" % len(body))
        await self.start(status, [_JSON_TYPE, length, *headers])
        await self.write(body, more=False)

    async def hang_up(self) -> None:
        """Close the connection at once, with whatever was sent so far.

        ASGI has no word for it, so this reaches for uvicorn's transport; under another server it
        raises, which such a server turns into a reply of 500 or, once started, a closed connection.
        """
        transport = getattr(getattr(self._receive, "__self__", None), "transport", None)
        if transport is None:
            raise ConnectionAbortedError("this server gives no way to drop a connection")
        transport.abort()
        while (await self._receive())["type"] != "http.disconnect":
            pass  # uvicorn answers 500 unless it knows that the client is gone


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the body is larger than {limit} bytes", code="request_too_large")
