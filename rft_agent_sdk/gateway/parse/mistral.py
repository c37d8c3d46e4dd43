"""Calls of the Mistral models: a list of JSON objects, or a name and then its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rft_agent_sdk.gateway.parse.arguments import NotJSON, read_calls, read_value, skip_space
from rft_agent_sdk.gateway.parse.base import IllFormed, Tools
from rft_agent_sdk.types import ToolCall

OPENING = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\](\w+)\s*)?\[ARGS\]\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class MistralCalls:
    """`[TOOL_CALLS]` and what follows it; every form is read, one is written."""

    form: Literal["list", "id", "args"] = "args"
    """A JSON list (Nemo), a name with call id and arguments (Small 3.2), or without id (Ministral 3)."""
    before: str = ""
    opening: re.Pattern[str] = re.compile(re.escape(OPENING))

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the calls after one mark, and the position after them."""
        position = skip_space(text, match.end())
        try:
            if text.startswith("[", position) and not text.startswith(OPENING, position):
                calls, end = read_calls(text, position)
                if calls:
                    return calls, end
            elif head := _HEAD.match(text, match.end()):
                _, end = read_value(text, head.end())
                return [ToolCall(head[1], text[head.end() : end], head[2] or "")], end
        except NotJSON:
            pass
        following = text.find(OPENING, match.end())
        # Nothing closes a call here: without a next one, it may as well have been cut off.
        raise IllFormed(len(text) if following < 0 else following, is_open=following < 0)

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        if self.form == "list":
            items = (
                f'{{"name": "{call.name}", "arguments": {call.arguments or "{}"}, "id": "{call.id}"}}'
                for call in calls
            )
            return f"{OPENING}[{', '.join(items)}]"
        return "".join(
            f"{OPENING}{call.name}{f'[CALL_ID]{call.id}' if self.form == 'id' and call.id else ''}"
            f"[ARGS]{call.arguments or '{}'}"
            for call in calls
        )
