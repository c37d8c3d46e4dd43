"""Evaluation: numbers by hand, and a dataset played through the real gateway."""

import asyncio
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.evaluate import (
    evaluate,
    is_solved,
    pass_at_k,
    pass_power_k,
    report_of,
    wilson,
)
from rft_agent_sdk.training.rollouts import Group, Played
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome, SamplingParams
from tests.training.two_words import stage


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_draws_that_have_a_solution(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_power_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (2, 3, 1), (2, 1, 3), (2, 1, 0), (2, -1, 1)])
def test_counts_that_cannot_be_are_refused(n, c, k):
    with pytest.raises(UsageError):
        pass_at_k(n, c, k)


def test_the_interval_is_wilsons():
    found = wilson(0.5, 100)
    assert (round(found.low, 4), round(found.high, 4)) == (0.4038, 0.5962)
    found = wilson(1.0, 10)
    assert (round(found.low, 4), found.high) == (0.7225, 1.0)


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_the_interval_holds_the_mean_and_stays_within_0_and_1(mean, n):
    found = wilson(mean, n)
    assert 0 <= found.low <= mean <= found.high <= 1


def played(reward=1.0, outcome=Outcome.COMPLETED, **components):
    found = Trajectory("r", outcome, turns=2, reward=reward, components=components)
    return Played(found, "s")


def test_solving_is_the_component_and_only_without_one_the_reward():
    assert is_solved(played(-1.0, solved=1.0).trajectory)
    assert not is_solved(played(5.0, solved=0.0).trajectory)
    assert is_solved(played(1.0).trajectory)
    assert not is_solved(played(0.9).trajectory)
    assert is_solved(played(0.5).trajectory, success_threshold=0.5)
    assert not is_solved(played(None).trajectory)


def test_failed_rollouts_count_nowhere_but_as_failed():
    groups = [
        Group({}, (played(1.0, solved=1.0), played(0.0, Outcome.INFRASTRUCTURE_ERROR))),
        Group({}, (played(0.5, Outcome.TRUNCATED, solved=0.0), played(0.5, solved=1.0))),
        Group({}, (played(None, Outcome.NO_SAMPLING), played(None, Outcome.AGENT_ERROR))),
    ]
    report = report_of(groups, per_task=2)
    assert (report.tasks, report.rollouts, report.failed) == (2, 3, 3)
    assert report.solved == pytest.approx(2 / 3)
    assert report.mean_reward == pytest.approx(2 / 3)
    assert report.pass_at[1].value == pytest.approx((1 + 0.5) / 2)
    assert report.pass_at[2].value == 1.0  # of the one task that was played twice
    assert report.pass_power[2].value == 0.0
    assert report.truncated == pytest.approx(1 / 3)
    assert report.metrics()["eval/accuracy"] == pytest.approx(2 / 3)
    assert report.metrics()["val/reward/pass_at_1"] == 0.75


def test_an_evaluation_of_nothing_has_no_numbers():
    report = report_of([Group({}, (played(None, Outcome.NO_SAMPLING),))])
    assert math.isnan(report.solved)
    assert "eval/accuracy" not in report.metrics()
    assert report.to_json()["solved"] is None


def test_a_dataset_is_played_at_the_temperature_that_was_asked_for():
    payloads = [{"prompt": f"Say {word}.", "answer": word} for word in ("yes", "no")]

    async def work(where, temperature, per_task):
        async with where.rollouts() as rollouts:
            sampling = SamplingParams(temperature=temperature)
            return await evaluate(rollouts, payloads, sampling=sampling, per_task=per_task)

    with stage(weight=1.0) as where:
        greedy, _ = asyncio.run(work(where, 0.0, 2))
        free, groups = asyncio.run(work(where, 1.0, 8))
    assert [greedy.pass_at[k].value for k in (1, 2)] == [0.5, 0.5]
    assert greedy.solved == greedy.mean_reward == 0.5
    assert sorted(free.pass_at) == [1, 2, 4, 8]
    assert free.pass_at[8].value == 1.0
    assert 0.5 < free.pass_at[2].value < 1.0
    assert [len(group.rollouts) for group in groups] == [8, 8]
