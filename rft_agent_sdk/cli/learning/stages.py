"""The stages of a run, in order. Each reads what those before it left in the folder, and can be begun again."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.cli.grpo import Open
from rft_agent_sdk.cli.learning import playing, tasks
from rft_agent_sdk.cli.learning.progress import Progress
from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.cli.local import chat_template, script_of
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.environment import load_environment
from rft_agent_sdk.types import JSON, SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.training.advantages import Advantages

SETTINGS = {"serving": 0.0, "training": 1.0}
"""Temperatures of an evaluation: as a policy is served, greedily, and as GRPO samples it."""
_PASS_TOKENS = 1024
"""Of a pass of imitation, the padding included."""
_CHUNK = 256
"""Games of the teacher between two writes."""
_Stage = Callable[[Record, str], Awaitable[JSON]]


def check(recipe: Recipe) -> None:
    """Refuse a recipe that some stage would refuse, before the first one.

    Raises:
        UsageError: There is no such environment or teacher, not so many tasks, or a number that GRPO cannot take.
    """
    find_policy(recipe.teacher, recipe.environment)
    tasks.split(recipe)
    nowhere = Path("policy")
    playing.config_of(recipe, nowhere, nowhere, "http://127.0.0.1:1", **_loop_keys(recipe))


async def learn(record: Record, last: str = "") -> None:
    """Do every stage that is not done, up to the last one wanted; the record knows of each that is."""
    recipe = record.recipe
    names = list(STAGES)
    wanted = names[: names.index(last) + 1] if last else names
    with served({"RFT_ENVIRONMENT": recipe.environment}) as url:
        for name in wanted:
            if name in record.stages:
                continue
            stage = STAGES[name]
            started = time.monotonic()
            result = await stage(record, url)
            spent = round(time.monotonic() - started, 1)
            record.finish(name, {"seconds": spent, **result})


async def _begin(record: Record, url: str) -> JSON:
    """Make the policy, and split the tasks."""
    from rft_agent_sdk.local.tiny import Shape, init_tiny

    recipe = record.recipe
    script = script_of(load_environment(recipe.environment))
    shape = Shape(recipe.hidden, recipe.layers, recipe.heads, recipe.inner)
    count = init_tiny(record.folder / "policy-0", chat_template(), script, shape, recipe.seed)
    found = tasks.split(recipe)
    found.write(_tasks_file(record))
    return {"policy": "policy-0", "parameters": count, "held_out": len(found.held_out)}


async def _evaluate(record: Record, url: str) -> JSON:
    """Play the held-out tasks, and as many of training, at both settings."""
    from rft_agent_sdk.training.evaluate import evaluate, is_solved

    found = tasks.Tasks.read(_tasks_file(record))
    config = playing.config_of(record.recipe, record.policy, record.folder, url)
    cells: JSON = {}
    progress = Progress("evaluate", len(SETTINGS) * 2)
    async with playing.playing(config) as at:
        for setting, temperature in SETTINGS.items():
            for kind, chosen in (("held_out", found.held_out), ("trained", found.seen)):
                sampling = SamplingParams(temperature, 1.0, playing.MAX_NEW_TOKENS)
                report, groups = await evaluate(
                    at.rollouts, tasks.rows(chosen), sampling=sampling, seed=record.recipe.seed
                )
                # One that failed is in no rate, so it is in no comparison.
                solved = [
                    int(is_solved(one.trajectory)) if one.trains else None
                    for g in groups
                    for one in g.rollouts
                ]
                cells[f"{kind}/{setting}"] = {**report.to_json(), "by_task": solved}
                progress.at(len(cells))
    progress.close()
    return {"cells": cells}


async def _watch(record: Record, url: str) -> JSON:
    """Let the teacher play through the agent and the gateway, and keep what is captured."""
    from rft_agent_sdk.training.evaluate import is_solved
    from rft_agent_sdk.trajectory import read_jsonl, write_jsonl

    path = _games_file(record)
    if not path.exists():
        parts = await _captured(record, url)
        draft = path.with_suffix(".part")
        write_jsonl(draft, (one for part in parts for one in read_jsonl(part)))
        draft.replace(path)
    shutil.rmtree(_parts_folder(record), ignore_errors=True)
    games = list(read_jsonl(path))
    return {
        "games": len(games),
        "solved": sum(map(is_solved, games)) / len(games),
        "turns": sum(one.turns for one in games) / len(games),
        "tokens": sum(len(sample.token_ids) for one in games for sample in one.samples),
        "trained_tokens": sum(one.trained_tokens for one in games),
    }


async def _captured(record: Record, url: str) -> list[Path]:
    """Return the files of all games, those of a run that was stopped among them."""
    from rft_agent_sdk.trajectory import write_jsonl

    recipe = record.recipe
    lessons = tasks.rows(tasks.Tasks.read(_tasks_file(record)).lessons)
    chunks = [lessons[at : at + _CHUNK] for at in range(0, len(lessons), _CHUNK)]
    folder = _parts_folder(record)
    folder.mkdir(exist_ok=True)
    parts = [folder / f"{number:05d}.jsonl" for number in range(len(chunks))]
    progress = Progress("teacher", len(lessons), done=_CHUNK * sum(map(Path.exists, parts)))
    config = playing.config_of(recipe, record.policy, record.folder, url)
    teacher = find_policy(recipe.teacher, recipe.environment)
    async with playing.taught(config, teacher) as rollouts:
        for number, (part, chunk) in enumerate(zip(parts, chunks, strict=True), start=1):
            if not part.exists():
                groups = await rollouts.run_batch(chunk, 1)
                kept = [one.trajectory for g in groups for one in g.rollouts if one.trains]
                draft = part.with_suffix(".part")
                write_jsonl(draft, kept)
                draft.replace(part)
            progress.at(min(len(lessons), number * _CHUNK))
    progress.close()
    return parts


async def _imitate(record: Record, url: str) -> JSON:
    """Train on the teacher's games."""
    from rft_agent_sdk.training.checkpoint import RunFolder
    from rft_agent_sdk.training.engines.base import AdamParams
    from rft_agent_sdk.training.imitation import ImitationSettings, datums_of, imitate, plan
    from rft_agent_sdk.training.tracking import JsonlTracker, Trackers
    from rft_agent_sdk.trajectory import read_jsonl

    recipe = record.recipe
    folder = RunFolder(record.folder / "imitation")
    adam = AdamParams(
        recipe.imitation_rate, beta2=0.98, weight_decay=recipe.imitation_decay, grad_clip_norm=1.0
    )
    settings = ImitationSettings(
        recipe.imitation_passes,
        recipe.imitation_tokens,
        adam,
        save_every=10 * recipe.save_every,
        seed=recipe.seed,
    )
    datums = datums_of(read_jsonl(_games_file(record)))
    done = _step_of(folder)
    steps = len(plan([len(one.tokens) for one in datums], settings))
    progress = Progress("imitation", steps, done=done, shown={"train/actor/pg_loss": "loss"})
    metrics = JsonlTracker(folder.metrics, resume_after=done)
    # Games differ in length: few of about one length in a pass hold less padding than the whole step at once (2,450 places for 2,050 tokens, not 3,200).
    config = playing.config_of(
        recipe,
        record.policy,
        folder.path,
        url,
        dtype=recipe.imitation_dtype,
        micro_batch_tokens=_PASS_TOKENS,
    )
    engine = await composing.open_engine(config)
    try:
        with composing.closing(Trackers([metrics, progress])) as trackers:
            await imitate(engine, datums, settings, folder, trackers)
        policy = await engine.save_weights("imitation")
    finally:
        await engine.stop()
    return {"policy": _within(record, policy), "steps": steps, "datums": len(datums)}


async def reinforce(
    record: Record,
    url: str,
    *,
    open_engine: Open = composing.open_engine,
    advantage: Callable[[Any], Advantages] | None = None,
) -> JSON:
    """Train on the environment's own reward, from what imitation gave.

    Args:
        record: The run; it has been imitated in.
        url: Where the agent is.
        open_engine: Starts the engine.
        advantage: In place of the recipe's.
    """
    from rft_agent_sdk.cli.grpo import loop_settings
    from rft_agent_sdk.training.checkpoint import RunFolder
    from rft_agent_sdk.training.dataset import Epochs, Row
    from rft_agent_sdk.training.grpo import Run, train
    from rft_agent_sdk.training.tracking import JsonlTracker, Trackers

    recipe = record.recipe
    folder = RunFolder(record.folder / "grpo")
    rows = [Row(row) for row in tasks.rows(tasks.Tasks.read(_tasks_file(record)).played)]
    checkpoint = folder.latest()
    config = playing.config_of(recipe, record.policy, folder.path, url, **_loop_keys(recipe))
    dataset = (
        Epochs(rows, recipe.step_tasks, 1, recipe.seed)
        if checkpoint is None
        else Epochs.from_state(checkpoint.dataset, rows, recipe.step_tasks, 1)
    )
    done = _step_of(folder)
    progress = Progress("grpo", math.ceil(len(rows) / recipe.step_tasks), done=done, shown=_SHOWN)
    metrics = JsonlTracker(folder.metrics, resume_after=done)
    with composing.closing(Trackers([metrics, progress])) as trackers:
        async with playing.playing(config, open_engine) as at:
            settings = loop_settings(config)
            if advantage is not None:
                settings = replace(settings, advantage=advantage)
            run = Run(at.engine, at.rollouts, at.bind, dataset, settings, trackers, folder)
            if (
                dataset.epoch >= dataset.epochs and checkpoint is not None
            ):  # killed after the last step
                await at.engine.load_state(checkpoint.engine_state)
                folder.write_published(
                    checkpoint.step, await at.engine.save_weights("end of the run")
                )
            else:
                await train(run, checkpoint)
    return {"policy": _within(record, _published(folder)), "steps": _step_of(folder)}


_SHOWN = {
    "sampler/mean_reward": "reward",
    "sampler/solve_rate": "solved",
    "train/actor/reference_kl": "kl",
}


def _loop_keys(recipe: Any) -> JSON:
    return {
        "kl_coef": recipe.kl_coef,
        "warmup_steps": recipe.warmup_steps,
        "batch_size": recipe.step_tasks,
        "responses_per_prompt": recipe.group,
        "learning_rate": recipe.rate,
        "advantage": recipe.advantage,
        "save_every": recipe.save_every,
        "save_weights_at_end": True,
    }


STAGES: dict[str, _Stage] = {
    "init": _begin,
    "before": _evaluate,
    "teacher": _watch,
    "imitation": _imitate,
    "after_imitation": _evaluate,
    "grpo": reinforce,
    "after_grpo": _evaluate,
}
"""By name, in order."""


def _published(folder: Any) -> str:
    return str(json.loads(folder.published.read_text("utf-8"))["weights"])


def _step_of(folder: Any) -> int:
    found = folder.latest()
    return 0 if found is None else int(found.step)


def _within(record: Record, path: str) -> str:
    """Return a path as it is from the run's folder, so that this can be moved."""
    return str(Path(path).resolve().relative_to(record.folder.resolve()))


def _tasks_file(record: Record) -> Path:
    return record.folder / "tasks.json"


def _games_file(record: Record) -> Path:
    return record.folder / "games.jsonl"


def _parts_folder(record: Record) -> Path:
    return record.folder / "games"
