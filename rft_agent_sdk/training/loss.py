"""The four losses in numpy, with their gradients written out: what every engine must compute.

A specification, not an engine: it starts from the log-probabilities that a model gives the targets, so
that an engine can be tested against it, token by token. A loss is a *sum* over the tokens of all datums;
to feed a batch in parts is to add up losses and gradients.

Per token, with `w` its weight, `A` its advantage, `p` the model's log-probability of the target and `q`
the one it was sampled with, `r = exp(clamp(p - q, -20, 20))`, `clip(r) = min(max(r, low), high)`:

    cross_entropy         -w p
    importance_sampling   -w r A
    ppo                   -w min(r A, clip(r) A)
    cispo                 -w stop_gradient(clip(r)) A p

Sources: ppo arXiv 1707.06347, equation 7; cispo arXiv 2506.13585, equation 4. The clip thresholds are
bounds of the ratio itself, such as 0.8 and 1.2, not distances from 1. The managed service names these
losses and publishes no formula. The clamp is ours: beyond 20 nats, a ratio of half a billion, `exp` is on its
way to infinity and the token says nothing but that two models disagree; its slope by `p` is 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.engines.base import Datum, LossName, StepMetrics

Array: TypeAlias = npt.NDArray[np.float64]

DEFAULT_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
"""What an engine of ours uses where no thresholds are given; a managed job's defaults are the same."""
LOG_RATIO_BOUND = 20.0
"""Nats that a token's log-ratio is clamped to, either way."""
_ALLOWED = {"clip_low_threshold": (0.0, 1.0), "clip_high_threshold": (1.0, 10.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """A loss, and what it says of each target."""

    value: float
    """Sum over all tokens."""
    gradients: tuple[Array, ...]
    """Derivative by the model's log-probability of each target, one `(T,)` array per datum."""
    metrics: StepMetrics
    """Means over the tokens that train: `actor/pg_loss`; and, where the loss has a ratio,
    `actor/ppo_kl`, the estimate `q - p` of the divergence (nats), and `actor/pg_clipfrac`, the share
    of tokens whose term was changed by clipping."""


class _Tokens(NamedTuple):
    """All tokens of a batch, shape `(N,)` each, zero where nothing trains."""

    trains: npt.NDArray[np.bool_]
    weights: Array
    target_logprobs: Array
    logprobs: Array
    advantages: Array


class _Terms(NamedTuple):
    """Per token, before the weight and the sign: what is maximised, its slope, whether clipping bit."""

    gain: Array
    slope: Array
    is_clipped: npt.NDArray[np.bool_]


def compute_loss(
    loss_fn: LossName,
    datums: Sequence[Datum],
    target_logprobs: Sequence[npt.ArrayLike],
    loss_fn_config: Mapping[str, float] | None = None,
) -> Loss:
    """Return a loss and its gradient by the model's log-probabilities.

    Tokens of weight 0 have no influence, whatever stands there, not-a-number included. At a threshold
    itself the slope is that of the inside, which is also what autograd of `min` and `clamp` gives.

    Args:
        loss_fn: Which loss.
        datums: At least one.
        target_logprobs: For each datum the model's log-probability of its targets, shape `(T,)`, nats.
        loss_fn_config: See `clip_bounds`.

    Raises:
        UsageError: No such loss or threshold, lengths that do not fit, a trained token without a finite
            log-probability.
    """
    if loss_fn not in _TERMS:
        raise UsageError(f"wanted a loss out of {sorted(_TERMS)}, got {loss_fn!r}")
    low, high = clip_bounds(loss_fn_config)
    tokens = _joined(datums, target_logprobs)
    terms = _TERMS[loss_fn](tokens, low, high)
    value = -float(np.sum(tokens.weights * terms.gain))
    gradient = -tokens.weights * terms.slope
    count = max(int(tokens.trains.sum()), 1)
    metrics = {"actor/pg_loss": value / count}
    if loss_fn != "cross_entropy":
        metrics["actor/ppo_kl"] = float(np.sum(tokens.logprobs - tokens.target_logprobs)) / count
        metrics["actor/pg_clipfrac"] = int(np.sum(terms.is_clipped & tokens.trains)) / count
    ends = np.cumsum([len(datum.tokens) for datum in datums])[:-1]
    return Loss(value, tuple(np.split(gradient, ends)), metrics)


def clip_bounds(config: Mapping[str, float] | None = None) -> tuple[float, float]:
    """Return the lower and the upper bound of the ratio.

    Args:
        config: `clip_low_threshold` in 0..1 and `clip_high_threshold` in 1..10; what is left out is
            0.8 and 1.2.

    Raises:
        UsageError: Another key, or a value out of its range.
    """
    given = {**DEFAULT_CLIP, **(config or {})}
    for name, value in given.items():
        if name not in _ALLOWED:
            raise UsageError(f"a loss is configured by {sorted(_ALLOWED)} only, got {name!r}")
        least, most = _ALLOWED[name]
        if not least <= value <= most:
            raise UsageError(
                f"{name} bounds the ratio and must lie in {least:g}..{most:g}, got {value!r}"
            )
    return given["clip_low_threshold"], given["clip_high_threshold"]


def _joined(datums: Sequence[Datum], target_logprobs: Sequence[npt.ArrayLike]) -> _Tokens:
    given = [np.asarray(values, np.float64) for values in target_logprobs]
    wanted = [(len(datum.tokens),) for datum in datums]
    if not datums or [values.shape for values in given] != wanted:
        raise UsageError(
            f"wanted target log-probabilities for at least one datum, of shapes {wanted}, got "
            f"{[values.shape for values in given]}"
        )
    weights = _all(datum.weights for datum in datums)
    trains = weights != 0
    tokens = _Tokens(
        trains,
        weights,
        # selected, not multiplied: zero times infinity would be no number
        np.where(trains, np.concatenate(given), 0.0),
        np.where(trains, _all(datum.logprobs for datum in datums), 0.0),
        np.where(trains, _all(datum.advantages for datum in datums), 0.0),
    )
    if not np.isfinite(tokens[1:]).all():
        raise UsageError(
            "every trained token needs a finite weight, advantage, sampling and target log-probability"
        )
    return tokens


def _all(parts: Iterable[Sequence[float]]) -> Array:
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def _cross_entropy(tokens: _Tokens, low: float, high: float) -> _Terms:
    slope = np.ones_like(tokens.weights)
    return _Terms(tokens.target_logprobs, slope, np.zeros_like(tokens.trains))


def _importance_sampling(tokens: _Tokens, low: float, high: float) -> _Terms:
    gain = _ratio(tokens) * tokens.advantages
    slope = np.where(_is_clamped(tokens), 0.0, gain)  # elsewhere r is its own derivative by p
    return _Terms(gain, slope, np.zeros_like(tokens.trains))


def _ppo(tokens: _Tokens, low: float, high: float) -> _Terms:
    ratio = _ratio(tokens)
    free = ratio * tokens.advantages
    bounded = np.clip(ratio, low, high) * tokens.advantages
    is_clipped = bounded < free
    is_flat = is_clipped | _is_clamped(tokens)
    return _Terms(np.minimum(free, bounded), np.where(is_flat, 0.0, free), is_clipped)


def _cispo(tokens: _Tokens, low: float, high: float) -> _Terms:
    ratio = _ratio(tokens)
    slope = np.clip(ratio, low, high) * tokens.advantages
    return _Terms(slope * tokens.target_logprobs, slope, (ratio < low) | (ratio > high))


def _ratio(tokens: _Tokens) -> Array:
    log_ratio = tokens.target_logprobs - tokens.logprobs
    return np.exp(np.clip(log_ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND))


def _is_clamped(tokens: _Tokens) -> npt.NDArray[np.bool_]:
    return np.abs(tokens.target_logprobs - tokens.logprobs) > LOG_RATIO_BOUND


_TERMS: Mapping[LossName, Callable[[_Tokens, float, float], _Terms]] = {
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
}
