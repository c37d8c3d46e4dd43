"""Evaluation: numbers by hand, and a dataset played through the real gateway."""

import asyncio
import math

import pytest

from rft_agent_sdk.training.evaluate import evaluate, is_solved, report_of
from rft_agent_sdk.training.rollouts import Group, Played
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome, SamplingParams
from tests.training.two_words import stage


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
