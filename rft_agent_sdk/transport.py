"""Transports of the policy's clients: one connection per exchange, and every reply counted.

They know nothing of OpenAI's client: any `httpx` client inside a rollout may send through them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, cast

import httpx

from rft_agent_sdk.bodies import run_out
from rft_agent_sdk.context import current_rollout
from rft_agent_sdk.errors import RolloutOver
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.tracing import Span, span
from rft_agent_sdk.types import JSON, Usage

if TYPE_CHECKING:
    from rft_agent_sdk.rollout import Rollout


class CountingTransport(httpx.BaseTransport):
    """One connection per exchange, so that no client belongs to an event loop and nothing leaks.

    A pool ties connections to the loop that opened them, agent frameworks make a loop per call, and an
    idle connection that the server dropped costs a retry. Next to a sampled turn a handshake costs
    little; the TLS context, the costly part, is shared.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send on a connection of its own, closed with the response."""
        rollout = current_rollout()
        turn = _begin(rollout, request)
        inner = httpx.HTTPTransport(verify=tls_context())
        try:
            response = inner.handle_request(request)
        except BaseException as error:
            inner.close()
            _lost(rollout, turn, error)
            raise
        source = cast(httpx.SyncByteStream, response.stream)
        return _passed_on(response, _Stream(source, _Exchange(rollout, turn, response), inner))


class AsyncCountingTransport(httpx.AsyncBaseTransport):
    """The same on an event loop."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send on a connection of its own, closed with the response."""
        rollout = current_rollout()
        turn = _begin(rollout, request)
        inner = httpx.AsyncHTTPTransport(verify=tls_context())
        try:
            response = await inner.handle_async_request(request)
        except BaseException as error:
            await inner.aclose()
            _lost(rollout, turn, error)
            raise
        source = cast(httpx.AsyncByteStream, response.stream)
        return _passed_on(response, _AsyncStream(source, _Exchange(rollout, turn, response), inner))


def _passed_on(
    response: httpx.Response, stream: httpx.SyncByteStream | httpx.AsyncByteStream
) -> httpx.Response:
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=stream,
        extensions=response.extensions,
    )


def _begin(rollout: Rollout, request: httpx.Request) -> Span:
    """Count an attempt and begin its span."""
    rollout.calls.begin()
    retries = request.headers.get(
        "x-stainless-retry-count", "0"
    )  # as the OpenAI client counts them
    attributes = {
        "trajectory_id": rollout.request.rollout_id or None,
        "turn": rollout.calls.succeeded + 1,
        "attempt": int(retries) + 1 if retries.isdecimal() else None,
    }
    return span("turn", attributes)


def _lost(rollout: Rollout, turn: Span, error: BaseException) -> None:
    """Count an attempt that got no response; one cut off by the rollout's own end is no fault."""
    turn.fail(type(error).__name__)
    turn.end()
    if not isinstance(error, httpx.TransportError):
        return
    if rollout.deadline.expired and isinstance(error, httpx.TimeoutException):
        return
    rollout.calls.fail(f"{type(error).__name__}: {error}")


class _Exchange:
    """One reply as it passes by: counted when it is complete."""

    def __init__(self, rollout: Rollout, turn: Span, response: httpx.Response) -> None:
        self._rollout = rollout
        self._turn = turn
        self._status = response.status_code
        self._is_stream = "text/event-stream" in response.headers.get("content-type", "")
        self._chunks: list[bytes] = []
        self._done = False
        self.is_whole = False
        """Whether the reply was read to its end."""

    def see(self, chunk: bytes) -> None:
        """Keep a chunk; stop a reply that outlives the rollout, which no read timeout would.

        Raises:
            RolloutOver: The deadline passed, or the rollout was closed or cancelled.
        """
        self._chunks.append(chunk)
        self._rollout.check_open()

    def lost(self, error: BaseException) -> None:
        """Count a reply that broke off; one whose last event had come is whole without its connection's end."""
        if self._is_stream and _is_over(b"".join(self._chunks)):
            self.end()
        elif not self._done:
            self._done = True
            _lost(self._rollout, self._turn, error)

    def end(self) -> None:
        """Count the reply by what came."""
        if self._done:
            return
        self._done = True
        self._turn.set({"http.response.status_code": self._status})
        if (fault := self._fault()) is not None:
            self._turn.fail(fault)
        self._turn.end()

    def _fault(self) -> str | None:
        """Count the reply; return in a word what is wrong with it."""
        body = b"".join(self._chunks)
        calls = self._rollout.calls
        if not 200 <= self._status < 300:
            calls.fail(f"HTTP {self._status}: {summary(body)}", status=self._status)
            return f"HTTP {self._status}"
        finish_reason, usage = _read_stream(body) if self._is_stream else _read_json(body)
        if finish_reason is not None:
            calls.succeed(finish_reason, usage)
            self._turn.set(
                {
                    "finish_reason": str(finish_reason),
                    "prompt_tokens": usage.prompt_tokens,
                    "completion_tokens": usage.completion_tokens,
                }
            )
            return None
        if self.is_whole:
            calls.fail(f"HTTP {self._status}: the reply is no whole chat completion")
            return "no completion"
        # The caller's choice, and no fault of the endpoint.
        calls.fail("the reply was not read to its end", status=self._status)
        return "not read"


class _Stream(httpx.SyncByteStream):
    def __init__(
        self, source: httpx.SyncByteStream, exchange: _Exchange, owner: httpx.HTTPTransport
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._owner = owner

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._source:
                self._exchange.see(chunk)
                yield chunk
            self._exchange.is_whole = True
        except (httpx.TransportError, RolloutOver) as error:
            self._exchange.lost(error)
            raise

    def close(self) -> None:
        try:
            self._source.close()
        finally:
            self._owner.close()
            self._exchange.end()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(
        self, source: httpx.AsyncByteStream, exchange: _Exchange, owner: httpx.AsyncHTTPTransport
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._owner = owner
        self._parts: AsyncIterator[bytes] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._parts = aiter(self._source)
        try:
            async for chunk in self._parts:
                self._exchange.see(chunk)
                yield chunk
            self._exchange.is_whole = True
        except (httpx.TransportError, RolloutOver) as error:
            self._exchange.lost(error)
            raise

    async def aclose(self) -> None:
        try:
            await self._source.aclose()
        finally:
            await self._owner.aclose()
            self._exchange.end()
            if self._parts is not None:
                await run_out(self._parts)


_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a reply of any other shape can raise."""


def is_completion(body: bytes) -> bool:
    """Whether a plain reply is a chat completion, and not a proxy's page under status 200, say."""
    return _read_json(body)[0] is not None


def _read_json(body: bytes) -> tuple[str | None, Usage]:
    try:
        reply = json.loads(body)
        return reply["choices"][0].get("finish_reason") or "stop", _usage(reply)
    except _MALFORMED:
        return None, Usage()


def _read_stream(body: bytes) -> tuple[str | None, Usage]:
    """Read the finish reason and usage out of server-sent events; only lines that hold them are parsed."""
    finish_reason, usage = None, Usage()
    for line in body.split(b"\n"):
        if not line.startswith(b"data:") or not (b'"finish_reason"' in line or b'"usage"' in line):
            continue
        try:
            event = json.loads(line[5:])
            for choice in event.get("choices") or ():
                finish_reason = choice.get("finish_reason") or finish_reason
            if event.get("usage"):
                usage = _usage(event)
        except _MALFORMED:
            continue
    return finish_reason, usage


def _is_over(body: bytes) -> bool:
    """Whether the last of the server-sent events of a completion is there."""
    return any(
        line.startswith(b"data:") and line[5:].strip() == b"[DONE]" for line in body.split(b"\n")
    )


def _usage(reply: JSON) -> Usage:
    usage = reply.get("usage") or {}
    return Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


def summary(body: bytes) -> str:
    """Return the start of a reply on one line."""
    return " ".join(body[:300].decode("utf-8", "replace").split())
