"""Reads one literal at a place in a text: JSON, Python literals, Gemma's own string marks.

Not `json` and not `ast`: a policy mixes their spellings, the caller must know where reading stopped,
`ast` warns about unknown escapes, and both recurse as deep as the text asks. This reader never backs
up, so a text costs time in proportion to its length.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

GEMMA_QUOTE = '<|"|>'
_MAX_DEPTH = 32
_SPACE = re.compile(r"\s*+")
_TOKEN = re.compile(r"[\w.+-]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_CONSTANTS = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_BODIES = {
    (quote, lines): re.compile(rf"{quote}([^{stop}]*+(?:\\.[^{stop}]*+)*+){quote}", re.DOTALL)
    for quote in "\"'"
    for lines, stop in ((True, rf"{quote}\\"), (False, rf"{quote}\\\n"))
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_ESCAPED |= {char: char for char in "\"'\\/"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """There is no literal here; caught inside this package, never seen by a caller of it."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position
        """Where the search for the next call may go on."""


def skip_space(text: str, position: int) -> int:
    """Return the first position from `position` on that is not white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


@dataclass(frozen=True, slots=True)
class LiteralReader:
    """Reads literals out of one text; every method returns the value and the position after it."""

    text: str
    words: bool = False
    """Whether a bare word that is no number or constant is a string, as in `{guess:crane}`."""
    lines: bool = True
    """Whether a quoted string may hold line breaks. Python's may not; in JSON, models write them."""

    def value(self, position: int, depth: int = 0) -> tuple[Any, int]:
        """Read any value.

        Raises:
            Unreadable: What stands there is no literal, never ends, or is nested too deep.
        """
        position = skip_space(self.text, position)
        head = self.text[position : position + 1]
        if depth > _MAX_DEPTH:
            raise Unreadable(position)
        if head == "[":
            return self._list(position + 1, depth)
        if head == "{":
            return self._object(position + 1, depth)
        if head in ('"', "'", "<"):
            return self.string(position)
        return self._scalar(position)

    def object(self, position: int) -> tuple[dict[str, Any], int]:
        """Read a value that must be an object."""
        value, end = self.value(position)
        if not isinstance(value, dict):
            raise Unreadable(end)
        return value, end

    def string(self, position: int) -> tuple[str, int]:
        """Read a quoted string, its escapes resolved."""
        for quote in (GEMMA_QUOTE, '"""', "'''"):
            if self.text.startswith(quote, position):
                start = position + len(quote)
                end = self.text.find(quote, start)
                if end < 0:
                    raise Unreadable(len(self.text))
                body = self.text[start:end]
                return body if quote == GEMMA_QUOTE else _unescape(body), end + len(quote)
        pattern = _BODIES.get((self.text[position : position + 1], self.lines))
        match = pattern.match(self.text, position) if pattern else None
        if match:
            return _unescape(match[1]), match.end()
        if pattern is None:
            raise Unreadable(position)
        # The text broke off inside a string: whatever follows is that string's, not a new call.
        line_end = -1 if self.lines else self.text.find("\n", position)
        raise Unreadable(line_end if line_end >= 0 else len(self.text))

    def _list(self, position: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            position = skip_space(self.text, position)
            if self.text.startswith("]", position):
                return items, position + 1
            item, position = self.value(position, depth + 1)
            items.append(item)
            position = self._separator(position, "]")

    def _object(self, position: int, depth: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while True:
            position = skip_space(self.text, position)
            if self.text.startswith("}", position):
                return items, position + 1
            key, position = self._key(position)
            position = skip_space(self.text, position)
            if not self.text.startswith(":", position):
                raise Unreadable(position)
            items[key], position = self.value(position + 1, depth + 1)
            position = self._separator(position, "}")

    def _key(self, position: int) -> tuple[str, int]:
        match = _TOKEN.match(self.text, position)
        return (match[0], match.end()) if match else self.string(position)

    def _separator(self, position: int, closing: str) -> int:
        """Step over a comma, or stay before the closing bracket."""
        position = skip_space(self.text, position)
        if self.text.startswith(",", position):
            return position + 1
        if self.text.startswith(closing, position):
            return position
        raise Unreadable(position)

    def _scalar(self, position: int) -> tuple[Any, int]:
        match = _TOKEN.match(self.text, position)
        if match is None:
            raise Unreadable(position)
        if match[0] in _CONSTANTS:
            return _CONSTANTS[match[0]], match.end()
        number = read_number(match[0])
        if number is not None:
            return number, match.end()
        if self.words:
            return match[0], match.end()
        raise Unreadable(position)


def read_number(token: str) -> int | float | None:
    """Return the finite JSON number that `token` spells, or `None`."""
    match = _NUMBER.fullmatch(token)
    if match is None:
        return None
    try:
        number = float(token) if match[1] or match[2] else int(token)
    except ValueError:  # more digits than Python converts
        return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def read_whole(text: str) -> Any:
    """Read a text that is one literal and nothing else.

    Raises:
        Unreadable: It is not.
    """
    value, end = LiteralReader(text).value(0)
    if skip_space(text, end) != len(text):
        raise Unreadable(end)
    return value


def _unescape(body: str) -> str:
    if "\\" not in body:
        return body
    body = _ESCAPE.sub(_resolve, body)
    if _SURROGATE.search(body):  # JSON spells one character as a pair of them
        body = body.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return body


def _resolve(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, match[0])
