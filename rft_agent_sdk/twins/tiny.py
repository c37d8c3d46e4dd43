"""A model small enough to learn on a laptop in milliseconds: a table of logits per last token.

Not a language model. It is there so that a loop over the real wire has real gradients to follow: every
log-probability is exact, every gradient analytic, and nothing is random but what a seed decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rft_agent_sdk.twins.backend import (
    Adam,
    Loss,
    LossResult,
    OperationFailed,
    SampledTokens,
    SampleRequest,
    StopReason,
    TrainingDatum,
)
from rft_agent_sdk.twins.tiny_loss import Batch, loss_of

Floats = NDArray[np.float64]
Prior = Callable[[Sequence[int]], Floats]
Rows = dict[int, Floats]
"""What training added to the base model's logits, by last token: rows of shape `(V,)`, never written in place,
so that a shallow copy is a snapshot."""


@dataclass
class _State:
    rows: Rows = field(default_factory=dict)
    first: Rows = field(default_factory=dict)
    second: Rows = field(default_factory=dict)
    steps: int = 0

    def copy(self, *, with_optimizer: bool = True) -> _State:
        if not with_optimizer:
            return _State(dict(self.rows))
        return _State(dict(self.rows), dict(self.first), dict(self.second), self.steps)


class TinyBackend:
    """Next-token logits: a fixed prior of the whole context, plus a learned row of the last token."""

    def __init__(
        self,
        vocab_size: int = 64,
        *,
        eos_ids: Sequence[int] = (0,),
        eos_logit: float = 2.0,
        prior: Prior | None = None,
        gain: float = 100.0,
        seed: int = 0,
    ) -> None:
        """Start as the base model.

        Args:
            vocab_size: Number of tokens `V`.
            eos_ids: Tokens that end a turn.
            eos_logit: Their logit where there is no prior; all others have 0, so that turns end early.
            prior: Base logits `(V,)` after a context.
            gain: Logits per unit of weight, as the scale of an adapter: learning rates the service allows
                then move it within a few steps.
            seed: Of sampling that brings no seed of its own.
        """
        self.vocab_size = vocab_size
        self._eos = frozenset(eos_ids)
        self._base = np.zeros(vocab_size)
        self._base[list(eos_ids)] = eos_logit
        self._prior = prior
        self._gain = gain
        self._state = _State()
        self._gradient: Rows = {}
        self._seed = seed
        self._count = itertools.count()  # its next() is safe between threads

    def forward_backward(
        self, datums: Sequence[TrainingDatum], loss: Loss, *, backward: bool
    ) -> LossResult:
        """Return the loss of a batch, and accumulate its gradient."""
        for datum in datums:
            self._check((*datum.tokens, *datum.targets))
        logs = [self._log_probabilities(self._state.rows, datum.tokens) for datum in datums]
        chosen = [
            log[np.arange(len(datum.targets)), list(datum.targets)]
            for log, datum in zip(logs, datums, strict=True)
        ]
        batch = Batch.of(datums, chosen)
        values, slopes = loss_of(batch, loss)
        if backward:
            at = 0
            for log, datum in zip(logs, datums, strict=True):
                self._accumulate(datum, log, slopes[at : at + len(datum.tokens)])
                at += len(datum.tokens)
        per_datum = np.add.reduceat(values, batch.starts)
        metrics = batch.metrics(values, loss)
        if backward:
            metrics["actor/grad_norm"] = _norm(self._gradient)
        return LossResult(
            tuple(tuple(map(float, row)) for row in chosen),
            tuple(map(float, per_datum)),
            metrics,
        )

    def optimizer_step(self, params: Adam) -> Mapping[str, float]:
        """Take one step of AdamW with the accumulated gradient."""
        norm = _norm(self._gradient)
        clips = 0 < params.grad_clip_norm < norm
        scale = params.grad_clip_norm / norm if clips else 1.0
        state = self._state = self._state.copy()
        state.steps += 1
        correction1 = 1 - params.beta1**state.steps
        correction2 = 1 - params.beta2**state.steps
        zero = np.zeros(self.vocab_size)
        for token in sorted({*state.rows, *self._gradient}):
            gradient = self._gradient.get(token, zero) * scale
            first = params.beta1 * state.first.get(token, zero) + (1 - params.beta1) * gradient
            second = params.beta2 * state.second.get(token, zero) + (1 - params.beta2) * gradient**2
            row = state.rows.get(token, zero)
            update = (first / correction1) / (np.sqrt(second / correction2) + params.eps)
            state.rows[token] = row - params.learning_rate * (update + params.weight_decay * row)
            state.first[token], state.second[token] = first, second
        self._gradient = {}
        return {"actor/lr": params.learning_rate, "actor/grad_norm": norm}

    def weights(self) -> Rows:
        """Return the learned rows as they are now."""
        return dict(self._state.rows)

    def state(self) -> _State:
        """Return rows and moments as they are now."""
        return self._state.copy()

    def load_state(self, state: Any, *, with_optimizer: bool) -> None:
        """Take up a state; what gradient was accumulated is dropped."""
        self._state = state.copy(with_optimizer=with_optimizer)
        self._gradient = {}

    def weights_of(self, state: Any) -> Rows:
        """Return a state's rows."""
        rows: Rows = state.rows
        return rows

    def sample(self, weights: Rows | None, request: SampleRequest) -> list[SampledTokens]:
        """Sample sequences, each by a seed of its own."""
        self._check(request.prompt)
        if request.stop:
            raise OperationFailed("this model has no tokenizer, so it knows no stop texts")
        entropy = (self._seed, next(self._count)) if request.seed is None else request.seed
        root = np.random.SeedSequence(entropy)
        return [
            self._sequence(weights or {}, request, np.random.default_rng(seed))
            for seed in root.spawn(request.num_samples)
        ]

    def logprobs(self, weights: Rows | None, prompt: Sequence[int]) -> list[float | None]:
        """Return each prompt token's log-probability; `None` for the first."""
        self._check(prompt)
        log = self._log_probabilities(weights or {}, prompt[:-1])
        found = log[np.arange(len(prompt) - 1), list(prompt[1:])]
        return [None, *map(float, found)]

    def top_logprobs(
        self, weights: Rows | None, prompt: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        """Return the likeliest tokens at each position."""
        self._check(prompt)
        log = self._log_probabilities(weights or {}, prompt[:-1])
        order = np.argsort(-log, axis=1, kind="stable")[:, :k]
        ranked = [
            [(int(token), float(row[token])) for token in best]
            for row, best in zip(log, order, strict=True)
        ]
        return [[], *ranked]

    def close(self) -> None:
        """Hold nothing that had to be given back."""

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise OperationFailed("there is no token")
        wrong = next((token for token in tokens if not 0 <= token < self.vocab_size), None)
        if wrong is not None:
            raise OperationFailed(
                f"token {wrong} is not one of the {self.vocab_size} of this model"
            )

    def _logits(self, rows: Rows, context: Sequence[int]) -> Floats:
        base = self._base if self._prior is None else self._prior(context)
        row = rows.get(context[-1])
        return base if row is None else base + self._gain * row

    def _log_probabilities(self, rows: Rows, tokens: Sequence[int]) -> Floats:
        """Return log-probabilities of shape `(T, V)` after each token."""
        if not tokens:
            return np.zeros((0, self.vocab_size))
        logits = np.stack([self._logits(rows, tokens[: at + 1]) for at in range(len(tokens))])
        return _log_softmax(logits)

    def _accumulate(self, datum: TrainingDatum, log: Floats, slopes: Floats) -> None:
        for at in np.flatnonzero(slopes):
            # d(log p of the target) / d(logits) = one-hot of the target - p
            gradient = -np.exp(log[at]) * slopes[at]
            gradient[datum.targets[at]] += slopes[at]
            token = datum.tokens[at]
            gradient *= self._gain
            self._gradient[token] = gradient + self._gradient.get(token, 0.0)

    def _sequence(
        self, rows: Rows, request: SampleRequest, random: np.random.Generator
    ) -> SampledTokens:
        context, tokens, logprobs = list(request.prompt), [], []
        reason: StopReason = "length"
        for _ in range(request.max_tokens):
            log = _log_softmax(self._logits(rows, context)[None])[0]
            token = _choose(log, request, random)
            context.append(token)
            tokens.append(token)
            logprobs.append(float(log[token]))
            if token in self._eos:
                reason = "stop"
                break
        return SampledTokens(tuple(tokens), tuple(logprobs), reason)


def _choose(log: Floats, request: SampleRequest, random: np.random.Generator) -> int:
    if request.temperature == 0:
        return int(np.argmax(log))
    log = _log_softmax(log[None] / request.temperature)[0]
    order = np.argsort(-log, kind="stable")
    if request.top_k > 0:
        order = order[: request.top_k]
    mass = np.cumsum(np.exp(log[order]))
    if request.top_p < 1:
        mass = mass[: int(np.searchsorted(mass, request.top_p)) + 1]
    at = int(np.searchsorted(mass, random.random() * mass[-1], side="right"))
    return int(order[min(at, len(mass) - 1)])


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def _norm(rows: Rows) -> float:
    return float(np.sqrt(sum(float((row**2).sum()) for row in rows.values())))
