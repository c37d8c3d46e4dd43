"""A task: the instruction, the secret word, and guesses played beforehand; and its string form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from environments.wordle.game import GUESSES
from environments.wordle.text import DEFAULT_PROMPT
from environments.wordle.words import as_word, is_in_dictionary
from rft_agent_sdk.errors import TaskError

_FORM = 'a JSON object such as {"prompt": "<instruction>", "answer": "<five letters>"}'


@dataclass(frozen=True, slots=True)
class Task:
    """One problem."""

    answer: str = field(repr=False)
    """The secret, lower case; a word of the dictionary."""
    prompt: str = DEFAULT_PROMPT
    """The instruction that the policy is shown."""
    id: str | None = None
    """Name of the row, for people."""
    guesses: tuple[str, ...] = ()
    """Guesses played before the policy's first turn, lower case."""

    def dump(self) -> str:
        """Return the task string, keys in the documented order."""
        data: dict[str, object] = {"prompt": self.prompt, "answer": self.answer}
        if self.id is not None:
            data["id"] = self.id
        if self.guesses:
            data["guesses"] = list(self.guesses)
        return json.dumps(data, ensure_ascii=False)


def parse_task(text: str) -> Task:
    """Read a task string; fields it does not know are left alone.

    An answer outside the dictionary is refused: the policy is told to keep to the dictionary, so it
    could hardly be found, and it is most likely a slip in the dataset.

    Raises:
        TaskError: The string is no task. The message never holds the answer or a part of it.
    """
    data = _object(text)
    prompt, name = data.get("prompt", DEFAULT_PROMPT), data.get("id")
    if not isinstance(prompt, str) or not prompt.strip():
        raise TaskError(
            f"a Wordle task's 'prompt' must be a non-empty string, got {_kind(prompt)}; "
            "leave it out for the default one"
        )
    if name is not None and not isinstance(name, str):
        raise TaskError(f"a Wordle task's 'id' must be a string, got {_kind(name)}")
    answer = _answer(data)
    return Task(answer, prompt, name, _guesses(data.get("guesses"), answer))


def _object(text: object) -> dict[str, object]:
    if not isinstance(text, str):
        raise TaskError(f"a Wordle task must be a string holding {_FORM}, got {_kind(text)}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        # neither the text nor the parser's error is quoted: both could hold the answer
        raise TaskError(
            f"a Wordle task must be {_FORM}, got a string of {len(text)} characters that is not JSON"
        ) from None
    if not isinstance(data, dict):
        raise TaskError(f"a Wordle task must be {_FORM}, got {_kind(data)}")
    return data


def _answer(data: dict[str, object]) -> str:
    if "answer" not in data:
        raise TaskError(
            f"a Wordle task must have an 'answer', five letters a-z; got {sorted(data)}"
        )
    given = data["answer"]
    answer = as_word(given)
    if answer is None:
        raise TaskError(f"a Wordle task's 'answer' must be five letters a-z, got {_kind(given)}")
    if not is_in_dictionary(answer):
        raise TaskError("a Wordle task's 'answer' must be a word of the dictionary (allowed.txt)")
    return answer


def _guesses(given: object, answer: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) >= GUESSES:
        raise TaskError(
            f"a Wordle task's 'guesses' must be a list of fewer than {GUESSES} words, got {_kind(given)}"
        )
    words: list[str] = []
    for number, entry in enumerate(given):
        word = as_word(entry)
        if word is None or not is_in_dictionary(word):
            raise TaskError(
                f"a Wordle task's 'guesses' must be words of the dictionary, five letters each; "
                f"entry {number} is not"
            )
        words.append(word)
    if len(set(words)) != len(words):
        raise TaskError("a Wordle task's 'guesses' must differ from each other")
    if answer in words:
        raise TaskError("a Wordle task's 'guesses' must not solve the game")
    return tuple(words)


def _kind(value: object) -> str:
    """Describe a value without telling it."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
