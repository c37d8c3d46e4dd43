"""Advantages by hand, and what holds for every group: nothing made up, nothing counted twice."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.advantages import (
    METHODS,
    Advantages,
    Scored,
    group_based_per_turn,
    grpo,
    rloo,
    score,
)
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome

ODD_GROUP = [1.55, -0.5, -0.5, -1.5]
REWARDS = st.floats(-1e6, 1e6)


def group(rewards, name="g"):
    return [Scored(f"{name}{i}", name, reward) for i, reward in enumerate(rewards)]


def turns(*per_turn):
    return [Scored(f"r{i}", "g", sum(own), own) for i, own in enumerate(per_turn)]


def values(advantages: Advantages):
    return list(advantages.per_rollout.values())


def rounded(advantages: Advantages):
    return [round(value, 4) for value in values(advantages)]


def test_several_samples_of_one_rollout_count_once():
    samples = [Scored("A", "g", 1.0)] * 3 + [Scored("B", "g", 0.0)]
    found = grpo(samples, std="none").per_rollout
    assert [found[sample.rollout_id] for sample in samples] == [0.5, 0.5, 0.5, -0.5]


def test_groups_of_different_sizes_are_told_apart_by_id_in_any_order():
    rewards = [Scored("a", "g0", 1.0), Scored("c", "g1", 5.0), Scored("b", "g0", 3.0)]
    found = grpo(rewards, std="none")
    assert found == Advantages({"a": -1.0, "b": 1.0, "c": 0.0}, groups=2, flat_groups=1, dropped=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rewards", [[-1.5] * 4, [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0], [7.0]])
def test_a_flat_or_one_member_group_gives_exact_zeros_and_is_counted(method, rewards):
    scored = [Scored(str(i), "g", reward, (reward,)) for i, reward in enumerate(rewards)]
    found = METHODS[method](scored)
    zero = (0.0,) if method == "group_based_per_turn" else 0.0
    assert values(found) == [zero] * len(rewards)
    assert (found.groups, found.flat_groups) == (1, 1)


@pytest.mark.parametrize(
    ("std", "expected"),
    [
        ("none", [1.7875, -0.2625, -0.2625, -1.2625]),
        ("population", [1.6106, -0.2365, -0.2365, -1.1376]),
        ("sample", [1.3948, -0.2048, -0.2048, -0.9852]),
    ],
)
def test_an_odd_group_by_each_standard_deviation(std, expected):
    assert rounded(grpo(group(ODD_GROUP), std=std)) == expected


def test_the_default_divides_by_the_population_standard_deviation_plus_eps():
    assert grpo(group(ODD_GROUP)) == grpo(group(ODD_GROUP), std="population", eps=1e-6)
    assert values(grpo(group([0.0, 1.0]), eps=0.5)) == [-0.5, 0.5]


def test_dr_grpo_is_grpo_without_the_division():
    assert METHODS["dr_grpo"](group(ODD_GROUP)) == grpo(group(ODD_GROUP), std="none")


def test_rloo_compares_each_reward_with_the_mean_of_the_others():
    assert values(rloo(group([1.0, 2.0, 6.0]))) == [1 - 4, 2 - 3.5, 6 - 1.5]


@pytest.mark.parametrize("method", [grpo, rloo])
def test_a_rollout_without_a_reward_is_in_no_mean_and_gets_no_advantage(method):
    with_it = method([*group([1.0, 0.0]), Scored("lost", "g", None), Scored("gone", "h", None)])
    without = method(group([1.0, 0.0]))
    assert with_it.per_rollout == without.per_rollout
    assert (with_it.groups, with_it.dropped, without.dropped) == (1, 2, 0)


def test_no_rewards_at_all_give_no_advantages():
    for method in METHODS.values():
        assert method([]) == Advantages({}, 0, 0, 0)


@pytest.mark.parametrize(
    "other",
    [Scored("A", "g", 0.0), Scored("A", "g", None), Scored("A", "h", 1.0)],
    ids=["reward", "none", "group"],
)
def test_samples_of_one_rollout_that_contradict_each_other_are_refused(other):
    with pytest.raises(UsageError, match=r"share one reward and one group, got .*'A'.*'A'"):
        grpo([Scored("A", "g", 1.0), Scored("B", "g", 0.0), other])


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e101])
def test_a_reward_that_could_poison_its_group_is_refused(reward):
    with pytest.raises(UsageError, match="rewards must be finite"):
        Scored("A", "g", reward)
    with pytest.raises(UsageError, match="rewards must be finite"):
        Scored("A", "g", 0.0, (0.0, reward))


def test_rewards_per_turn_are_compared_turn_by_turn_with_those_who_played_it():
    found = group_based_per_turn(turns((1.0, 0.0, 9.0), (3.0, 4.0), (2.0,)), std="none")
    assert values(found) == [(-1.0, -2.0, 0.0), (1.0, 2.0), (0.0,)]


def test_rewards_per_turn_are_divided_by_their_own_turn_s_deviation():
    found = group_based_per_turn(turns((0.0, 0.0), (2.0, 200.0)), eps=0.0)
    assert values(found) == [(-1.0, -1.0), (1.0, 1.0)]


def test_with_gamma_an_early_turn_is_paid_for_what_follows():
    found = group_based_per_turn(turns((1.0, 0.0, 4.0), (0.0, 2.0)), gamma=0.5, std="none")
    # returns: 1 + 0/2 + 4/4 = 2, 0 + 4/2 = 2, 4; and 0 + 2/2 = 1, 2
    assert values(found) == [(0.5, 0.0, 0.0), (-0.5, 0.0)]


def test_a_group_is_flat_per_turn_only_when_every_turn_is():
    assert group_based_per_turn(turns((1.0, 0.0), (1.0, 2.0))).flat_groups == 0
    assert group_based_per_turn(turns((1.0, 0.0), (1.0, 0.0))).flat_groups == 1


def test_advantages_per_turn_ask_for_rewards_per_turn_and_a_gamma_that_is_one():
    with pytest.raises(UsageError, match=r"rollout 'g0' has only its total 1.0"):
        group_based_per_turn(group([1.0]))
    with pytest.raises(UsageError, match="gamma must lie in"):
        group_based_per_turn([], gamma=1.5)


def trajectory(turns, reward, per_turn=None):
    return Trajectory("r", Outcome.COMPLETED, (), turns, None, reward, per_turn)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (trajectory(2, 3.0, (1.0, 2.0)), (3.0, (1.0, 2.0))),
        (trajectory(3, -1.5), (-1.5, (0.0, 0.0, -1.5))),
        (trajectory(1, 1.0), (1.0, (1.0,))),
        (trajectory(0, 0.0), (0.0, ())),
        (trajectory(2, None), (None, None)),
    ],
    ids=["per turn", "total only", "one turn", "no turn", "no reward"],
)
def test_a_trajectory_is_scored_per_turn_with_its_total_at_the_end(record, expected):
    scored = score(record, "g")
    assert (scored.reward, scored.per_turn) == expected
    assert (scored.rollout_id, scored.group_id) == ("r", "g")


def test_a_trajectory_that_is_not_valid_is_left_out():
    assert score(trajectory(1, 1.0), "g", is_valid=False) == Scored("r", "g", None)


@given(st.lists(REWARDS, min_size=1, max_size=9), st.sampled_from(["grpo", "dr_grpo", "rloo"]))
def test_advantages_of_a_group_are_finite_and_sum_to_nothing(rewards, method):
    found = values(METHODS[method](group(rewards)))
    assert all(map(math.isfinite, found))
    assert math.fsum(found) == pytest.approx(0.0, abs=1e-12 * sum(map(abs, found)) + 1e-6)


@given(st.lists(REWARDS, min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_neither_order_nor_a_common_bonus_changes_an_advantage(rewards, random):
    base = rloo(group(rewards)).per_rollout
    shifted = [Scored(e.rollout_id, "g", (e.reward or 0.0) + 7.0) for e in group(rewards)]
    random.shuffle(shifted)
    assert rloo(shifted).per_rollout == pytest.approx(base, abs=1e-2)


@given(st.lists(REWARDS, min_size=2, max_size=9))
def test_a_better_reward_never_gets_a_smaller_advantage(rewards):
    found = values(grpo(group(rewards)))
    pairs = sorted(zip(rewards, found, strict=True))
    assert [advantage for _, advantage in pairs] == sorted(found)
