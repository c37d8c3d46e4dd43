"""Calls of Llama 3: the whole turn is a bare JSON object that names a tool."""

from __future__ import annotations

import re

from rft_agent_sdk.gateway.parse.arguments import NotJSON, read_calls, skip_space
from rft_agent_sdk.gateway.parse.base import IllFormed, Tools
from rft_agent_sdk.types import ToolCall

_TAG = "<|python_tag|>"
_NAMED = re.compile(r'\{\s*"(?:name|type)"\s*:\s*"')


class LlamaCalls:
    """A JSON object with `name` and `parameters`, after a tag or at the very beginning."""

    opening = re.compile(rf"(?:\A\s*(?=\{{))|{re.escape(_TAG)}\s*(?=\{{)")
    before = ""

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the calls that make up the turn, and its end.

        JSON that names none of the given tools is an answer, not a call.
        """
        calls: list[ToolCall] = []
        position = match.end()
        try:
            while position < len(text):
                found, position = read_calls(text, position)
                calls += found
                position = skip_space(text, position)
                if text.startswith((";", ","), position):
                    position = skip_space(text, position + 1)
        except NotJSON:
            if _NAMED.match(text, match.end()) and any(f'"{name}"' in text for name in tools):
                raise IllFormed(len(text), is_open=not text.rstrip().endswith("}")) from None
            return [], match.end()
        return (calls, position) if all(call.name in tools for call in calls) else ([], position)

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        return "; ".join(
            f'{{"name": "{call.name}", "parameters": {call.arguments or "{}"}}}' for call in calls
        )
