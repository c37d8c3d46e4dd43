"""One HTTP server behind the gateway: its connections, its streams, and its errors as refusals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx
import orjson

from rft_agent_sdk.bodies import run_out
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.refusal import Refusal, to_json
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON

_MESSAGE_LIMIT = 500
_PASSED_ON = frozenset({400, 413, 422, 429})
"""Statuses that are about the request or its pace, and so the agent's to know; any other refusal is
between the gateway and the policy server."""
_TRANSIENT = frozenset({429, 500, 502, 503, 504})


class TransientRefusal(Refusal):
    """A refusal that the same request may not meet again: no connection, too busy, failing."""


class Backend:
    """Posts JSON to one server; one set of connections for each event loop.

    It does not retry.
    """

    def __init__(
        self,
        url: str,
        *,
        key_variable: str,
        timeout_s: float,
        connect_timeout_s: float,
        max_connections: int,
    ) -> None:
        """Describe the server; nothing is opened yet.

        Args:
            url: Base URL, to which paths are appended.
            key_variable: Environment variable that holds the bearer key, read at the first call.
            timeout_s: Longest silence from the server, in seconds.
            connect_timeout_s: Longest wait for a connection, in seconds.
            max_connections: Most calls at one time; further ones queue.

        Raises:
            UsageError: The URL is not http or https.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"a policy server is http://… or https://…, got {url!r}")
        self.url = url.rstrip("/")
        self._key_variable = key_variable
        self._timeout = httpx.Timeout(timeout_s, connect=connect_timeout_s)
        self._limits = httpx.Limits(
            max_connections=max_connections, max_keepalive_connections=max_connections
        )
        # A client belongs to the event loop it was first used on.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def post(self, path: str, body: JSON) -> AsyncIterator[httpx.Response]:
        """Send `body` and give the response once its status is known to be 200.

        Raises:
            Refusal: The server refused, failed, or gave no answer in time.
        """
        async with self._asked("POST", path, to_json(body)) as response:
            yield response

    async def get(self, path: str) -> object:
        """Return the JSON that the server has at `path`.

        Raises:
            Refusal: As `post`, or it is not JSON.
        """
        async with self._asked("GET", path, None) as response:
            return parsed(await response.aread())

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later call opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, content: bytes | None
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with self._client().stream(method, self.url + path, content=content) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread(), response.headers)
                yield response
        except httpx.TimeoutException as error:
            # Without a connection or a place in the queue, nothing was sampled yet.
            is_unsent = isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout)
            kind = TransientRefusal if is_unsent else Refusal
            raise kind(504, f"the policy server gave no answer: {type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise TransientRefusal(
                502, f"the policy server failed: {type(error).__name__}"
            ) from error

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            headers = {"content-type": "application/json"}
            if key := os.environ.get(self._key_variable):
                headers["authorization"] = f"Bearer {key}"
            client = httpx.AsyncClient(
                headers=headers, timeout=self._timeout, limits=self._limits, verify=tls_context()
            )
            self._clients[loop] = client
        return client


def parsed(body: bytes) -> Any:
    """Return a body as JSON.

    Raises:
        Refusal: 502, it is none.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(502, f"the policy server's answer is not JSON: {error}") from None


async def events(
    response: httpx.Response, *, error_status: int = 502
) -> AsyncGenerator[JSON, None]:
    """Yield the server-sent events of a response, to `[DONE]` or its end; it is closed then.

    Args:
        response: What `post` gave.
        error_status: What an error event means that names no HTTP status of its own.

    Raises:
        Refusal: An event is not JSON, or tells of an error.
    """
    lines = response.aiter_lines()
    try:
        async for line in lines:
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            yield _event(data, error_status)
    finally:
        await response.aclose()
        await run_out(lines)


def _event(data: str, error_status: int) -> JSON:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refusal(502, f"the policy server sent an event that is not JSON: {error}") from None
    if not isinstance(chunk, dict) or chunk.get("error") is not None:
        raise _broken_off(chunk, error_status)
    return chunk


def _broken_off(chunk: object, status: int) -> Refusal:
    error = chunk.get("error") if isinstance(chunk, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    kind = TransientRefusal if status in _TRANSIENT else Refusal
    status = status if status in _PASSED_ON else 502
    return kind(status, f"the policy server broke off: {_message_in(chunk)}")


def _refusal(status: int, body: bytes, headers: httpx.Headers) -> Refusal:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = body.decode(errors="replace")
    message = _message_in(answer)
    kind = TransientRefusal if status in _TRANSIENT else Refusal
    retry_after_s = _seconds(headers.get("retry-after"))
    if status in _PASSED_ON:
        error = answer.get("error") if isinstance(answer, dict) else None
        fields = error if isinstance(error, dict) else {}
        param, code = fields.get("param"), fields.get("code")
        return kind(
            400 if status == 422 else status,
            f"the policy server says: {message}",
            param=param if isinstance(param, str) else None,
            code=code if isinstance(code, str) else None,
            retry_after_s=retry_after_s,
        )
    return kind(502, f"the policy server answered {status}: {message}", retry_after_s=retry_after_s)


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None


def _message_in(answer: object) -> str:
    """Return the error text of an OpenAI, vLLM or FastAPI error, cut to a readable length."""
    found = answer
    if isinstance(found, dict):
        fields = cast("JSON", found)
        found = fields.get("error") or fields.get("message") or fields.get("detail") or fields
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        found = found["message"]
    return str(found)[:_MESSAGE_LIMIT]
