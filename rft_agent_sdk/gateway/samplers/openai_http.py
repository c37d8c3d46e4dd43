"""A policy behind any OpenAI-compatible server: vLLM, SGLang, another gateway, a hosted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import orjson

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.dialects.openai_messages import parse_messages, write_messages
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.assemble import Assembler, finish_reason_of, usage_of
from rft_agent_sdk.gateway.samplers.backend import Backend, events
from rft_agent_sdk.gateway.samplers.base import Delta, Policy, PolicyRequest, Reply, settled
from rft_agent_sdk.types import JSON

SPEC = "openai:"
_PATH = "/chat/completions"


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
        has_path = urlsplit(url).path not in ("", "/")
        self._backend = Backend(
            url if has_path else url.rstrip("/") + "/v1",
            key_variable=key_variable,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_connections=max_connections,
        )
        self._model = model

    @classmethod
    def from_spec(cls, spec: str) -> OpenAIPolicy:
        """Return the policy that `openai:<url>` or `openai:<url>#<model>` names."""
        if not spec.startswith(SPEC):
            raise UsageError(f"wanted openai:<url> or openai:<url>#<model>, got {spec!r}")
        url, _, model = spec.removeprefix(SPEC).partition("#")
        return cls(url, model=model or None)

    async def reply(self, request: PolicyRequest) -> Reply:
        """Return the server's whole reply."""
        async with self._backend.post(_PATH, self._body(request) | {"stream": False}) as response:
            body = await response.aread()
        return _reply(body)

    async def stream(self, request: PolicyRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield what the server sends, as it comes."""
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        assembler = Assembler()
        async with (
            self._backend.post(_PATH, self._body(request) | streamed) as response,
            aclosing(events(response)) as chunks,
        ):
            async for chunk in chunks:
                for delta in assembler.take(chunk):
                    yield delta
        yield assembler.reply()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._backend.aclose()

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
