"""Rewards: a finite number with named components, and tiers whose order is proved.

`TieredReward` is the outcome-plus-shaping pattern: a game's result decides its tier, and a bounded
shaping term ranks games inside it. Construction proves that shaping can never carry one game past
another that did better, so a policy cannot farm shaping instead of winning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from numbers import Real
from types import MappingProxyType
from typing import SupportsFloat

from rft_agent_sdk.errors import RewardError

DEFAULT_FLOOR = -1.5
"""Reward of a rollout that never played, where nothing else was configured."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What one rollout earned."""

    total: float
    """The number that is trained on; finite."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts and measures, for people and metrics; they need not add up to `total`."""
    per_turn: tuple[float, ...] | None = None
    """One reward per model call, in order; `None` for one reward at the end."""

    def __post_init__(self) -> None:
        """Check every number and keep it as a plain float, which JSON can carry."""
        keep = partial(object.__setattr__, self)  # the record is frozen
        keep("total", _number(self.total, "total"))
        keep("components", {name: _number(self.components[name], name) for name in self.components})
        if self.per_turn is None:
            return
        if not self.per_turn:
            raise RewardError(
                "per_turn rewards must not be empty; leave them out for a single reward"
            )
        keep("per_turn", tuple(_number(number, "per_turn") for number in self.per_turn))

    @property
    def values(self) -> list[float]:
        """The list UpdateReward takes: the per-turn rewards, or the total alone."""
        return list(self.per_turn) if self.per_turn is not None else [self.total]


def as_reward(value: object) -> Reward:
    """Turn what user code returned into a `Reward`.

    Accepts a `Reward`, a number (also `bool`, `Decimal`, a numpy scalar), or a non-empty sequence of
    numbers, one per turn, whose total is their sum.

    Raises:
        RewardError: Anything else, or a number that is not finite.
    """
    if isinstance(value, Reward):
        return value
    if hasattr(value, "tolist") and not isinstance(value, type):
        try:
            value = value.tolist()  # numpy scalars and arrays, torch tensors
        except Exception as error:  # the value's own code
            raise RewardError(f"a reward must be a number, got {_shown(value)}: {error}") from error
    if isinstance(value, list | tuple):
        if not value:
            raise RewardError("a list of rewards needs at least one number, got an empty one")
        per_turn = tuple(_number(item) for item in value)
        try:
            total = math.fsum(per_turn)
        except OverflowError:
            raise RewardError(f"the rewards {_shown(value)} add up to no finite number") from None
        return Reward(total, per_turn=per_turn)
    return Reward(_number(value))


def shared_out(
    reward: Reward, credits: Sequence[float], turns: Sequence[int], sampled: int
) -> Reward:
    """Return a reward with one number for each model call; they add up to its total, but for rounding.

    Args:
        reward: Of the whole play.
        credits: What each call of a tool earned. What they leave of the total is the last model call's.
        turns: How many model calls had been answered when each was made.
        sampled: Model calls answered in all; of less than two the reward stays whole.

    Raises:
        RewardError: Credits that are not one finite number for each call.
    """
    if len(credits) != len(turns):
        raise RewardError(
            f"wanted one credit for each of the episode's {len(turns)} calls, got {len(credits)}"
        )
    if sampled < 2:
        return reward
    earned = [0.0] * sampled
    for turn, credit in zip(turns, credits, strict=True):
        earned[min(turn, sampled) - 1] += _number(credit, "credits")
    earned[-1] += reward.total - math.fsum(earned)
    return replace(reward, per_turn=tuple(earned))


def _number(value: object, name: str = "") -> float:
    """Return a finite float; `name` says in an error which number it was."""
    what = f"a reward's {name}" if name else "a reward"
    if isinstance(value, str | bytes) or not isinstance(value, Real | SupportsFloat):
        raise RewardError(
            f"{what} must be a number, got {_shown(value)} of type {type(value).__name__}"
        )
    try:
        number = float(value)
    except Exception as error:  # the value's own code
        raise RewardError(f"{what} must be a number, got {_shown(value)}: {error}") from error
    if not math.isfinite(number):
        raise RewardError(f"{what} must be finite, got {_shown(value)}")
    return number


def _shown(value: object) -> str:
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001 - the value's own code; an int of 5,000 digits raises, too
        return f"something of type {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class Tier:
    """One kind of result, possibly in grades."""

    name: str
    outcomes: tuple[float, ...]
    """Reward before shaping of each grade, best grade first; one number for an ungraded tier."""
    weight: float = 0.0
    """Most that shaping adds or takes away."""
    max_penalty: float = 0.0
    """Most that a penalty outside the shaping takes away."""

    def band(self, grade: int = 0) -> tuple[float, float]:
        """Return the lowest and highest reward a game of this grade can get."""
        outcome = self.outcomes[grade]
        return outcome - self.weight - self.max_penalty, outcome + self.weight


class TieredReward:
    """Tiers in order, best first, with the proof that no game can pass a better one."""

    def __init__(self, tiers: Iterable[Tier]) -> None:
        """Check and keep the tiers.

        Raises:
            RewardError: Two neighbouring tiers, or two grades of a tier, whose bands touch.
        """
        self.tiers: tuple[Tier, ...] = tuple(tiers)
        self._by_name = MappingProxyType({tier.name: tier for tier in self.tiers})
        if not self.tiers or len(self._by_name) != len(self.tiers):
            raise RewardError(
                f"tiers need at least one entry and distinct names, got {[tier.name for tier in self.tiers]}"
            )
        for tier in self.tiers:
            numbers = (*tier.outcomes, tier.weight, tier.max_penalty)
            if not tier.outcomes or not all(map(math.isfinite, numbers)) or min(numbers[-2:]) < 0:
                raise RewardError(
                    f"tier {tier.name!r} needs finite outcomes and non-negative weight and max_penalty, got {tier}"
                )
        rungs = [(tier, grade) for tier in self.tiers for grade in range(len(tier.outcomes))]
        for (better, better_grade), (worse, worse_grade) in pairwise(rungs):
            low, high = better.band(better_grade)[0], worse.band(worse_grade)[1]
            if not low > high:
                raise RewardError(
                    f"shaping could rank {_rung(worse, worse_grade)} (up to {high:g}) level with or above "
                    f"{_rung(better, better_grade)} (down to {low:g}): lower their weights or move the outcomes apart"
                )

    def score(
        self, tier: str, *, grade: int = 0, shaping: float = 0.0, penalty: float = 0.0
    ) -> Reward:
        """Return the reward of a game.

        Args:
            tier: Name of the tier.
            grade: 0 for the best grade of the tier.
            shaping: From -1 to 1, clipped; times the tier's weight.
            penalty: From 0 to the tier's `max_penalty`, clipped; taken off outside the shaping.

        Raises:
            RewardError: No such tier or grade, or a number that is not finite.
        """
        found = self._by_name.get(tier)
        if found is None or not 0 <= grade < len(found.outcomes):
            known = {name: len(entry.outcomes) for name, entry in self._by_name.items()}
            raise RewardError(
                f"no tier {tier!r} with grade {grade}; tiers and their grades: {known}"
            )
        if not (math.isfinite(shaping) and math.isfinite(penalty)):
            raise RewardError(
                f"shaping and penalty must be finite, got {shaping!r} and {penalty!r}"
            )
        outcome = found.outcomes[grade]
        shaped = found.weight * max(-1.0, min(1.0, shaping))
        taken = max(0.0, min(found.max_penalty, penalty))
        return Reward(
            outcome + shaped - taken,
            {"outcome": outcome, "shaping": shaped, "penalty": 0.0 - taken},
        )


def _rung(tier: Tier, grade: int) -> str:
    return f"tier {tier.name!r}" if len(tier.outcomes) == 1 else f"tier {tier.name!r} grade {grade}"
