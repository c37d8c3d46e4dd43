"""A policy behind any OpenAI-compatible server: vLLM, SGLang, another gateway, a hosted model."""

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

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.dialects.openai_messages import parse_messages, write_messages
from rft_agent_sdk.gateway.refusal import Refusal, to_json
from rft_agent_sdk.gateway.samplers.assemble import Assembler, finish_reason_of, usage_of
from rft_agent_sdk.gateway.samplers.base import Delta, Policy, PolicyRequest, Reply, settled
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON

SPEC = "openai:"
_MESSAGE_LIMIT = 500
_PASSED_ON = frozenset({400, 413, 422, 429})
"""Statuses that are about the request or its pace, and so the agent's to know; any other refusal is
between the gateway and the policy server."""


class OpenAIPolicy(Policy):
    """Forwards turns to `{url}/chat/completions`.

    It does not retry: the client in the agent does, and two layers of retries multiply.
    """

    extras = None  # the server behind knows best what it can honour

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
        timeout_s: float = 600.0,
        connect_timeout_s: float = 10.0,
        max_connections: int = 512,
    ) -> None:
        """Describe the server; nothing is opened yet.

        Args:
            url: Base URL; `/v1` is added if it has no path.
            model: Name the server knows the model by; `None` passes on what the client wrote.
            key_variable: Environment variable that holds the key, read at the first call.
            timeout_s: Longest silence from the server, in seconds.
            connect_timeout_s: Longest wait for a connection, in seconds.
            max_connections: Most calls at one time; further ones queue.

        Raises:
            UsageError: The URL is not http or https.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"a policy server is http://… or https://…, got {url!r}")
        self._url = (
            url.rstrip("/") + ("/v1" if parts.path in ("", "/") else "") + "/chat/completions"
        )
        self._model = model
        self._key_variable = key_variable
        self._timeout = httpx.Timeout(timeout_s, connect=connect_timeout_s)
        self._limits = httpx.Limits(
            max_connections=max_connections, max_keepalive_connections=max_connections
        )
        # A client belongs to the event loop it was first used on.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    @classmethod
    def from_spec(cls, spec: str) -> OpenAIPolicy:
        """Return the policy that `openai:<url>` or `openai:<url>#<model>` names."""
        if not spec.startswith(SPEC):
            raise UsageError(f"wanted openai:<url> or openai:<url>#<model>, got {spec!r}")
        url, _, model = spec.removeprefix(SPEC).partition("#")
        return cls(url, model=model or None)

    async def reply(self, request: PolicyRequest) -> Reply:
        """Return the server's whole reply."""
        with_stream: JSON = {"stream": False}
        async with self._sent(request, with_stream) as response:
            body = await response.aread()
        return _reply(body)

    async def stream(self, request: PolicyRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield what the server sends, as it comes."""
        with_stream = {"stream": True, "stream_options": {"include_usage": True}}
        assembler = Assembler()
        async with self._sent(request, with_stream) as response:
            async for chunk in _events(response):
                for delta in assembler.take(chunk):
                    yield delta
        yield assembler.reply()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _sent(
        self, request: PolicyRequest, with_stream: JSON
    ) -> AsyncIterator[httpx.Response]:
        body = to_json(self._body(request) | with_stream)
        try:
            async with self._client().stream("POST", self._url, content=body) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread(), response.headers)
                yield response
        except httpx.TimeoutException as error:
            raise Refusal(
                504, f"the policy server gave no answer: {type(error).__name__}"
            ) from error
        except httpx.HTTPError as error:
            raise Refusal(502, f"the policy server failed: {type(error).__name__}") from error

    def _body(self, request: PolicyRequest) -> JSON:
        body: JSON = {
            **request.extras,
            **request.sampling.as_openai(),
            "model": self._model or request.model,
            "messages": write_messages(request.messages),
        }
        if request.tools:
            body["tools"] = [tool.as_openai() for tool in request.tools]
            choice = request.tool_choice
            if choice.name is not None:
                body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
            elif choice.mode != "auto":
                body["tool_choice"] = choice.mode
            if not request.parallel_tool_calls:
                body["parallel_tool_calls"] = False
        return body

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


def _reply(body: bytes) -> Reply:
    try:
        parsed: Any = orjson.loads(body)
        choice = parsed["choices"][0]
        written = {**choice["message"], "role": "assistant"}
        message = parse_messages([written])[0]
        return settled(
            Reply(message, finish_reason_of(choice.get("finish_reason")), usage_of(parsed))
        )
    except (ValueError, TypeError, LookupError, Refusal) as error:
        raise Refusal(502, f"the policy server's reply is no chat completion: {error}") from error


async def _events(response: httpx.Response) -> AsyncGenerator[JSON, None]:
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise Refusal(
                502, f"the policy server sent an event that is not JSON: {error}"
            ) from None
        if not isinstance(chunk, dict) or chunk.get("error") is not None:
            raise Refusal(502, f"the policy server broke off: {_message_in(chunk)}")
        yield chunk


def _refusal(status: int, body: bytes, headers: httpx.Headers) -> Refusal:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = body.decode(errors="replace")
    message = _message_in(parsed)
    if status in _PASSED_ON:
        error = parsed.get("error") if isinstance(parsed, dict) else None
        fields = error if isinstance(error, dict) else {}
        param, code = fields.get("param"), fields.get("code")
        return Refusal(
            400 if status == 422 else status,
            f"the policy server says: {message}",
            param=param if isinstance(param, str) else None,
            code=code if isinstance(code, str) else None,
            retry_after_s=_seconds(headers.get("retry-after")),
        )
    return Refusal(502, f"the policy server answered {status}: {message}")


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None


def _message_in(parsed: object) -> str:
    """Return the error text of an OpenAI, vLLM or FastAPI error, cut to a readable length."""
    found = parsed
    if isinstance(found, dict):
        fields = cast("JSON", found)
        found = fields.get("error") or fields.get("message") or fields.get("detail") or fields
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        found = found["message"]
    return str(found)[:_MESSAGE_LIMIT]
