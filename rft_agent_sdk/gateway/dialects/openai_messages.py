"""OpenAI chat messages and tools ↔ ours."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rft_agent_sdk.gateway.dialects.fields import (
    a_name,
    a_string,
    an_object,
    bad,
    each,
    unsupported,
)
from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.types import JSON, Message, ToolCall, ToolSpec

_ROLES = "system, developer, user, assistant or tool"
_NO_PARAMETERS: JSON = {"type": "object", "properties": {}}


def parse_messages(value: object, recall: Recall | None = None) -> tuple[Message, ...]:
    """Read a `messages` list.

    Raises:
        Refusal: 400, naming the message and field.
    """
    found: tuple[Message, ...] = (recall.each if recall else each)(value, "messages", _message)
    if not found:
        raise bad("messages", "a list of at least one message", value)
    return found


def _message(entry: object) -> Message:
    fields = an_object(entry)
    role = fields.get("role")
    content = fields.get("content")
    if role == "user":
        return Message("user", _text(content, joint="\n"))
    if role == "assistant":
        return _assistant(fields)
    if role == "tool":
        text = "" if content is None else _text(content, joint="\n")
        return Message(
            "tool", text, tool_call_id=a_name(fields.get("tool_call_id"), "tool_call_id")
        )
    if role in ("system", "developer"):
        return Message("system", _text(content, joint="\n"))
    if role == "function":
        raise unsupported("role", "'function' messages are gone; use role 'tool'")
    raise bad("role", _ROLES, role)


def _assistant(fields: JSON) -> Message:
    for gone in ("function_call", "audio"):
        if fields.get(gone) is not None:
            raise unsupported(gone, "cannot be honoured; use content and tool_calls")
    content = fields.get("content")
    if content is None:
        content = fields.get("refusal") or ""
    # The blocks of an assistant turn are pieces of one text, so nothing may come between them.
    text = _text(content, joint="")
    reasoning = fields.get("reasoning_content", fields.get("reasoning"))
    if reasoning is not None:
        reasoning = a_string(reasoning, "reasoning_content")
    return Message(
        "assistant", text, reasoning, each(fields.get("tool_calls"), "tool_calls", _call)
    )


def _text(content: object, *, joint: str) -> str:
    """Return content as one text; a list of blocks is joined, since templates want a string."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad("content", "a string or a list of text blocks", content)
    return joint.join(each(content, "content", _block))


def _block(block: object) -> str:
    if isinstance(block, str):
        return block
    fields = an_object(block)
    kind = fields.get("type")
    if kind in ("text", "refusal"):
        return a_string(fields.get(kind), kind)
    raise unsupported("type", f"only text can be read, got {kind!r}")


def _call(entry: object) -> ToolCall:
    fields = an_object(entry)
    function = _function(fields)
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some clients send the object itself
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(
        a_name(function.get("name"), "function.name"),
        a_string(arguments, "function.arguments", default=""),
        a_string(fields.get("id"), "id", default=""),
    )


def _function(fields: JSON) -> JSON:
    kind = fields.get("type", "function")
    if kind != "function":
        raise unsupported("type", f"only 'function' can be honoured, got {kind!r}")
    return an_object(fields.get("function"), "function")


def parse_tools(value: object) -> tuple[ToolSpec, ...]:
    """Read a `tools` list; `null` and `[]` are no tools.

    Raises:
        Refusal: 400, naming the tool and field.
    """
    return each(value, "tools", _tool)


def _tool(entry: object) -> ToolSpec:
    function = _function(an_object(entry))
    parameters = function.get("parameters")
    return ToolSpec(
        a_name(function.get("name"), "function.name"),
        a_string(function.get("description"), "function.description", default=""),
        _NO_PARAMETERS if parameters is None else an_object(parameters, "function.parameters"),
    )


def write_messages(messages: Sequence[Message]) -> list[JSON]:
    """Return messages as OpenAI takes them in a request."""
    return [_written(message) for message in messages]


def _written(message: Message) -> JSON:
    if message.role == "assistant":
        return write_assistant(message)
    written: JSON = {"role": message.role, "content": message.text}
    if message.role == "tool":
        written["tool_call_id"] = message.tool_call_id
    return written


def write_assistant(message: Message) -> JSON:
    """Return an assistant message as OpenAI writes it; `content` is `null` beside bare calls."""
    written: JSON = {"role": "assistant", "content": message.text}
    if message.reasoning is not None:
        written["reasoning_content"] = message.reasoning
    if message.tool_calls:
        written["content"] = message.text or None
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return written
