"""What is asked of the sampling thread, and what is kept between the turns of a session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from rft_agent_sdk.local.choose import Choosing

TurnEnd = Literal["stop", "length"]
Key = tuple[int, str]
"""Weights and session that keys and values belong to."""
HEAD = 16
"""Tokens at the beginning that must be the same for a turn to look for what others have read."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A turn to sample."""

    prompt: Sequence[int]
    """Token ids, at least one."""
    max_tokens: int
    """Most new tokens."""
    choosing: Choosing = field(default_factory=Choosing)
    """How."""
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the turn; the one sampled is part of it."""
    session: str = ""
    """What this turn reads is kept for the next one of the same name; empty keeps nothing."""
    is_over: Callable[[Sequence[int]], bool] | None = None
    """Told the tokens sampled so far, after each; for texts that end a turn."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sampled turn."""

    tokens: list[int]
    """New tokens, at least one."""
    logprobs: list[float]
    """Log-probability of each under the model itself, nats."""
    end: TurnEnd
    """Why it ended."""
    reused: int
    """Tokens of the prompt whose keys and values were there already."""


@dataclass(eq=False, slots=True)
class Turn:
    """A turn under way, in a row of the batch."""

    ask: Ask
    key: Key
    future: Future[Said]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    read: int = 0
    """Tokens whose keys and values are in the row."""
    reused: int = 0

    @property
    def head(self) -> tuple[int, ...]:
        """How the prompt begins; empty where it is too short to share."""
        return head_of(self.ask.prompt)

    @property
    def known(self) -> list[int]:
        """The tokens whose keys and values are in the row."""
        return [*self.ask.prompt, *self.tokens][: self.read]

    @property
    def wanted(self) -> int:
        """Columns that its row can come to need."""
        return len(self.ask.prompt) + self.ask.max_tokens


@dataclass(frozen=True, slots=True)
class Kept:
    """Keys and values of a session's tokens."""

    tokens: list[int]
    banks: list[Tensor]


class Shelf:
    """Keys and values between turns: by session, the least recently used thrown away first."""

    def __init__(self, budget: int) -> None:
        """Keep at most `budget` tokens."""
        self.budget = budget
        self.tokens = 0
        """Tokens kept now."""
        self.evicted = 0
        """Sessions thrown away so far, to make room."""
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._heads: dict[tuple[int, tuple[int, ...]], Key] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Key) -> Kept | None:
        """Remove and return what a session left."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.tokens -= len(found.tokens)
        return found

    def like(self, weights: int, head: tuple[int, ...]) -> Kept | None:
        """Return what the last session that began in the same way left; it stays here."""
        key = self._heads.get((weights, head))
        return None if key is None else self._kept.get(key)

    def put(self, key: Key, kept: Kept) -> None:
        """Keep what a session leaves, in place of what it left before."""
        self.take(key)
        self._kept[key] = kept
        self.tokens += len(kept.tokens)
        if head := head_of(kept.tokens):
            self._heads[key[0], head] = key
        while self.tokens > self.budget:
            self.take(next(iter(self._kept)))
            self.evicted += 1

    def clear(self) -> None:
        """Throw everything away."""
        self._kept.clear()
        self._heads.clear()
        self.tokens = 0

    def drop(self, weights: int) -> None:
        """Throw away all that belongs to some weights."""
        for key in [key for key in self._kept if key[0] == weights]:
            self.take(key)
        self._heads = {place: key for place, key in self._heads.items() if key[0] != weights}


def head_of(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return how a sequence begins; empty where it is too short to share."""
    return tuple(tokens[:HEAD]) if len(tokens) > HEAD else ()
