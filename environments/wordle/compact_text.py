"""The texts of `text.py` in few tokens: the same information, for small models and short contexts.

    C-R+A=N-E- 3A A1+ R1+!2 not:CEN 5 left

A guess with its marks; then what is known: A is in place 3, there is at least one A and one R (without
`+`: exactly so many), R is not in place 2, and neither C nor E nor N is in the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_uppercase

from environments.wordle.candidates import LENGTH
from environments.wordle.game import CALLS, GUESSES, Game, GuessRecord
from environments.wordle.knowledge import Knowledge
from environments.wordle.text import TOOL_NAME, ending

SIGNS = {"G": "=", "Y": "+", "X": "-"}
"""How a mark is written, behind its letter."""

SYSTEM_PROMPT = f"""Wordle: find a secret English word of {LENGTH} letters in at most {GUESSES} guesses. Call {TOOL_NAME} with one word of the dictionary at a time, never the same twice, until the game is over.

An answer gives the marks, then what is known. Marks: C= in this place, C+ elsewhere in the word, C- not in it, or no further copy of it. Known: 3C place 3 is C, C1 exactly one C, C1+ at least one, !4 but not in place 4, not:CDE none of these letters."""

REPEATED = " repeated"
UNLISTED = " not in the dictionary"
_MALFORMED = f"Not {LENGTH} letters a-z."
_NO_TOOL = f"The only tool is {TOOL_NAME}."
_NOT_PLAYED = "Guessed before, not played."
_COPIES = 3  # of a letter; few words hold more
_ROW = re.compile(rf"^((?:[A-Z][-+=]){{{LENGTH}}})(?= |$)", flags=re.MULTILINE)
_MARKS = {sign: mark for mark, sign in SIGNS.items()}


def opening_prompt(instruction: str, game: Game) -> str:
    """Return the first user message: the instruction, and the guesses that the task has played."""
    if not game.guesses:
        return instruction
    played = "\n".join(map(_row, game.guesses))
    return f"{instruction}\n{played}{_known(game.knowledge)}{_left(game)}"


def retry_prompt(prompt: str) -> str:
    """Return the user message of a second conversation, after a first one without a guess."""
    return f"{prompt}\nCall {TOOL_NAME} and say nothing else."


def guess_result(game: Game) -> str:
    """Return the answer to the guess just played."""
    guess = game.guesses[-1]
    notes = f"{REPEATED if guess.is_repeat else ''}{'' if guess.in_dictionary else UNLISTED}"
    known = "" if guess.solves else _known(game.knowledge)
    return f"{_row(guess)}{notes}{known}{_left(game)}"


def malformed_result(game: Game, given: object) -> str:
    """Return the answer to a call of the tool whose arguments are no guess; the policy knows them."""
    return f"{_MALFORMED}{_calls(game)}"


def unknown_tool_result(game: Game, name: str) -> str:
    """Return the answer to a call of another tool."""
    return f"{_NO_TOOL}{_calls(game)}"


def already_played_result(game: Game, word: str) -> str:
    """Return the answer to a guess found in plain text that was played before."""
    return f"{_NOT_PLAYED}{_calls(game)}"


def read_rows(told: str) -> tuple[tuple[str, str], ...]:
    """Return each guess in a text, lower case, with its marks of `G`, `Y` and `X`."""
    return tuple(
        (row[::2].lower(), "".join(_MARKS[sign] for sign in row[1::2]))
        for row in _ROW.findall(told)
    )


def pieces() -> Iterator[str]:
    """Yield the texts above that a small tokenizer should have a token for."""
    yield from (letter + sign for letter in ascii_uppercase for sign in SIGNS.values())
    yield from (f" {place}{letter}" for place in _PLACES for letter in ascii_uppercase)
    for count in range(1, _COPIES + 1):
        yield from (f" {letter}{count}{more}" for letter in ascii_uppercase for more in ("", "+"))
    yield from (f"!{place}" for place in _PLACES)
    yield from (f" {count} left" for count in range(1, GUESSES + 1))
    yield from (f" {count} calls" for count in range(1, CALLS + 1))
    yield from (" not:", REPEATED, UNLISTED, _MALFORMED, _NO_TOOL, _NOT_PLAYED)
    yield retry_prompt("")


_PLACES = range(1, LENGTH + 1)


def _row(guess: GuessRecord) -> str:
    return "".join(
        letter + SIGNS[mark] for letter, mark in zip(guess.word.upper(), guess.marks, strict=True)
    )


def _known(known: Knowledge) -> str:
    """Return what is known, each fact behind a blank."""
    facts = [f" {n}{letter.upper()}" for n, letter in enumerate(known.placed, start=1) if letter]
    for letter in sorted(known.least):
        more = "" if letter in known.most else "+"
        facts.append(f" {letter.upper()}{known.least[letter]}{more}")
        # a place whose letter is known needs no telling that other letters are not there
        facts += [
            f"!{place + 1}"
            for place in sorted(known.excluded.get(letter, ()))
            if known.placed[place] is None
        ]
    if known.absent:
        facts.append(f" not:{''.join(sorted(known.absent)).upper()}")
    return "".join(facts)


def _left(game: Game) -> str:
    return f" {ending(game) or f'{game.guesses_left} left'}"


def _calls(game: Game) -> str:
    return f" {game.calls_left} calls{_left(game)}"
