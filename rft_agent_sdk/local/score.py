"""The log-probabilities that a model gives to tokens that are there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rft_agent_sdk.local.model import LocalModel


@dataclass(frozen=True, slots=True)
class Score:
    """What a model thinks of a sequence; the first token has nothing before it."""

    logprobs: list[float | None]
    """Of each token given those before it, nats."""
    top: list[list[tuple[int, float]]]
    """The likeliest tokens at each place, if they were asked for."""


def score(model: LocalModel, tokens: Sequence[int], top_k: int = 0) -> Score:
    """Return what a model thinks of a sequence; no gradient, no cache."""
    with torch.no_grad():
        ids = torch.tensor([tokens], device=model.device)
        logits = model.head(model.hidden(ids)[0, :-1])
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist()
        if not top_k:
            return Score([None, *chosen], [])
        best = logprobs.topk(min(top_k, logprobs.shape[1]), dim=-1)
    ranked = [
        list(zip(ids, values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return Score([None, *chosen], [[], *ranked])
