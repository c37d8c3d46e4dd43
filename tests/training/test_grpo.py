"""The loop end to end: the real entrypoint over HTTP, the real gateway, a policy of one number."""

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rft_agent_sdk.errors import EngineError, RolloutsFailed
from rft_agent_sdk.training.advantages import METHODS
from rft_agent_sdk.training.agents import HttpAgent
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.dataset import Epochs, Row
from rft_agent_sdk.training.engines.base import AdamParams
from rft_agent_sdk.training.grpo import GrpoSettings, Run, train
from rft_agent_sdk.training.tracking import JsonlTracker, Trackers
from rft_agent_sdk.types import SamplingParams
from tests.servers import Answer, ScriptedServer
from tests.training.two_words import TableEngine, stage

ROWS = [Row({"prompt": f"Say word {n}.", "answer": "yes"}) for n in range(4)]
SETTINGS = GrpoSettings(
    batch_size=2,
    group_size=6,
    sampling=SamplingParams(temperature=1.0),
    adam=AdamParams(learning_rate=1.0),
    advantage=METHODS["dr_grpo"],
    loss_config={"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    eval_every=4,
    save_every=3,
)


@pytest.fixture(scope="module")
def where():
    with stage() as found:
        yield found


@pytest.fixture
def engine(tmp_path):
    return TableEngine(tmp_path)


def start(
    where, engine, folder, *, epochs=3, settings=SETTINGS, resume=False, rows=ROWS, **options
):
    """Train as a fresh process would; return the run."""
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    checkpoint = folder.latest() if resume else None
    if checkpoint is None:
        dataset = Epochs(rows, settings.batch_size, epochs, seed=7)
    else:
        dataset = Epochs.from_state(checkpoint.dataset, rows, settings.batch_size, epochs)

    async def work():
        async with where.rollouts(**options) as rollouts:
            done = checkpoint.step if checkpoint else 0
            trackers = Trackers([JsonlTracker(folder.metrics, resume_after=done)])
            run = Run(engine, rollouts, where.bind, dataset, settings, trackers, folder)
            run.eval_payloads = [row.payload for row in rows[:2]]
            try:
                return await train(run, checkpoint)
            finally:
                trackers.close()

    return asyncio.run(work())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_times(path):
    """Metrics of each step but for what the clock says."""
    return [
        {name: value for name, value in line.items() if not name.startswith("time/")}
        for line in lines(path)
    ]


def test_the_reward_rises_and_every_step_is_in_order(where, engine, tmp_path):
    run = start(where, engine, tmp_path, epochs=10, settings=replace(SETTINGS, eval_every=8))
    told = lines(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in told] == list(range(1, 21))
    rewards = [line["sampler/mean_reward"] for line in told]
    assert sum(rewards[:3]) / 3 < 0.45
    assert sum(rewards[-3:]) / 3 > 0.75
    assert [line["sampler/solve_rate"] for line in told] == rewards
    assert [n + 1 for n, line in enumerate(told) if "eval/accuracy" in line] == [8, 16, 20]
    assert told[-1]["eval/accuracy"] == 1.0
    assert all(line["sampler/num_rollouts"] == 12 for line in told)
    assert all(line["sampler/off_policy_rollouts"] == 0 for line in told)
    assert all(line["time/rollout"] > 0 and line["time/train"] >= 0 for line in told)
    assert sum("train/actor/pg_loss" in line for line in told) == run.version
    assert run.version == 20 - run.skipped
    assert len(engine.clients) == run.version + 1
    assert [one.step for one in [RunFolder(tmp_path).latest()] if one] == [20]
    assert engine.stopped == 1


def test_the_calls_of_the_engine_come_in_order(where, engine, tmp_path):
    settings = replace(SETTINGS, save_every=2, save_weights_at_end=True)
    start(where, engine, tmp_path, epochs=1, settings=settings)
    rebind = "save_weights_and_get_sampling_client"
    step = ["forward_backward", "optim_step", rebind]
    assert engine.calls == [rebind, *step, *step, "save_state", "save_weights"]
    rollouts = lines(tmp_path / "rollouts.jsonl")
    assert {tuple(line["versions"]) for line in rollouts if line["step"] == 2} == {(1,), (2,)}
    assert len([line for line in rollouts if not line["eval"]]) == 24
    assert len([line for line in rollouts if line["eval"]]) == 2


def test_a_cancelled_run_stops_its_engine_and_resumes_exactly(where, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    first = TableEngine(whole)
    start(where, first, whole)

    async def cancel_in_the_fifth(engine):
        if engine.calls.count("optim_step") == 5:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    second = TableEngine(cut)
    second.before_step = cancel_in_the_fifth
    with pytest.raises(asyncio.CancelledError):
        start(where, second, cut)
    assert second.stopped == 1
    checkpoint = RunFolder(cut).latest()
    assert checkpoint is not None
    assert (checkpoint.step, len(lines(cut / "metrics.jsonl"))) == (3, 4)

    third = TableEngine(cut, weight=99.0)
    run = start(where, third, cut, resume=True)
    assert third.calls[:2] == ["load_state", "save_weights_and_get_sampling_client"]
    assert run.step == 6
    assert third.weight == pytest.approx(first.weight, abs=1e-12)
    assert without_times(cut / "metrics.jsonl") == [
        {name: pytest.approx(value) for name, value in line.items()}
        for line in without_times(whole / "metrics.jsonl")
    ]
    steps = [line["step"] for line in lines(cut / "rollouts.jsonl") if not line["eval"]]
    assert steps == [step for step in range(1, 7) for _ in range(12)]


def test_flat_groups_teach_nothing_and_a_step_of_them_is_skipped(where, tmp_path, caplog):
    engine = TableEngine(tmp_path, weight=20.0)
    run = start(where, engine, tmp_path, epochs=1)
    told = lines(tmp_path / "metrics.jsonl")
    assert [line["sampler/flat_groups"] for line in told] == [2, 2]
    assert [line["training/skipped_steps"] for line in told] == [1, 2]
    assert [line["sampler/num_datums"] for line in told] == [0, 0]
    assert (run.step, run.version, run.skipped) == (2, 0, 2)
    assert "forward_backward" not in engine.calls
    assert "no datum to train on" in caplog.text


def test_flat_groups_are_replaced_by_the_next_rows_where_that_is_wanted(where, tmp_path):
    rows = [Row({"prompt": f"Word {n}.", "answer": "yes" if n % 2 else "maybe"}) for n in range(8)]
    settings = replace(SETTINGS, refill_flat_groups=True, eval_every=0)
    engine = TableEngine(tmp_path, weight=0.0)
    start(where, engine, tmp_path, epochs=1, settings=settings, rows=rows)
    told = lines(tmp_path / "metrics.jsonl")
    assert sum(line["sampler/num_groups"] for line in told) == 8
    assert sum(line["sampler/flat_groups"] for line in told) == 4
    assert all(line["sampler/num_datums"] == 12 for line in told[:-1])


def test_a_run_ends_where_the_policy_has_moved_too_far(where, engine, tmp_path, caplog):
    class Far(TableEngine):
        async def forward_backward(self, *args, **options):
            return {**await super().forward_backward(*args, **options), "actor/ppo_kl": 0.5}

    run = start(where, Far(tmp_path), tmp_path, settings=replace(SETTINGS, kl_stop=0.1))
    assert run.step == 1
    found = RunFolder(tmp_path).latest()
    assert found is not None
    assert found.step == 1
    assert "the run ends early" in caplog.text


def test_a_run_ends_at_a_finding_it_was_told_to_end_at(where, engine, tmp_path, caplog):
    def play(folder, *names):
        with ScriptedServer(lambda seen, count: Answer(200, {"reward": 1.0})) as server:
            settings = replace(SETTINGS, stop_on=names)
            options = {"retries": 0, "failure_rate_limit": 1.0, "settings": settings}
            return start(replace_url(where, server.url), engine, folder, epochs=1, **options)

    assert play(tmp_path / "other", "no_answer").step == 2
    assert "the run ends early" not in caplog.text
    assert play(tmp_path / "named", "no_answer", "infrastructure").step == 1
    found = RunFolder(tmp_path / "named").latest()
    assert found is not None
    assert found.step == 1
    assert "the run ends early: infrastructure: 100.0%: rollouts fail" in caplog.text


def test_too_many_failures_end_the_run_and_are_written_down(where, engine, tmp_path):
    with ScriptedServer(lambda seen, count: Answer(500)) as server:
        bad = replace_url(where, server.url)
        with pytest.raises(RolloutsFailed, match="12 of 12 rollouts failed"):
            start(bad, engine, tmp_path, retries=0)
    assert RunFolder(tmp_path).latest() is None  # nothing was trained: the run can just begin again
    assert not RunFolder(tmp_path).is_begun
    assert engine.stopped == 1
    found = lines(tmp_path / "rollouts.jsonl")
    assert [(one["step"], one["group"], one["outcome"]) for one in found] == [
        (1, group, "agent_error") for group in (0, 1) for _ in range(6)
    ]


class Frail(TableEngine):
    """Fails once, at the given call of the given number; says whether it works on."""

    def __init__(self, folder, name, number, error):
        super().__init__(folder)
        self.fault = (name, number, error)

    async def _perhaps(self, name):
        if self.fault[:2] == (name, self.calls.count(name)):
            raise self.fault[2]

    async def forward_backward(self, *args, **options):
        told = await super().forward_backward(*args, **options)
        await self._perhaps("forward_backward")
        return told

    async def save_weights_and_get_sampling_client(self):
        client = await super().save_weights_and_get_sampling_client()
        await self._perhaps("save_weights_and_get_sampling_client")
        return client

    async def optim_step(self, params):
        if self.fault[:2] == ("optim_step", self.calls.count("optim_step") + 1):
            self.calls.append("optim_step")
            raise self.fault[2]
        return await super().optim_step(params)


USABLE, BROKEN = EngineError("refused", usable=True), EngineError("lost", usable=False)


@pytest.mark.parametrize(
    ("name", "number", "error", "saved"),
    [
        ("forward_backward", 3, USABLE, 2),
        ("forward_backward", 3, OSError("of anybody"), 2),
        ("forward_backward", 3, BROKEN, None),
        ("optim_step", 3, USABLE, 2),
        ("optim_step", 3, RuntimeError("in the midst of it"), None),
        (
            "save_weights_and_get_sampling_client",
            4,
            USABLE,
            3,
        ),  # the first is before the first step
    ],
)
def test_what_was_trained_is_saved_before_an_error_ends_the_run(
    where, tmp_path, name, number, error, saved
):
    settings = replace(SETTINGS, save_every=-1, eval_every=0)
    engine = Frail(tmp_path, name, number, error)
    with pytest.raises(type(error)) as caught:
        start(where, engine, tmp_path, settings=settings)
    assert caught.value is error
    assert engine.stopped == 1
    found = RunFolder(tmp_path).latest()
    assert (found and found.step) == saved
    told = [line["step"] for line in lines(tmp_path / "metrics.jsonl")]
    assert told == list(range(1, (saved or 2) + 1))
    if found is None:
        return
    whole = TableEngine(tmp_path)
    start(where, whole, tmp_path / "whole", settings=settings)
    resumed = TableEngine(tmp_path, weight=99.0)
    start(where, resumed, tmp_path, settings=settings, resume=True)
    assert resumed.weight == pytest.approx(whole.weight, abs=1e-12)


def test_a_full_disk_ends_the_run_with_what_was_trained_saved(where, engine, tmp_path):
    log = tmp_path / "rollouts.jsonl"

    async def fill(engine):
        if engine.calls.count("optim_step") == 2:
            folder.fill()

    class Filling(RunFolder):
        """Its log of rollouts is a device that is full, from some time on."""

        def fill(self):
            descriptor = os.open("/dev/full", os.O_WRONLY)
            for one in Path("/proc/self/fd").iterdir():
                if one.resolve() == log:
                    os.dup2(descriptor, int(one.name))
            os.close(descriptor)

    folder = Filling(tmp_path)
    engine.before_step = fill
    settings = replace(SETTINGS, save_every=-1, eval_every=0)
    with pytest.raises(OSError, match=r"No space left on device: '.*rollouts.jsonl'"):
        start(where, engine, folder, settings=settings)
    assert engine.stopped == 1
    found = folder.latest()
    assert found is not None
    assert found.step == 2


def test_an_evaluation_that_fails_leaves_its_step_told_and_saved(where, engine, tmp_path):
    with ScriptedServer(lambda seen, count: Answer(500)) as server:

        class Turning(HttpAgent):
            async def invoke(self, payload, session_id, timeout_s):
                if engine.calls.count("optim_step") == 2:
                    self._target = f"{server.url}/invocations"
                return await super().invoke(payload, session_id, timeout_s)

        settings = replace(SETTINGS, save_every=-1, eval_every=2)
        agent = Turning(where.agent_url)
        with pytest.raises(RolloutsFailed, match="2 of 2 rollouts failed"):
            start(where, engine, tmp_path, settings=settings, agent=agent, retries=0)
    assert [line["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2]
    evaluated = [line for line in lines(tmp_path / "rollouts.jsonl") if line["eval"]]
    assert [(line["step"], line["outcome"]) for line in evaluated] == [(2, "agent_error")] * 2
    found = RunFolder(tmp_path).latest()
    assert found is not None
    assert found.step == 2


def replace_url(where, url):
    """The same stage with another agent."""
    return type(where)(url, where.gateway, where.server, where.pool)


def test_the_names_of_both_kinds_of_curves_are_there(where, engine, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    start(where, engine, tmp_path, epochs=1)
    told = lines(tmp_path / "metrics.jsonl")[-1]
    names = {
        "sampler/mean_reward",
        "sampler/num_datums",
        "time/rollout",
        "time/train",
        "eval/accuracy",
        "eval/mean_reward",
        "rollout/reward/mean",
        "rollout/turns/mean",
        "training/total_tokens",
        "training/num_trajectories",
        "val/reward/pass_at_1",
    }
    assert names <= set(told)
    assert "step-000002.json" in caplog.text
