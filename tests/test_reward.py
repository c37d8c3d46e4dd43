"""Rewards are finite plain floats, and no shaping carries a game past a better one."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from rft_agent_sdk.errors import RewardError
from rft_agent_sdk.reward import DEFAULT_FLOOR, Reward, Tier, TieredReward, as_reward

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)


@pytest.mark.parametrize(
    ("value", "rewards"),
    [
        (True, [1.0]),
        (False, [0.0]),
        (0, [0.0]),
        (1, [1.0]),
        (-0.5, [-0.5]),
        (np.float32(0.5), [0.5]),
        (np.int64(3), [3.0]),
        (np.bool_(True), [1.0]),
        (np.array(0.25), [0.25]),
        (np.array([0.25, 1.0]), [0.25, 1.0]),
        (np.array([True, False]), [1.0, 0.0]),
        (Decimal("0.25"), [0.25]),
        (Fraction(1, 4), [0.25]),
        ([1, 0.5], [1.0, 0.5]),
        ((0, np.float32(0.5), Decimal(1)), [0.0, 0.5, 1.0]),
        ([0.5], [0.5]),
    ],
)
def test_a_number_or_a_list_of_them_becomes_plain_floats(value, rewards):
    reward = as_reward(value)
    assert reward.values == rewards
    assert all(type(number) is float for number in (reward.total, *reward.values))
    assert reward.total == sum(rewards)
    assert json.loads(json.dumps(reward.values, allow_nan=False)) == rewards


class Unruly:
    """A value whose own code fails, as a lazy tensor's may."""

    def __float__(self) -> float:
        raise RuntimeError("no device")

    def __repr__(self) -> str:
        raise RuntimeError("no device")


class UnrulyArray:
    def tolist(self) -> list[float]:
        raise RuntimeError("no device")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        b"0.5",
        "",
        [],
        (),
        {},
        {"a": 1},
        {0.5},
        iter([0.5]),
        object(),
        1j,
        float("nan"),
        float("inf"),
        -math.inf,
        [0.1, math.nan],
        [0.1, None],
        [[0.1]],
        ["0.1"],
        [1e308, 1e308],
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("1e999"),
        10**400,
        10**5000,
        np.array([]),
        np.array([[1.0], [2.0]]),
        np.array(["0.5"]),
        np.float32("nan"),
        np.ndarray,
        Unruly(),
        UnrulyArray(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_as_a_reward_error_and_nothing_else(value):
    with pytest.raises(RewardError, match="reward"):
        as_reward(value)


def test_a_refused_value_is_shown_in_part_only():
    with pytest.raises(RewardError) as refused:
        as_reward("x" * 100_000)
    assert len(str(refused.value)) < 300


def test_a_reward_passes_through_as_it_is():
    reward = Reward(0.5, {"solved": 1.0})
    assert as_reward(reward) is reward


def test_a_record_keeps_plain_floats_of_its_own():
    components: dict[str, Any] = {"solved": np.bool_(True), "total": 7}
    reward = Reward(np.float32(0.5), components, per_turn=(1, np.float64(2)))  # type: ignore[arg-type]
    components["late"] = 1.0
    assert json.dumps([reward.total, dict(reward.components), reward.values]) == (
        '[0.5, {"solved": 1.0, "total": 7.0}, [1.0, 2.0]]'
    )
    assert as_reward(True) == Reward(1.0)


@pytest.mark.parametrize(
    "record",
    [
        lambda: Reward(math.nan),
        lambda: Reward(math.nan, {"total": 1.0}),  # a component of that name must not hide it
        lambda: Reward(0.0, {"share": math.inf}),
        lambda: Reward(0.0, {"share": "all"}),  # type: ignore[dict-item]
        lambda: Reward(0.0, per_turn=()),
        lambda: Reward(0.0, per_turn=(0.0, math.nan)),
        lambda: Reward("1"),  # type: ignore[arg-type]
        lambda: Reward(10**400),
    ],
)
def test_a_record_refuses_what_is_not_finite(record):
    with pytest.raises(RewardError):
        record()


@given(st.lists(finite, min_size=1, max_size=20))
def test_the_total_of_per_turn_rewards_is_their_exact_sum(numbers):
    assert as_reward(numbers).total == pytest.approx(float(sum(map(Fraction, numbers))))
    assert as_reward(tuple(numbers)).values == numbers


SOLVED = Tier("solved", tuple(1.05 + 0.5 * (6 - n) / 5 for n in range(1, 7)), 0.04, 0.005)
LOST = Tier("lost", (-0.5,), 0.15, 0.005)
NEVER = Tier("never", (DEFAULT_FLOOR,))


def test_tiers_score_by_outcome_shaping_and_penalty():
    tiers = TieredReward([SOLVED, LOST, NEVER])
    reward = tiers.score("solved", grade=2, shaping=0.625, penalty=0.001)
    assert reward.total == pytest.approx(1.35 + 0.04 * 0.625 - 0.001)
    assert reward.components == pytest.approx(
        {"outcome": 1.35, "shaping": 0.025, "penalty": -0.001}
    )
    assert tiers.score("never", shaping=1.0, penalty=1.0).total == DEFAULT_FLOOR


def test_shaping_and_penalty_are_clipped_to_what_the_proof_assumes():
    tiers = TieredReward([SOLVED, LOST, NEVER])
    assert tiers.score("lost", shaping=1e9).total == pytest.approx(-0.35)
    assert tiers.score("lost", shaping=-1e9, penalty=1e9).total == pytest.approx(-0.655)
    assert tiers.score("lost", penalty=-1e9).total == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("tier", "grade", "numbers"),
    [
        ("drawn", 0, {}),
        ("solved", 6, {}),
        ("solved", -1, {}),
        ("lost", 1, {}),
        ("lost", 0, {"shaping": math.nan}),
        ("lost", 0, {"penalty": math.inf}),
    ],
)
def test_a_score_outside_the_tiers_is_refused(tier, grade, numbers):
    with pytest.raises(RewardError):
        TieredReward([SOLVED, LOST, NEVER]).score(tier, grade=grade, **numbers)


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [LOST, SOLVED],
        [SOLVED, SOLVED],
        [Tier("a", ())],
        [Tier("a", (math.nan,))],
        [Tier("a", (1.0,), -0.1)],
        [Tier("a", (1.0,), 0.1, -0.1)],
        [Tier("a", (1.0,), math.inf)],
        [Tier("a", (1.0, 1.0))],
        [Tier("a", (1.0, 0.9), 0.06)],
        [Tier("a", (1.0,), 0.5), Tier("b", (0.0,), 0.5)],  # they touch
        [Tier("a", (1.0,), 0.25, 0.5), Tier("b", (0.25,))],  # only the penalty makes them touch
    ],
)
def test_tiers_that_could_overlap_or_say_nothing_are_refused(tiers):
    with pytest.raises(RewardError):
        TieredReward(tiers)


def test_a_refusal_names_the_two_rungs():
    with pytest.raises(RewardError, match=r"tier 'b' .* tier 'a' grade 1"):
        TieredReward([Tier("a", (1.0, 0.5), 0.1), Tier("b", (0.45,), 0.1)])


small = st.floats(min_value=0, max_value=2, allow_nan=False)
tier_lists = st.lists(
    st.tuples(st.lists(finite, min_size=1, max_size=4), small, small), min_size=1, max_size=4
).map(lambda rows: [Tier(str(at), tuple(row[0]), *row[1:]) for at, row in enumerate(rows)])
pulls = st.floats(allow_nan=False, allow_infinity=False)


@given(tier_lists, st.data())
def test_whatever_construction_accepts_keeps_its_order_whatever_the_play(tiers, data):
    for tier in tiers:  # sorted outcomes are accepted often enough to be worth drawing
        object.__setattr__(tier, "outcomes", tuple(sorted(tier.outcomes, reverse=True)))
    tiers.sort(key=lambda tier: -tier.outcomes[0])
    try:
        rewards = TieredReward(tiers)
    except RewardError:
        reject()
    rungs = [(tier.name, grade) for tier in rewards.tiers for grade in range(len(tier.outcomes))]
    totals = [
        rewards.score(name, grade=grade, shaping=data.draw(pulls), penalty=data.draw(pulls)).total
        for name, grade in rungs
    ]
    assert all(better > worse for better, worse in pairwise(totals))
