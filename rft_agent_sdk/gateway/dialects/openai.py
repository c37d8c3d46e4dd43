"""OpenAI chat completions, plain and streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rft_agent_sdk.gateway.dialects.base import ChatRequest, ReplyHead
from rft_agent_sdk.gateway.dialects.fields import (
    a_bool,
    a_count,
    a_name,
    a_number,
    a_string,
    an_object,
    bad,
    unsupported,
)
from rft_agent_sdk.gateway.dialects.openai_messages import (
    parse_messages,
    parse_tools,
    write_assistant,
)
from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import Delta, PolicyRequest, Reply, ToolChoice
from rft_agent_sdk.gateway.sse import DONE, event
from rft_agent_sdk.types import JSON, SamplingParams, ToolSpec, Usage

_READ = frozenset(
    {
        *("messages", "model", "tools", "tool_choice", "parallel_tool_calls"),
        *("stream", "stream_options", "temperature", "top_p", "max_tokens"),
        *("max_completion_tokens", "n", "logprobs", "modalities", "response_format"),
    }
)
_NEVER = {
    "top_logprobs": "logprobs are recorded here and not handed out",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "audio": "only text can be produced",
    "prediction": "predicted output cannot be honoured",
    "web_search_options": "there is no web search here",
}


class OpenAIDialect:
    """`POST /v1/chat/completions`."""

    bulky: ClassVar[frozenset[str]] = frozenset({"messages", "tools"})
    spelled: ClassVar[Mapping[str, str]] = {}  # the extras go by the names of this very wire

    def parse(self, body: JSON, recall: Recall | None = None) -> ChatRequest:
        """Read a chat-completion request.

        Raises:
            Refusal: 400, naming the field that is wrong or cannot be honoured.
        """
        _refuse_what_cannot_be(body)
        tools = parse_tools(body.get("tools"))
        options = an_object(body.get("stream_options") or {}, "stream_options")
        return ChatRequest(
            PolicyRequest(
                messages=parse_messages(body.get("messages"), recall),
                tools=tools,
                sampling=_sampling(body),
                tool_choice=_tool_choice(body.get("tool_choice"), tools),
                parallel_tool_calls=a_bool(body, "parallel_tool_calls", default=True),
                model=a_string(body.get("model"), "model", default="default"),
                extras=_extras(body),
            ),
            stream=a_bool(body, "stream"),
            include_usage=a_bool(options, "include_usage"),
        )

    def reply(self, head: ReplyHead, reply: Reply) -> JSON:
        """Write a chat completion."""
        return {
            "id": _id(head),
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [
                {
                    "index": 0,
                    "message": write_assistant(reply.message),
                    "logprobs": None,
                    "finish_reason": reply.finish_reason,
                }
            ],
            "usage": _usage(reply.usage),
        }

    def stream(self, head: ReplyHead, request: ChatRequest) -> OpenAIStream:
        """Return what writes the reply as chunks."""
        return OpenAIStream(head, include_usage=request.include_usage)


class OpenAIStream:
    """Writes a reply as chat-completion chunks."""

    def __init__(self, head: ReplyHead, *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def start(self) -> bytes:
        """Write the chunk that opens the assistant's message."""
        return event(self._chunk({"role": "assistant", "content": ""}))

    def delta(self, delta: Delta) -> bytes:
        """Write one chunk of text, reasoning or a tool call."""
        written: JSON = {}
        if delta.text:
            written["content"] = delta.text
        if delta.reasoning:
            written["reasoning_content"] = delta.reasoning
        if delta.call_index is not None:
            written["tool_calls"] = [_call_delta(delta)]
        return event(self._chunk(written)) if written else b""

    def end(self, reply: Reply) -> bytes:
        """Write the finish reason, the usage if asked for, and the end mark."""
        end = event(self._chunk({}, reply.finish_reason))
        if self._include_usage:
            end += event(self._chunk({}) | {"choices": [], "usage": _usage(reply.usage)})
        return end + DONE

    def error(self, refusal: Refusal) -> bytes:
        """Write an OpenAI error."""
        return event(refusal.as_openai())

    def _chunk(self, delta: JSON, finish_reason: str | None = None) -> JSON:
        chunk: JSON = {
            "id": _id(self._head),
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        }
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def _refuse_what_cannot_be(body: JSON) -> None:
    if body.get("n") not in (None, 1):
        raise unsupported("n", f"one request is one turn, so n must be 1, got {body['n']!r}")
    if body.get("logprobs"):
        raise unsupported("logprobs", _NEVER["top_logprobs"])
    if body.get("modalities") not in (None, ["text"]):
        raise unsupported("modalities", f"only text can be produced, got {body['modalities']!r}")
    for name, why in _NEVER.items():
        if body.get(name) is not None:
            raise unsupported(name, why)


def _sampling(body: JSON) -> SamplingParams:
    newer = a_count(body, "max_completion_tokens")
    older = a_count(body, "max_tokens")
    return SamplingParams(
        temperature=a_number(body, "temperature", low=0),
        top_p=a_number(body, "top_p", low=0, high=1),
        max_tokens=older if newer is None else newer,
    )


def _tool_choice(value: object, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    if value is None or value == "auto":
        return ToolChoice()
    if value == "none":
        return ToolChoice("none")
    if value == "required":
        if not tools:
            raise bad("tool_choice", "'auto' or 'none', there being no tools", value)
        return ToolChoice("required")
    if not isinstance(value, dict):
        raise bad("tool_choice", "'auto', 'none', 'required' or a function to call", value)
    if value.get("type") != "function":
        raise unsupported("tool_choice.type", f"only 'function', got {value.get('type')!r}")
    function = an_object(value.get("function"), "tool_choice.function")
    name = a_name(function.get("name"), "tool_choice.function.name")
    known = [tool.name for tool in tools]
    if name not in known:
        raise bad("tool_choice.function.name", f"one of the tools {known}", name)
    return ToolChoice("required", name)


def _extras(body: JSON) -> JSON:
    """Return the fields whose worth only the policy knows."""
    extras = {
        name: value for name, value in body.items() if name not in _READ and value is not None
    }
    shape = body.get("response_format")
    if shape is not None and shape != {"type": "text"}:
        extras["response_format"] = shape
    return extras


def _id(head: ReplyHead) -> str:
    return f"chatcmpl-{head.id}"


def _call_delta(delta: Delta) -> JSON:
    function: JSON = {"arguments": delta.call_arguments}
    written: JSON = {"index": delta.call_index, "function": function}
    if delta.call_id:
        written |= {"id": delta.call_id, "type": "function"}
    if delta.call_name:
        function["name"] = delta.call_name
    return written


def _usage(usage: Usage) -> JSON:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
