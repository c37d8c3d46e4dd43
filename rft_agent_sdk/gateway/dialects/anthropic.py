"""Anthropic Messages, plain and streamed.

What a request asks for is honoured, harmless to pass over, or a 400 that names the field. Passed over
are: `cache_control` (no cache is kept by it), `service_tier` (there is one), `metadata`, a tool's
`strict` (the policy is to be seen as it samples), and the budget of `thinking`, which `max_tokens`
bounds anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rft_agent_sdk.gateway.dialects.anthropic_messages import (
    parse_conversation,
    parse_tools,
    write_blocks,
    write_end,
    write_reply,
    write_usage,
)
from rft_agent_sdk.gateway.dialects.anthropic_stream import AnthropicStream
from rft_agent_sdk.gateway.dialects.base import ChatRequest, ReplyHead
from rft_agent_sdk.gateway.dialects.fields import (
    a_bool,
    a_count,
    a_name,
    a_number,
    a_string,
    an_object,
    bad,
    each,
    unsupported,
)
from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.gateway.samplers.base import PolicyRequest, Reply, ToolChoice
from rft_agent_sdk.types import JSON, SamplingParams, ToolSpec

_READ = frozenset(
    {
        *("messages", "system", "model", "tools", "tool_choice", "stream", "max_tokens"),
        *("temperature", "top_p", "top_k", "stop_sequences", "thinking", "output_config"),
        *("metadata", "service_tier", "cache_control"),
    }
)
_CHOICES = ("auto", "any", "tool", "none")
_ENABLED = {"enabled": True, "disabled": False, "adaptive": None}
"""Whether a kind of thinking wants the template's switch on or off, or leaves it as it is."""


class AnthropicDialect:
    """`POST /v1/messages`."""

    bulky: ClassVar[frozenset[str]] = frozenset({"messages", "system", "tools"})
    spelled: ClassVar[Mapping[str, str]] = {
        "stop": "stop_sequences",
        "chat_template_kwargs": "thinking",
        "reasoning_effort": "output_config.effort",
        "response_format": "output_config.format",
    }

    def parse(self, body: JSON, recall: Recall | None = None) -> ChatRequest:
        """Read a request for a message.

        Raises:
            Refusal: 400, naming the field that is wrong or cannot be honoured.
        """
        if body.get("max_tokens") is None:
            raise bad("max_tokens", "a whole number of at least 1", None)
        request = ChatRequest(self.parse_count(body, recall), stream=a_bool(body, "stream"))
        if request.policy.messages[-1].role == "assistant":
            raise unsupported("messages", "the last one is the assistant's, and no prefill is here")
        return request

    def parse_count(self, body: JSON, recall: Recall | None = None) -> PolicyRequest:
        """Read a request for a count of tokens: the same, but for `max_tokens`.

        Raises:
            Refusal: 400, naming the field that is wrong or cannot be honoured.
        """
        for name, value in body.items():
            if name not in _READ and value is not None:
                raise unsupported(name, "cannot be honoured here")
        tools = parse_tools(body.get("tools"))
        choice = an_object(body.get("tool_choice") or {"type": "auto"}, "tool_choice")
        return PolicyRequest(
            messages=parse_conversation(body.get("system"), body.get("messages"), recall),
            tools=tools,
            sampling=SamplingParams(
                temperature=a_number(body, "temperature", low=0),
                top_p=a_number(body, "top_p", low=0, high=1),
                max_tokens=a_count(body, "max_tokens"),
            ),
            tool_choice=_tool_choice(choice, tools),
            parallel_tool_calls=not a_bool(choice, "disable_parallel_tool_use"),
            model=a_string(body.get("model"), "model", default="default"),
            extras={name: value for name, value in _extras(body).items() if value is not None},
        )

    def reply(self, head: ReplyHead, reply: Reply) -> JSON:
        """Write a message."""
        end, usage = write_end(reply.finish_reason), write_usage(reply.usage)
        return write_reply(head, write_blocks(reply.message), end, usage)

    def count(self, tokens: int) -> JSON:
        """Write a count of tokens."""
        return {"input_tokens": tokens}

    def stream(self, head: ReplyHead, request: ChatRequest) -> AnthropicStream:
        """Return what writes the reply as events."""
        return AnthropicStream(head)


def _tool_choice(choice: JSON, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    kind = choice.get("type")
    if kind not in _CHOICES:
        raise bad("tool_choice.type", f"one of {', '.join(_CHOICES)}", kind)
    if kind in ("auto", "none"):
        return ToolChoice(kind)
    if not tools:
        raise bad("tool_choice.type", "'auto' or 'none', there being no tools", kind)
    if kind == "any":
        return ToolChoice("required")
    name = a_name(choice.get("name"), "tool_choice.name")
    known = [tool.name for tool in tools]
    if name not in known:
        raise bad("tool_choice.name", f"one of the tools {known}", name)
    return ToolChoice("required", name)


def _extras(body: JSON) -> JSON:
    """Return the fields whose worth only the policy knows, by the names it knows; `None` if unset."""
    output = an_object(body.get("output_config") or {}, "output_config")
    stop = each(body.get("stop_sequences"), "stop_sequences", lambda text: a_name(text, ""))
    return {
        "top_k": a_count(body, "top_k"),
        "stop": list(stop) or None,
        "chat_template_kwargs": _thinking(body.get("thinking")),
        "reasoning_effort": output.get("effort"),
        "response_format": _format(output.get("format")),
    }


def _thinking(value: object) -> JSON | None:
    """Return what templates are told of thinking: all of its settings but on and off are hints."""
    if value is None:
        return None
    config = an_object(value, "thinking")
    kind = config.get("type")
    if not isinstance(kind, str) or kind not in _ENABLED:
        raise unsupported("thinking.type", f"only {', '.join(_ENABLED)}, got {kind!r}")
    if config.get("display") not in (None, "summarized"):
        raise unsupported("thinking.display", "thinking is handed out as it was sampled")
    enabled = _ENABLED[kind]
    return None if enabled is None else {"enable_thinking": enabled}


def _format(value: object) -> JSON | None:
    if value is None:
        return None
    shape = an_object(value, "output_config.format")
    if shape.get("type") != "json_schema":
        raise unsupported(
            "output_config.format.type", f"only json_schema, got {shape.get('type')!r}"
        )
    schema = an_object(shape.get("schema"), "output_config.format.schema")
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
