"""The four losses of a training session in torch, as sums over tokens, and a divergence from a frozen reference.

With ratio `r = exp(clamp(p - q, -20, 20))` of the model's log-probability `p` to the sampled one `q`, weight `w` and
advantage `A`, a token's loss is

    cross_entropy         -w p
    importance_sampling   -w r A
    ppo                   -w min(r A, clip(r) A)
    cispo                 -w stop_gradient(clip(r)) A p
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rft_agent_sdk.errors import UsageError

LossName = Literal["ppo", "importance_sampling", "cispo", "cross_entropy"]
KlKind = Literal["exact", "k3"]

LOG_RATIO_BOUND = 20.0
"""Nats that a token's log-ratio is clamped to, either way."""


@dataclass(frozen=True, slots=True)
class LossSpec:
    """Which loss, with its bounds of the ratio."""

    name: LossName
    """The loss function."""
    clip_low: float = 0.8
    """Least ratio, for ppo and cispo."""
    clip_high: float = 1.2
    """Largest ratio, for ppo and cispo."""

    def __post_init__(self) -> None:
        if self.name not in get_args(LossName):
            raise UsageError(f"wanted a loss out of {get_args(LossName)}, got {self.name!r}")
        if not 0 <= self.clip_low <= 1 <= self.clip_high <= 10:
            raise UsageError(
                "the bounds of the ratio must lie in 0..1 and 1..10, "
                f"got {self.clip_low!r} and {self.clip_high!r}"
            )

    @property
    def has_ratio(self) -> bool:
        """Whether it compares with the log-probabilities of sampling."""
        return self.name != "cross_entropy"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a loss says of each token, shape `(N,)` each."""

    losses: Tensor
    """The loss, with its gradient."""
    is_clipped: Tensor
    """Whether clipping changed the term."""


def token_losses(
    spec: LossSpec, logprobs: Tensor, sampled: Tensor, weights: Tensor, advantages: Tensor
) -> Terms:
    """Return the loss of each token; the sum is what is minimised.

    Args:
        spec: Which loss.
        logprobs: The model's log-probability of each target, nats, shape `(N,)`.
        sampled: The one it was sampled with.
        weights: Factor of each token.
        advantages: Advantage of each token.
    """
    nothing = torch.zeros_like(logprobs, dtype=torch.bool)
    if spec.name == "cross_entropy":
        return Terms(-weights * logprobs, nothing)
    ratio = torch.exp((logprobs - sampled).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    free = ratio * advantages
    if spec.name == "importance_sampling":
        return Terms(-weights * free, nothing)
    clipped = ratio.clamp(spec.clip_low, spec.clip_high)
    if spec.name == "cispo":
        gain = clipped.detach() * advantages * logprobs
        is_clipped = (ratio < spec.clip_low) | (ratio > spec.clip_high)
        return Terms(-weights * gain, is_clipped)
    bounded = clipped * advantages
    return Terms(-weights * torch.minimum(free, bounded), (bounded < free).detach())


def divergence(kind: KlKind, logits: Tensor, reference: Tensor, targets: Tensor) -> Tensor:
    """Return the divergence of the model from a frozen reference at each token, nats, shape `(N,)`.

    `exact` sums over the vocabulary, `sum_v p(v) (log p(v) - log ref(v))`: no variance, and a gradient that is the
    divergence's own. `k3` looks at the target alone, `exp(d) - 1 - d` with `d = log ref - log p`: never negative,
    and right on average for what the model itself has sampled.

    Args:
        kind: Which.
        logits: Of the model, shape `(N, V)`.
        reference: Of the reference, same shape.
        targets: Shape `(N,)`.
    """
    own, other = torch.log_softmax(logits, dim=-1), torch.log_softmax(reference, dim=-1)
    if kind == "exact":
        return (own.exp() * (own - other)).sum(dim=-1)
    difference = (other - own).gather(1, targets[:, None])[:, 0]
    return torch.expm1(difference) - difference
