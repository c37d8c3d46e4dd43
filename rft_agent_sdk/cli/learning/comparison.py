"""What changed between two evaluations of the same tasks, with its uncertainty. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from rft_agent_sdk.errors import UsageError

_DRAWS = 2000


class Gain(NamedTuple):
    """A mean difference, and the bounds of its 95% interval."""

    mean: float
    low: float
    high: float


def gain(before: Sequence[int | None], after: Sequence[int | None], *, seed: int = 0) -> Gain:
    """Return how much more is solved after than before, by a paired bootstrap over tasks.

    Args:
        before: 1 for each task that was solved, 0 for one that was not; several runs may stand one after the
            other. A task is left out where its rollout failed, before or after: `None`.
        after: The same tasks in the same order.
        seed: Of the bootstrap.

    Raises:
        UsageError: No tasks, or not the same number.
    """
    if not before or len(before) != len(after):
        raise UsageError(f"wanted the same tasks twice, got {len(before)} and {len(after)}")
    changes = [
        new - old
        for old, new in zip(before, after, strict=True)
        if old is not None and new is not None
    ]
    if not changes:
        raise UsageError(
            "every task's rollout failed, before or after: there is nothing to compare"
        )
    draw = random.Random(seed)  # noqa: S311 - must be reproducible
    count = len(changes)
    means = sorted(sum(draw.choices(changes, k=count)) / count for _ in range(_DRAWS))
    low, high = means[round(0.025 * _DRAWS)], means[round(0.975 * _DRAWS) - 1]
    return Gain(sum(changes) / count, low, high)
