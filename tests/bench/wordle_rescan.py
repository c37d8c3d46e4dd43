"""Guesses per second of the Wordle environment, beside a plain implementation that rescans.

    python -m tests.bench.wordle_rescan

Both sides play the same random games: answers of the list, random words of the dictionary, six guesses
or until solved.

* Ours plays through the real episode, as an agent does: task string parsed, arguments checked, marks,
  exact knowledge, the text for the policy, and the reward at the end.
* The rescan is the obvious way to write it: keep the clues (letter in place, letter elsewhere, least and
  most copies) and, before and after each guess, test every word of the answer list against them, with a
  `collections.Counter` of its letters. It parses no task, writes no text and scores nothing but the share
  ruled out, so the comparison is in its favour.

Both must agree on every count of remaining candidates, or the measurement stops.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from environments.wordle import environment
from environments.wordle.words import answers, dictionary, opening_information
from rft_agent_sdk.types import Outcome

OURS_GAMES = 400
RESCAN_GAMES = 10
SEED = 20


@dataclass(frozen=True)
class PlannedGame:
    """An answer and the words that will be guessed."""

    answer: str
    words: tuple[str, ...]


@dataclass
class RescanGame:
    """A game that looks through the whole answer list twice a guess."""

    answer: str
    placed: dict[int, str] = field(default_factory=dict)
    excluded: set[tuple[int, str]] = field(default_factory=set)
    least: Counter[str] = field(default_factory=Counter)
    most: dict[str, int] = field(default_factory=dict)

    def guess(self, word: str) -> tuple[str, int, int]:
        """Play a word; return its marks and the candidates before and after it."""
        before = self.remaining()
        marks = self._marks(word)
        self._learn(word, marks)
        return marks, before, self.remaining()

    def remaining(self) -> int:
        """Count the words of the answer list that fit the clues."""
        return sum(self._fits(word) for word in answers())

    def _fits(self, word: str) -> bool:
        counts = Counter(word)
        return (
            all(word[place] == letter for place, letter in self.placed.items())
            and all(word[place] != letter for place, letter in self.excluded)
            and all(counts[letter] >= count for letter, count in self.least.items())
            and all(counts[letter] <= count for letter, count in self.most.items())
        )

    def _marks(self, word: str) -> str:
        left = Counter(a for a, g in zip(self.answer, word, strict=True) if a != g)
        marks = ""
        for right, letter in zip(self.answer, word, strict=True):
            if letter == right:
                marks += "G"
            elif left[letter] > 0:
                left[letter] -= 1
                marks += "Y"
            else:
                marks += "X"
        return marks

    def _learn(self, word: str, marks: str) -> None:
        found = Counter(letter for letter, m in zip(word, marks, strict=True) if m != "X")
        for place, (letter, mark) in enumerate(zip(word, marks, strict=True)):
            if mark == "G":
                self.placed[place] = letter
            else:
                self.excluded.add((place, letter))
            if mark == "X":
                self.most[letter] = found[letter]
        self.least |= found


def plan_games(count: int) -> list[PlannedGame]:
    """Draw random games, each ending with the word that solves it where one does."""
    draw = random.Random(SEED)
    planned = []
    for _ in range(count):
        answer, words = draw.choice(answers()), draw.sample(dictionary(), 6)
        if answer in words:
            words = words[: words.index(answer) + 1]
        planned.append(PlannedGame(answer, tuple(words)))
    return planned


def play_ours(planned: list[PlannedGame]) -> list[list[int]]:
    """Play through real episodes; return the remaining candidates after each guess, by game."""
    remaining = []
    for game in planned:
        episode = environment.start(json.dumps({"answer": game.answer}))
        for word in game.words:
            episode.call("guess_word", {"guess": word})
        episode.reward(Outcome.COMPLETED)
        remaining.append([guess.after.remaining for guess in episode.game.guesses])
    return remaining


def play_rescan(planned: list[PlannedGame]) -> list[list[int]]:
    """Play by rescanning; return the same."""
    remaining = []
    for game in planned:
        rescan = RescanGame(game.answer)
        remaining.append([rescan.guess(word)[2] for word in game.words])
    return remaining


def measure() -> dict[str, float]:
    """Return `ours_per_s` and `rescan_per_s`, guesses per second, and their `ratio`.

    The slow side plays the first few of the games that the fast side plays. Word lists are loaded before
    the clocks start, on both sides.

    Raises:
        RuntimeError: The two sides disagree on what is still possible.
    """
    planned = plan_games(OURS_GAMES)
    opening_information(planned[0].words[0])
    play_ours(planned[:1])
    started = time.perf_counter()
    ours = play_ours(planned)
    ours_s = time.perf_counter() - started
    started = time.perf_counter()
    rescan = play_rescan(planned[:RESCAN_GAMES])
    rescan_s = time.perf_counter() - started
    if ours[:RESCAN_GAMES] != rescan:
        raise RuntimeError(
            "the two sides disagree on the remaining candidates; nothing was measured"
        )
    ours_per_s = sum(map(len, ours)) / ours_s
    rescan_per_s = sum(map(len, rescan)) / rescan_s
    return {
        "ours_per_s": ours_per_s,
        "rescan_per_s": rescan_per_s,
        "ratio": ours_per_s / rescan_per_s,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: round(n, 1) for name, n in measure().items()}) + "\n")
