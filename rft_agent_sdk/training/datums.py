"""From rollouts with advantages to the datums an engine trains on.

Pure and token-exact: nothing is rendered, decoded or cut. A sample that cannot train is left out whole,
and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.advantages import Advantage
from rft_agent_sdk.training.engines.base import Datum
from rft_agent_sdk.trajectory import Sample, Trajectory

Weighting = Literal["token", "rollout"]
"""What weighs alike under an engine's loss, which is a *sum* over tokens.

`token`: every trained token weighs 1. A long rollout moves the weights more than a short one, and no
answer gains by its length. As each token trains in one sample only, cutting a rollout into samples
changes nothing.

`rollout`: every rollout weighs 1, shared evenly by its trained tokens. `Sample.weight` is its sample's
share of those tokens, so a token gets `Sample.weight / Sample.trained_tokens`. (`Sample.weight` times
the 0/1 mask would be wrong under a sum: the token count of a sample would enter twice.)
"""


@dataclass(frozen=True, slots=True)
class DatumBatch:
    """The datums of a batch of rollouts, and what was left out."""

    datums: tuple[Datum, ...]
    """In the order of the rollouts and their samples."""
    trained_tokens: int
    """Targets with a weight, over all datums."""
    empty: int
    """Samples of fewer than two tokens: there is nothing to predict."""
    masked: int
    """Samples without a token that trains."""
    too_long: int
    """Samples longer than the limit."""

    @property
    def dropped(self) -> int:
        """Samples that became no datum."""
        return self.empty + self.masked + self.too_long


def build_datums(
    rollouts: Iterable[tuple[Trajectory, Advantage]],
    *,
    weighting: Weighting = "token",
    max_length: int | None = None,
) -> DatumBatch:
    """Return one datum for each sample that can train.

    Args:
        rollouts: Each with its advantage: one number, or one per captured turn.
        weighting: `token` is the sum over tokens of DAPO (arXiv 2503.14476, section 3.3) and Dr. GRPO
            (arXiv 2503.20783, section 3.2), up to a constant; `rollout` the mean over each rollout of
            GRPO (arXiv 2402.03300, equation 3).
        max_length: Tokens of a whole sample, the last one included; longer ones are dropped, never
            cut. `None` for no limit.

    Raises:
        UsageError: A sample or an advantage that contradicts itself; the message names the rollout.
    """
    if weighting not in ("token", "rollout"):
        raise UsageError(f"weighting must be 'token' or 'rollout', got {weighting!r}")
    if max_length is not None and max_length < 2:
        raise UsageError(f"max_length must be at least 2 tokens, got {max_length!r}")
    datums: list[Datum] = []
    left_out = {"empty": 0, "masked": 0, "too_long": 0}
    for trajectory, advantage in rollouts:
        _check_advantage(trajectory, advantage)
        for sample in trajectory.samples:
            reason = _why_not(sample, max_length)
            if reason is None:
                datums.append(_datum(sample, advantage, weighting))
            else:
                left_out[reason] += 1
    trained = sum(weight != 0 for datum in datums for weight in datum.weights)
    return DatumBatch(tuple(datums), trained, **left_out)


def _why_not(sample: Sample, max_length: int | None) -> str | None:
    if len(sample.token_ids) < 2:
        return "empty"
    if not any(sample.loss_mask):
        return "masked"
    if max_length is not None and len(sample.token_ids) > max_length:
        return "too_long"
    return None


def _datum(sample: Sample, advantage: Advantage, weighting: Weighting) -> Datum:
    _check_sample(sample)
    mask = sample.loss_mask[1:]  # position t of a datum predicts token t + 1
    per_token = _spread(sample, advantage)[1:]
    weight = 1.0 if weighting == "token" else sample.weight / sample.trained_tokens
    return Datum(
        tokens=sample.token_ids[:-1],
        targets=sample.token_ids[1:],
        weights=tuple(weight if trains else 0.0 for trains in mask),
        logprobs=_where(mask, sample.logprobs[1:]),
        advantages=_where(mask, per_token),
    )


def _where(mask: Sequence[int], values: Sequence[float]) -> tuple[float, ...]:
    return tuple(
        float(value) if trains else 0.0 for trains, value in zip(mask, values, strict=True)
    )


def _spread(sample: Sample, advantage: Advantage) -> Sequence[float]:
    """Return the advantage of each token, shape `(T,)`; what is outside every turn gets zero."""
    if not isinstance(advantage, tuple):
        return (advantage,) * len(sample.token_ids)
    per_token = [0.0] * len(sample.token_ids)
    in_turns = 0
    for span in sample.spans:
        if not 0 <= span.turn < len(advantage):
            raise UsageError(
                f"got turn {span.turn} among {len(advantage)} turns in a sample of rollout "
                f"{sample.rollout_id!r}"
            )
        per_token[span.start : span.end] = [advantage[span.turn]] * (span.end - span.start)
        in_turns += sum(sample.loss_mask[span.start : span.end])
    if in_turns != sample.trained_tokens:
        raise UsageError(
            f"advantages per turn need each trained token in one turn, got {in_turns} of "
            f"{sample.trained_tokens} in a sample of rollout {sample.rollout_id!r}"
        )
    return per_token


def _check_advantage(trajectory: Trajectory, advantage: Advantage) -> None:
    numbers = advantage if isinstance(advantage, tuple) else (advantage,)
    if not all(map(math.isfinite, numbers)):
        raise UsageError(
            f"advantages must be finite, got {advantage!r} for rollout {trajectory.rollout_id!r}"
        )
    if isinstance(advantage, tuple) and len(advantage) != trajectory.turns:
        raise UsageError(
            f"wanted one advantage per captured turn, got {len(advantage)} for the {trajectory.turns} "
            f"turns of rollout {trajectory.rollout_id!r}"
        )


def _check_sample(sample: Sample) -> None:
    """Refuse what no gateway records: a file was edited, or another program wrote it."""
    where = f"in a sample of rollout {sample.rollout_id!r}"
    if not set(sample.loss_mask) <= {0, 1}:
        raise UsageError(f"a loss mask holds 0 and 1, got {sorted(set(sample.loss_mask))} {where}")
    if sample.loss_mask[0]:
        raise UsageError(f"nothing predicts the first token, yet the mask trains it {where}")
    for trains, logprob in zip(sample.loss_mask, sample.logprobs, strict=True):
        if trains and not -math.inf < logprob <= 0:  # not a number compares false
            raise UsageError(
                f"a trained token needs a finite logprob of at most 0, got {logprob!r} {where}"
            )
    for span in sample.spans:
        if not 0 <= span.start <= span.end <= len(sample.token_ids):
            raise UsageError(
                f"turn {span.turn} spans {span.start}..{span.end}, outside the "
                f"{len(sample.token_ids)} tokens {where}"
            )
