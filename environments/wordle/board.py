"""Reads a game back from a conversation, whatever style its texts are written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from environments.wordle import compact_text, text
from rft_agent_sdk.types import Message


@dataclass(frozen=True, slots=True)
class Board:
    """A game as it can be told from a conversation."""

    rows: tuple[tuple[str, str], ...]
    """Each guess, lower case, and its marks of `G`, `Y` and `X`."""
    is_over: bool


def read_board(messages: Sequence[Message]) -> Board:
    """Tell the game from a conversation: from what the user and the tool said, nothing else."""
    told = [message for message in messages if message.role in ("user", "tool")]
    rows = tuple(
        row
        for message in told
        for row in text.read_rows(message.text) or compact_text.read_rows(message.text)
    )
    return Board(rows, is_over=bool(told) and text.GAME_OVER in told[-1].text)
