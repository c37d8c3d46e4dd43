"""What a step of training is told by: pure functions from its rollouts to named numbers.

Names are those of the in-repo loop (`sampler/…`, `time/…`, `train/…`) and, for the same numbers, of the
managed service (`rollout/…`, `training/…`, `analysis/…`), so that curves of both can be laid together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rft_agent_sdk.training.advantages import Advantages
from rft_agent_sdk.training.datums import DatumBatch
from rft_agent_sdk.training.evaluate import is_solved
from rft_agent_sdk.training.rollouts import Group, Played


def rollout_metrics(
    groups: Sequence[Group], version: int, success_threshold: float = 1.0
) -> dict[str, float]:
    """Return what a batch of rollouts came to; means are over those that train.

    Args:
        groups: The batch.
        version: The policy version that was to sample it.
        success_threshold: See `is_solved`.
    """
    played = [one for group in groups for one in group.rollouts]
    trained = [one for one in played if one.trains]
    rewards = [one.reward for one in trained]
    turns = [float(one.trajectory.turns) for one in trained]
    found = {
        "sampler/num_groups": float(len(groups)),
        "sampler/num_rollouts": float(len(played)),
        "sampler/failed_rollouts": float(sum(one.has_failed for one in played)),
        "sampler/retried_rollouts": float(sum(one.attempts > 1 for one in played)),
        "sampler/off_policy_rollouts": float(sum(_is_off_policy(one, version) for one in trained)),
        "training/num_trajectories": float(len(trained)),
        **_outcomes(played),
    }
    if trained:
        solved = [float(is_solved(one.trajectory, success_threshold)) for one in trained]
        cut = [float(one.trajectory.outcome == "truncated") for one in trained]
        found |= {
            "sampler/mean_reward": _mean(rewards),
            "sampler/solve_rate": _mean(solved),
            "sampler/truncated_frac": _mean(cut),
            "rollout/reward/mean": _mean(rewards),
            "rollout/reward/std": _std(rewards),
            "rollout/reward/min": min(rewards),
            "rollout/reward/max": max(rewards),
            "rollout/reward/zero_frac": _mean([float(reward == 0) for reward in rewards]),
            "rollout/turns/mean": _mean(turns),
            "rollout/turns/min": min(turns),
            "rollout/turns/max": max(turns),
            "rollout/tokens/response_mean": _mean(
                [float(one.trajectory.trained_tokens) for one in trained]
            ),
            "time/rollout_mean": _mean([one.wall_s for one in trained]),
        }
    return found


def batch_metrics(advantages: Advantages, batch: DatumBatch) -> dict[str, float]:
    """Return what became of a batch's rewards and samples."""
    return {
        "sampler/num_datums": float(len(batch.datums)),
        "sampler/dropped_samples": float(batch.dropped),
        "sampler/flat_groups": float(advantages.flat_groups),
        "training/num_datums": float(len(batch.datums)),
        "training/trainable_token_positions": float(batch.trained_tokens),
        "training/total_tokens": float(sum(len(datum.tokens) for datum in batch.datums)),
        "analysis/zero_adv_groups": float(advantages.flat_groups),
    }


def _outcomes(played: Sequence[Played]) -> dict[str, float]:
    kinds = Counter(one.trajectory.outcome.value for one in played)
    return {f"sampler/outcome/{kind}": float(count) for kind, count in kinds.items()}


def _is_off_policy(one: Played, version: int) -> bool:
    return any(found != version for found in one.trajectory.versions)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))
