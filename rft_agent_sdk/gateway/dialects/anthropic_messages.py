"""Anthropic messages, content blocks and tools ↔ ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from rft_agent_sdk.gateway.dialects.base import ReplyHead
from rft_agent_sdk.gateway.dialects.fields import (
    a_bool,
    a_name,
    a_string,
    an_object,
    bad,
    each,
    unsupported,
)
from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.gateway.refusal import to_json
from rft_agent_sdk.types import JSON, FinishReason, Message, ToolCall, ToolSpec, Usage

T = TypeVar("T")
_UNREAD = "_unparsed"
"""The one field of an `input` that stands for arguments which are no JSON object. The wire has room
for objects alone; so the agent sees what was written, and its echo is read back as it was."""
_NO_ARGUMENTS = ("", "null")
_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


@dataclass(frozen=True, slots=True)
class _Thought:
    text: str


def parse_conversation(
    system: object, messages: object, recall: Recall | None = None
) -> tuple[Message, ...]:
    """Read `system` and `messages`, in the order in which a policy is to see them.

    Raises:
        Refusal: 400, naming the message, block and field.
    """
    found: tuple[tuple[Message, ...], ...] = (recall.each if recall else each)(
        messages, "messages", _messages
    )
    if not found:
        raise bad("messages", "a list of at least one message", messages)
    head = () if system is None else (Message("system", _text(system, "system", "\n")),)
    return head + tuple(message for group in found for message in group)


def _messages(entry: object) -> tuple[Message, ...]:
    fields = an_object(entry)
    role, content = fields.get("role"), fields.get("content")
    if role == "user":
        return _user(content)
    if role == "assistant":
        return (_assistant(content),)
    if role == "system":
        return (Message("system", _text(content, "content", "\n")),)
    raise bad("role", "user, assistant or system", role)


def _user(content: object) -> tuple[Message, ...]:
    """Return the tool results, then the text: nothing may come between a call and its result."""
    if isinstance(content, str):
        return (Message("user", content),)
    found = _blocks(content, "content", {"text": _text_block, "tool_result": _tool_result})
    results = tuple(block for block in found if isinstance(block, Message))
    text = "\n".join(block for block in found if isinstance(block, str))
    return (*results, Message("user", text)) if text or not results else results


def _assistant(content: object) -> Message:
    if isinstance(content, str):
        return Message("assistant", content)
    readers = {"text": _text_block, "thinking": _thought, "tool_use": _tool_use}
    found = _blocks(content, "content", readers)
    thoughts = [block.text for block in found if isinstance(block, _Thought)]
    return Message(
        "assistant",
        # The blocks of an assistant turn are pieces of one text, so nothing may come between them.
        "".join(block for block in found if isinstance(block, str)),
        "".join(thoughts) if thoughts else None,
        tuple(block for block in found if isinstance(block, ToolCall)),
    )


def _blocks(
    content: object, path: str, readers: Mapping[str, Callable[[JSON], T]]
) -> tuple[T, ...]:
    """Return every block of a content list, read by the reader for its type."""
    if not isinstance(content, list):
        raise bad(path, "a string or a list of blocks", content)

    def read(block: object) -> T:
        fields = an_object(block)
        kind = fields.get("type")
        reader = readers.get(kind) if isinstance(kind, str) else None
        if reader is None:
            # `redacted_thinking` too: nobody here ever wrote any, and what it holds no policy reads.
            raise unsupported("type", f"only {', '.join(readers)} can be read here, got {kind!r}")
        return reader(fields)

    return each(content, path, read)


def _text(content: object, path: str, joint: str) -> str:
    """Return content as one text; a list of blocks is joined, since templates want a string."""
    if isinstance(content, str):
        return content
    return joint.join(_blocks(content, path, {"text": _text_block}))


def _text_block(block: JSON) -> str:
    return a_string(block.get("text"), "text")


def _thought(block: JSON) -> _Thought:
    # The signature is not looked at: the history is compared with our own record of it anyway.
    return _Thought(a_string(block.get("thinking"), "thinking"))


def _tool_use(block: JSON) -> ToolCall:
    return ToolCall(
        a_name(block.get("name"), "name"),
        _arguments(an_object(block.get("input"), "input")),
        a_name(block.get("id"), "id"),
    )


def _tool_result(block: JSON) -> Message:
    content = block.get("content")
    return Message(
        "tool",
        "" if content is None else _text(content, "content", "\n"),
        tool_call_id=a_name(block.get("tool_use_id"), "tool_use_id"),
        is_error=a_bool(block, "is_error"),
    )


def _arguments(value: JSON) -> str:
    unread = value.get(_UNREAD)
    if isinstance(unread, str) and len(value) == 1:
        return unread
    return to_json(value).decode()


def parse_tools(value: object) -> tuple[ToolSpec, ...]:
    """Read a `tools` list; `null` and `[]` are no tools.

    Raises:
        Refusal: 400, naming the tool and field.
    """
    return each(value, "tools", _tool)


def _tool(entry: object) -> ToolSpec:
    fields = an_object(entry)
    if fields.get("type") not in (None, "custom"):
        raise unsupported("type", f"there are no server tools here, got {fields['type']!r}")
    for name in ("defer_loading", "input_examples"):
        if fields.get(name):
            raise unsupported(name, "cannot be honoured: a tool is shown whole, by its schema")
    return ToolSpec(
        a_name(fields.get("name"), "name"),
        a_string(fields.get("description"), "description", default=""),
        an_object(fields.get("input_schema"), "input_schema"),
    )


def write_reply(head: ReplyHead, content: list[JSON], end: JSON, usage: JSON) -> JSON:
    """Return a whole reply, or what a stream opens with."""
    return {
        "id": f"msg_{head.id}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **end,
        "usage": usage,
    }


def write_end(reason: FinishReason) -> JSON:
    """Return the fields that say why a reply ended; which stop sequence ended it nobody tells us."""
    return {"stop_reason": _STOP_REASONS[reason], "stop_sequence": None}


def write_usage(usage: Usage) -> JSON:
    """Return the tokens of a call."""
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


def write_blocks(message: Message) -> list[JSON]:
    """Return an assistant message as content blocks: thinking, text, then the calls.

    A message that says nothing at all is one empty text, since clients look for a first block.
    """
    blocks = [_call(call) for call in message.tool_calls]
    if message.text or not (blocks or message.reasoning):
        blocks.insert(0, {"type": "text", "text": message.text})
    if message.reasoning:
        thinking: JSON = {"type": "thinking", "thinking": message.reasoning}
        blocks.insert(0, thinking | {"signature": signature(message.reasoning)})
    return blocks


def _call(call: ToolCall) -> JSON:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> JSON:
    if arguments.strip() in _NO_ARGUMENTS:
        return {}
    try:
        parsed = _parse(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {_UNREAD: arguments}


def signature(thinking: str) -> str:
    """Return the opaque mark of a thinking block, which clients echo and some look for."""
    return blake2b(thinking.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


_parse = json.JSONDecoder(parse_constant=_refuse).decode
