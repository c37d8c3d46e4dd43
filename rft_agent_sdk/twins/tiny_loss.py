"""The four losses of a training session and their slopes, as plain sums over positions.

With ratio `r = exp(logprob - sampled logprob)`, weight `w` and advantage `A`:

    cross_entropy        -w log p
    importance_sampling  -w r A
    ppo                  -w min(r A, clip(r, low, high) A)
    cispo                -w sg(clip(r, low, high)) A log p

The service publishes their names and inputs, not their formulas; these are the usual ones of those names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rft_agent_sdk.twins.backend import Loss, TrainingDatum

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """The positions of all datums in one row, shape `(N,)`."""

    starts: NDArray[np.int64]
    """Where each datum begins."""
    logprobs: Floats
    """Log-probability of each target under the current weights."""
    sampled: Floats
    """Log-probability of each target when it was sampled; zeros for cross entropy."""
    weights: Floats
    """Factor of each position."""
    advantages: Floats
    """Advantage of each position; zeros for cross entropy."""

    @classmethod
    def of(cls, datums: Sequence[TrainingDatum], logprobs: Sequence[Floats]) -> Batch:
        """Join datums and their targets' current log-probabilities."""
        lengths = [len(datum.tokens) for datum in datums]

        def joined(rows: Sequence[Sequence[float]]) -> Floats:
            return np.concatenate(
                [
                    np.asarray(row if len(row) else np.zeros(length), dtype=np.float64)
                    for row, length in zip(rows, lengths, strict=True)
                ]
            )

        return cls(
            np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64),
            np.concatenate(list(logprobs)),
            joined([datum.logprobs for datum in datums]),
            joined([datum.weights for datum in datums]),
            joined([datum.advantages for datum in datums]),
        )

    def ratio(self) -> Floats:
        """Return how much likelier each target has become; 1 where the weight is 0."""
        difference = np.where(self.weights != 0, self.logprobs - self.sampled, 0.0)
        found: Floats = np.exp(difference)
        return found

    def metrics(self, values: Floats, loss: Loss) -> dict[str, float]:
        """Return the batch's numbers under the names the service uses."""
        trained = self.weights != 0
        count = max(int(trained.sum()), 1)
        ratio = self.ratio()
        clipped = trained & ((ratio < loss.clip_low) | (ratio > loss.clip_high))
        is_clipping = loss.name in ("ppo", "cispo")
        return {
            "actor/pg_loss": float(values.sum()),
            "actor/ppo_kl": float((self.sampled - self.logprobs)[trained].sum() / count)
            if loss.name != "cross_entropy"
            else 0.0,
            "actor/pg_clipfrac": float(clipped.sum() / count) if is_clipping else 0.0,
            "global_token_num": float(len(values)),
        }


def loss_of(batch: Batch, loss: Loss) -> tuple[Floats, Floats]:
    """Return each position's loss, and its slope with respect to that position's log-probability."""
    weights, advantages = batch.weights, batch.advantages
    if loss.name == "cross_entropy":
        return -weights * batch.logprobs, -weights
    ratio = batch.ratio()
    plain = ratio * advantages
    if loss.name == "importance_sampling":
        return -weights * plain, -weights * plain
    clipped = np.clip(ratio, loss.clip_low, loss.clip_high)
    if loss.name == "cispo":
        factor = -weights * clipped * advantages
        return factor * batch.logprobs, factor
    bound = clipped * advantages
    # Where the clipped term is the smaller one it is a constant: nothing to follow.
    slope = np.where(plain <= bound, plain, 0.0)
    return -weights * np.minimum(plain, bound), -weights * slope
