"""The GRPO loop, from top to bottom: play groups, compare their rewards, update, sample the new weights.

`train` is the loop; what a step needs is composed outside and handed in, so that the same loop runs over a
SageMaker Training Session, over weights on this machine, and in a test. It ends when the dataset does, and
stops the engine however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.errors import EngineError, RolloutsFailed
from rft_agent_sdk.training.advantages import METHODS, Advantage, Advantages, Scored, score
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
from rft_agent_sdk.training.dataset import Epochs, Row
from rft_agent_sdk.training.datums import build_datums
from rft_agent_sdk.training.engines.base import (
    AdamParams,
    Datum,
    Engine,
    LossName,
    StepMetrics,
)
from rft_agent_sdk.training.evaluate import report_of
from rft_agent_sdk.training.health import REMEMBERED, Health, health_metrics
from rft_agent_sdk.training.metrics import batch_metrics, rollout_metrics
from rft_agent_sdk.training.rollouts import Group, Rollouts, derived
from rft_agent_sdk.training.tracking import JsonlTracker, Trackers
from rft_agent_sdk.types import SamplingParams

logger = logging.getLogger(__name__)

Bind = Callable[[Any, int], None]
"""Takes an engine's sampling client and its policy version: the gateway samples with it from now on."""

_KL = "actor/ppo_kl"
_REFILLS = 4
"""Batches of rows, at most, that one step draws to replace flat groups."""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """What the loop itself is told."""

    batch_size: int = 32
    """Tasks of one step."""
    group_size: int = 4
    """Rollouts of one task."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """Fixed for every turn of training."""
    advantage: Callable[[Iterable[Scored]], Advantages] = METHODS["grpo"]
    loss: LossName = "ppo"
    loss_config: Mapping[str, float] | None = None
    """Bounds of the ratio; `None` for the engine's own."""
    adam: AdamParams = field(default_factory=AdamParams)
    refill_flat_groups: bool = False
    """Whether groups that teach nothing are replaced by the next rows' groups."""
    kl_stop: float = 0.0
    """KL of a step, in nats, past which the run ends; 0 never ends it."""
    stop_on: tuple[str, ...] = ()
    """Names of health findings that end the run."""
    eval_every: int = 0
    """Steps between evaluations; 0 evaluates at the end only."""
    eval_sampling: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0.0))
    success_threshold: float = 1.0
    """Reward from which a rollout counts as solved, where the agent does not say itself."""
    save_every: int = -1
    """Steps between checkpoints; -1 saves at the end only."""
    seed: int | None = None
    """Seeds every turn that is sampled, so that a resumed run goes on as an uninterrupted one would."""
    save_weights_at_end: bool = False
    """Whether to publish weights ready for inference, too."""


@dataclass(slots=True)
class Run:
    """A run's parts, and where it stands."""

    engine: Engine
    rollouts: Rollouts
    bind: Bind
    dataset: Epochs
    settings: GrpoSettings
    trackers: Trackers
    folder: RunFolder
    eval_payloads: Sequence[Mapping[str, Any]] = ()
    probe: bool = False
    """Whether one rollout is played before the first step, to see that the agent reaches the gateway."""
    step: int = 0
    """Steps done."""
    version: int = 0
    """Updates done: the version of the policy that samples."""
    cursor: Mapping[str, Any] = field(default_factory=dict)
    """Where the dataset stood at the end of the last step."""
    skipped: int = 0
    """Steps so far that had no datum to train on."""
    saved: int = 0
    """The step of the last checkpoint."""
    health: Health = field(default_factory=Health)
    """Tells what goes wrong."""
    is_updating: bool = False
    """Whether the optimizer is at work, so that what the weights are is not known."""


async def train(run: Run, resume: Checkpoint | None = None) -> Run:
    """Train until the dataset is over; stop the engine, whatever happens.

    However it ends, what was trained since the last checkpoint is saved first, where that can be: the engine
    works, and is not in the midst of an update.

    Args:
        run: Its parts. With `resume`, the dataset must stand where the checkpoint says.
        resume: Where to go on.

    Raises:
        UsageError: The probe sampled nothing; the message says what to look at.
        RolloutsFailed: Too many rollouts of a step failed.
        EngineError: The engine refused, failed or did not end an operation.
        CancelledError: The task was cancelled.
    """
    try:
        with contextlib.closing(
            JsonlTracker(run.folder.rollouts, resume_after=resume.step if resume else 0)
        ) as log:
            await _train(run, resume, log)
    except BaseException as error:
        await _rescue(run, error)
        raise
    finally:
        await asyncio.shield(run.engine.stop())
    return run


async def _train(run: Run, resume: Checkpoint | None, log: JsonlTracker) -> None:
    settings = run.settings
    await _start(run, resume)
    while rows := run.dataset.take(settings.batch_size):
        metrics: dict[str, float] = {}
        done = run.step
        try:
            with _timed(metrics, "time/step"):
                await _step(run, rows, log, metrics)
            run.health.watch(metrics)
            is_last = _is_over(run, metrics, run.health.present)
            if run.eval_payloads and (is_last or _is_due(run.step, settings.eval_every)):
                with _timed(metrics, "time/eval"):
                    metrics |= await _evaluate(run, log)
        finally:  # a step that is done is told, whatever becomes of what follows it
            if run.step > done:
                run.trackers.log(run.step, metrics)
        if is_last or _is_due(run.step, settings.save_every):
            await _save(run)
        if is_last:
            break
    if settings.save_weights_at_end:
        name = await run.engine.save_weights("end of the run")
        logger.info("weights=<%s> | published", name)
        run.folder.write_published(run.step, name)


async def _start(run: Run, resume: Checkpoint | None) -> None:
    """Take up a checkpoint, if there is one, and sample the weights as they are."""
    run.cursor = run.dataset.state()
    if resume is not None:
        await run.engine.load_state(resume.engine_state)
        run.step = run.saved = resume.step
        run.version = int(resume.counts["version"])
        run.skipped = int(resume.counts["skipped_steps"])
        run.health.recall(run.folder.recent(resume.step, REMEMBERED))
    await _rebind(run)
    if run.probe:
        await run.rollouts.preflight(run.dataset.rows[0].payload, run.settings.sampling)


async def _rebind(run: Run) -> None:
    """Sample the weights as they are now; turns in flight, if there are any, end with the old ones."""
    run.bind(await run.engine.save_weights_and_get_sampling_client(), run.version)


async def _step(
    run: Run, rows: Sequence[Row], log: JsonlTracker, metrics: dict[str, float]
) -> None:
    """Play, compare, update; `metrics` takes the step's numbers as they come."""
    settings = run.settings
    with _timed(metrics, "time/rollout"):
        groups = await _play(run, rows, log)
    metrics |= rollout_metrics(groups, run.version, settings.success_threshold)
    metrics |= health_metrics([one for group in groups for one in group.rollouts])
    datums, told = _prepare(groups, settings)
    metrics |= told
    with _timed(metrics, "time/train"):
        await _update(run, datums, metrics)


async def _play(run: Run, rows: Sequence[Row], log: JsonlTracker) -> list[Group]:
    """Play a group of each row; where it is wanted, play further rows in place of flat groups."""
    settings = run.settings
    groups: list[Group] = []
    chosen = rows
    for refill in range(1 + (_REFILLS if settings.refill_flat_groups else 0)):
        played = run.rollouts.run_batch(
            [row.payload for row in chosen],
            settings.group_size,
            settings.sampling,
            derived(settings.seed, run.step + 1, refill),
        )
        groups += await _logged(played, log, run.step + 1, first=len(groups))
        missing = len(rows) - sum(not group.is_flat for group in groups)
        if refill == _REFILLS or not settings.refill_flat_groups:
            break
        chosen = run.dataset.take(missing)
        if not chosen:
            break
    return groups


async def _logged(
    playing: Awaitable[list[Group]],
    log: JsonlTracker,
    step: int,
    *,
    first: int = 0,
    is_eval: bool = False,
) -> list[Group]:
    """Return what was played once it is written down: also where so much of it failed that the run ends."""
    try:
        groups = await playing
    except RolloutsFailed as error:
        _log_rollouts(log, step, error.groups, first=first, is_eval=is_eval)
        raise
    _log_rollouts(log, step, groups, first=first, is_eval=is_eval)
    return groups


def _prepare(
    groups: Sequence[Group], settings: GrpoSettings
) -> tuple[tuple[Datum, ...], dict[str, float]]:
    """Compare rewards within groups; return the datums of what teaches anything, and its numbers."""
    scored = [
        score(one.trajectory, str(number), is_valid=one.trains)
        for number, group in enumerate(groups)
        for one in group.rollouts
    ]
    advantages = settings.advantage(scored)
    found = advantages.per_rollout
    moving = [
        (one.trajectory, found[one.trajectory.rollout_id])
        for group in groups
        for one in group.trained
        if _moves(found[one.trajectory.rollout_id])
    ]
    batch = build_datums(moving)
    return batch.datums, batch_metrics(advantages, batch)


def _moves(advantage: Advantage) -> bool:
    return any(advantage) if isinstance(advantage, tuple) else advantage != 0


async def _update(run: Run, datums: Sequence[Datum], metrics: dict[str, float]) -> None:
    """Make one optimizer step and sample the new weights; without a datum, neither."""
    settings = run.settings
    if datums:
        told = await run.engine.forward_backward(
            datums, settings.loss, loss_fn_config=settings.loss_config
        )
        metrics |= {f"train/{name}": float(value) for name, value in told.items()}
        told = await _optimize(run)
        metrics |= {f"train/{name}": float(value) for name, value in told.items()}
    else:
        run.skipped += 1
        logger.warning("step=<%s> | skipped: no datum to train on", run.step + 1)
    run.step += 1  # from here on the step is done, whatever becomes of sampling its weights
    run.cursor = run.dataset.state()
    metrics |= {
        "training/skipped_steps": run.skipped,
        "training/global_step": run.step,
        "training/epoch": run.dataset.epoch,
    }
    if datums:
        await _rebind(run)


async def _optimize(run: Run) -> StepMetrics:
    run.is_updating = True
    try:
        told = await run.engine.optim_step(run.settings.adam)
    except EngineError as error:
        run.is_updating = not error.usable  # usable: it has changed nothing
        raise
    run.is_updating = False
    run.version += 1
    return told


async def _evaluate(run: Run, log: JsonlTracker) -> dict[str, float]:
    settings = run.settings
    seed = derived(settings.seed, "evaluation")
    playing = run.rollouts.run_batch(run.eval_payloads, 1, settings.eval_sampling, seed)
    groups = await _logged(playing, log, run.step, is_eval=True)
    return report_of(groups, success_threshold=settings.success_threshold).metrics()


async def _save(run: Run) -> None:
    """Save where the run stands. The record is written last: what it names is there."""
    name = await run.engine.save_state(f"step {run.step}")
    logger.info("step=<%s>, state=<%s> | saved", run.step, name)
    counts = {"version": run.version, "skipped_steps": run.skipped}
    path = run.folder.save(
        Checkpoint(run.step, name, run.cursor, counts, loggers=run.trackers.run_ids)
    )
    run.saved = run.step
    logger.info("step=<%s> | --resume goes on from %s", run.step, path)


async def _rescue(run: Run, error: BaseException) -> None:
    """Save what was trained since the last checkpoint before an error ends the run, where that can be."""
    is_broken = isinstance(error, EngineError) and not error.usable
    if run.step <= run.saved or run.is_updating or is_broken:
        return
    logger.warning("step=<%s> | saving before the run ends: %s", run.step, type(error).__name__)
    try:
        await _save(run)
    except Exception as failure:  # noqa: BLE001 - the first error is the one to be raised
        logger.warning("step=<%s> | not saved: %s: %s", run.step, type(failure).__name__, failure)


def _is_over(run: Run, metrics: Mapping[str, float], findings: Mapping[str, str]) -> bool:
    kl, limit = metrics.get(f"train/{_KL}", 0.0), run.settings.kl_stop
    if limit and kl > limit:
        logger.warning("kl=<%.4g>, kl_stop=<%.4g> | the run ends early", kl, limit)
        return True
    if ending := [name for name in run.settings.stop_on if name in findings]:
        told = "; ".join(f"{name}: {findings[name]}" for name in ending)
        logger.warning("step=<%s>, stop_on=<%s> | the run ends early: %s", run.step, ending, told)
        return True
    return run.dataset.epoch >= run.dataset.epochs


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _log_rollouts(
    log: JsonlTracker, step: int, groups: Sequence[Group], *, first: int, is_eval: bool
) -> None:
    for number, group in enumerate(groups, first):
        for one in group.rollouts:
            log.write({"step": step, "eval": is_eval, "group": number, **one.to_json()})


@contextlib.contextmanager
def _timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    metrics[name] = time.monotonic() - started
