"""The stand-in trainer: what it starts and when, what it tries again, and what ends the job."""

import asyncio
import itertools

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.rehearsal import (
    Answer,
    AnswerKind,
    FailureReason,
    Kind,
    Status,
    Terms,
    payload,
)
from rft_agent_sdk.types import SamplingParams
from tests.mtrl.rehearsal_parts import ARN, UNREACHABLE, rehearse, well

FAST = Terms(tps=1000.0)


def test_a_job_plays_validations_and_steps_in_the_service_s_order():
    found = rehearse(well, validation=3, steps=5, val_every=2, batch=2, group=2, rows=10)
    assert found.rehearsed.status is Status.COMPLETED
    assert found.phases(Kind.TRAIN) == [1, 2, 3, 4, 5]
    assert found.phases(Kind.VALIDATION) == [0, 2, 4, 5]
    assert len(found.rehearsed.rollouts) == 5 * 4 + 4 * 3
    assert found.told.phases == list(found.rehearsed.phases)
    assert len(found.told.rollouts) == len(found.rehearsed.rollouts)


def test_the_last_validation_is_not_played_twice():
    found = rehearse(well, validation=1, steps=4, val_every=2)
    assert found.phases(Kind.VALIDATION) == [0, 2, 4]


def test_without_a_validation_channel_nothing_is_validated():
    assert rehearse(well).phases(Kind.VALIDATION) == []


def test_validation_is_played_once_a_row_and_greedily():
    found = rehearse(well, validation=2, steps=1)
    checks = [one for one in found.agent.payloads if one["prompt"].startswith("check")]
    assert [one["prompt"] for one in checks[:2]] == ["check 0", "check 1"]
    greedy = {"temperature": 0.0, "topP": 1.0, "maxTokens": 4096}
    assert all(one["inferenceParams"] == greedy for one in checks)


def test_prompts_are_taken_in_order_and_again_from_the_first():
    found = rehearse(well, rows=3, steps=2, batch=2, group=2)
    prompts = [one["prompt"] for one in found.agent.payloads]
    assert prompts == ["row 0"] * 2 + ["row 1"] * 2 + ["row 2"] * 2 + ["row 0"] * 2


def test_a_row_that_is_twice_in_a_batch_makes_two_groups():
    found = rehearse(well, rows=1, steps=1, batch=2, group=3)
    assert [len(group) for group in found.rehearsed.phases[0].groups] == [3, 3]


def test_each_attempt_has_a_trajectory_and_a_session_of_its_own_that_is_ended():
    found = rehearse(well, steps=2)
    assert len(set(found.agent.sessions)) == 32
    assert sorted(found.agent.stopped) == sorted(found.agent.sessions)
    assert all(33 <= len(one) <= 256 for one in found.agent.sessions)
    ids = {one["metadata"]["rolloutId"] for one in found.agent.payloads}
    assert len(ids) == 32


def test_five_rollouts_start_a_second():
    found = rehearse(well, steps=1, batch=8, group=8)
    started = found.agent.started
    assert started[-1] - started[0] == pytest.approx(63 / 5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert min(gaps) == pytest.approx(0.2)


def test_a_full_step_of_1024_takes_the_service_s_205_seconds_to_start():
    found = rehearse(well, steps=1, batch=128, group=8)
    assert len(found.rehearsed.rollouts) == 1024
    assert found.seconds == pytest.approx(1023 / 5 + 2, abs=1)


async def long(trajectory, payload):
    trajectory.sample()
    await asyncio.sleep(100)
    trajectory.complete()
    trajectory.reward(0.0)


def test_at_most_96_are_in_flight():
    found = rehearse(long, steps=1, batch=32, group=8)
    assert found.agent.most == 96
    # Three rounds of the slots, since those of the first are handed on one by one.
    assert found.seconds == pytest.approx(300, abs=30)


def test_a_speed_shortens_the_service_s_times_and_not_the_agent_s():
    found = rehearse(well, steps=1, batch=8, group=8, terms=Terms(speed=10))
    assert found.agent.started[-1] - found.agent.started[0] == pytest.approx(63 / 50)
    assert found.rehearsed.rollouts[0].last.seconds == pytest.approx(2.0)


def test_a_rollout_longer_than_the_timeout_is_tried_again_and_then_ends_the_job():
    async def slow(trajectory, payload):
        trajectory.sample()
        await asyncio.sleep(601)
        trajectory.complete()
        trajectory.reward(1.0)

    found = rehearse(slow, steps=1, batch=1, group=1)
    assert found.rehearsed.status is Status.FAILED
    assert found.rehearsed.failure_reason is FailureReason.NO_REWARD
    killer = found.rehearsed.killer
    assert killer is not None
    assert [attempt.timed_out for attempt in killer.attempts] == [True] * 3
    assert found.seconds == pytest.approx(1800, abs=5)


def test_a_timeout_that_is_scaled_is_judged_by_the_scaled_clock():
    found = rehearse(long, steps=1, batch=1, group=1, terms=Terms(speed=10))
    assert found.rehearsed.failure_reason is FailureReason.NO_REWARD
    assert found.seconds == pytest.approx(180, abs=5)


def test_a_rollout_without_a_sample_ends_the_job_though_it_has_a_reward():
    async def lazy(trajectory, payload):
        trajectory.complete()
        trajectory.reward(1.0)

    found = rehearse(lazy)
    assert found.rehearsed.failure_reason is FailureReason.NO_SAMPLING
    assert found.rehearsed.failure_reason.value == (
        "No sampling requests were received for this rollout"
    )


def test_a_rollout_that_is_reported_as_failed_ends_the_job():
    async def failing(trajectory, payload):
        trajectory.sample()
        trajectory.complete(failed=True)

    found = rehearse(failing)
    assert found.rehearsed.failure_reason is FailureReason.AGENT_FAILED


def test_a_completion_without_a_reward_ends_the_job_without_waiting_for_the_timeout():
    async def stingy(trajectory, payload):
        trajectory.sample()
        trajectory.complete()

    found = rehearse(stingy, terms=FAST)
    assert found.rehearsed.failure_reason is FailureReason.NO_REWARD
    assert found.seconds < 30


def test_told_to_wait_it_waits_for_the_timeout():
    async def stingy(trajectory, payload):
        trajectory.sample()
        trajectory.complete()

    found = rehearse(stingy, terms=Terms(silence_s=None, attempts=1))
    assert found.seconds == pytest.approx(600, abs=5)


@pytest.mark.parametrize("is_told_by_ping", [True, False])
def test_an_agent_that_works_on_in_the_background_is_waited_for(is_told_by_ping):
    tasks = []

    async def work(trajectory):
        await asyncio.sleep(100)
        trajectory.sample()
        trajectory.complete()
        trajectory.reward(1.0)

    async def accepting(trajectory, payload):
        tasks.append(asyncio.create_task(work(trajectory)))
        body = {} if is_told_by_ping else {"status": "accepted"}
        return Answer(AnswerKind.ANSWERED, 200, body)

    found = rehearse(accepting, steps=1, busy=is_told_by_ping)
    assert found.rehearsed.status is Status.COMPLETED
    assert found.rehearsed.rollouts[0].last.seconds == pytest.approx(100)


def test_a_reward_that_follows_soon_after_the_answer_counts():
    tasks = []

    async def report(trajectory):
        await asyncio.sleep(3)
        trajectory.reward(1.0)

    async def eager(trajectory, payload):
        trajectory.sample()
        trajectory.complete()
        tasks.append(asyncio.create_task(report(trajectory)))

    assert rehearse(eager, steps=1).rehearsed.status is Status.COMPLETED


def test_a_server_that_does_not_listen_is_waited_for_30_seconds_an_attempt():
    async def absent(trajectory, payload):
        return UNREACHABLE

    found = rehearse(absent, steps=1, batch=1, group=1)
    assert found.rehearsed.failure_reason is FailureReason.NO_SAMPLING
    assert 90 <= found.seconds <= 96


def test_a_server_that_comes_up_within_30_seconds_loses_nothing():
    up_at = 1020.0

    async def late(trajectory, payload):
        if asyncio.get_running_loop().time() < up_at:
            return UNREACHABLE
        await well(trajectory, payload)
        return None

    found = rehearse(late, steps=1)
    assert found.rehearsed.status is Status.COMPLETED
    assert all(len(one.attempts) == 1 for one in found.rehearsed.rollouts)


def test_a_rollout_that_fails_twice_is_saved_by_its_third_attempt():
    broken = itertools.count()

    async def shaky(trajectory, payload):
        if payload["prompt"] == "row 1" and next(broken) < 2:
            return Answer(AnswerKind.DROPPED, detail="connection reset")
        await well(trajectory, payload)
        return None

    found = rehearse(shaky, steps=1, batch=2, group=1)
    assert found.rehearsed.status is Status.COMPLETED
    retried = found.rehearsed.rollouts[1]
    assert [attempt.failure for attempt in retried.attempts] == [
        FailureReason.NO_SAMPLING,
        FailureReason.NO_SAMPLING,
        None,
    ]
    assert [attempt.number for attempt in retried.attempts] == [1, 2, 3]
    assert retried.reward == 1.0


def test_a_row_that_always_fails_ends_the_job_and_cancels_what_was_in_flight():
    async def choosy(trajectory, payload):
        if payload["prompt"] == "row 2":
            trajectory.sample()
            trajectory.complete(failed=True)
            return
        await asyncio.sleep(100)
        await well(trajectory, payload)

    found = rehearse(choosy, steps=3, batch=4, group=2)
    assert found.rehearsed.status is Status.FAILED
    killer = found.rehearsed.killer
    assert killer is not None
    assert killer.row == 2
    assert len(killer.attempts) == 3
    assert found.rehearsed.cancelled == 7
    assert found.agent.inside == 0
    assert len(found.agent.stopped) == len(found.agent.sessions)
    assert [phase.step for phase in found.rehearsed.phases] == [1]
    assert found.told.phases == []


def test_a_stopped_job_says_so_and_keeps_what_was_played():
    found = rehearse(well, steps=100, stop_after_s=8)
    assert found.rehearsed.status is Status.STOPPED
    assert found.seconds == pytest.approx(8, abs=0.1)
    assert len(found.rehearsed.rollouts) > 16
    assert found.rehearsed.cancelled > 0


def test_a_mistake_of_the_agent_s_client_is_not_taken_for_the_agent_s():
    async def broken(trajectory, payload):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rehearse(broken)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"group": 0}, {"steps": -1}])
def test_a_plan_of_nothing_is_refused(wrong):
    with pytest.raises(UsageError, match="must be above 0"):
        rehearse(well, **wrong)


def test_a_dataset_without_rows_is_refused():
    with pytest.raises(UsageError, match="at least one row"):
        rehearse(well, rows=0)


def test_the_payload_is_the_service_s_and_the_prompt_is_kept_to_the_character():
    prompt = '{"answer": "caf\\u00e9",  "x": 1}\u2028 '
    sampling = SamplingParams(temperature=0.7, top_p=0.9, max_tokens=512)
    assert payload(prompt, ARN, "r1", sampling) == {
        "prompt": prompt,
        "metadata": {"jobArn": ARN, "rolloutId": "r1"},
        "inferenceParams": {"temperature": 0.7, "topP": 0.9, "maxTokens": 512},
    }
    more = payload(prompt, ARN, "r1", sampling, endpoint="http://127.0.0.1:1", region="us-west-2")
    assert more["metadata"]["endpoint"] == "http://127.0.0.1:1"
    assert more["metadata"]["region"] == "us-west-2"
