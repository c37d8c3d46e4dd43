"""The log-probabilities that a model gives to tokens that are there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rft_agent_sdk.local.model import LocalModel

_AT_ONCE = 1024
"""Positions whose logits are held at one time."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a model thinks of a sequence; the first token has nothing before it."""

    logprobs: list[float | None]
    """Of each token given those before it, nats."""
    top: list[list[tuple[int, float]]]
    """The likeliest tokens at each place, if they were asked for."""


def score(model: LocalModel, tokens: Sequence[int], top_k: int = 0) -> Score:
    """Return what a model thinks of a sequence; no gradient, no cache."""
    chosen: list[float] = []
    top: list[list[tuple[int, float]]] = []
    with torch.no_grad():
        ids = torch.tensor([tokens], device=model.device)
        parts = model.hidden(ids)[0, :-1].split(_AT_ONCE)
        for hidden, targets in zip(parts, ids[0, 1:].split(_AT_ONCE), strict=True):
            logprobs = torch.log_softmax(model.head(hidden), dim=-1)
            chosen += logprobs.gather(1, targets[:, None])[:, 0].tolist()
            if top_k:
                best = logprobs.topk(min(top_k, logprobs.shape[1]), dim=-1)
                rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
                top += [list(zip(*row, strict=True)) for row in rows]
    return Score([None, *chosen], [[], *top] if top_k else [])
