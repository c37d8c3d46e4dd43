"""From the graph of a session to the trajectory a training loop reads.

Each branch of tokens becomes a sample: from a turn whose prompt extends nothing to a turn that no
turn extends. Nothing is rendered or encoded here; a sample is its turns' ids, joined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.graph import MessageGraph, token_path
from rft_agent_sdk.gateway.history import message_path
from rft_agent_sdk.gateway.turn_node import TurnNode
from rft_agent_sdk.trajectory import Sample, Trajectory, TurnSpan
from rft_agent_sdk.types import Outcome


def split_rewards(
    rewards: Sequence[float], turns: int
) -> tuple[float | None, tuple[float, ...] | None]:
    """Return the total and the per-turn rewards that a list of reported rewards stands for.

    One number is the reward of the whole rollout, also of a rollout of one turn; several are one per
    captured turn, and their sum is the total; none at all is no reward.

    Raises:
        UsageError: Neither one number nor one per turn, or a number that is not finite.
    """
    try:
        values = tuple(map(float, rewards))
        if not all(map(math.isfinite, values)):
            raise UsageError(f"rewards must be finite, got {list(values)!r}")
        total = math.fsum(values)
    except OverflowError:
        raise UsageError("rewards, and their sum, must be finite, got larger ones") from None
    if len(values) <= 1:
        return (values[0] if values else None), None
    _check_per_turn(values, turns)
    return total, values


def build_trajectory(
    graph: MessageGraph,
    *,
    rollout_id: str,
    outcome: Outcome,
    reward: float | None = None,
    per_turn: Sequence[float] | None = None,
    components: Mapping[str, float] | None = None,
    task: str | None = None,
) -> Trajectory:
    """Return the record of a session.

    Abandoned answers are no turns of it. A turn that several branches share trains in the first of
    them. Samples weigh by their trained tokens: see `Sample.weight`.

    Args:
        graph: The session's turns.
        rollout_id: Its name, the same in every sample.
        outcome: Why it ended.
        reward: Its total; `None` with `per_turn` for their sum, without for no reward.
        per_turn: One reward per captured turn, in the order in which they were answered.
        components: Named parts of the reward.
        task: The task string.

    Raises:
        UsageError: Another number of per-turn rewards than turns, or a reward that is not finite.
    """
    turns = graph.live_turns()
    rewards = None if per_turn is None else tuple(map(float, per_turn))
    if rewards is not None:
        _check_per_turn(rewards, len(turns))
        reward = math.fsum(rewards) if reward is None else reward
    for value in (*(rewards or ()), *(() if reward is None else (reward,))):
        if not math.isfinite(value):
            raise UsageError(f"rewards must be finite, got {value!r} for rollout {rollout_id!r}")
    return Trajectory(
        rollout_id=rollout_id,
        outcome=outcome,
        samples=_samples(turns, rollout_id, reward, rewards),
        turns=len(turns),
        task=task,
        reward=reward,
        per_turn=rewards,
        components=dict(components or {}),
        counters=graph.counters(),
    )


def _check_per_turn(rewards: Sequence[float], turns: int) -> None:
    if len(rewards) != turns:
        raise UsageError(
            f"wanted one reward per captured turn, got {len(rewards)} rewards for {turns} turns: send "
            "one number for the whole rollout, or one per model call that was answered"
        )


def _samples(
    turns: Sequence[TurnNode],
    rollout_id: str,
    reward: float | None,
    per_turn: Sequence[float] | None,
) -> tuple[Sample, ...]:
    numbers = {turn: number for number, turn in enumerate(turns)}
    branches = _branches(turns)
    firsts: dict[TurnNode, int] = {}
    for number, branch in enumerate(branches):
        for turn in branch:
            firsts.setdefault(turn, number)
    trained = {turn: len(turn.sampled_ids) - turn.missing_logprobs for turn in turns}
    shares = [
        sum(trained[turn] for turn in branch if firsts[turn] == number)
        for number, branch in enumerate(branches)
    ]
    total = sum(shares)
    return tuple(
        _sample(
            branch,
            trains=[firsts[turn] == number for turn in branch],
            spans=tuple(_spans(branch, numbers, per_turn)),
            rollout_id=rollout_id,
            reward=reward,
            # With nothing to train no weight matters; equal ones keep the sum.
            weight=shares[number] / total if total else 1 / len(branches),
        )
        for number, branch in enumerate(branches)
    )


def _branches(turns: Sequence[TurnNode]) -> list[list[TurnNode]]:
    """Return the token paths to all leaves, so that neighbours share most; earlier turns first."""
    extended = {turn.parent for turn in turns if turn.extends}
    branches = [token_path(turn) for turn in turns if turn not in extended]
    return sorted(branches, key=lambda branch: [turn.index for turn in branch])


def _spans(
    branch: Sequence[TurnNode],
    numbers: Mapping[TurnNode, int],
    per_turn: Sequence[float] | None,
) -> Iterator[TurnSpan]:
    end = 0
    for turn in branch:
        start = end + len(turn.prompt_ids)
        end = start + len(turn.sampled_ids)
        number = numbers[turn]
        reward = None if per_turn is None else per_turn[number]
        yield TurnSpan(number, start, end, turn.finish_reason, turn.version, turn.status, reward)


def _sample(
    branch: Sequence[TurnNode],
    *,
    trains: Sequence[bool],
    spans: tuple[TurnSpan, ...],
    rollout_id: str,
    reward: float | None,
    weight: float,
) -> Sample:
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for turn, is_trained in zip(branch, trains, strict=True):
        ids += turn.prompt_ids
        ids += turn.sampled_ids
        mask += [0] * len(turn.prompt_ids)
        logprobs += [0.0] * len(turn.prompt_ids)
        for logprob in turn.logprobs:
            trainable = is_trained and not math.isnan(logprob)
            mask.append(int(trainable))
            logprobs.append(logprob if trainable else 0.0)
    return Sample(
        rollout_id=rollout_id,
        token_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        spans=spans,
        weight=weight,
        reward=reward,
        is_truncated=branch[-1].is_truncated,
        messages=message_path(branch[-1]),
    )
