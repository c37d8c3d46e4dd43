"""Drawing a play in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from rft_agent_sdk.reward import Reward

_STYLES = {"G": "bold white on dark_green", "Y": "bold black on gold1", "X": "bold white on grey37"}
_LETTERS = {"G": "🟩", "Y": "🟨", "X": "⬛"}


def tiles(row: tuple[str, str]) -> Text:
    """Return one row of a board as coloured tiles, with squares beside them for terminals without colour."""
    from rich.text import Text

    text, marks = row
    line = Text("  ")
    for character, mark in zip(text, marks, strict=True):
        line.append(f" {character} ", style=_STYLES.get(mark, ""))
        line.append(" ")
    return line.append(" " + "".join(_LETTERS.get(mark, " ") for mark in marks))


def board(rows: Sequence[tuple[str, str]]) -> Text:
    """Return a whole board."""
    from rich.text import Text

    return Text("\n").join(tiles(row) for row in rows)


def squares(rows: Sequence[tuple[str, str]], whose: str) -> str:
    """Return the marks of a board without its letters, each row on one line."""
    lines = ["".join(_LETTERS.get(mark, " ") for mark in marks) for _, marks in rows]
    return "\n".join(f"  {whose} {number}: {line}" for number, line in enumerate(lines, start=1))


def reward_line(reward: Reward) -> str:
    """Return a reward with its components on one line."""
    return f"reward {reward.total:+.3f}{components(reward.components)}"


def components(named: Mapping[str, float]) -> str:
    """Return what a reward is made of, in brackets and after two spaces; empty where it says nothing."""
    parts = ", ".join(f"{name} {value:.4g}" for name, value in named.items() if value)
    return f"  ({parts})" if parts else ""
