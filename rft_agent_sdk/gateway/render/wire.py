"""Our messages in the shapes that chat templates read, guarded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rft_agent_sdk.gateway.parse import Family
from rft_agent_sdk.gateway.parse.arguments import read_object
from rft_agent_sdk.gateway.render.vocabulary import Vocabulary
from rft_agent_sdk.types import Message, ToolCall, ToolSpec

_SHORT_ID = re.compile(r"length\s*!=\s*9")
_THINKING_BLOCK = re.compile(r"""==\s*["']thinking["']""")
_EITHER_THINKING = re.compile(r"message\.content and message\.thinking")
_ID_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class Wire:
    """Writes messages for one template, whose text tells which spellings it reads."""

    def __init__(self, template: str, vocabulary: Vocabulary | None, family: Family | None) -> None:
        """Make a writer; without a vocabulary nothing is guarded, without a family nothing inlined."""
        self._family = family
        self.inlines_calls = False
        """Whether calls are written into the content, since the template leaves them out."""
        self.inlines_reasoning = False
        """The same for reasoning."""
        self._guard: Callable[[str], str] = vocabulary.guard if vocabulary else str
        self._guard_all: Callable[[Any], Any] = vocabulary.guard_all if vocabulary else lambda v: v
        self._has_short_ids = bool(_SHORT_ID.search(template))
        self._has_thinking_blocks = bool(_THINKING_BLOCK.search(template))
        self._has_either = bool(_EITHER_THINKING.search(template))

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return messages as a template's `messages`.

        A tool message gets the name of the call it answers, from the last assistant message that made it.
        """
        names: dict[str, str] = {}
        written = []
        for message in messages:
            names.update((call.id, call.name) for call in message.tool_calls)
            written.append(self._message(message, names))
        return written

    def tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return tools as a template's `tools`."""
        return [self._guard_all(tool.as_openai()) for tool in tools]

    def _message(self, message: Message, names: dict[str, str]) -> dict[str, Any]:
        text = self._guard(message.text)
        written: dict[str, Any] = {"role": message.role, "content": text}
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            written["tool_call_id"] = self.call_id(call_id)
            if call_id in names:
                written["name"] = self._guard(names[call_id])
        elif message.role == "assistant":
            if self._family and (self.inlines_calls or self.inlines_reasoning):
                message, text = self._inlined(message, self._family)
                written["content"] = text
            if message.tool_calls:
                written["tool_calls"] = [self._call(call) for call in message.tool_calls]
            if message.reasoning is not None:
                self._add_reasoning(written, text, self._guard(message.reasoning))
        return written

    def _inlined(self, message: Message, family: Family) -> tuple[Message, str]:
        """Return what is left for the template, and the content with the rest written into it."""
        inline = guarded(message, self._guard)
        left = message
        if self.inlines_calls:
            left = replace(left, tool_calls=())
        else:
            inline = replace(inline, tool_calls=())
        if self.inlines_reasoning:
            left = replace(left, reasoning=None)
        else:
            inline = replace(inline, reasoning=None)
        return left, family.write(inline)

    def _add_reasoning(self, written: dict[str, Any], text: str, reasoning: str) -> None:
        if self._has_thinking_blocks:
            blocks = [{"type": "thinking", "thinking": reasoning}]
            written["content"] = [*blocks, {"type": "text", "text": text}] if text else blocks
            return
        if self._has_either and text and "tool_calls" in written:
            # The template has one place for both; neither may be lost.
            written["content"], reasoning = "", f"{reasoning}\n{text}" if reasoning else text
        written["reasoning_content"] = written["thinking"] = reasoning

    def _call(self, call: ToolCall) -> dict[str, Any]:
        return {
            "id": self.call_id(call.id),
            "type": "function",
            "function": {
                "name": self._guard(call.name),
                "arguments": self._guard_all(read_object(call.arguments)),
            },
        }

    def call_id(self, call_id: str) -> str:
        """Return a call's id; for templates that want nine characters, always the same nine for it."""
        is_short = len(call_id) == 9 and call_id.isascii() and call_id.isalnum()
        if not self._has_short_ids or is_short:
            return self._guard(call_id)
        digest = hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=9).digest()
        return "".join(_ID_ALPHABET[byte % len(_ID_ALPHABET)] for byte in digest)


def guarded(message: Message, guard: Callable[[str], str]) -> Message:
    """Return a message with all that it says guarded."""
    calls = tuple(
        ToolCall(guard(call.name), guard(call.arguments), guard(call.id))
        for call in message.tool_calls
    )
    reasoning = None if message.reasoning is None else guard(message.reasoning)
    return replace(message, text=guard(message.text), reasoning=reasoning, tool_calls=calls)
