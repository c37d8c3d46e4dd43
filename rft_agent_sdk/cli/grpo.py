"""`rft grpo`: train with your own loop."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.trackers import open_trackers
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
    composing.check_engine(config)
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
        UsageError: There is no checkpoint to resume from, a run in the folder that nobody resumes or another
            that is at work in it, or a place that cannot be written or served. Nothing was billed then.
    """
    from rft_agent_sdk.training.files import locked

    folder = _folder(config, resume)
    with locked(folder.path):
        checkpoint = _checkpoint(folder, resume)
        dataset = _dataset(config, rows, checkpoint)
        if checkpoint is not None and _is_over(config, folder, dataset):
            click.echo(f"nothing is left of {str(folder.path)!r} to train: it is done", err=True)
            return
        changed = _changes(config, folder, checkpoint)
        composing.check_gateway(config.agent_url, config.gateway_host, config.gateway_port)
        folder.check_writable()
        steps = config.plan(len(rows)).steps
        trackers = await open_trackers(config, folder, steps, checkpoint)
        with composing.closing(trackers):
            _write_config(config, folder, checkpoint, changed)
            engine = await open_engine(config.model_copy(update={"run_dir": str(folder.path)}))
            try:
                parts = _Parts(
                    config, folder, trackers, dataset, [row.payload for row in eval_rows]
                )
                await _train(parts, engine, checkpoint, preflight=preflight, sampler_of=sampler_of)
            finally:
                await engine.stop()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run is made of before its engine is there."""

    config: Config
    folder: RunFolder
    trackers: Trackers
    dataset: Epochs
    eval_payloads: list[Any]


async def _train(
    parts: _Parts,
    engine: Engine,
    checkpoint: Checkpoint | None,
    *,
    preflight: bool,
    sampler_of: Callable[[Any, int], Any] | None,
) -> None:
    from rft_agent_sdk.training.grpo import Run
    from rft_agent_sdk.training.grpo import train as train_run
    from rft_agent_sdk.training.rollouts import Rollouts

    config = parts.config
    session = getattr(engine, "session_name", None)
    if session and not config.wandb_run_name:
        parts.trackers.rename(session)
    if config.resume_from_model_package and checkpoint is None:
        await engine.load_state(config.resume_from_model_package)
    capture = composing.capture(config, engine, sampler_of)
    with composing.serve(config, capture.gateway) as server:
        click.echo(f"run {parts.folder.path}, gateway {server.url}", err=True)
        settings = rollout_settings(config, server.url)
        async with Rollouts(capture.gateway, _agent(config), settings) as rollouts:
            run = Run(
                engine,
                rollouts,
                capture.bind,
                parts.dataset,
                loop_settings(config),
                parts.trackers,
                parts.folder,
                eval_payloads=parts.eval_payloads,
                probe=preflight,
            )
            await train_run(run, checkpoint)


def _checkpoint(folder: RunFolder, resume: bool) -> Checkpoint | None:
    """Return where to go on; `None` begins.

    Raises:
        UsageError: There is nothing to resume, or a run that is not resumed.
    """
    found = folder.latest()
    if resume and found is None:
        raise UsageError(
            f"there is no checkpoint in {str(folder.checkpoints)!r} to resume from: begin without --resume"
            + (", in another run_dir, or after removing this one" if folder.is_begun else "")
        )
    if not resume and found is not None:
        raise UsageError(
            f"{str(folder.path)!r} holds a run: go on with it by --resume, or name another run_dir"
        )
    if not resume and folder.is_begun:
        raise UsageError(
            f"{str(folder.path)!r} holds a run that ended before its first checkpoint, so there is nothing to "
            "resume from: name another run_dir, or remove this one to begin again here (save_every saves more "
            "often)"
        )
    return found


def _is_over(config: Config, folder: RunFolder, dataset: Epochs) -> bool:
    is_unpublished = config.save_weights_at_end and not folder.published.exists()
    return dataset.epoch >= dataset.epochs and not is_unpublished


def _changes(config: Config, folder: RunFolder, checkpoint: Checkpoint | None) -> list[str]:
    """Return, and tell, what a resumed run is told otherwise than before.

    Raises:
        UsageError: It may not be.
    """
    from rft_agent_sdk.training.config_changes import changes

    if checkpoint is None:
        return []
    found = changes(folder.read_config(), config.model_dump(mode="json"))
    if found:
        listed = "\n".join(f"  {line}" for line in found)
        click.echo(
            f"resumed with another config, after step {checkpoint.step}:\n{listed}", err=True
        )
    return found


def _write_config(
    config: Config, folder: RunFolder, checkpoint: Checkpoint | None, changed: list[str]
) -> None:
    """Write what the run is told; what it was told before is kept beside it."""
    if checkpoint is None or changed:
        old_until = checkpoint.step if checkpoint else None
        folder.write_config(config.model_dump(mode="json"), old_until=old_until)


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
        failure_rate_limit=config.failure_rate_limit,
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
        loss_config=bounds,
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
    if resume and not folder.checkpoints.is_dir() and not folder.is_begun:
        raise UsageError(f"there is no checkpoint in {str(folder.checkpoints)!r} to resume from")
    return folder
