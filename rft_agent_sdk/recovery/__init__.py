"""Tool calls that a policy wrote as plain text.

Under RL a policy can drift into writing its call as text; nothing then runs, every rollout of the group
gets the same low reward, and there is no gradient to lead back. So calls *of the given tools* are found
in an assistant's text, in the notations that models are trained on:

* marked ones, wherever they stand: Hermes and Qwen tags, function and parameter tags, harmony, Gemma 4,
  Mistral (`marked`);
* a bare JSON object, or `name("value")` as in Python, where it stands alone (`alone` says what that is);
  a call that prose merely mentions is not one (`bare`).

A call is found only if its arguments can be read and none that the schema requires is missing. What one
call holds inside is never read as another. Nothing is executed, nothing raises, and the cost is bounded:
the text is read once, from left to right, and what was read in vain is not read again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rft_agent_sdk.recovery import bare, marked
from rft_agent_sdk.recovery.literals import Unreadable
from rft_agent_sdk.recovery.schema import as_call
from rft_agent_sdk.types import ToolCall, ToolSpec

MAX_CHARACTERS = 65_536
"""How much of a text is read, from its beginning."""
MAX_CALLS = 16
"""How many calls one text can yield."""

_CUT = "\0"  # stands for what was cut off, so that no call seems to end the text there
_READERS = {
    "reasoning": marked.skip_reasoning,
    "headed": marked.read_headed,
    "tagged": marked.read_tagged,
    "xml": marked.read_xml,
    "python": bare.read_python,
    "json": bare.read_json,
}


def recover_calls(text: str, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    """Find calls of the given tools in an assistant's plain text.

    Args:
        text: The text of one message, reasoning left out.
        tools: The tools that may be called; calls of others are passed over.

    Returns:
        The calls in order of appearance, without ids; their arguments are the JSON text of an object.
    """
    by_name = {tool.name: tool for tool in tools}
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + _CUT
    pattern = _openings(tuple(by_name))
    calls: list[ToolCall] = []
    position = 0
    while by_name and len(calls) < MAX_CALLS and (match := pattern.search(text, position)):
        start, position = match.span()
        try:
            found, position = _READERS[match.lastgroup or ""](text, start, position, by_name)
        except Unreadable as failure:
            position = max(position, failure.position)
            continue
        for name, arguments in found:
            tool = by_name.get(marked.bare_name(name, by_name))
            call = as_call(tool, arguments) if tool else None
            if call is not None:
                calls.append(call)
    return calls[:MAX_CALLS]


@lru_cache(maxsize=64)
def _openings(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of every place a call could begin; its groups are the readers' names."""
    places = {
        "reasoning": marked.REASONING,
        "headed": marked.HEADED,
        "tagged": marked.TAGGED,
        "xml": marked.XML,
        "python": bare.python_start(names),
        "json": bare.JSON_START,
    }
    return re.compile("|".join(f"(?P<{name}>{place})" for name, place in places.items()))
