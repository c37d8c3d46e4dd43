"""Calls inside a decoded JSON value: every shape in which an API or a model writes a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rft_agent_sdk.recovery.literals import Unreadable, read_whole

Found = tuple[str, dict[str, Any]]
"""A tool's name and its arguments, not checked against any tool."""

_NAME = ("name", "function", "tool", "tool_name")
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_AROUND = (
    *("function", "toolUse", "tool_use", "tool_call", "tool_calls", "function_call"),
    *("content", "message", "output"),
)


def calls_in(value: object) -> Iterator[Found]:
    """Yield the calls that a decoded JSON value holds, in order."""
    if isinstance(value, list):
        for item in value:
            yield from calls_in(item)
    if not isinstance(value, dict):
        return
    name = next((value[key] for key in _NAME if isinstance(value.get(key), str)), None)
    key = next((key for key in _ARGUMENTS if key in value), None)
    if name is not None and key is not None:
        arguments = _arguments(value[key])
        if arguments is not None:
            yield name, arguments
        return
    for key in _AROUND:
        yield from calls_in(value.get(key))


def _arguments(value: object) -> dict[str, Any] | None:
    """Return arguments given as an object, as its JSON text, or as nothing at all."""
    if isinstance(value, str) and value.strip():
        try:
            value = read_whole(value)
        except Unreadable:
            return None
    if value is None or value == "":
        return {}
    return value if isinstance(value, dict) else None
