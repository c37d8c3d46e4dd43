"""A phase's numbers under the names that a managed job logs them by.

Only what can be known without training: nothing stands in for a loss, a log-probability or a datum. Rewards are a
rollout's rewards added up; standard deviations are of the population.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rft_agent_sdk.mtrl.rehearsal import Kind, Phase, Rollout

_FLAT = 1e-9
"""Spread of rewards below which a group teaches nothing."""
_EPSILON = 1e-6


def step_metrics(phase: Phase, success_threshold: float = 1.0) -> dict[str, float]:
    """Return the metrics of a training step or a validation."""
    if not phase.rollouts:
        return {}
    if phase.kind is Kind.VALIDATION:
        return _validation(phase, success_threshold)
    rewards = rewards_of(phase.rollouts)
    tokens = [_tokens(rollout) for rollout in phase.rollouts]
    return {
        "training/global_step": float(phase.step),
        "training/num_groups": float(len(phase.groups)),
        "training/num_trajectories": float(len(phase.rollouts)),
        "training/total_tokens": float(sum(map(sum, tokens))),
        "timing_s/step": phase.seconds,
        **_spread("rollout/reward", rewards),
        **_named("rollout/reward/valid_mean", rewards[:]),
        "rollout/reward/zero_frac": _share(value == 0 for value in rewards),
        **_counts("rollout", phase.rollouts),
        **_advantages(phase),
        **_analysis(phase),
    }


def rewards_of(rollouts: Iterable[Rollout]) -> list[float]:
    """Return the rewards of those that have one."""
    return [reward for rollout in rollouts if (reward := rollout.reward) is not None]


def is_flat(group: Sequence[Rollout]) -> bool:
    """Whether every rollout of a group got the same reward, so that none is better than another."""
    rewards = rewards_of(group)
    return len(rewards) < 2 or max(rewards) - min(rewards) <= _FLAT


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of a population; 0 of one or none."""
    return statistics.pstdev(values) if len(values) > 1 else 0.0


def _validation(phase: Phase, threshold: float) -> dict[str, float]:
    rewards = rewards_of(phase.rollouts)
    solved = _share(reward >= threshold for reward in rewards)
    return {
        **_spread("val/reward", rewards),
        "val/reward/zero_frac": _share(value == 0 for value in rewards),
        "val/reward/rollouts_per_prompt": 1.0,
        "val/reward/num_prompts": float(len(phase.rollouts)),
        "val/reward/succeeded_rollouts": float(len(rewards)),
        "val/reward/failed_rollouts": float(len(phase.rollouts) - len(rewards)),
        "val/reward/success_threshold": threshold,
        "val/reward/pass_at_1": solved,
        "val/reward/pass_power_1": solved,
        **_counts("val", phase.rollouts),
        "timing_s/eval": phase.seconds,
    }


def _counts(prefix: str, rollouts: Sequence[Rollout]) -> dict[str, float]:
    turns = [float(rollout.last.seen.turns) for rollout in rollouts]
    prompts, replies = zip(*map(_tokens, rollouts), strict=True)
    return {
        f"{prefix}/turns/mean": statistics.fmean(turns),
        f"{prefix}/turns/min": min(turns),
        f"{prefix}/turns/max": max(turns),
        f"{prefix}/tokens/prompt_mean": statistics.fmean(prompts),
        f"{prefix}/tokens/response_mean": statistics.fmean(replies),
        f"{prefix}/tokens/response_std": spread(replies),
        f"{prefix}/tokens/response_min": float(min(replies)),
        f"{prefix}/tokens/response_max": float(max(replies)),
    }


def _advantages(phase: Phase) -> dict[str, float]:
    """Return what `group_based` advantages, normalised, would be like."""
    found: list[float] = []
    for group in phase.groups:
        rewards = rewards_of(group)
        mean, deviation = statistics.fmean(rewards or [0.0]), spread(rewards)
        found += [
            0.0 if is_flat(group) else (one - mean) / (deviation + _EPSILON) for one in rewards
        ]
    return {
        **_spread("rollout/advantage", found),
        "rollout/advantage/n_positive": float(sum(value > 0 for value in found)),
        "rollout/advantage/n_negative": float(sum(value < 0 for value in found)),
    }


def _analysis(phase: Phase) -> dict[str, float]:
    rewards = [rewards_of(group) for group in phase.groups]
    flat = [found for found, group in zip(rewards, phase.groups, strict=True) if is_flat(group)]
    means = [statistics.fmean(found) for found in rewards if found]
    return {
        "analysis/batch_completion_ratio": 1.0,
        "analysis/batch_valid_ratio": _share(one.failure is None for one in phase.rollouts),
        "analysis/zero_adv_groups": float(len(flat)),
        "analysis/zero_adv_zero_reward": float(sum(not any(found) for found in flat)),
        "analysis/zero_adv_nonzero_reward": float(sum(any(found) for found in flat)),
        "analysis/reward_variance_across_groups": spread(means) ** 2,
        "analysis/mean_group_reward_spread": statistics.fmean(map(spread, rewards)),
    }


def _spread(prefix: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {
        f"{prefix}/mean": statistics.fmean(values),
        f"{prefix}/std": spread(values),
        f"{prefix}/min": min(values),
        f"{prefix}/max": max(values),
    }


def _named(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: statistics.fmean(values)} if values else {}


def _tokens(rollout: Rollout) -> tuple[int, int]:
    seen = rollout.last.seen
    return seen.prompt_tokens, seen.completion_tokens


def _share(flags: Iterable[bool]) -> float:
    found = list(flags)
    return sum(found) / len(found) if found else 0.0
