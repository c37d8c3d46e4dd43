"""Advantages: what a rollout earned beyond the others of its group.

Pure functions from rewards to numbers; the loop groups rollouts and decides which rewards are valid,
`datums` carries the numbers to tokens. Everything goes by id, so neither the order of the rewards nor
equal group sizes matter.

What holds for every method:

- A rollout counts once in its group's mean, however many samples it was cut into.
- A rollout without a reward is left out: it is in no mean and gets no advantage.
- A group whose rewards are all equal, one-member groups included, tells nothing: zeros, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.trajectory import Trajectory

AdvantageMethod = Literal["grpo", "dr_grpo", "rloo", "group_based_per_turn"]
Std = Literal["population", "sample", "none"]
"""What a centred reward is divided by: the root of the mean square (divisor n), of n - 1, or nothing."""
Advantage: TypeAlias = float | tuple[float, ...]
"""One number for the whole rollout, or one per captured turn."""

DEFAULT_EPS = 1e-6
"""Added to the standard deviation, so that a nearly flat group is not blown up."""
_FLAT = 1e-9
"""Rewards that differ by less, relative to the largest, differ by rounding only."""
LARGEST_REWARD = 1e100
"""Beyond it a squared reward could overflow."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The reward of one rollout, or of one of its samples: equal entries of a rollout count once."""

    rollout_id: str
    group_id: str
    """The task's name within the batch."""
    reward: float | None
    """Total reward; `None` leaves the rollout out."""
    per_turn: tuple[float, ...] | None = None
    """One reward per captured turn, where advantages per turn are wanted."""

    def __post_init__(self) -> None:
        given = (() if self.reward is None else (self.reward,)) + (self.per_turn or ())
        for reward in given:
            if not abs(reward) <= LARGEST_REWARD:  # not a number compares false
                raise UsageError(
                    f"rewards must be finite and at most {LARGEST_REWARD:g} in magnitude, got {reward!r} for "
                    f"rollout {self.rollout_id!r}"
                )


@dataclass(frozen=True, slots=True)
class Advantages:
    """What a method made of a batch of rewards."""

    per_rollout: Mapping[str, Advantage]
    """By rollout id; rollouts that were left out are missing."""
    groups: int
    """Groups with at least one reward."""
    flat_groups: int
    """Those of them whose advantages are all zero."""
    dropped: int
    """Rollouts left out for want of a reward."""


def score(trajectory: Trajectory, group_id: str, *, is_valid: bool = True) -> Scored:
    """Return a rollout's rewards, ready for any method.

    A total without rewards per turn was earned at the end: per turn it is the last turn's, and zero
    before. (A rollout of a single turn never reports rewards per turn.)

    Args:
        trajectory: The rollout's record.
        group_id: Which group it belongs to.
        is_valid: `False` leaves it out, such as where its outcome is not the policy's own doing.
    """
    reward = trajectory.reward if is_valid else None
    if reward is None:
        return Scored(trajectory.rollout_id, group_id, None)
    per_turn = trajectory.per_turn
    if per_turn is None:
        per_turn = (*(0.0,) * (trajectory.turns - 1), reward) if trajectory.turns else ()
    return Scored(trajectory.rollout_id, group_id, reward, per_turn)


def grpo(
    rewards: Iterable[Scored], *, std: Std = "population", eps: float = DEFAULT_EPS
) -> Advantages:
    """Return rewards centred on their group's mean and divided by its standard deviation.

    `A_i = (r_i - mean(r)) / (std(r) + eps)`

    Args:
        rewards: In any order.
        std: `population` (divisor n) by default; `none` is Dr. GRPO, without the division that favours
            groups whose rewards hardly differ.
        eps: Unit of the reward.

    Raises:
        UsageError: Entries of one rollout that contradict each other.

    Source: DeepSeekMath, arXiv 2402.03300, section 4.1.2, which writes `std` without saying which and
    without `eps`. Dr. GRPO: arXiv 2503.20783, section 3.2; its other half, no division by a rollout's
    length, is the default of `datums`.
    """
    return _per_rollout(rewards, partial(_standardised, std=std, eps=eps))


def rloo(rewards: Iterable[Scored]) -> Advantages:
    """Return rewards minus the mean of the *others* in their group.

    `A_i = r_i - mean(r_j, j != i) = n / (n - 1) * (r_i - mean(r))`

    Raises:
        UsageError: Entries of one rollout that contradict each other.

    Source: REINFORCE leave-one-out, arXiv 2402.14740. There is no division by a standard
    deviation; a one-member group, which has no others, gets zero.
    """
    return _per_rollout(rewards, _left_out)


def group_based_per_turn(
    rewards: Iterable[Scored],
    *,
    gamma: float = 0.0,
    std: Std = "population",
    eps: float = DEFAULT_EPS,
) -> Advantages:
    """Return per-turn rewards compared across the group turn by turn, one advantage per turn.

    `A_it = (G_it - mean(G_jt)) / (std(G_jt) + eps)` over the rollouts j that played a turn t, where
    `G_it = r_it + gamma * G_i,t+1`. A turn that only one rollout played gets zero.

    Args:
        rewards: Each with `per_turn` (see `score`).
        gamma: 0 for each turn's own reward, so that no turn is paid for a later one; 1 for the sum of
            the rewards from the turn on, which is what a reward at the end needs.
        std: As in `grpo`.
        eps: As in `grpo`.

    Raises:
        UsageError: A rewarded rollout without rewards per turn, or contradictory entries.

    Source: advantages per turn, arXiv 2505.11821; returns normalised per turn index across the group,
    arXiv 2511.14846. The managed service has a method of this name and publishes no formula.
    """
    if not 0 <= gamma <= 1:
        raise UsageError(f"gamma must lie in 0..1, got {gamma!r}")
    groups, dropped = _grouped(rewards)
    found: dict[str, Advantage] = {}
    for members in groups.values():
        returns = [_returns(_turns_of(member), gamma) for member in members]
        columns = [
            _zero_if_flat([turns[t] for turns in returns if t < len(turns)], std=std, eps=eps)
            for t in range(max(map(len, returns)))
        ]
        # each column lists the rollouts that played its turn, in the group's order
        following = [iter(column) for column in columns]
        for member, turns in zip(members, returns, strict=True):
            found[member.rollout_id] = tuple(next(following[t]) for t in range(len(turns)))
    return _counted(found, groups, dropped)


METHODS: Mapping[AdvantageMethod, Callable[[Iterable[Scored]], Advantages]] = {
    "grpo": grpo,
    "dr_grpo": partial(grpo, std="none"),
    "rloo": rloo,
    "group_based_per_turn": group_based_per_turn,
}
"""Every method by its name, with its defaults."""


def _per_rollout(
    rewards: Iterable[Scored], compare: Callable[[Sequence[float]], list[float]]
) -> Advantages:
    groups, dropped = _grouped(rewards)
    found: dict[str, Advantage] = {}
    for members in groups.values():
        totals = [member.reward for member in members if member.reward is not None]
        values = [0.0] * len(totals) if _is_flat(totals) else compare(totals)
        found.update(zip((member.rollout_id for member in members), values, strict=True))
    return _counted(found, groups, dropped)


def _grouped(rewards: Iterable[Scored]) -> tuple[dict[str, list[Scored]], int]:
    """Return the rewarded rollouts by group, each once, and how many rollouts were left out."""
    known: dict[str, Scored] = {}
    for entry in rewards:
        first = known.setdefault(entry.rollout_id, entry)
        if first != entry:
            raise UsageError(
                f"the samples of a rollout share one reward and one group, got {first!r} and {entry!r}: "
                "give each rollout its total, or each sample its own rollout id"
            )
    groups: dict[str, list[Scored]] = {}
    for entry in known.values():
        if entry.reward is not None:
            groups.setdefault(entry.group_id, []).append(entry)
    return groups, len(known) - sum(map(len, groups.values()))


def _counted(
    found: Mapping[str, Advantage], groups: Mapping[str, Sequence[Scored]], dropped: int
) -> Advantages:
    moving = {rollout for rollout, advantage in found.items() if _moves(advantage)}
    flat = sum(moving.isdisjoint(m.rollout_id for m in members) for members in groups.values())
    return Advantages(found, len(groups), flat, dropped)


def _moves(advantage: Advantage) -> bool:
    return any(advantage) if isinstance(advantage, tuple) else bool(advantage)


def _is_flat(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _FLAT * max(map(abs, values))


def _zero_if_flat(values: Sequence[float], *, std: Std, eps: float) -> list[float]:
    return [0.0] * len(values) if _is_flat(values) else _standardised(values, std=std, eps=eps)


def _standardised(values: Sequence[float], *, std: Std, eps: float) -> list[float]:
    mean = math.fsum(values) / len(values)
    centred = [value - mean for value in values]
    if std == "none":
        return centred
    divisor = len(values) - (std == "sample")
    scale = math.sqrt(math.fsum(value * value for value in centred) / divisor) + eps
    return [value / scale for value in centred]


def _left_out(values: Sequence[float]) -> list[float]:
    total, others = math.fsum(values), len(values) - 1
    return [value - (total - value) / others for value in values]


def _turns_of(entry: Scored) -> tuple[float, ...]:
    if entry.per_turn is None:
        raise UsageError(
            f"advantages per turn need one reward per turn, rollout {entry.rollout_id!r} has only its "
            f"total {entry.reward!r}: report rewards per turn, or choose another method"
        )
    return entry.per_turn


def _returns(rewards: Sequence[float], gamma: float) -> list[float]:
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]
