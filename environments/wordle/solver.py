"""Reference policies: they read the conversation and answer with a tool call, like any model.

Each is a function of the conversation alone, so one serves any number of games at once.
"""

from __future__ import annotations

import json
import math
import random
import string
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import islice

from environments.wordle.board import read_board
from environments.wordle.candidates import CandidateIndex
from environments.wordle.game import GUESSES
from environments.wordle.knowledge import Knowledge
from environments.wordle.text import ARGUMENT, TOOL_NAME
from environments.wordle.words import answer_index, dictionary
from rft_agent_sdk.types import Message, ToolCall, ToolSpec

OPENER = "slate"
"""The word of the dictionary with the most expected information as a first guess: see `openers.txt`."""

_UNLISTED_WORDS_WEIGHED = 200


def solver_policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Guess the word that is expected to tell most about the answers still possible."""
    board = read_board(messages)
    if board.is_over:
        return _farewell()
    return _guess(best_guess(board.rows), len(board.rows))


def random_policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Guess any word of the dictionary not guessed yet, drawn with the conversation as the seed.

    A conversation is always answered alike, so games with the same prompt open alike.
    """
    board = read_board(messages)
    if board.is_over:
        return _farewell()
    seed = json.dumps([(message.role, message.text) for message in messages])
    draw = random.Random(seed)  # noqa: S311 - must be reproducible, need not be secret
    played = {word for word, _ in board.rows}
    word = draw.choice(dictionary())
    while word in played:
        word = draw.choice(dictionary())
    return _guess(word, len(board.rows))


def best_guess(rows: Sequence[tuple[str, str]]) -> str:
    """Return the guess to make after `rows` of guesses and marks: greedy in expected information.

    Among equals a word that may be the answer goes first, then the alphabet decides.
    """
    if not rows:
        return OPENER
    known = Knowledge()
    for word, marks in rows:
        known = known.after(word, marks)
    words = answer_index().members(known.candidates)
    if not words:  # the answer is not one of the list
        possible = (word for word in dictionary() if known.allows(word))
        words = tuple(islice(possible, _UNLISTED_WORDS_WEIGHED)) or (OPENER,)
    if len(rows) == GUESSES - 1:
        return words[0]  # the last guess: only a word that may be the answer is worth it
    return choose(words)


@lru_cache(maxsize=16_384)
def choose(words: tuple[str, ...]) -> str:
    """Return the word of the dictionary that splits `words` best; a few milliseconds, then cached."""
    if len(words) < 3:
        return words[0]  # of two, either one tells both apart
    index = CandidateIndex(words)
    best, least = words[0], _cost(index, words[0])
    for word in (*words[1:], *_distinct_splitters(words)):
        if least == 0:
            break  # tells all of them apart
        cost = _cost(index, word)
        if cost < least:
            best, least = word, cost
    return best


def _cost(index: CandidateIndex, word: str) -> int:
    """Return what a guess leaves unknown: the sum of n log2 n over its groups, 0 at best.

    Integers, so that equal splits compare equal in whatever order they are added.
    """
    groups = index.groups(index.everything, word)
    return sum([_log_cost(group.bit_count()) for group in groups])


@cache
def _log_cost(size: int) -> int:
    return round(size * math.log2(size) * (1 << 32))


def _distinct_splitters(words: Sequence[str]) -> list[str]:
    """Return dictionary words, one for each way of placing the letters that occur in `words`.

    Other letters get the same mark from every one of them, so words that differ in those alone split
    `words` alike.
    """
    idle = "".join(set(string.ascii_lowercase) - set("".join(words)))
    blanked = _dictionary_text().translate(str.maketrans(idle, "." * len(idle))).split(" ")
    first: dict[str, str] = {}
    for pattern, word in zip(blanked, dictionary(), strict=True):
        first.setdefault(pattern, word)
    return list(first.values())


@cache
def _dictionary_text() -> str:
    return " ".join(dictionary())


def _guess(word: str, guesses_made: int) -> Message:
    call = ToolCall(TOOL_NAME, json.dumps({ARGUMENT: word}), id=f"call_{guesses_made + 1}")
    return Message(role="assistant", text=f"I guess {word.upper()}.", tool_calls=(call,))


def _farewell() -> Message:
    return Message(role="assistant", text="The game is over.")
