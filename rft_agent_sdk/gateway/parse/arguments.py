"""A call's arguments: JSON text in and out, strictly, and without an error for any input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from rft_agent_sdk.types import ToolCall

_SPACE = re.compile(r"[ \t\r\n]*")


class NotJSON(Exception):
    """There is no JSON of the wanted kind here; caught inside this package."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and the infinities, which are not JSON


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def skip_space(text: str, position: int) -> int:
    """Return the first position from `position` on that is not white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def to_json(arguments: dict[str, Any]) -> str:
    """Return arguments as JSON text that has a UTF-8 form."""
    encoded = json.dumps(arguments, ensure_ascii=False)
    return encoded if _is_text(encoded) else json.dumps(arguments)


def _is_text(text: str) -> bool:
    """Whether a text has a UTF-8 form: no half of a surrogate pair, which JSON can spell, is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_object(text: str) -> dict[str, Any]:
    """Return the arguments that a text spells; what is no JSON object counts as no arguments.

    Histories carry arguments as JSON text, once or twice encoded, empty, or `null`; templates want a
    mapping.
    """
    value: Any = text
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def read_value(text: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at a place and the position after it.

    Raises:
        NotJSON: There is none.
    """
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        raise NotJSON from error


def read_calls(text: str, position: int) -> tuple[list[ToolCall], int]:
    """Return the call, or list of calls, that is written in JSON at a place, and the position after.

    Raises:
        NotJSON: There is no JSON here, or it is no call.
    """
    if not text.startswith("[", position):
        call, end = _read_call(text, position)
        return [call], end
    calls: list[ToolCall] = []
    position = skip_space(text, position + 1)
    while not text.startswith("]", position):
        call, position = _read_call(text, position)
        calls.append(call)
        position = skip_space(text, position)
        if text.startswith(",", position):
            position = skip_space(text, position + 1)
        elif not text.startswith("]", position):
            raise NotJSON
    return calls, position + 1


def _read_call(text: str, position: int) -> tuple[ToolCall, int]:
    name = call_id = ""
    arguments = "{}"
    end = position
    for key, value, start, end in _members(text, position):
        if key == "name" and isinstance(value, str):
            name = value
        elif key == "id" and isinstance(value, str):
            call_id = value
        elif key in ("arguments", "parameters"):
            arguments = _as_arguments(value, text[start:end])
    if not name or not _is_text(f"{name}{call_id}{arguments}"):
        raise NotJSON
    return ToolCall(name, arguments, call_id), skip_space(text, end) + 1


def _as_arguments(value: object, raw: str) -> str:
    """Return arguments given as an object, as its JSON text, or as nothing at all."""
    if isinstance(value, dict):
        return raw
    if value is None or value == "":
        return "{}"
    if isinstance(value, str):
        text = value.strip()
        inner, end = read_value(text, 0)
        if isinstance(inner, dict) and end == len(text):
            return text
    raise NotJSON


def _members(text: str, position: int) -> Iterator[tuple[str, Any, int, int]]:
    """Yield the members of the object at a place: key, value, and where the value stands."""
    if not text.startswith("{", position):
        raise NotJSON
    position = skip_space(text, position + 1)
    while True:
        key, position = read_value(text, position)
        position = skip_space(text, position)
        if not isinstance(key, str) or not text.startswith(":", position):
            raise NotJSON
        start = skip_space(text, position + 1)
        value, end = read_value(text, start)
        yield key, value, start, end
        position = skip_space(text, end)
        if text.startswith("}", position):
            return
        if not text.startswith(",", position):
            raise NotJSON
        position = skip_space(text, position + 1)
