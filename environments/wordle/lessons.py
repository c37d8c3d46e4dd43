"""Tasks to learn from: secrets of many words, some of the games begun already."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from environments.wordle.dataset import draw_guesses
from environments.wordle.game import GUESSES
from environments.wordle.task import Task
from environments.wordle.words import answers, dictionary
from rft_agent_sdk.errors import UsageError


def make_lessons(
    count: int,
    seed: int,
    *,
    avoid: Collection[str] = (),
    answer_share: float = 1.0,
    prior_shares: Sequence[float] = (1.0,),
) -> list[str]:
    """Return task strings; the same arguments give the same ones.

    Every word comes once before any comes again.

    Args:
        count: How many.
        seed: Draws them.
        avoid: Words that are no secret in any of them.
        answer_share: Share of secrets from the answer list; the others are any words of the dictionary. A policy
            rewarded for few words forgets the others.
        prior_shares: Shares of the games that begin after 0, 1, 2 ... guesses: a game that is almost over pays sooner.

    Raises:
        UsageError: Shares that are none, or more guesses than a game has.
    """
    if not 0 <= answer_share <= 1 or not 0 < len(prior_shares) <= GUESSES or min(prior_shares) < 0:
        raise UsageError(
            f"wanted an answer_share from 0 to 1 and 1 to {GUESSES} prior_shares, none below 0, got "
            f"{answer_share!r} and {prior_shares!r}"
        )
    draw = random.Random(f"lessons {seed}")  # noqa: S311 - must be reproducible
    kinds = [_Deck(answers(), avoid, draw), _Deck(dictionary(), avoid, draw)]
    lessons = []
    for number in range(count):
        answer = kinds[draw.random() >= answer_share].next()
        guesses = draw.choices(range(len(prior_shares)), prior_shares)[0]
        prior = draw_guesses(answer, guesses, draw)
        lessons.append(Task(answer, id=f"wordle_lesson_{number:06d}", guesses=prior).dump())
    return lessons


class _Deck:
    """Words in a shuffled order, again and again."""

    def __init__(self, words: Sequence[str], avoid: Collection[str], draw: random.Random) -> None:
        self._words = [word for word in words if word not in avoid]
        self._draw = draw
        self._left: list[str] = []

    def next(self) -> str:
        if not self._left:
            self._left = list(self._words)
            self._draw.shuffle(self._left)
        return self._left.pop()
