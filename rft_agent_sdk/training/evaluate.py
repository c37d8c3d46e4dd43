"""Evaluation: a dataset is played several times a task, and what is solved is told with its uncertainty.

Solving is kept apart from reward: a reward is shaped for learning, and its constants are nobody's success
rate. Pure but for `evaluate`, which plays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.estimates import Interval, pass_at_k, pass_power_k, wilson
from rft_agent_sdk.training.rollouts import Group, Played, Rollouts
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import JSON, SamplingParams


@dataclass(frozen=True, slots=True)
class EvalReport:
    """What came of an evaluation."""

    tasks: int
    """Tasks with at least one rollout that counts."""
    rollouts: int
    """Rollouts that count: those that the policy ended."""
    failed: int
    """Rollouts that something else ended; they are in no number below."""
    solved: float
    """Share of the rollouts that solved their task."""
    mean_reward: float
    pass_at: Mapping[int, Interval]
    """By k: the chance that at least one of k rollouts solves a task."""
    pass_power: Mapping[int, Interval]
    """By k: the chance that all of k rollouts solve a task."""
    mean_turns: float
    truncated: float
    """Share of the rollouts that ran into a token limit."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers by the names that trackers know."""
        found = {
            "eval/accuracy": self.solved,
            "eval/mean_reward": self.mean_reward,
            "eval/tasks": float(self.tasks),
            "eval/rollouts": float(self.rollouts),
            "eval/failed_rollouts": float(self.failed),
            "eval/turns_mean": self.mean_turns,
            "eval/truncated_frac": self.truncated,
            "val/reward/mean": self.mean_reward,
        }
        for k, one in self.pass_at.items():
            found[f"val/reward/pass_at_{k}"] = one.value
        for k, one in self.pass_power.items():
            found[f"val/reward/pass_power_{k}"] = one.value
        if 1 in self.pass_at:
            found["eval/accuracy_low"] = self.pass_at[1].low
            found["eval/accuracy_high"] = self.pass_at[1].high
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def to_json(self) -> JSON:
        """Return the report as JSON; what has no value is null."""

        def told(one: Interval) -> JSON:
            return {"value": one.value, "low": one.low, "high": one.high}

        return {
            "tasks": self.tasks,
            "rollouts": self.rollouts,
            "failed_rollouts": self.failed,
            "solved": _finite(self.solved),
            "mean_reward": _finite(self.mean_reward),
            "mean_turns": _finite(self.mean_turns),
            "truncated": _finite(self.truncated),
            "pass_at": {str(k): told(one) for k, one in self.pass_at.items()},
            "pass_power": {str(k): told(one) for k, one in self.pass_power.items()},
        }


async def evaluate(
    rollouts: Rollouts,
    payloads: Iterable[Mapping[str, Any]],
    *,
    sampling: SamplingParams | None = None,
    per_task: int = 1,
    success_threshold: float = 1.0,
    seed: int | None = None,
) -> tuple[EvalReport, list[Group]]:
    """Play each payload `per_task` times.

    Args:
        rollouts: Who plays.
        payloads: The dataset.
        sampling: What is fixed for every turn, such as temperature 0.
        per_task: Rollouts of each task; pass@k is told for the powers of two up to it, and for itself.
        success_threshold: See `is_solved`.
        seed: See `Rollouts.run_batch`.

    Returns:
        The report, and the rollouts it is made of.

    Raises:
        RolloutsFailed: More of them failed than may.
    """
    groups = await rollouts.run_batch(payloads, per_task, sampling, seed)
    return report_of(groups, per_task=per_task, success_threshold=success_threshold), groups


def report_of(
    groups: Sequence[Group], *, per_task: int = 1, success_threshold: float = 1.0
) -> EvalReport:
    """Return what rollouts come to. One that failed counts nowhere, not even as a 0 that was asked for."""
    tasks = [[one for one in group.rollouts if not one.has_failed] for group in groups]
    played = [one for task in tasks for one in task]
    counts = [(len(task), _solved(task, success_threshold)) for task in tasks if task]
    ks = sorted({1 << i for i in range(per_task.bit_length()) if 1 << i <= per_task} | {per_task})
    return EvalReport(
        tasks=len(counts),
        rollouts=len(played),
        failed=sum(len(group.rollouts) for group in groups) - len(played),
        solved=_mean([float(is_solved(one.trajectory, success_threshold)) for one in played]),
        mean_reward=_mean([one.reward for one in played]),
        pass_at=_over_tasks(counts, ks, pass_at_k),
        pass_power=_over_tasks(counts, ks, pass_power_k),
        mean_turns=_mean([float(one.trajectory.turns) for one in played]),
        truncated=_mean([float(one.trajectory.outcome == "truncated") for one in played]),
    )


def is_solved(trajectory: Trajectory, success_threshold: float = 1.0) -> bool:
    """Return whether a rollout solved its task.

    That is the reward's component `solved`, where the agent told one; else whether the reward reaches
    the threshold.
    """
    told = trajectory.components.get("solved")
    if told is not None:
        return told > 0
    return trajectory.reward is not None and trajectory.reward >= success_threshold


def _over_tasks(
    counts: Sequence[tuple[int, int]], ks: Sequence[int], of: Any
) -> dict[int, Interval]:
    """Return the mean over the tasks that were played often enough, by k; tasks are what is independent."""
    found = {}
    for k in ks:
        values = [of(n, c, k) for n, c in counts if n >= k]
        if values:
            found[k] = wilson(_mean(values), len(values))
    return found


def _solved(task: Sequence[Played], threshold: float) -> int:
    return sum(is_solved(one.trajectory, threshold) for one in task)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
