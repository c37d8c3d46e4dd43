"""Calls that nothing marks: a JSON object, or a call as in Python. They count only where they stand alone."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rft_agent_sdk.recovery.alone import any_of, stands_alone
from rft_agent_sdk.recovery.literals import LiteralReader, Unreadable, skip_space
from rft_agent_sdk.recovery.marked import Tools
from rft_agent_sdk.recovery.schema import properties
from rft_agent_sdk.recovery.shapes import Found, calls_in

JSON_START = r"[\[{]"
_KEYWORD = re.compile(r"([^\W\d]\w*+)\s*+=(?!=)")
_NEXT = re.compile(r"[ \t]*+[;,][ \t]*+")


def python_start(names: tuple[str, ...]) -> str:
    """Return the pattern of where a call as in Python, or a list of them, begins."""
    return rf"(?:\[\s*+|(?<![\w.]))(?:functions\.)?(?:{any_of(names)})\("


def read_json(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Read one JSON value, or several on a line with `;` or `,` between them."""
    found: list[Found] = []
    position = start
    while True:
        value, end = LiteralReader(text).value(position)
        found += calls_in(value)
        following = _NEXT.match(text, end)
        if following is None or text[following.end() : following.end() + 1] not in ("{", "["):
            break
        position = following.end()
    return found if found and stands_alone(text, start, end, tools) else [], end


def read_python(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Read `name("value", key=2)`, or a list of such calls in brackets."""
    is_list = text[start] == "["
    name = _named(tuple(tools))
    position = start + is_list
    found: list[Found] = []
    while match := name.match(text, position):
        arguments, end = _arguments(text, match.end(), list(properties(tools[match[1]])))
        found.append((match[1], arguments))
        position = skip_space(text, end)
        if not (is_list and text.startswith(",", position)):
            break
        position += 1
    if is_list:
        if not text.startswith("]", position):
            raise Unreadable(position)
        end = position + 1
    return found if stands_alone(text, start, end, tools) else [], end


def _arguments(text: str, position: int, names: list[str]) -> tuple[dict[str, Any], int]:
    """Read arguments up to the closing parenthesis; positional ones take `names` in order."""
    reader = LiteralReader(text, lines=False)
    arguments: dict[str, Any] = {}
    positional: list[Any] = []
    while True:
        position = skip_space(text, position)
        if text.startswith(")", position):
            return _bound(positional, arguments, names, position), position + 1
        keyword = _KEYWORD.match(text, position)
        if keyword:
            value, end = reader.value(keyword.end())
            if keyword[1] in arguments:
                raise Unreadable(end)
            arguments[keyword[1]] = value
        else:
            value, end = reader.value(position)
            if arguments:
                raise Unreadable(end)
            positional.append(value)
        position = skip_space(text, end)
        if text.startswith(",", position):
            position += 1
        elif not text.startswith(")", position):
            raise Unreadable(position)


def _bound(
    positional: list[Any], keywords: dict[str, Any], names: list[str], position: int
) -> dict[str, Any]:
    if len(positional) == 1 and not keywords and isinstance(positional[0], dict):
        given: dict[str, Any] = positional[0]
        if given and given.keys() <= set(names):  # f({"key": value}), as in JavaScript
            return given
    taken = names[: len(positional)]
    if len(positional) > len(names) or not keywords.keys().isdisjoint(taken):
        raise Unreadable(position)
    return dict(zip(taken, positional, strict=True)) | keywords


@lru_cache(maxsize=64)
def _named(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\s*+(?:functions\.)?({any_of(names)})\(")
