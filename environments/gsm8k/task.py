"""A task: the problem and its answer; and its string form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction

from environments.gsm8k.numbers import as_number, shown
from rft_agent_sdk.errors import TaskError

_FORM = 'a JSON object such as {"prompt": "<problem>", "answer": "42"}'
_MARK = "####"
"""Stands before the number at the end of a worked answer."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem."""

    prompt: str
    """The problem that the policy is shown."""
    answer: Fraction = field(repr=False)
    """The right number."""
    id: str | None = None
    """Name of the row, for people."""

    def dump(self) -> str:
        """Return the task string, keys in the documented order."""
        data = {"prompt": self.prompt, "answer": shown(self.answer)}
        if self.id is not None:
            data["id"] = self.id
        return json.dumps(data, ensure_ascii=False)


def parse_task(text: str) -> Task:
    """Read a task string; fields it does not know are left alone.

    Raises:
        TaskError: The string is no task. The message never holds the answer or a part of it.
    """
    if not isinstance(text, str):
        raise TaskError(f"a math task must be a string holding {_FORM}, got {_kind(text)}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        # neither the text nor the parser's error is quoted: both could hold the answer
        raise TaskError(
            f"a math task must be {_FORM}, got a string of {len(text)} characters that is not JSON"
        ) from None
    return read_task(data)


def read_task(data: object) -> Task:
    """Read a task from an object: `prompt` or `question`, and `answer`, a number or a worked answer.

    Raises:
        TaskError: As `parse_task`.
    """
    if not isinstance(data, dict):
        raise TaskError(f"a math task must be {_FORM}, got {_kind(data)}")
    prompt = data.get("prompt", data.get("question"))
    if not isinstance(prompt, str) or not prompt.strip():
        raise TaskError(
            f"a math task needs a 'prompt' (or 'question'), a non-empty string, got {_kind(prompt)}"
        )
    name = data.get("id")
    if name is not None and not isinstance(name, str):
        raise TaskError(f"a math task's 'id' must be a string, got {_kind(name)}")
    return Task(prompt, _answer(data.get("answer")), name)


def _answer(given: object) -> Fraction:
    value = given.rpartition(_MARK)[2] if isinstance(given, str) else given
    number = as_number(value)
    if number is None or as_number(shown(number)) != number:
        raise TaskError(
            f"a math task's 'answer' must be a number, or a text that ends with '{_MARK}' and one, "
            f"got {_kind(given)}"
        )
    return number


def _kind(value: object) -> str:
    """Describe a value without telling it."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
