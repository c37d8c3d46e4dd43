"""How much of a batch's gradient is signal, by the way its advantages are made.

`python -m tests.bench.credit RUN` lets the policy that a run of `rft learn` had after imitation play batches of other
words, all of one size, and prints the mean cosine between the gradients of two such batches. Zero is noise: what one
batch teaches, the next does not confirm. The same rollouts serve every method.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.cli.learning import playing, tasks
from rft_agent_sdk.cli.learning.record import Record


async def agreement(record: Record, url: str, batches: int, size: int, group: int) -> str:
    """Return a table: each method's mean cosine between batches, with its standard error."""
    import torch

    from rft_agent_sdk.local.losses import LossSpec
    from rft_agent_sdk.training.advantages import METHODS, score
    from rft_agent_sdk.training.datums import build_datums

    policy = record.folder / record.stages["imitation"]["policy"]
    played = list(dict.fromkeys(tasks.Tasks.read(record.folder / "tasks.json").played))
    words = random.Random(0).sample(played, batches * size)
    with tempfile.TemporaryDirectory() as folder:
        config = playing.config_of(record.recipe, policy, Path(folder), url)
        async with playing.playing(config) as at:
            trainer: Any = getattr(at.engine, "trainer")  # noqa: B009 - of the local engine alone
            found: dict[str, list[Any]] = {str(name): [] for name in METHODS}
            for number in range(batches):
                chosen = tasks.rows(words[number * size : (number + 1) * size])
                groups = await at.rollouts.run_batch(chosen, group, seed=number)
                scored = [
                    score(one.trajectory, str(at_), is_valid=one.trains)
                    for at_, many in enumerate(groups)
                    for one in many.rollouts
                ]
                for name, method in METHODS.items():
                    advantages = method(scored).per_rollout
                    moving = [
                        (one.trajectory, advantages[one.trajectory.rollout_id])
                        for many in groups
                        for one in many.trained
                    ]
                    trainer.forward_backward(build_datums(moving).datums, LossSpec("ppo"))
                    gradients = [one.grad.flatten() for one in trainer.model.trainable().values()]
                    found[name].append(torch.cat(gradients).clone())
                    trainer.optimizer.clear()
    lines = ["| advantages | cosine of two batches' gradients |", "| --- | --- |"]
    for told, gradients in found.items():
        cosines = [
            float(torch.cosine_similarity(one, other, dim=0))
            for one, other in combinations(gradients, 2)
        ]
        lines.append(f"| `{told}` | {_mean(cosines)} |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.fmean(values):.3f} +- {error:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    given = parser.parse_args()
    record = Record.read(given.run)
    with served({"RFT_ENVIRONMENT": record.recipe.environment}) as url:
        print(asyncio.run(agreement(record, url, given.batches, given.tasks, given.group)))


if __name__ == "__main__":
    main()
