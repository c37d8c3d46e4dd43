"""A rollout and its end: one report and one reward, whatever the agent's or the environment's code does."""

import asyncio
import gc
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from rft_agent_sdk import (
    Episode,
    Outcome,
    Reward,
    Rollout,
    ToolResult,
    ToolSpec,
    UsageError,
    life,
    play,
    policy,
    rft_handler,
)
from rft_agent_sdk.context import _current, current_rollout
from rft_agent_sdk.environment import Environment
from rft_agent_sdk.errors import NoRolloutError, RolloutCancelled, RolloutOver
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.response import plain
from rft_agent_sdk.testing import FakeClock
from tests.servers import Answer, ScriptedServer, completion, managed_payload

FLOOR = -1.5
HELLO: Any = [{"role": "user", "content": "hello"}]
ADD = ToolSpec("add", "Add one.", {"type": "object", "properties": {}})


@dataclass
class Count(Episode):
    """Reach the number in the task by adding one at a time; the count is the reward."""

    goal: int = 99
    system_prompt: str = "You add."
    prompt: str = ""
    tools: list[ToolSpec] = field(default_factory=lambda: [ADD])
    count: int = 0
    scored: Any = None
    """What to do in place of scoring."""

    @property
    def done(self):
        return self.count >= self.goal

    @property
    def acted(self):
        return self.count > 0

    def call(self, name, arguments, *, recovered=False):
        self.count += 1
        return ToolResult(f"count={self.count}")

    def reward(self, outcome):
        return self.scored(outcome) if self.scored else Reward(float(self.count))


class Counts(Environment):
    name = "counts"
    floor = -1.0

    def start(self, task):
        return Count(goal=int(task), prompt=f"Reach {task}.")


def well(seen, count):
    return completion() if seen.path == "/v1/chat/completions" else {}


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """The SDK loads its parts on first use, which would use up a budget of half a second."""
    assert policy.openai_client().chat.completions is not None


@pytest.fixture
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.fixture
def server(monkeypatch, credentials):
    with ScriptedServer(well) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


def run(function, server, **options):
    """Run a function as the handler of one rollout and return the response."""
    body = asyncio.run(rft_handler(**options)(function)(managed_payload(server.url)))
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    return body


def reported_once(server, reward):
    assert len(server.completions) == 1
    assert server.completions[0].json["Status"] == "ready"
    assert server.rewards == [[reward]]


# ------------------------------------------------------------------ its time


def rollout_of(config=None, **options):
    payload: dict[str, Any] = {"prompt": "go"}
    payload["_config"] = {"base_url": "http://127.0.0.1:9", "api_key": "k", **(config or {})}
    return Rollout(parse_request(payload), clock=FakeClock(), **options)


@pytest.mark.parametrize(
    ("config", "budget_s", "variable", "seconds"),
    [
        ({}, None, None, 420),
        ({}, 7, None, 7),
        ({}, None, "300", 300),
        ({}, None, " 300 ", 300),
        ({}, 7, "300", 7),
        ({}, None, "soon", 420),
        ({}, None, "-1", 420),
        ({}, None, "nan", 420),
        ({}, None, "inf", 420),
        ({}, None, "0", 420),
        ({"deadline_s": 50}, 7, "300", 45),
        ({"deadline_s": 600}, None, None, 590),
        ({"deadline_s": 0}, None, None, 0),
        ({"deadline_s": 1e15}, None, None, 86_390),
    ],
)
def test_the_budget_is_the_trainers_else_the_handlers_else_the_environments(
    config, budget_s, variable, seconds
):
    environ = {} if variable is None else {"ROLLOUT_BUDGET_SECONDS": variable}
    rollout = rollout_of(config, budget_s=budget_s, environ=environ)
    assert rollout.deadline.remaining() == pytest.approx(seconds)


@pytest.mark.parametrize("budget_s", [0, -1, float("nan"), float("inf"), 1e6])
def test_a_budget_that_is_no_time_is_refused_at_decoration(budget_s):
    with pytest.raises(UsageError, match="budget_s"):
        rft_handler(budget_s=budget_s)


def test_hosts_given_as_one_text_are_refused_at_decoration():
    with pytest.raises(UsageError, match="allow_hosts"):
        rft_handler(allow_hosts="127.0.0.1")


def test_hosts_given_as_an_iterator_hold_for_every_rollout(credentials):
    with ScriptedServer(well) as server:
        entrypoint = rft_handler(allow_hosts=iter([server.host]))(lambda payload: 1.0)
        for _ in range(2):
            assert asyncio.run(entrypoint(managed_payload(server.url)))["_rft"]["reported"]


def test_a_rollout_is_open_until_its_time_is_up_or_it_is_closed_or_cancelled():
    late, closed, cancelled = rollout_of(budget_s=10), rollout_of(), rollout_of()
    for rollout in (late, closed, cancelled):
        rollout.check_open()
    clock: Any = late.deadline._clock
    clock.advance(10)
    closed.close()
    cancelled.cancel("a test")
    for rollout in (late, closed):
        with pytest.raises(RolloutOver):
            rollout.check_open()
    with pytest.raises(RolloutCancelled, match="a test"):
        cancelled.check_open()
    assert closed.closed


def test_who_asks_to_be_told_of_a_cancellation_is_told_also_afterwards():
    told = []
    before, after = rollout_of(), rollout_of()
    before.when_cancelled(lambda: told.append("before"))
    before.cancel("x")
    after.cancel("x")
    after.when_cancelled(lambda: told.append("after"))
    assert told == ["before", "after"]


def test_attaching_an_episode_tells_the_first_request_before_it_is_sent():
    rollout = rollout_of()
    episode = Count(prompt="Reach 3.")
    rollout.attach(episode)
    assert rollout.episode is episode
    assert rollout.opening == {
        "messages": [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "Reach 3."},
        ],
        "tools": [ADD.as_openai()],
    }


def test_a_function_sees_its_own_rollout_and_nobody_does_afterwards(server):
    seen = []

    def function(payload):
        seen.append(current_rollout())
        return 1.0

    run(function, server)
    assert seen[0].request.rollout_id == "r1"
    with pytest.raises(NoRolloutError):
        current_rollout()


# ------------------------------------------------------------------ an episode's score


def playing(then, scored=None, *, sampled=True):
    """A function that plays two calls of an episode, and then does something else."""

    def function(rollout: Rollout):
        episode = Count(scored=scored)
        rollout.attach(episode)
        if sampled:
            rollout.openai().chat.completions.create(model="x", messages=HELLO)
        episode.call("add", {})
        episode.call("add", {})
        return then(rollout)

    return function


def boom(rollout):
    raise RuntimeError("boom")


def hang(rollout):
    time.sleep(3)


def cancel(rollout):
    rollout.cancel("a test")
    time.sleep(3)


def leave(rollout):
    raise SystemExit(3)


CUT_SHORT = [(boom, "agent_error"), (hang, "timeout"), (cancel, "cancelled")]


@pytest.mark.parametrize(("then", "outcome"), [*CUT_SHORT, (lambda rollout: None, "agent_error")])
def test_what_was_played_counts_when_the_rollout_is_cut_short(server, then, outcome):
    body = run(playing(then), server, budget_s=0.6)
    assert body["reward"] == 2.0
    assert body["_rft"]["outcome"] == outcome
    reported_once(server, 2.0)


@dataclass
class Credited(Count):
    """Each call earns a tenth."""

    credits: list[float] = field(default_factory=list)

    def call(self, name, arguments, *, recovered=False):
        self.credits.append(0.1)
        return super().call(name, arguments, recovered=recovered)


@pytest.mark.parametrize(
    ("stray", "rewards"), [([], [0.1, 1.9]), ([0.1], [2.0]), ([float("nan")], [2.0])]
)
def test_a_play_that_is_cut_short_tells_its_reward_by_turn_too(
    monkeypatch, credentials, stray, rewards
):
    class Credits(Counts):
        def start(self, task):
            return Credited(credits=list(stray))

    def answer(seen, count):
        if seen.path != "/v1/chat/completions":
            return {}
        if count == 2:
            started[0].cancel("a test")
        return completion("", calls=[("add", "{}")])

    started: list[Rollout] = []

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)

        def function(rollout: Rollout):
            started.append(rollout)
            return play(Credits(), rollout)

        body = run(function, server)
    assert body["_rft"]["outcome"] == "cancelled"
    assert server.rewards == [pytest.approx(rewards)]


def test_what_was_played_counts_when_the_function_exits(server):
    with pytest.raises(SystemExit):
        run(playing(leave), server)
    reported_once(server, 2.0)


async def test_what_was_played_counts_when_the_task_is_cancelled(server):
    async def function(rollout: Rollout):
        rollout.attach(Count(count=4))
        await asyncio.sleep(60)

    task = asyncio.create_task(rft_handler(function)(managed_payload(server.url)))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reported_once(server, 4.0)


def raises(error):
    def scored(outcome):
        raise error

    return scored


@pytest.mark.parametrize(
    "scored",
    [
        raises(KeyError("x")),
        raises(SystemExit(1)),
        lambda outcome: Reward(float("nan")),
        lambda outcome: "0.5",
        lambda outcome: None,
        lambda outcome: time.sleep(5),
    ],
    ids=["raises", "exits", "nan", "text", "nothing", "hangs"],
)
@pytest.mark.parametrize(("then", "outcome"), CUT_SHORT)
def test_an_episode_that_cannot_score_gives_the_floor_as_the_environments_error(
    server, monkeypatch, then, outcome, scored
):
    monkeypatch.setattr(life, "SCORE_S", 0.3)
    started = time.monotonic()
    body = run(playing(then, scored), server, budget_s=0.5)
    assert time.monotonic() - started < 3
    assert body["reward"] == FLOOR
    assert body["_rft"]["outcome"] == "environment_error"
    reported_once(server, FLOOR)


def test_an_episode_may_score_by_a_plain_number_and_is_told_why_the_play_ended(server):
    body = run(playing(boom, lambda outcome: 0.25 if outcome is Outcome.AGENT_ERROR else 9), server)
    assert body["reward"] == 0.25


def test_a_returned_reward_goes_before_the_episodes(server):
    assert run(playing(lambda rollout: 0.5), server)["reward"] == 0.5


# ------------------------------------------------------------------ exactly once


async def test_a_function_that_will_not_be_cancelled_reports_once_all_the_same(server, monkeypatch):
    monkeypatch.setattr(life, "CANCEL_GRACE_S", 0.1)
    ended = asyncio.Event()

    async def stubborn(rollout: Rollout):
        until = time.monotonic() + 1
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        with pytest.raises(RolloutOver):
            await rollout.async_openai().chat.completions.create(model="x", messages=HELLO)
        ended.set()
        return 1.0

    body = await rft_handler(budget_s=0.2)(stubborn)(managed_payload(server.url))
    assert body["_rft"]["outcome"] == "timeout"
    await asyncio.wait_for(ended.wait(), 10)
    reported_once(server, FLOOR)
    assert [seen.path for seen in server.seen].count("/v1/chat/completions") == 1  # the rescue's


async def test_a_reward_returned_in_the_moment_of_cancellation_does_not_count(server):
    async def late(rollout: Rollout):
        rollout.attach(Count(count=1))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 9.0

    body = await rft_handler(budget_s=0.2)(late)(managed_payload(server.url))
    assert body["reward"] == 1.0
    reported_once(server, 1.0)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_task_cancelled_while_it_reports_has_reported_when_it_ends(credentials, fails):
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def slow(seen, count):
        loop.call_soon_threadsafe(asked.set)
        return Answer(body=well(seen, count), delay_s=0.2)

    async def function(rollout: Rollout):
        if fails:
            raise RuntimeError("boom")
        return 1.0

    with ScriptedServer(slow) as server:
        entrypoint = rft_handler(allow_hosts=[server.host])(function)
        task = asyncio.create_task(entrypoint(managed_payload(server.url)))
        await asyncio.wait_for(asked.wait(), 10)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0.02)
        assert task.cancelled()
        reported_once(server, FLOOR if fails else 1.0)


async def test_a_cancelled_rollout_ends_its_function_as_well(server):
    ended = []

    async def function(rollout: Rollout):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    task = asyncio.create_task(rft_handler(function)(managed_payload(server.url)))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


class Panic(BaseException):
    """What compiled code raises on a bug of its own: no `Exception`."""


@pytest.mark.parametrize(
    "error",
    [
        Panic("boom"),
        BaseExceptionGroup("boom", [Panic()]),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_raises_no_exception_but_no_exit_either_ends_with_the_floor(
    server, is_async, error
):
    def raises(payload):
        raise error

    async def raises_async(payload):
        raise error

    body = run(raises_async if is_async else raises, server)
    assert body["_rft"]["outcome"] == "agent_error"
    assert type(error).__name__ in body["_rft"]["error"]
    reported_once(server, FLOOR)


def test_a_function_that_awaits_a_task_it_cancelled_ends_with_the_floor(server):
    async def function(payload):
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    assert run(function, server)["_rft"]["outcome"] == "agent_error"
    reported_once(server, FLOOR)


def test_a_function_that_cancels_itself_ends_with_the_floor(server):
    async def function(payload):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    assert run(function, server)["_rft"]["outcome"] == "agent_error"
    reported_once(server, FLOOR)


def test_a_coroutine_closed_after_its_loop_reports_as_well(server):
    async def function(rollout: Rollout):
        await asyncio.sleep(60)

    coroutine = rft_handler(function)(managed_payload(server.url))

    async def start():
        coroutine.send(None)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    asyncio.run(start())
    coroutine.close()
    reported_once(server, FLOOR)
    gc.collect()


def test_cancelling_a_rollout_whose_loop_is_closed_is_no_error(server):
    rollouts = []

    def function(rollout: Rollout):
        rollouts.append(rollout)
        return 1.0

    run(function, server)
    rollouts[0].cancel("too late")


def test_a_cancelled_rollout_reports_in_a_hurry(monkeypatch, credentials):
    monkeypatch.setattr(life, "HURRY_S", 1.0)

    def busy(seen, count):
        return completion() if "chat" in seen.path else Answer(429, {})

    with ScriptedServer(busy) as server:
        started = time.monotonic()
        body = run(playing(cancel), server, allow_hosts=[server.host])
    assert time.monotonic() - started < 3
    assert body["_rft"]["reported"] is False
    assert body["_rft"]["outcome"] == "cancelled"


def test_a_report_that_cannot_even_be_tried_still_leaves_a_response(monkeypatch, server, tmp_path):
    monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", "not a host")
    body = run(lambda payload: 1.0, server)
    assert body["reward"] == 1.0
    assert "not reported" in str(body["_rft"]["notes"])
    assert server.seen == []


# ------------------------------------------------------------------ odd values


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __repr__


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Exits:
    """Its own code ends a thread, or an event loop that other rollouts share, if nobody stops it."""

    def __repr__(self):
        raise SystemExit(1)

    def __float__(self):
        raise SystemExit(1)


CYCLE: dict[str, Any] = {"reward": 1.0}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        ({"status": "error", "error": Unprintable()}, FLOOR),
        ({Unprintable(): 1}, FLOOR),
        ({"reward": Unprintable()}, FLOOR),
        ({"reward": 1.0, "x": Unprintable()}, 1.0),
        (Exits(), FLOOR),
        ({"reward": 1.0, "x": Exits()}, 1.0),
        ({"reward": 1.0, "x": int, "y": bytes(3)}, 1.0),
        ({"reward": 1.0, "x": 10**5000}, 1.0),
        ({"reward": 1.0, "x": "\ud800", "\udfff": 1}, 1.0),
        (CYCLE, 1.0),
    ],
)
def test_no_returned_value_costs_the_report_or_the_response(server, value, reward):
    assert run(lambda payload: value, server)["reward"] == reward
    reported_once(server, reward)


@pytest.mark.parametrize(
    "error",
    [
        UnprintableError(),
        RuntimeError("\ud800"),
        StopIteration(1),
        KeyError(Unprintable()),
        KeyError(Exits()),
    ],
)
def test_no_raised_error_costs_the_report_or_the_response(server, error):
    def function(payload):
        raise error

    body = run(function, server)
    assert body["_rft"]["outcome"] == "agent_error"
    reported_once(server, FLOOR)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/complete-rollout"])
def test_a_server_that_answers_a_byte_at_a_time_does_not_hold_a_rollout_up(
    monkeypatch, credentials, path
):
    def trickles(seen, count):
        return Answer(body=b"\n" * 200, trickle_s=0.05) if seen.path == path else well(seen, count)

    monkeypatch.setattr(life, "LATE_S", 0.1)
    monkeypatch.setattr(life, "RESCUE_S", 0.2)
    if path == "/complete-rollout":
        monkeypatch.setattr(life, "REPORT_S", 0.4)
    began = time.monotonic()
    with ScriptedServer(trickles) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        body = run(boom, server)
        assert time.monotonic() - began < 5
        assert "in time" in " ".join(body["_rft"]["notes"])
        assert body["_rft"]["reported"] is (path != "/complete-rollout")


def test_a_value_that_hangs_when_made_a_number_ends_with_the_floor(server, monkeypatch):
    class Hangs:
        def __float__(self):
            time.sleep(60)
            return 1.0

    monkeypatch.setattr(life, "SCORE_S", 0.2)
    assert "no number within 0.2 s" in run(lambda payload: Hangs(), server)["_rft"]["error"]
    reported_once(server, FLOOR)


def test_an_errors_text_is_cut_for_the_log_and_the_response(server, caplog):
    def function(payload):
        raise RuntimeError("x" * 1_000_000)

    assert 1000 < len(run(function, server)["_rft"]["error"]) < 10_000
    assert len(caplog.text) < 20_000


def test_a_value_is_plain_json_with_text_where_there_is_no_other_way():
    class Odd:
        def tolist(self):
            raise RuntimeError

    assert plain({"a": float("nan"), 1: (True, None, 2)}) == {"a": None, "1": [True, None, 2]}
    assert plain(Odd()) == "<Odd>"
    assert plain("\ud83d!") == "?!"
    json.dumps(plain(CYCLE))


@pytest.mark.parametrize(
    ("outcome", "told"),
    [("truncated", "truncated"), (Outcome.TRUNCATED, "truncated"), ("odd", "agent_error")],
)
def test_an_outcome_set_as_text_is_understood_or_is_the_agents_error(server, outcome, told):
    def then(rollout):
        rollout.outcome = outcome
        return 0.5

    body = run(playing(then), server)
    assert body["_rft"]["outcome"] == told
    assert len(server.rewards) == 1


def test_a_plain_agent_that_runs_into_the_token_limit_was_truncated(credentials):
    from strands import Agent

    def function(rollout: Rollout):
        rollout.attach(Count(count=1))
        Agent(model=rollout.model(), callback_handler=None)("hello")

    def cut(seen, count):
        return completion("hm", finish="length") if "chat" in seen.path else {}

    with ScriptedServer(cut) as server:
        body = run(function, server, allow_hosts=[server.host])
    assert body["_rft"]["outcome"] == "truncated"
    assert body["reward"] == 1.0


def test_a_secret_that_the_server_echoes_is_in_no_log_and_no_response(caplog, credentials):
    key = "a-key-that-nobody-guesses"

    def echo(seen, count):
        return Answer(400, {"Message": f"bad {seen.headers['authorization']}"})

    def function(rollout: Rollout):
        rollout.openai().chat.completions.create(model="x", messages=HELLO)

    with ScriptedServer(echo) as server:
        body = run(function, server, allow_hosts=[server.host])
        config = {"base_url": server.url, "api_key": key, "report": True}
        handler = rft_handler(function)
        other = asyncio.run(handler({"prompt": "go", "_config": config}))
    assert len(server.seen) > 3
    for text in (str(body), str(other), caplog.text):
        assert "bad Bearer" in text
        assert "sagemaker-api-key" not in text
        assert key not in text


# ------------------------------------------------------------------ all at once, with everything failing


class Trajectory:
    """One trajectory at a Job Runtime that fails in every way; seeded by its id."""

    def __init__(self, name):
        self._random = random.Random(name)
        self._lock = threading.Lock()
        self._faults: Counter[str] = Counter()
        self._refused: set[str] = set()
        self._tokens: set[str] = set()
        self.state = "PENDING"
        self.rewards: list[float] = []

    def answer(self, seen):
        with self._lock:
            fault = self._fault(seen.path)
            if fault in ("before", None, "after"):
                own = Answer(drop=True) if fault == "before" else self._serve(seen)
                return Answer(drop=True) if fault == "after" else own
            return Answer(fault, {"Message": "a fault"}, {"retry-after-ms": "20"})

    def _fault(self, path):
        kinds = [403, 429, 500, "before", "after"]
        kind = self._random.choice(kinds) if self._random.random() < 0.3 else None
        if kind is None or self._faults[path] >= 3 or (kind == 403 and path in self._refused):
            return None
        self._faults[path] += 1
        if kind == 403:
            self._refused.add(path)  # a second one would be no passing fault
        return kind

    def _serve(self, seen):
        if "chat" in seen.path:
            return Answer(body=completion("", calls=[("add", "{}")]))
        body = seen.json
        assert body["TrajectoryId"] == seen.trajectory
        needed, after = {
            "/complete-rollout": ("PENDING", "READY"),
            "/update-reward": ("READY", "DONE"),
        }[seen.path]
        if body["ClientToken"] in self._tokens:
            return Answer()
        if self.state != needed:
            return Answer(409, {"Message": "not in valid status"})
        self.state = after
        self._tokens.add(body["ClientToken"])
        self.rewards += body.get("Rewards", [])
        return Answer()


@pytest.mark.slow
def test_200_rollouts_under_faults_each_end_with_exactly_one_reward_of_their_own(credentials):
    trajectories = {f"r{i}": Trajectory(f"r{i}") for i in range(200)}
    environment = Counts()

    def function(rollout: Rollout):
        return play(environment, rollout)

    def script(seen, count):
        return trajectories[seen.trajectory].answer(seen)

    async def all_at_once(entrypoint, url):
        payloads = [managed_payload(url, f"r{i}", prompt=str(1 + i % 5)) for i in range(200)]
        return await asyncio.gather(*map(entrypoint, payloads))

    with ScriptedServer(script) as server:
        entrypoint = rft_handler(allow_hosts=[server.host], budget_s=100)(function)
        bodies = asyncio.run(all_at_once(entrypoint, server.url))
    for i, body in enumerate(bodies):
        assert body["_rft"]["outcome"] == "completed", body
        assert body["_rft"]["reported"] is True
        assert body["reward"] == 1 + i % 5
    assert {name: t.rewards for name, t in trajectories.items()} == {
        f"r{i}": [1.0 + i % 5] for i in range(200)
    }
    for seen in server.samples:  # nobody's conversation under another's id
        assert seen.trajectory is not None
        goal = 1 + int(seen.trajectory[1:]) % 5
        assert f"Reach {goal}." in json.dumps(seen.json["messages"][1])
    assert len(server.seen) > 200 * 5 + 100
    assert _current.get() is None
