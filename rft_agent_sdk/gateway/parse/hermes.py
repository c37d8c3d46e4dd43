"""Calls as JSON between tags: Hermes, Qwen 3, SmolLM. The JSON says where it ends, not the next tag."""

from __future__ import annotations

import re

from rft_agent_sdk.gateway.parse.arguments import NotJSON, read_calls, skip_space
from rft_agent_sdk.gateway.parse.base import IllFormed, Tools
from rft_agent_sdk.types import ToolCall

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class HermesCalls:
    """`<tool_call>`, JSON objects or a list of them, `</tool_call>`."""

    opening = re.compile(re.escape(OPENING))
    before = "\n"

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the calls of one pair of tags, and the position after it."""
        calls: list[ToolCall] = []
        position = skip_space(text, match.end())
        try:
            while not text.startswith(CLOSING, position):
                found, position = read_calls(text, position)
                calls += found
                position = skip_space(text, position)
        except NotJSON:
            raise ill_formed(text, match, CLOSING) from None
        if not calls:
            raise ill_formed(text, match, CLOSING)
        return calls, position + len(CLOSING)

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        return "\n".join(
            f'{OPENING}\n{{"name": "{call.name}", "arguments": {call.arguments or "{}"}}}\n{CLOSING}'
            for call in calls
        )


def ill_formed(text: str, match: re.Match[str], closing: str) -> IllFormed:
    """Return the error for a call that cannot be read, up to its closing tag or the end of the text.

    A second opening inside it is not tried: it may be part of the broken call's arguments.
    """
    end = text.find(closing, match.end())
    return (
        IllFormed(len(text), is_open=True)
        if end < 0
        else IllFormed(end + len(closing), is_open=False)
    )
