"""The word lists, read when first asked for. How they were made is told in `data/README.md`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from environments.wordle.candidates import LENGTH, CandidateIndex

DATA = Path(__file__).parent / "data"


@cache
def answers() -> tuple[str, ...]:
    """Return the words an answer is drawn from, sorted, lower case."""
    return _read("answers.txt")


@cache
def dictionary() -> tuple[str, ...]:
    """Return every word that may be guessed without a penalty, sorted; holds all answers."""
    return _read("allowed.txt")


@cache
def answer_index() -> CandidateIndex:
    """Return the index of the answers, against which remaining candidates are counted."""
    return CandidateIndex(answers())


def is_in_dictionary(word: str) -> bool:
    """Whether a lower-case word may be guessed without a penalty."""
    return word in _dictionary_set()


def opening_information(word: str) -> float:
    """Return the expected information of `word` as the first guess, in bits over the answer list.

    Precomputed for the dictionary, to four decimals; worked out for any other word.
    """
    bits = _openers().get(word)
    if bits is None:
        index = answer_index()
        bits = round(index.information(index.everything, word), 4)
    return bits


def as_word(text: object) -> str | None:
    """Return what was written as a lower-case word, or `None` if it is not five letters a-z.

    Case and outer white space do not matter.
    """
    if not isinstance(text, str):
        return None
    word = text.strip()
    # ASCII is asked before lowering: the Kelvin sign, among others, lowers to a plain letter.
    if len(word) != LENGTH or not word.isascii() or not word.isalpha():
        return None
    return word.lower()


@cache
def _dictionary_set() -> frozenset[str]:
    return frozenset(dictionary())


@cache
def _openers() -> dict[str, float]:
    pairs = (line.split() for line in _read("openers.txt"))
    return {word: float(bits) for word, bits in pairs}


def _read(name: str) -> tuple[str, ...]:
    return tuple((DATA / name).read_text(encoding="ascii").splitlines())
