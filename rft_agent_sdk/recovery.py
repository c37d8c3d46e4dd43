"""Tool calls that a policy wrote as plain text. (Being written.)"""

from __future__ import annotations

from collections.abc import Sequence

from rft_agent_sdk.types import ToolCall, ToolSpec


def recover_calls(text: str, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    """Find calls of the given tools in plain text."""
    return []
