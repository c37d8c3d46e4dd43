"""What stands behind a training session: the surface a model and its optimizer show to the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

LossName = Literal["cross_entropy", "importance_sampling", "ppo", "cispo"]
StopReason = Literal["stop", "length"]
Weights = Any
"""Weights at one moment, opaque to the server; whoever holds them can sample them for ever."""


class OperationFailed(Exception):
    """An operation was accepted and cannot be done; the message becomes its `errorDetails`."""


@dataclass(frozen=True, slots=True)
class TrainingDatum:
    """One sequence as it came over the wire, checked; every array has shape `(T,)`."""

    tokens: tuple[int, ...]
    """Inputs; position t predicts `targets[t]`."""
    targets: tuple[int, ...]
    """Tokens whose log-probability the loss is about."""
    weights: tuple[float, ...]
    """Factor of each position's loss; 0 leaves it out."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of the target when it was sampled, nats; empty for cross entropy."""
    advantages: tuple[float, ...] = ()
    """Advantage of the target; empty for cross entropy."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Which loss, with its bounds of the ratio."""

    name: LossName
    """The loss function."""
    clip_low: float = 0.8
    """Least ratio, for ppo and cispo."""
    clip_high: float = 1.2
    """Largest ratio, for ppo and cispo."""


@dataclass(frozen=True, slots=True)
class LossResult:
    """What a forward pass tells, with or without a backward one."""

    logprobs: tuple[tuple[float, ...], ...]
    """Log-probability of each target under the current weights, nats, one row per datum."""
    losses: tuple[float, ...]
    """The loss summed over each datum's positions."""
    metrics: Mapping[str, float]
    """Named numbers of the whole batch."""


@dataclass(frozen=True, slots=True)
class Adam:
    """AdamW's parameters, with what the service takes for those left out."""

    learning_rate: float
    """In (0, 0.01]."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.95
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the second moment's root."""
    weight_decay: float = 0.0
    """Decoupled decay, times the learning rate."""
    grad_clip_norm: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """How to sample one prompt."""

    prompt: tuple[int, ...]
    """Token ids, at least one."""
    num_samples: int = 1
    """How many sequences."""
    max_tokens: int = 512
    """Most new tokens of a sequence."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    """Least probability mass kept; 1 keeps all."""
    top_k: int = -1
    """Number of tokens kept; -1 keeps all."""
    seed: int | None = None
    """Same seed, weights and request: same tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end a sequence."""


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One sampled sequence."""

    tokens: tuple[int, ...]
    """New tokens, the one that ended the turn included."""
    logprobs: tuple[float, ...]
    """Log-probability of each under the model itself, before temperature and filters, nats."""
    stop_reason: StopReason
    """Why it ended."""


class TrainingBackend(Protocol):
    """A model and its optimizer.

    Training calls come one at a time. `sample`, `logprobs` and `top_logprobs` come from other threads meanwhile:
    they get the weights they are about, and change nothing.
    """

    def forward_backward(
        self, datums: Sequence[TrainingDatum], loss: Loss, *, backward: bool
    ) -> LossResult:
        """Return the loss; with `backward`, add its gradient, summed over positions, to what is accumulated."""
        ...

    def optimizer_step(self, params: Adam) -> Mapping[str, float]:
        """Apply the accumulated gradient, clear it, and return metrics."""
        ...

    def weights(self) -> Weights:
        """Return the weights as they are now."""
        ...

    def state(self) -> Any:
        """Return weights and optimizer as they are now; opaque."""
        ...

    def load_state(self, state: Any, *, with_optimizer: bool) -> None:
        """Take up what `state` returned; without the optimizer, start that one afresh."""
        ...

    def weights_of(self, state: Any) -> Weights:
        """Return the weights inside what `state` returned."""
        ...

    def sample(self, weights: Weights | None, request: SampleRequest) -> Sequence[SampledTokens]:
        """Sample with some weights; `None` is the base model."""
        ...

    def logprobs(self, weights: Weights | None, prompt: Sequence[int]) -> list[float | None]:
        """Return each prompt token's log-probability given those before it; the first has none."""
        ...

    def top_logprobs(
        self, weights: Weights | None, prompt: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        """Return the `k` likeliest tokens at each position of the prompt; the first has none."""
        ...

    def close(self) -> None:
        """Give back what it holds; nothing is asked of it any more."""
        ...
