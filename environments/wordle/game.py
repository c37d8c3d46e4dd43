"""The rules of Wordle: marks, and one game as it is played. No text, no reward, no model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from environments.wordle.candidates import LENGTH
from environments.wordle.knowledge import Knowledge
from environments.wordle.words import is_in_dictionary

GUESSES = 6
"""Guesses of a game."""
CALLS = 12
"""Tool calls of a game, whatever they are good for: more than enough, and an end to malformed ones."""
SOLVED_MARKS = "G" * LENGTH


def marks(guess: str, answer: str) -> str:
    """Return one mark for each letter: `G` in place, `Y` elsewhere in the word, `X` not in it.

    Each letter of the answer explains one mark at most: greens first, then yellows from the left.
    """
    result = ["X"] * LENGTH
    unplaced: list[str] = []
    for place, (letter, right) in enumerate(zip(guess, answer, strict=True)):
        if letter == right:
            result[place] = "G"
        else:
            unplaced.append(right)
    for place, letter in enumerate(guess):
        if result[place] == "X" and letter in unplaced:
            result[place] = "Y"
            unplaced.remove(letter)
    return "".join(result)


@dataclass(frozen=True, slots=True)
class GuessRecord:
    """One guess that was played."""

    word: str
    marks: str
    before: Knowledge
    """What was known when it was made."""
    after: Knowledge
    is_repeat: bool = False
    in_dictionary: bool = True
    is_recovered: bool = False
    """Whether the call was found in plain text."""
    is_prior: bool = False
    """Whether the task played it, before the policy's first turn."""

    @property
    def solves(self) -> bool:
        """Whether this guess is the answer."""
        return self.marks == SOLVED_MARKS


class Game:
    """One game: the guesses so far and what they told. Words are lower case and well-formed here."""

    def __init__(self, answer: str, prior_guesses: Iterable[str] = ()) -> None:
        self._answer = answer
        self._guesses: list[GuessRecord] = []
        self.knowledge = Knowledge()
        self.malformed = 0
        """Guesses that were not five letters."""
        self.calls = 0
        """Tool calls made."""
        for word in prior_guesses:
            self.play(word, is_prior=True)

    def __repr__(self) -> str:
        return f"Game(guesses={len(self._guesses)}, calls={self.calls})"  # the answer stays in here

    @property
    def guesses(self) -> tuple[GuessRecord, ...]:
        """The guesses played, the task's own included."""
        return tuple(self._guesses)

    @property
    def own_guesses(self) -> tuple[GuessRecord, ...]:
        """The guesses that the policy played."""
        return tuple(guess for guess in self._guesses if not guess.is_prior)

    @property
    def guesses_left(self) -> int:
        """How many guesses remain."""
        return GUESSES - len(self._guesses)

    @property
    def calls_left(self) -> int:
        """How many tool calls remain."""
        return CALLS - self.calls

    @property
    def solved(self) -> bool:
        """Whether the answer was guessed."""
        return bool(self._guesses) and self._guesses[-1].solves

    @property
    def over(self) -> bool:
        """Whether nothing more can be played."""
        return self.solved or self.guesses_left == 0 or self.calls_left <= 0

    def has_played(self, word: str) -> bool:
        """Whether `word` was guessed before."""
        return any(guess.word == word for guess in self._guesses)

    def play(self, word: str, *, is_recovered: bool = False, is_prior: bool = False) -> GuessRecord:
        """Play a well-formed word and return what came of it.

        Raises:
            RuntimeError: The game is solved or all guesses are used.
        """
        if self.solved or self.guesses_left == 0:
            raise RuntimeError("the game is over; no guess can be played")
        found = marks(word, self._answer)
        record = GuessRecord(
            word=word,
            marks=found,
            before=self.knowledge,
            after=self.knowledge.after(word, found),
            is_repeat=self.has_played(word),
            in_dictionary=is_in_dictionary(word),
            is_recovered=is_recovered,
            is_prior=is_prior,
        )
        self._guesses.append(record)
        self.knowledge = record.after
        return record
