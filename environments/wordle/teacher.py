"""A teacher for policies that are to learn the game: sound guesses, drawn by chance, told without a word.

The solver plays better, but always alike, so that its games show few words. Here any answer that is still possible
may be guessed; whoever imitates that learns the words, and what the marks rule out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from environments.wordle.board import read_board
from environments.wordle.knowledge import Knowledge
from environments.wordle.solver import OPENER
from environments.wordle.text import ARGUMENT, TOOL_NAME
from environments.wordle.words import answer_index, dictionary
from rft_agent_sdk.types import Message, ToolCall, ToolSpec


def teacher_policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Open as the solver does; then guess any answer still possible, drawn with the board as the seed.

    Where no answer of the list is possible, it is any word of the dictionary that is.
    """
    rows = read_board(messages).rows
    word = OPENER if not rows else _possible(rows)
    call = ToolCall(TOOL_NAME, json.dumps({ARGUMENT: word}), id=f"call_{len(rows) + 1}")
    return Message(role="assistant", text="", tool_calls=(call,))


def _possible(rows: Sequence[tuple[str, str]]) -> str:
    known = Knowledge()
    for word, marks in rows:
        known = known.after(word, marks)
    words: Sequence[str] = answer_index().members(known.candidates)
    if not words:
        words = [word for word in dictionary() if known.allows(word)] or [OPENER]
    return random.Random(repr(rows)).choice(words)  # noqa: S311 - must be reproducible
