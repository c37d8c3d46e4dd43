"""A rehearsal's numbers: by the service's names, in a summary, and projected to the whole job."""

import asyncio
import json
import statistics

import pytest

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.plan import make_plan
from rft_agent_sdk.mtrl.prices import Price, Prices
from rft_agent_sdk.mtrl.rehearsal import Kind, Plan, Terms
from rft_agent_sdk.mtrl.rehearsal_metrics import step_metrics
from rft_agent_sdk.mtrl.rehearsal_projection import Measured, measure, project
from rft_agent_sdk.mtrl.rehearsal_report import Report, summary
from tests.mtrl.rehearsal_parts import ARN, rehearse

JOB = {
    "global_batch_size": 128,
    "group_size": 8,
    "max_steps": 100,
    "max_epochs": 1,
    "val_every": 10,
}
REWARDS = [0.0, 1.0, 0.5, 0.5, 0.0, 0.0]  # three groups of two


def played(rewards=REWARDS, **settings):
    left = iter(rewards)

    async def play(trajectory, payload):
        trajectory.sample(2)
        await asyncio.sleep(3)
        trajectory.complete()
        trajectory.reward(next(left))

    terms = Terms(tps=1000.0)
    return rehearse(play, terms=terms, **{"steps": 1, "batch": 3, "group": 2, **settings})


def test_a_step_has_the_service_s_metrics():
    phase = played().rehearsed.phases[0]
    metrics = step_metrics(phase)
    expected = {
        "training/global_step": 1,
        "training/num_groups": 3,
        "training/num_trajectories": 6,
        "training/total_tokens": 6 * 220,
        "rollout/reward/mean": 2 / 6,
        "rollout/reward/valid_mean": 2 / 6,
        "rollout/reward/std": statistics.pstdev(REWARDS),
        "rollout/reward/min": 0,
        "rollout/reward/max": 1,
        "rollout/reward/zero_frac": 0.5,
        "rollout/turns/mean": 2,
        "rollout/tokens/prompt_mean": 200,
        "rollout/tokens/response_max": 20,
        "rollout/advantage/n_positive": 1,
        "rollout/advantage/n_negative": 1,
        "rollout/advantage/mean": 0,
        "analysis/batch_valid_ratio": 1,
        "analysis/zero_adv_groups": 2,
        "analysis/zero_adv_zero_reward": 1,
        "analysis/zero_adv_nonzero_reward": 1,
        "analysis/mean_group_reward_spread": 0.5 / 3,
        "analysis/reward_variance_across_groups": statistics.pvariance([0.5, 0.5, 0.0]),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert metrics["timing_s/step"] == pytest.approx(3, abs=0.1)


def test_a_validation_has_the_service_s_metrics():
    found = played([1.0, 0.0, 0.25] * 4, rows=3, validation=3, group=1)
    phase = found.rehearsed.phases[0]
    assert phase.kind is Kind.VALIDATION
    metrics = step_metrics(phase, success_threshold=0.25)
    assert metrics["val/reward/pass_at_1"] == pytest.approx(2 / 3)
    assert metrics["val/reward/pass_power_1"] == metrics["val/reward/pass_at_1"]
    assert metrics["val/reward/num_prompts"] == 3
    assert metrics["val/turns/mean"] == 2
    assert not any(name.startswith(("training/", "rollout/")) for name in metrics)


def test_metrics_are_plain_numbers_under_names_that_mlflow_takes():
    for phase in played(REWARDS + [1.0] * 6, validation=2).rehearsed.phases:
        for name, value in step_metrics(phase).items():
            assert isinstance(value, float), name
            assert set(name) <= set("abcdefghijklmnopqrstuvwxyz_0123456789/")


def test_rewards_of_each_turn_add_up():
    async def play(trajectory, payload):
        trajectory.sample(2)
        trajectory.complete()
        trajectory.reward(0.25, 1.0)

    found = rehearse(play, steps=1, batch=1, group=1)
    assert found.rehearsed.rollouts[0].reward == 1.25


def test_the_summary_tells_what_people_ask_for():
    found = summary(played().rehearsed, success_threshold=1.0)
    assert found["rollouts"]["training"] == 6
    assert found["groups"] == {"count": 3, "flat": 2, "flat_share": pytest.approx(2 / 3)}
    assert found["within_groups"]["mean"] == pytest.approx(1 / 3)
    assert found["within_groups"]["max"] == pytest.approx(0.5)
    assert found["within_groups"]["std"] == pytest.approx(0.5 / 3)
    assert found["solve_rate"] == pytest.approx(1 / 6)
    assert found["turns"]["mean"] == 2
    assert found["seconds"]["mean"] == pytest.approx(3)
    assert found["validation_reward"] is None


MEASURED = Measured(rollouts=32, seconds=100.0, turns=6.0, prefill=4000.0, sample=1500.0)


def test_a_step_takes_as_long_as_its_starts_where_rollouts_are_short():
    quick = Measured(32, seconds=10.0, turns=6.0, prefill=4000.0, sample=1500.0)
    found = project(quick, make_plan(12_800, JOB), Terms(), model="m", region="r")
    assert found.step_s == pytest.approx(1024 / 5)


def test_a_step_takes_as_long_as_its_places_where_rollouts_are_long():
    found = project(MEASURED, make_plan(12_800, JOB), Terms(), model="m", region="r")
    assert found.step_s == pytest.approx(1024 * 100 / 96)
    assert found.seconds == pytest.approx(100 * found.step_s)


def test_tokens_and_dollars_are_those_of_the_rollouts_that_were_played():
    plan = make_plan(12_800, JOB, validation_rows=100)
    prices = Prices({"m": Price(1.0, 2.0, 3.0, "today")})
    found = project(MEASURED, plan, Terms(), model="m", region="r", prices=prices)
    rollouts = 100 * 1024 + 11 * 100
    assert found.tokens["prefill"] == pytest.approx(4000 * rollouts)
    assert found.tokens["sample"] == pytest.approx(1500 * rollouts)
    assert found.tokens["train"] == pytest.approx(MEASURED.train * 100 * 1024)
    expected = (
        found.tokens["prefill"] + 2 * found.tokens["sample"] + 3 * found.tokens["train"]
    ) / 1e6
    assert found.tokens_usd == pytest.approx(expected)
    assert found.usd == pytest.approx(expected + found.agentcore_usd)
    assert "prices as of today" in found.lines()[-1]


def test_a_model_without_prices_has_none_made_up():
    found = project(MEASURED, make_plan(12_800, JOB), Terms(), model="m", region="r")
    assert found.usd is None
    assert "unknown price for m" in found.lines()[-1]


def test_nothing_is_measured_where_no_rollout_got_through():
    async def lost(trajectory, payload):
        return None

    assert measure(rehearse(lost, steps=1).rehearsed) is None


def report(rehearsed, *, id="flat-groups", severity=Severity.WARNING):
    finding = Finding(id, severity, "train.jsonl", "What is.", "What to do.")
    return Report(rehearsed, Plan(), Terms(), [finding], None, "solver", ARN, ("a note",))


def test_a_report_is_told_in_lines_with_the_verdict_first():
    lines = list(report(played().rehearsed).lines())
    assert lines[0] == "JobStatus Completed"
    assert lines[2:5] == [
        "WARNING flat-groups (train.jsonl)",
        "  What is.",
        "  fix: What to do.",
    ]
    assert any(line.startswith("flat groups 2 of 3 (67%)") for line in lines)
    assert lines[-1] == "note: a note"


def test_a_report_of_nothing_but_failures_can_be_told_too():
    async def lost(trajectory, payload):
        return None

    found = report(rehearse(lost, steps=1).rehearsed)
    lines = list(found.lines())
    assert lines[0] == (
        "JobStatus Failed, FailureReason: No sampling requests were received for this rollout"
    )
    assert lines[1].endswith("rollouts were cancelled with it")
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert told["failure_reason"] == "No sampling requests were received for this rollout"
    assert told["rollouts"][-1]["attempts"][-1]["answer"]["kind"] == "answered"
    assert told["projection"] is None


def test_a_completed_job_that_cannot_be_launched_is_not_told_as_completed():
    found = report(played().rehearsed, id="rows-below-batch", severity=Severity.ERROR)
    assert found.verdict == (
        "JobStatus Completed as far as played, but not to be launched like this: rows-below-batch"
    )
    assert found.as_json()["exit_code"] == 4


def test_a_completed_job_that_teaches_nothing_says_so():
    found = report(played([0.5] * 6).rehearsed)
    assert found.verdict.startswith("JobStatus Completed, and nothing learned: every rollout got")
    assert (found.as_json()["exit_code"], found.as_json()["status"]) == (3, "Completed")
    assert report(played().rehearsed).as_json()["exit_code"] == 0
