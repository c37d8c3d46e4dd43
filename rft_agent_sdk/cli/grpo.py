"""`rft grpo`: train with your own loop."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.training.advantages import Advantages
    from rft_agent_sdk.training.agents import AgentRunner
    from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.dataset import Epochs, Row
    from rft_agent_sdk.training.engines.base import Engine
    from rft_agent_sdk.training.grpo import GrpoSettings
    from rft_agent_sdk.training.rollouts import RolloutSettings
    from rft_agent_sdk.training.tracking import Trackers

Open = Callable[["Config"], Awaitable["Engine"]]


@click.command("grpo", short_help="Train with GRPO: your own loop, over a Training Session.")
@click.option("--config", "path", required=True, metavar="FILE", help="YAML; see the example.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Wins over the file.")
@click.option("--resume", is_flag=True, help="Go on from the latest checkpoint in run_dir.")
@click.option("--preflight/--no-preflight", default=True, help="Play one probe rollout first.")
@click.option("--dry-run", is_flag=True, help="Print the config and what it would play; stop.")
def command(
    path: str, overrides: tuple[str, ...], resume: bool, preflight: bool, dry_run: bool
) -> int:
    """Train an agent: rollouts, advantages, an update, new weights; again.

    SIGTERM and Ctrl-C stop the training session; --resume goes on from the last checkpoint.
    """
    from rft_agent_sdk.training.config import load_config, read_override
    from rft_agent_sdk.training.dataset import read_rows

    config = load_config(path, dict(map(read_override, overrides)))
    rows = read_rows(config.dataset_path, config.max_prompts)
    eval_rows = (
        read_rows(config.eval_dataset_path, config.eval_max_prompts)
        if config.eval_dataset_path
        else []
    )
    if dry_run:
        plan = asdict(config.plan(len(rows), len(eval_rows)))
        click.echo(json.dumps({"config": config.model_dump(), "plan": plan}, indent=2))
        return 0
    work = train(config, rows, eval_rows, resume=resume, preflight=preflight)
    return composing.run(work)


async def train(
    config: Config,
    rows: list[Row],
    eval_rows: list[Row],
    *,
    resume: bool = False,
    preflight: bool = True,
    open_engine: Open = composing.open_engine,
    sampler_of: Callable[[Any, int], Any] | None = None,
) -> None:
    """Compose a run and train.

    Args:
        config: What was asked for.
        rows: The dataset.
        eval_rows: The dataset of evaluations; empty for none.
        resume: Whether to go on from the latest checkpoint of `run_dir`.
        preflight: Whether to play one probe rollout first.
        open_engine: Starts the engine.
        sampler_of: See `composing.capture`.

    Raises:
        UsageError: There is no checkpoint to resume from, or a run in the folder that nobody resumes.
    """
    from rft_agent_sdk.training.grpo import Run
    from rft_agent_sdk.training.grpo import train as train_run
    from rft_agent_sdk.training.rollouts import Rollouts

    folder = _folder(config, resume)
    checkpoint = folder.latest() if resume else None
    dataset = _dataset(config, rows, checkpoint)
    engine = await open_engine(config)
    try:
        if config.resume_from_model_package and checkpoint is None:
            await engine.load_state(config.resume_from_model_package)
        capture = composing.capture(config, engine, sampler_of)
        steps = config.plan(len(rows)).steps
        done = checkpoint.step if checkpoint else 0
        known = checkpoint.loggers if checkpoint else {}
        folder.write_config(config.model_dump())
        with (
            composing.serve(config, capture.gateway) as server,
            composing.closing(trackers_of(config, folder, steps, done, known, engine)) as trackers,
        ):
            click.echo(f"run {folder.path}, gateway {server.url}", err=True)
            settings = rollout_settings(config, server.url)
            async with Rollouts(capture.gateway, _agent(config), settings) as rollouts:
                run = Run(
                    engine,
                    rollouts,
                    capture.bind,
                    dataset,
                    loop_settings(config),
                    trackers,
                    folder,
                    eval_payloads=[row.payload for row in eval_rows],
                    probe=preflight,
                )
                await train_run(run, checkpoint)
    finally:
        await engine.stop()


def _dataset(config: Config, rows: list[Row], checkpoint: Checkpoint | None) -> Epochs:
    from rft_agent_sdk.training.dataset import Epochs

    if checkpoint is None:
        return Epochs(rows, config.batch_size, config.epochs, config.seed)
    return Epochs.from_state(checkpoint.dataset, rows, config.batch_size, config.epochs)


def _agent(config: Config) -> AgentRunner:
    return composing.agent_of(
        config.agent_url,
        config.agent_runtime_arn,
        tps=config.acr_tps_limit,
        concurrency=config.max_concurrent_rollouts,
        rollout_s=config.max_rollout_time,
    )


def rollout_settings(config: Config, gateway_url: str) -> RolloutSettings:
    """Return what rollouts are told of a config."""
    from rft_agent_sdk.training.rollouts import RolloutSettings

    return RolloutSettings(
        gateway_url,
        model_id=composing.model_id(config),
        deadline_s=config.max_rollout_time,
        max_context_tokens=config.max_context_tokens,
        concurrency=config.max_concurrent_rollouts,
        retries=config.rollout_retries,
        failed_rollout=config.failed_rollout,
        max_failure_rate=config.failure_rate_limit,
    )


def loop_settings(config: Config) -> GrpoSettings:
    """Return what the loop is told of a config."""
    from rft_agent_sdk.training.grpo import GrpoSettings
    from rft_agent_sdk.types import SamplingParams

    bounds = {"clip_low_threshold": config.clip_low, "clip_high_threshold": config.clip_high}
    return GrpoSettings(
        batch_size=config.batch_size,
        group_size=config.responses_per_prompt,
        sampling=SamplingParams(config.temperature, 1.0, config.max_new_tokens),
        advantage=_advantage(config),
        loss=config.loss,
        loss_config=None if config.loss == "importance_sampling" else bounds,
        adam=config.adam,
        refill_flat_groups=config.refill_flat_groups,
        kl_stop=config.kl_stop,
        stop_on=config.stop_on,
        eval_every=config.eval_every,
        eval_sampling=SamplingParams(config.eval_temperature, 1.0, config.max_new_tokens),
        success_threshold=config.success_threshold,
        save_every=config.save_every,
        seed=config.seed,
        save_weights_at_end=config.save_weights_at_end,
    )


def trackers_of(
    config: Config, folder: RunFolder, steps: int, done: int, known: Any, engine: Engine
) -> Trackers:
    """Return where a run's metrics go.

    Args:
        config: The run's.
        folder: The run's.
        steps: How many there will be.
        done: How many there were.
        known: Ids under which trackers know the run.
        engine: A training session's name is the run's, unless it has one.
    """
    from rft_agent_sdk.training.tracking import (
        ConsoleTracker,
        JsonlTracker,
        MLflowTracker,
        Tracker,
        Trackers,
        WandbTracker,
    )

    name = config.wandb_run_name or getattr(engine, "session_name", None) or folder.path.name
    told = config.model_dump()
    found: list[Tracker] = [
        ConsoleTracker(functools.partial(click.echo, err=True), steps),
        JsonlTracker(folder.metrics, resume_after=done),
    ]
    uri = config.mlflow_uri
    if not uri and all(map(importlib.util.find_spec, ("mlflow", "sqlalchemy"))):
        uri = f"sqlite:///{(folder.path / 'mlflow.db').resolve()}"
    if uri and uri != "none":
        run_id = known.get(MLflowTracker.__name__)
        found.append(MLflowTracker(uri, run_name=name, run_id=run_id, config=told))
    if config.wandb_project:
        run_id = known.get(WandbTracker.__name__)
        found.append(
            WandbTracker(
                config.wandb_project,
                run_name=name,
                run_id=run_id,
                config=told,
                folder=folder.path,
            )
        )
    return Trackers(found)


def _advantage(config: Config) -> Callable[[Any], Advantages]:
    from rft_agent_sdk.training.advantages import METHODS, group_based_per_turn, grpo

    if config.advantage == "grpo":
        return functools.partial(grpo, eps=config.advantage_eps)
    if config.advantage == "group_based_per_turn":
        return functools.partial(group_based_per_turn, eps=config.advantage_eps)
    return METHODS[config.advantage]


def _folder(config: Config, resume: bool) -> RunFolder:
    from rft_agent_sdk.training.checkpoint import RunFolder

    if resume and not config.run_dir:
        raise UsageError("--resume needs to know which run: name its folder as run_dir")
    path = config.run_dir or Path("runs") / datetime.now(UTC).strftime("grpo-%Y%m%d-%H%M%S")
    folder = RunFolder(path, rollouts=config.rollout_log_path or None)
    if resume and folder.latest() is None:
        raise UsageError(f"there is no checkpoint in {str(folder.checkpoints)!r} to resume from")
    if not resume and folder.is_begun:
        raise UsageError(
            f"{str(folder.path)!r} holds a run: go on with it by --resume, or name another run_dir"
        )
    return folder
