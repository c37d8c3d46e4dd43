"""What a rehearsal finds in what it saw: limits that come near, rewards that teach nothing, causes of failures."""

import asyncio
from dataclasses import replace

import pytest

from rft_agent_sdk.mtrl.findings import Severity
from rft_agent_sdk.mtrl.rehearsal import Answer, AnswerKind, State, Strays, Terms
from rft_agent_sdk.mtrl.rehearsal_causes import Facts, cause_of
from rft_agent_sdk.mtrl.rehearsal_findings import find
from rft_agent_sdk.mtrl.rehearsal_verdict import Verdict, verdict_of
from rft_agent_sdk.types import SamplingParams
from tests.mtrl.rehearsal_parts import OK, rehearse

SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, max_tokens=4096)
ASKED = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 4096}


def findings(play, *, facts=None, terms=None, **plan):
    """Rehearse and return what is found, by id."""
    terms = terms or Terms(tps=1000.0)
    found = rehearse(play, terms=terms, steps=1, **plan)
    facts = facts or Facts("main.py", terms, "train.jsonl")
    return {one.id: one for one in find(found.rehearsed, facts, SAMPLING)}


def ends_with(rewards, *, seconds=1.0, body=None, **seen):
    """Return an agent whose n-th rollout gets the n-th reward, and which is seen as told."""
    left = iter(rewards)

    async def play(trajectory, payload):
        trajectory.sample()
        trajectory.seen = replace(trajectory.seen, **{"asked": ASKED, **seen})
        await asyncio.sleep(seconds)
        trajectory.complete()
        trajectory.reward(next(left))
        return Answer(AnswerKind.ANSWERED, 200, body or {})

    return play


VARIED = [0.0, 1.0] * 8


def test_a_job_without_a_flaw_has_no_findings():
    assert findings(ends_with(VARIED)) == {}


def test_rewards_that_are_all_alike_are_found():
    found = findings(ends_with([-1.5] * 16))["reward-never-varies"]
    assert "In none of 4 groups" in found.message
    assert "all of them -1.5" in found.message


def test_rewards_that_differ_between_prompts_only_teach_nothing_either():
    rewards = [row for row in (0.0, 1.0, 2.0, 3.0) for _ in range(4)]
    assert "all of them" not in findings(ends_with(rewards))["reward-never-varies"].message


def test_flat_groups_are_found_from_a_half_on():
    half = [0.0] * 8 + [0.0, 1.0] * 4
    assert "In 2 of 4 groups" in findings(ends_with(half))["flat-groups"].message
    fewer = [0.0] * 4 + [0.0, 1.0] * 6
    assert findings(ends_with(fewer)) == {}


def test_a_group_of_one_is_not_called_flat():
    assert findings(ends_with([1.0] * 4), group=1) == {}


@pytest.mark.parametrize(("seconds", "ids"), [(479.0, set()), (481.0, {"near-timeout"})])
def test_rollouts_beyond_four_fifths_of_the_timeout_are_found(seconds, ids):
    assert set(findings(ends_with(VARIED, seconds=seconds))) == ids


def test_the_timeout_is_measured_by_the_clock_that_ran():
    terms = Terms(tps=1000.0, speed=10.0)
    found = findings(ends_with(VARIED, seconds=50.0), terms=terms)["near-timeout"]
    assert "50.0 s of 60 s (at speed 10" in found.message


@pytest.mark.parametrize(
    ("seen", "id", "severity"),
    [
        ({"cut_off": 1}, "replies-cut-off", Severity.WARNING),
        ({"longest_reply": 3300}, "near-token-limit", Severity.NOTE),
        ({"context": 60_000}, "near-context", Severity.WARNING),
    ],
)
def test_lengths_that_come_near_a_limit_are_found(seen, id, severity):
    found = findings(ends_with(VARIED, **seen))[id]
    assert found.severity is severity
    assert found.message.startswith("16 of 16 rollouts")


def test_a_truncated_rollout_without_a_cut_reply_ran_into_a_limit_of_turns():
    body = {"_rft": {"outcome": "truncated"}}
    assert set(findings(ends_with(VARIED, body=body))) == {"turn-limit"}


@pytest.mark.parametrize(
    ("budget_s", "ids"), [(None, set()), (540.0, set()), (541.0, {"budget-over-timeout"})]
)
def test_a_budget_that_leaves_no_time_to_report_is_found(budget_s, ids):
    facts = Facts("main.py", budget_s=budget_s)
    assert set(findings(ends_with(VARIED), facts=facts)) == ids


@pytest.mark.parametrize(
    "outcome",
    ["agent_error", "environment_error", "infrastructure_error", "no_sampling", "timeout"],
)
def test_what_the_handler_saved_is_found_with_its_error(outcome):
    body = {"_rft": {"outcome": outcome, "error": "KeyError: 'answer'"}}
    found = findings(ends_with(VARIED, body=body))[f"saved-{outcome.replace('_', '-')}"]
    assert "KeyError: 'answer'" in found.message


def test_parameters_that_were_not_passed_on_are_found():
    asked = {"temperature": 1.0, "max_tokens": 512}
    found = findings(ends_with(VARIED, asked=asked))["sampling-not-passed-on"]
    assert "do not carry max_tokens, top_p as" in found.message
    assert "16 of 16 rollouts" in found.message


def test_rewards_that_fit_neither_the_rollout_nor_its_turns_are_found():
    async def play(trajectory, payload):
        trajectory.sample(3)
        trajectory.seen = replace(trajectory.seen, asked=ASKED)
        trajectory.complete()
        trajectory.reward(0.0, len(payload["prompt"]) * len(payload["metadata"]["rolloutId"][-1]))

    assert "(2 for 3 calls)" in findings(play)["reward-list-length"].message


def test_strays_are_found_where_the_job_completes_all_the_same():
    found = rehearse(ends_with(VARIED), steps=1)
    strayed = replace(found.rehearsed, strays=Strays({401: 3}, ("t-old",)))
    (one,) = find(strayed, Facts("main.py"), SAMPLING)
    assert one.id == "stray-requests"
    assert "3 requests named no rollout and others named trajectories" in one.message


async def nothing(trajectory, payload):
    return OK


async def hangs(trajectory, payload):
    await asyncio.sleep(10_000)


async def slow(trajectory, payload):
    trajectory.sample(7)
    await asyncio.sleep(10_000)


async def raises(trajectory, payload):
    trajectory.sample(2)
    return Answer(AnswerKind.ERROR, 500, detail="boom")


async def refused(trajectory, payload):
    return Answer(AnswerKind.REFUSED, detail="AgentCore says AccessDeniedException (403)")


async def denied(trajectory, payload):
    refused = {403: 4, 429: 1}
    trajectory.seen = replace(trajectory.seen, sampling_refused=refused, sampling_said="Bad token")


async def working(trajectory, payload):
    trajectory.sample()
    trajectory.complete()
    await asyncio.sleep(10_000)


async def html(trajectory, payload):
    return Answer(AnswerKind.ANSWERED, 200, "<html>nginx</html>", is_foreign=True)


async def crashed(trajectory, payload):
    return Answer(AnswerKind.ERROR, 502, detail="<html>Bad gateway</html>", is_foreign=True)


async def text_reward(trajectory, payload):
    trajectory.sample()
    trajectory.complete()
    said = "Rewards[0]: wanted a finite number, got '0.5'"
    trajectory.seen = replace(trajectory.seen, reports_refused={400: 1}, reports_said=said)


async def never_reported(trajectory, payload):
    trajectory.sample()
    return Answer(AnswerKind.ANSWERED, 200, {"reward": 1.0})


async def drops(trajectory, payload):
    trajectory.sample()
    return Answer(AnswerKind.DROPPED, detail="ReadError")


@pytest.mark.parametrize(
    ("play", "id", "words"),
    [
        (nothing, "nobody-reported", "the rollout was never completed"),
        (hangs, "agent-hangs", "did not call the model, report or answer within 600 s"),
        (slow, "too-slow", "7 model calls answered, no CompleteRollout, no UpdateReward"),
        (working, "too-slow", "1 model calls answered, CompleteRollout sent, no UpdateReward"),
        (html, "answer-not-json", "which is not JSON"),
        (crashed, "answer-not-json", "HTTP 502: <html>"),
        (raises, "agent-raised", "HTTP 500: boom"),
        (refused, "invocation-refused", "AccessDeniedException"),
        (denied, "sampling-refused", "4 with 403, 1 with 429. It said: Bad token"),
        (text_reward, "reports-refused", "1 with 400. It said: Rewards[0]: wanted"),
        (never_reported, "nobody-reported", '{"reward": 1.0}'),
        (drops, "connection-lost", "broke"),
    ],
)
def test_each_failure_has_its_cause(play, id, words):
    killer = next(iter(findings(play).values()))
    assert killer.id == id
    assert words in killer.message
    assert killer.severity is Severity.ERROR
    assert killer.where == "train.jsonl, row 1 (step 1)"


def test_a_reward_that_came_too_late_is_told_with_its_lateness():
    tasks = []

    async def report(trajectory):
        await asyncio.sleep(700)
        trajectory.complete()
        trajectory.reward(1.0)

    async def late(trajectory, payload):
        trajectory.sample()
        tasks.append(asyncio.create_task(report(trajectory)))
        return Answer(AnswerKind.ANSWERED, 200, {"status": "accepted"})

    found = rehearse(late, steps=1, batch=1, group=1)
    assert found.rehearsed.killer is not None
    first = found.rehearsed.killer.attempts[0]
    cause = cause_of(first, found.rehearsed, Facts("main.py", budget_s=650.0))
    assert cause.id == "reward-late"
    assert "700.0 s after the agent was invoked; the job waits 600 s" in cause.message
    assert "(it is 650 s now)" in cause.fix


def _leaving():
    played: list[int] = []

    async def leaves(trajectory, payload):
        if len(played) >= 6:
            return Answer(AnswerKind.UNREACHABLE)
        played.append(1)
        trajectory.sample()
        trajectory.complete()
        trajectory.reward(1.0)
        return OK

    return leaves


def test_an_agent_that_was_there_before_is_gone_rather_than_absent():
    facts = Facts("main.py", agent_log="Killed\n")
    found = findings(_leaving(), facts=facts)["agent-gone"]
    assert "main.py played 6 rollouts" in found.message
    assert found.message.splitlines()[1:3] == ["Its log ends:", "Killed"]
    assert "row's data" not in found.message
    told = findings(_leaving(), facts=replace(facts, exit_code=-9))["agent-gone"]
    assert "the process was ended by SIGKILL, as one that takes too much memory is" in told.message


def test_a_state_that_failed_goes_before_whatever_the_agent_answered():
    async def failing(trajectory, payload):
        trajectory.complete(failed=True)
        return Answer(AnswerKind.DROPPED)

    found = rehearse(failing, steps=1)
    assert found.rehearsed.killer is not None
    assert found.rehearsed.killer.last.seen.state is State.FAILED
    assert "agent-reported-failure" in findings(failing)


@pytest.mark.parametrize(("seconds", "id"), [(700, "reward-late"), (60, "given-up-early")])
def test_a_reward_that_was_late_in_every_attempt_is_late_and_not_missing(seconds, id):
    """The job ends with the last attempt, so only the earlier ones are known to have been late."""
    tasks = []

    async def report(trajectory):
        await asyncio.sleep(seconds)
        trajectory.reward(1.0)

    async def late(trajectory, payload):
        trajectory.sample()
        trajectory.complete()
        tasks.append(asyncio.create_task(report(trajectory)))
        status = "accepted" if seconds > 600 else "done"
        return Answer(AnswerKind.ANSWERED, 200, {"status": status})

    terms = Terms(tps=1000.0, silence_s=45.0)
    found = next(iter(findings(late, batch=1, group=1, terms=terms).values()))
    assert found.id == id
    assert f"{seconds}.0 s after the agent was invoked" in found.message
    assert "the job" in found.message
    assert ("rollout_timeout" in found.fix) is (id == "reward-late")


@pytest.mark.parametrize(
    ("code", "told", "fix"),
    [
        (1, "ended with exit code 1", "Mend what its log says"),
        (0, "ended with exit code 0", "start the server last"),
        (-11, "was ended by SIGSEGV", "Mend what its log says"),
    ],
)
def test_a_process_that_ended_before_it_served_is_told_with_its_code_and_last_line(code, told, fix):
    async def absent(trajectory, payload):
        return Answer(AnswerKind.UNREACHABLE)

    log = "Traceback\nModuleNotFoundError: No module named 'x'\n\n"
    found = findings(absent, facts=Facts("main.py", agent_log=log, exit_code=code))["agent-exited"]
    assert found.message.startswith(
        f"The process of main.py {told}, and no rollout got through. "
        "The last line it wrote: ModuleNotFoundError: No module named 'x'"
    )
    assert fix in found.fix


def test_a_returned_value_that_is_no_reward_is_told_apart_from_an_exception():
    ours = {
        "outcome": "agent_error",
        "error": "RewardError: got '0.5'",
        "error_type": "RewardError",
    }
    found = findings(ends_with(VARIED, body={"_rft": ours}))
    assert set(found) == {"saved-no-reward"}
    told = found["saved-no-reward"]
    assert "returned no reward that can be read; nothing raised" in told.message
    assert told.fix.startswith("Return a number")


def verdict(play, **plan):
    found = rehearse(play, terms=Terms(tps=1000.0), steps=1, **plan)
    return verdict_of(found.rehearsed, find(found.rehearsed, Facts("main.py"), SAMPLING))


@pytest.mark.parametrize(
    ("play", "comes_to"),
    [
        (ends_with(VARIED), Verdict.GOOD),
        (ends_with([0.5] * 16), Verdict.TEACHES_NOTHING),
        (ends_with([0.5] * 15 + [0.6]), Verdict.GOOD),
        (ends_with(VARIED, body={"_rft": {"outcome": "agent_error"}}), Verdict.TEACHES_NOTHING),
        (ends_with(VARIED, body={"_rft": {"outcome": "no_sampling"}}), Verdict.TEACHES_NOTHING),
        (ends_with(VARIED, body={"_rft": {"outcome": "timeout"}}), Verdict.GOOD),
        (raises, Verdict.FAILS),
    ],
)
def test_a_job_of_which_nothing_can_be_learned_is_not_good(play, comes_to):
    assert verdict(play) is comes_to
