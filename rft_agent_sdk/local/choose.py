"""Choosing the next token of each sequence in a batch: by chance that depends on nothing else in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Choosing:
    """How one sequence is sampled; every value is checked by whoever made it."""

    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_k: int = 0
    """Number of tokens kept; 0 or less keeps all."""
    top_p: float = 1.0
    """The likeliest tokens are kept until their mass reaches this; 1 keeps all."""
    min_p: float = 0.0
    """Tokens less likely than this times the likeliest are left out."""
    seed: int = 0
    """Decides, with the number of tokens sampled before, the chance of each."""

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are left out."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


def choose(
    logits: Tensor, how: Sequence[Choosing], counts: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Return the next token of each row, and its log-probability under the model itself.

    That is of the raw logits: before temperature and filters, as a trainer computes it again. A token is found by
    its place in the cumulated probabilities, taken in the order of the vocabulary, so that logits that differ in
    the last bits, as those of another batch do, lead to another token only where chance falls within as much of a
    boundary.

    Args:
        logits: Shape `(N, V)`, float32.
        how: One for each row.
        counts: Tokens sampled before in each row.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    temperatures = np.array([one.temperature for one in how])
    if (temperatures == 1).all():
        scaled = logprobs
    else:
        safe = np.where(temperatures == 0, 1.0, temperatures)
        divisors = torch.as_tensor(safe, dtype=logits.dtype, device=logits.device)
        scaled = torch.log_softmax(logits / divisors[:, None], dim=-1)
    chances = uniform([one.seed for one in how], counts)
    tokens = _pick(scaled.exp(), chances)
    filtered = [at for at, one in enumerate(how) if one.is_filtered]
    if filtered:
        tokens[filtered] = _pick_filtered(
            scaled[filtered].exp(), [how[at] for at in filtered], chances[filtered]
        )
    if (temperatures == 0).any():
        is_greedy = torch.as_tensor(temperatures == 0, device=logits.device)
        tokens = torch.where(is_greedy, logits.argmax(dim=-1), tokens)
    found = logprobs.gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), found.tolist()


def uniform(seeds: Sequence[int], counts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return a number in `[0, 1)` for each seed and count, always the same: SplitMix64 of both."""
    with np.errstate(over="ignore"):
        state = _mixed(np.array([seed & _MASK for seed in seeds], dtype=np.uint64))
        state = _mixed(state + _GOLDEN * np.array(counts, dtype=np.uint64))
    # 52 bits: times a sum of probabilities it stays below that sum.
    found: npt.NDArray[np.float64] = (state >> np.uint64(12)).astype(np.float64) / 2.0**52
    return found


def _mixed(state: Any) -> Any:
    state = state + _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


def _pick(probabilities: Tensor, chances: npt.NDArray[np.float64]) -> Tensor:
    """Return where the cumulated probability passes each chance, shape `(N,)`."""
    is_double = probabilities.device.type != "mps"  # which has no float64
    mass = probabilities.to(torch.float64 if is_double else torch.float32).cumsum(dim=-1)
    chance = torch.as_tensor(chances, device=mass.device, dtype=mass.dtype)
    at = torch.searchsorted(mass, (chance * mass[:, -1])[:, None], right=True)[:, 0]
    return at.clamp_(max=probabilities.shape[1] - 1)


def _pick_filtered(
    probabilities: Tensor, how: Sequence[Choosing], chances: npt.NDArray[np.float64]
) -> Tensor:
    ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
    device, size = ranked.device, ranked.shape[1]

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=device)[:, None]

    ranks = torch.arange(size, device=device)
    is_kept = ranks < column([one.top_k if one.top_k > 0 else size for one in how])
    before = ranked.cumsum(dim=-1) - ranked
    # Top-p is a share of the mass that top-k left.
    left = (ranked * is_kept).sum(dim=-1, keepdim=True)
    top_p = column([one.top_p for one in how])
    is_kept &= (before < top_p * left) | (top_p >= 1)
    is_kept &= ranked >= column([one.min_p for one in how]) * ranked[:, :1]
    is_kept[:, 0] = True
    at = _pick(ranked * is_kept, chances)
    return order.gather(1, at[:, None])[:, 0]
