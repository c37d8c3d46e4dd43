"""Whether an unmarked call stands alone, which tells a call from talk about one.

Text that merely mentions a call must not play it: `I could try f(1) or f(2)`. So a call that nothing
marks as one counts only

* alone on its lines, but for tags, code fences and code marks around it, or
* as the end of the text, straight after a sentence or a colon, where the text mentions no other call
  before it: `Let me start: f(1)`.

Items of a list (`- f(1)`, `Option 2: f(1)`) are options under discussion and do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_WINDOW = 64
"""Characters looked at before a call; a limit, so that one long line does not cost its square."""
_MARK = r"</?[a-z_]++>|<\|[a-z_]++\|?>|<[a-z_]++\|>|```\w*+|`|\*\*"
_LINE_LEFT = re.compile(rf"(?:{_MARK}|[ \t])*+")
_SENTENCE_LEFT = re.compile(rf"(?<!\be\.g)(?<!\bi\.e)(?:[!?:]|(?<!\d)\.)(?:{_MARK}|\s)*+\Z")
_LINE_RIGHT = re.compile(rf"(?:{_MARK}|[ \t.;])*+(?:[\r\n]|\Z)")
_TEXT_RIGHT = re.compile(rf"(?:{_MARK}|[\s.;])*+\Z")


def stands_alone(text: str, start: int, end: int, names: Iterable[str]) -> bool:
    """Whether the call at `text[start:end]` is meant as one, given the names of all tools."""
    window = text[max(0, start - _WINDOW) : start]
    line = window.rpartition("\n")[2]
    is_line_whole = line != window or start <= _WINDOW
    if is_line_whole and _LINE_LEFT.fullmatch(line) and _LINE_RIGHT.match(text, end):
        return True
    if not _SENTENCE_LEFT.search(window) or not _TEXT_RIGHT.match(text, end):
        return False
    return not _mention_of(tuple(names)).search(text, 0, start)


@lru_cache(maxsize=64)
def _mention_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of what looks like a call of one of the tools."""
    return re.compile(rf"(?<!\w)(?:{any_of(names)})[(\"']")


def any_of(names: Iterable[str]) -> str:
    """Return the pattern of any of the names, a longer one before its beginning."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
