"""Calls of Gemma 4: an object with bare keys, and strings between a delimiter of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rft_agent_sdk.gateway.parse.arguments import read_object, skip_space, to_json
from rft_agent_sdk.gateway.parse.base import Tools
from rft_agent_sdk.gateway.parse.hermes import ill_formed
from rft_agent_sdk.recovery.literals import GEMMA_QUOTE, LiteralReader, Unreadable
from rft_agent_sdk.types import ToolCall

OPENING, CLOSING = "<|tool_call>", "<tool_call|>"
_HEAD = re.compile(r"\s*call:([\w.-]+)\s*(?=\{)")


class GemmaCalls:
    """`<|tool_call>call:NAME{...}<tool_call|>`."""

    opening = re.compile(re.escape(OPENING))
    before = ""

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the one call between two marks, and the position after it."""
        head = _HEAD.match(text, match.end())
        if head is None:
            raise ill_formed(text, match, CLOSING)
        try:
            arguments, end = LiteralReader(text, words=True).object(head.end())
        except Unreadable:
            raise ill_formed(text, match, CLOSING) from None
        end = skip_space(text, end)
        if not text.startswith(CLOSING, end):
            raise ill_formed(text, match, CLOSING)
        return [ToolCall(head[1], to_json(arguments))], end + len(CLOSING)

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        return "".join(
            f"{OPENING}call:{call.name}{_written(read_object(call.arguments))}{CLOSING}"
            for call in calls
        )


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f"{GEMMA_QUOTE}{value}{GEMMA_QUOTE}"
    if isinstance(value, dict):
        return (
            f"{{{_joined(f'{_key(key)}:{_written(item)}' for key, item in sorted(value.items()))}}}"
        )
    if isinstance(value, list):
        return f"[{_joined(map(_written, value))}]"
    return {None: "null", True: "true", False: "false"}.get(value) or str(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w.+-]+", key) else f"{GEMMA_QUOTE}{key}{GEMMA_QUOTE}"


def _joined(items: Iterable[str]) -> str:
    return ",".join(items)
