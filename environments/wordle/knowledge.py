"""What the marks seen so far tell, exactly.

A word is still possible if and only if, as the answer, it would have produced every mark seen. For
each letter that comes down to the places it is in, the places it is not in, and the least and the most
copies the answer can hold; a green mark takes nothing away from what is known of the other copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from environments.wordle.candidates import LENGTH
from environments.wordle.words import answer_index


@dataclass(frozen=True)
class Knowledge:
    """What is known at one moment of a game. A guess makes a new one; this one never changes."""

    placed: tuple[str | None, ...] = (None,) * LENGTH
    """The letter of each place, where it is known."""
    least: Mapping[str, int] = field(default_factory=dict)
    """Fewest copies the answer holds, of each letter known to be in it."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Most copies the answer holds, of each letter for which that is known; 0 for an absent one."""
    excluded: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Places, from 0, where a letter was tried and is not."""
    tried: frozenset[str] = frozenset()
    """Every letter guessed so far."""
    candidates: int = field(default_factory=lambda: answer_index().everything)
    """The answers still possible, as a set of `answer_index()`."""

    def after(self, guess: str, marks: str) -> Knowledge:
        """Return what is known once `guess` got `marks`, five of `G`, `Y` and `X`."""
        placed = list(self.placed)
        excluded = dict(self.excluded)
        found: Counter[str] = Counter()
        for place, (letter, mark) in enumerate(zip(guess, marks, strict=True)):
            if mark == "G":
                placed[place] = letter
            else:
                excluded[letter] = excluded.get(letter, frozenset()) | {place}
            found[letter] += mark != "X"
        least, most = dict(self.least), dict(self.most)
        for letter, mark in zip(guess, marks, strict=True):
            if mark == "X":
                most[letter] = found[letter]
            else:
                # places found by different guesses add up
                copies = max(found[letter], placed.count(letter))
                least[letter] = max(copies, least.get(letter, 0))
        return replace(
            self,
            placed=tuple(placed),
            least=least,
            most=most,
            excluded=excluded,
            tried=self.tried | set(guess),
            candidates=answer_index().filter(self.candidates, guess, marks),
        )

    def allows(self, word: str) -> bool:
        """Whether `word`, of five lower-case letters, would have produced every mark seen."""
        return (
            all(known in (None, letter) for known, letter in zip(self.placed, word, strict=True))
            and all(word.count(letter) >= count for letter, count in self.least.items())
            and all(word.count(letter) <= count for letter, count in self.most.items())
            and not any(
                word[place] == letter
                for letter, places in self.excluded.items()
                for place in places
            )
        )

    @property
    def remaining(self) -> int:
        """How many words of the answer list are still possible."""
        return self.candidates.bit_count()

    @cached_property
    def present(self) -> frozenset[str]:
        """Letters of which the answer holds more copies than have been placed."""
        return frozenset(
            letter for letter, count in self.least.items() if count > self.placed.count(letter)
        )

    @property
    def absent(self) -> frozenset[str]:
        """Letters known not to be in the answer."""
        return frozenset(letter for letter, count in self.most.items() if count == 0)
