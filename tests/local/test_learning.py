"""`rft learn`, small: all its stages, what must not learn, and a run that was killed."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.cli.learning.stages import learn, reinforce
from rft_agent_sdk.training.advantages import METHODS
from rft_agent_sdk.training.engines.local import LocalEngine

pytestmark = [pytest.mark.local, pytest.mark.slow]

SMALL: dict[str, Any] = {
    "environment": "tests.local.three_words:environment",
    "teacher": "guesser",
    "held_out": 6,
    "hidden": 64,
    "layers": 1,
    "heads": 2,
    "inner": 128,
    "games": 48,
    "imitation_passes": 20.0,
    "imitation_tokens": 1200,
    "imitation_rate": 5e-3,
    "imitation_decay": 0.0,
    "imitation_dtype": "float32",
    "steps": 16,
    "step_tasks": 3,
    "group": 8,
    "rate": 2e-3,
    "warmup_steps": 0,
    "kl_coef": 0.1,
    "save_every": 2,
    "threads": 1,
}


@pytest.fixture(scope="module")
def imitated(tmp_path_factory):
    """A run whose policy says words, whichever."""
    folder = tmp_path_factory.mktemp("imitated")
    record = Record.begin(folder, Recipe.of(**SMALL))
    asyncio.run(learn(record, last="imitation"))
    return folder


def rates(folder, imitated, **how):
    """Train a copy of the imitated run; return the solve rate of each step."""
    shutil.copytree(imitated, folder)
    record = Record.read(folder)

    async def run():
        with served({"RFT_ENVIRONMENT": record.recipe.environment}) as url:
            await reinforce(record, url, **how)

    asyncio.run(run())
    return [one["sampler/solve_rate"] for one in metrics(folder)]


def metrics(folder):
    path = folder / "grpo" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean(values):
    return sum(values) / len(values)


def test_reward_teaches_which_word_is_right(tmp_path, imitated):
    found = rates(tmp_path / "run", imitated)
    assert mean(found[:2]) < 0.6
    assert mean(found[-2:]) > 0.9


def test_nothing_is_learnt_from_advantages_of_other_groups(tmp_path, imitated):
    draw = random.Random(0)

    def shuffled(scored):
        told = METHODS["grpo"](scored)
        values = list(told.per_rollout.values())
        draw.shuffle(values)
        return replace(told, per_rollout=dict(zip(told.per_rollout, values, strict=True)))

    found = rates(tmp_path / "run", imitated, advantage=shuffled)
    assert len(found) == 16
    assert mean(found[-3:]) < 0.7


class Inverted(LocalEngine):
    """Trains on what was not sampled, in place of what was."""

    async def forward_backward(self, datums, loss_fn, loss_fn_config=None):
        turned = []
        for one in datums:
            sampled = next(n for n, weight in enumerate(one.weights) if weight)
            size = len(one.tokens)
            turned.append(
                replace(
                    one,
                    weights=tuple(float(not weight) for weight in one.weights),
                    advantages=(one.advantages[sampled],) * size,
                    logprobs=(-1.0,) * size,
                )
            )
        return await super().forward_backward(turned, loss_fn, loss_fn_config)


def test_nothing_is_learnt_where_the_loss_mask_is_inverted(tmp_path, imitated):
    async def open_engine(config):
        engine = await composing.open_engine(config)
        engine.__class__ = Inverted
        return engine

    found = rates(tmp_path / "run", imitated, open_engine=open_engine)
    assert len(found) == 16
    assert mean(found[-3:]) < 0.7


def command(folder, *options):
    small = [f"--set={name}={json.dumps(value)}" for name, value in SMALL.items()]
    given = ["--resume"] if "--resume" in options else small
    return subprocess.Popen(
        [sys.executable, "-m", "rft_agent_sdk.cli", "learn", "--run-dir", str(folder), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_run_killed_in_the_midst_of_grpo_goes_on_to_the_same_curve(tmp_path, imitated):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        shutil.copytree(imitated, folder)
    first = command(killed, "--resume")
    until = time.monotonic() + 120
    while len(metrics(killed)) < 5 and time.monotonic() < until and first.poll() is None:
        time.sleep(0.01)
    first.kill()
    first.communicate()
    assert 5 <= len(metrics(killed)) < 16
    for folder in (whole, killed):
        told, _ = command(folder, "--resume").communicate(timeout=200)
        assert told.splitlines()[-1].startswith("held-out solve rate "), told
    assert [one["step"] for one in metrics(killed)] == list(range(1, 17))
    for name in ("sampler/mean_reward", "train/actor/pg_loss", "train/actor/entropy"):
        curves = [[one.get(name) for one in metrics(folder)] for folder in (whole, killed)]
        assert curves[1] == pytest.approx(curves[0], abs=1e-4), name


def test_the_quick_run_goes_through_every_stage(tmp_path):
    command = ["-m", "rft_agent_sdk.cli", "learn", "--quick", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout.splitlines()[-2]
    assert done.stdout.splitlines()[-1].startswith("held-out solve rate ")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["evaluations"]["before"]["held_out/serving"]["solved"] == 0
    assert (tmp_path / "run" / "report.md").is_file()


def test_a_person_races_the_policy_of_a_run(imitated):
    environment = "tests.local.three_words:environment"
    asked = ["play", "--environment", environment, "--against", str(imitated), "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", *asked],
        input="six\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reward +1.000" in done.stdout.partition("the policy\n")[0]
    assert done.stdout.rstrip().endswith(("You were better.", "A draw."))
