"""Findings: each from the numbers that make it, told once."""

import pytest

from rft_agent_sdk.training.health import Health, health_metrics
from rft_agent_sdk.training.rollouts import Played
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome


def played(outcome=Outcome.COMPLETED, turns=2, **counters):
    return Played(Trajectory("r", outcome, turns=turns, reward=1.0, counters=counters), "s")


HEALTHY = {"tools_offered": 2, "tool_calls_written": 2, "tool_calls_parsed": 2}


def test_healthy_rollouts_make_no_finding():
    metrics = health_metrics([played(**HEALTHY)] * 100)
    assert Health().watch(metrics) == frozenset()
    assert health_metrics([]) == {}
    assert Health().watch(health_metrics([played()])) == frozenset()


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ([played(truncated=1, **HEALTHY)] * 11, "turns_cut_off"),
        ([played(tools_offered=2)] * 11, "no_answer"),
        ([played(Outcome.INFRASTRUCTURE_ERROR, 0)] * 2, "infrastructure"),
        ([played(Outcome.NO_SAMPLING, 0)] * 2, "infrastructure"),
    ],
)
def test_a_share_over_its_threshold_is_a_finding(bad, name):
    good = [played(**HEALTHY)] * (100 - len(bad))
    assert Health().watch(health_metrics(bad + good)) == {name}
    assert Health().watch(health_metrics(bad[:1] + good * 2)) == frozenset()


def test_offered_tools_that_never_run_are_a_finding():
    calls = {"tools_offered": 1, "tool_calls_written": 1, "tool_calls_parsed": 0}
    assert Health().watch(health_metrics([played(**calls)] * 4)) == {"tools_never_run"}


def test_a_finding_is_told_when_it_comes_and_not_while_it_stays():
    told = []
    health = Health(lambda name, text: told.append((name, text)))
    bad, good = {"health/no_answer": 0.5}, {"health/no_answer": 0.0}
    for metrics in (bad, bad, good, bad):
        health.watch(metrics)
    assert [name for name, _ in told] == ["no_answer", "no_answer"]
    assert told[0][1].startswith("50.0%")


def steps(**ends):
    """Twenty steps, from the first to the second number of each metric."""
    names = {"reward": "sampler/mean_reward", "solve": "sampler/solve_rate"}
    names["unread"] = "health/unread_calls"
    return [{names[n]: ends[n][at >= 10] for n in ends} for at in range(20)]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        (steps(reward=(0.2, 0.5), solve=(0.3, 0.3)), {"reward_without_solving"}),
        (steps(reward=(0.2, 0.5), solve=(0.3, 0.5)), set()),
        (steps(reward=(0.5, 0.5), solve=(0.3, 0.3)), set()),
        (steps(unread=(0.0, 0.1)), {"unread_calls_rise"}),
        (steps(unread=(0.1, 0.1)), set()),
    ],
)
def test_trends_are_compared_over_two_windows(history, found):
    health = Health(lambda name, text: None)
    assert [health.watch(metrics) for metrics in history][-1] == found


def test_a_resumed_run_remembers_what_was_found_and_tells_it_once():
    told: list[str] = []
    health = Health(lambda name, text: told.append(name))
    calm = {"health/unread_calls": 0.0}
    health.recall([calm] * 9 + [calm | {"health/turns_cut_off": 0.5, "health/no_answer": None}])
    assert told == []
    assert set(health.present) == {"turns_cut_off"}
    for _ in range(10):
        health.watch({"health/turns_cut_off": 0.5, "health/unread_calls": 0.5})
    assert told == ["unread_calls_rise"]
