"""Sets of words as bit sets, so that filtering by a guess's marks costs a dozen integer operations.

Word `i` of an index is bit `i` of an integer. Which marks a guess gets depends on nothing but where the
answer has the guess's letters and how many of each it has, so a few masks, made once, answer every
question asked here, exactly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

LENGTH = 5
"""Letters of a word."""


class CandidateIndex:
    """The masks of a list of words. Immutable once made; a set of its words is an `int`."""

    def __init__(self, words: Sequence[str]) -> None:
        """Index `words`: five lower-case letters each, distinct."""
        self.words = tuple(words)
        self.everything = (1 << len(self.words)) - 1
        self._placed: list[dict[str, int]] = [{} for _ in range(LENGTH)]
        self._at_least: dict[tuple[str, int], int] = {}
        for number, word in enumerate(self.words):
            bit = 1 << number
            seen: Counter[str] = Counter()
            for place, letter in enumerate(word):
                seen[letter] += 1
                self._placed[place][letter] = self._placed[place].get(letter, 0) | bit
                key = letter, seen[letter]
                self._at_least[key] = self._at_least.get(key, 0) | bit

    def filter(self, candidates: int, guess: str, marks: str) -> int:
        """Return those of `candidates` that, as the answer, would have given `guess` these `marks`."""
        found: dict[str, int] = {}
        gray: set[str] = set()
        for place, (letter, mark) in enumerate(zip(guess, marks, strict=True)):
            here = self._placed[place].get(letter, 0)
            candidates &= here if mark == "G" else ~here
            if mark == "X":
                gray.add(letter)
            else:
                found[letter] = found.get(letter, 0) + 1
        for letter, count in found.items():
            candidates &= self._at_least.get((letter, count), 0)
        for letter in gray:  # a gray copy: the answer has no more than the copies that were marked
            candidates &= ~self._at_least.get((letter, found.get(letter, 0) + 1), 0)
        return candidates

    def groups(self, candidates: int, guess: str) -> list[int]:
        """Return `candidates` split by the marks that `guess` would get; no group is empty."""
        groups = [candidates] if candidates else []
        for mask in self._features(guess):
            if not mask & candidates:
                continue
            split: list[int] = []
            for group in groups:
                inside = group & mask
                if inside and inside != group:
                    split.append(inside)
                    split.append(group ^ inside)
                else:
                    split.append(group)
            groups = split
        return groups

    def information(self, candidates: int, guess: str) -> float:
        """Return the expected information of `guess` in bits, each candidate being as likely."""
        total = candidates.bit_count()
        if total < 2:
            return 0.0
        sizes = sorted(group.bit_count() for group in self.groups(candidates, guess))
        return math.log2(total) - math.fsum(size * math.log2(size) for size in sizes) / total

    def members(self, candidates: int) -> tuple[str, ...]:
        """Return the words of a set, in the order of the list."""
        return tuple(self.words[number] for number in _bits(candidates))

    def _features(self, guess: str) -> list[int]:
        """Return masks whose values together determine the marks of `guess`, and no more than that."""
        masks = [self._placed[place].get(letter, 0) for place, letter in enumerate(guess)]
        for letter in dict.fromkeys(guess):
            masks += [
                self._at_least.get((letter, count), 0)
                for count in range(1, guess.count(letter) + 1)
            ]
        return masks


def _bits(value: int) -> Iterator[int]:
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low
