"""Imitation: captured rollouts of a teacher are trained on, token by token, before any reward counts.

The same engine, datums and checkpoints as the GRPO loop's; only the loss differs, and that nothing is played.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
from rft_agent_sdk.training.datums import build_datums
from rft_agent_sdk.training.engines.base import AdamParams, Datum, Engine
from rft_agent_sdk.training.tracking import Tracker
from rft_agent_sdk.trajectory import Trajectory

logger = logging.getLogger(__name__)

_ADAM = AdamParams(learning_rate=2e-3, beta2=0.98, weight_decay=0.05)
_LEAST_RATE = 0.02
"""Share of the learning rate that the last step has."""


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """How captured rollouts are imitated."""

    passes: float = 10.0
    """Times that each datum is trained on."""
    batch_tokens: int = 6000
    """Tokens of one step, about."""
    adam: AdamParams = _ADAM
    """The learning rate is the highest; the norm to clip to is that of the *mean* loss of a token."""
    warmup_share: float = 0.05
    """Share of the steps over which the learning rate rises; then it falls along a cosine."""
    save_every: int = 100
    """Steps between checkpoints; there is always one at the end."""
    seed: int = 0


def datums_of(trajectories: Iterable[Trajectory]) -> tuple[Datum, ...]:
    """Return the datums of a teacher's rollouts, each sampled token counting 1."""
    return build_datums((one, 1.0) for one in trajectories).datums


def plan(lengths: Sequence[int], settings: ImitationSettings) -> list[list[int]]:
    """Return the datums of every step, by number: shuffled anew for each pass.

    Args:
        lengths: Tokens of each datum.
        settings: How many passes, and how much a step takes.

    Raises:
        UsageError: Nothing to train on.
    """
    if not lengths or settings.passes <= 0 or settings.batch_tokens < 1:
        raise UsageError(
            f"wanted datums, and passes and batch_tokens above 0, got {len(lengths)}, {settings.passes!r} and "
            f"{settings.batch_tokens!r}"
        )
    draw = random.Random(settings.seed)  # noqa: S311 - must be reproducible
    left = max(1, round(settings.passes * len(lengths)))
    batches: list[list[int]] = [[]]
    tokens = 0
    while left:
        order = list(range(len(lengths)))
        draw.shuffle(order)
        for at in order[:left]:
            if tokens >= settings.batch_tokens:
                batches.append([])
                tokens = 0
            batches[-1].append(at)
            tokens += lengths[at]
        left -= min(left, len(order))
    return batches


def learning_rate(step: int, steps: int, settings: ImitationSettings) -> float:
    """Return a step's learning rate; steps count from 0."""
    warm = max(1, round(settings.warmup_share * steps))
    share = step / steps
    fall = _LEAST_RATE + (1 - _LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * share))
    return settings.adam.learning_rate * min(1.0, (step + 1) / warm) * fall


async def imitate(
    engine: Engine,
    datums: Sequence[Datum],
    settings: ImitationSettings,
    folder: RunFolder,
    tracker: Tracker,
) -> int:
    """Train on a teacher's datums; go on at the folder's latest checkpoint, if there is one.

    Args:
        engine: Trains; it is left running.
        datums: The same ones, in the same order, for a run that goes on.
        settings: How.
        folder: Takes the checkpoints.
        tracker: Takes the metrics of each step.

    Returns:
        How many steps it was in all.

    Raises:
        UsageError: Nothing to train on, or a checkpoint of another plan.
        EngineError: The engine failed.
    """
    batches = plan([len(one.tokens) for one in datums], settings)
    done = folder.latest()
    step = 0
    if done is not None:
        if done.dataset.get("steps") != len(batches):
            raise UsageError(
                f"the checkpoint in {str(folder.path)!r} is of a plan of {done.dataset.get('steps')!r} steps, not "
                f"of {len(batches)}"
            )
        await engine.load_state(done.engine_state)
        step = done.step
    while step < len(batches):
        started = time.monotonic()
        metrics = await _step(
            engine, [datums[at] for at in batches[step]], step, len(batches), settings
        )
        step += 1
        metrics["time/step"] = time.monotonic() - started
        tracker.log(step, metrics)
        if step % settings.save_every == 0 or step == len(batches):
            name = await engine.save_state(f"step {step}")
            folder.save(Checkpoint(step, name, {"steps": len(batches)}))
    return step


async def _step(
    engine: Engine, chosen: Sequence[Datum], step: int, steps: int, settings: ImitationSettings
) -> dict[str, float]:
    told = await engine.forward_backward(chosen, "cross_entropy")
    # The loss is a sum over tokens, and so is its gradient.
    trained = told.get("tokens/trained") or sum(
        weight != 0 for one in chosen for weight in one.weights
    )
    rate = learning_rate(step, steps, settings)
    clip = settings.adam.grad_clip_norm * float(trained)
    stepped = await engine.optim_step(
        replace(settings.adam, learning_rate=rate, grad_clip_norm=clip)
    )
    return {f"train/{name}": float(value) for name, value in {**told, **stepped}.items()}
