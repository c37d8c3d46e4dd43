"""The surface of an engine: that of a SageMaker Training Session, whoever stands behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rft_agent_sdk.errors import UsageError

LossName = Literal["ppo", "importance_sampling", "cispo", "cross_entropy"]
StepMetrics = Mapping[str, float]
"""Named numbers of one operation, such as `actor/pg_loss`."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence, aligned as the service wants it: position t predicts token t+1.

    All arrays have shape `(T,)` with `T = len(sequence) - 1`.
    """

    tokens: tuple[int, ...]
    """Inputs: the sequence without its last token."""
    targets: tuple[int, ...]
    """The sequence without its first token."""
    weights: tuple[float, ...]
    """1 where the target was sampled and trains, or its share under another weighting; else 0."""
    logprobs: tuple[float, ...]
    """Log-probability of the target when it was sampled, nats; 0 where the weight is 0."""
    advantages: tuple[float, ...]
    """Advantage of the target; 0 where the weight is 0."""

    def __post_init__(self) -> None:
        arrays = (self.targets, self.weights, self.logprobs, self.advantages)
        lengths = [len(self.tokens), *map(len, arrays)]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise UsageError(
                "a datum needs as many targets, weights, logprobs and advantages as tokens, and at "
                f"least one, got lengths {lengths}"
            )


@dataclass(frozen=True, slots=True)
class AdamParams:
    """AdamW's parameters, all of them: what is left out of a request is the service's own default."""

    learning_rate: float = 1e-5
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0


class Engine(ABC):
    """Owns weights and optimizer. Operations are awaited one at a time, in order.

    A sampling client is whatever the engine samples with; the command that composes a run knows how to
    make a gateway's sampler of it.
    """

    @abstractmethod
    async def forward_backward(
        self,
        datums: Sequence[Datum],
        loss_fn: LossName,
        loss_fn_config: Mapping[str, float] | None = None,
    ) -> StepMetrics:
        """Add the gradient of the summed loss over the datums' tokens to what is accumulated.

        Args:
            datums: At least one.
            loss_fn: Which loss.
            loss_fn_config: `clip_low_threshold` and `clip_high_threshold`: bounds of the ratio, such as
                0.8 and 1.2; `None` for the engine's own.
        """

    @abstractmethod
    async def optim_step(self, params: AdamParams) -> StepMetrics:
        """Apply the accumulated gradient and clear it."""

    @abstractmethod
    async def save_weights_and_get_sampling_client(self) -> Any:
        """Return a client that samples the weights as they are now; earlier clients keep theirs."""

    @abstractmethod
    async def save_state(self, description: str = "") -> str:
        """Save weights and optimizer; return a name that `load_state` takes."""

    @abstractmethod
    async def load_state(self, name: str, *, with_optimizer: bool = True) -> None:
        """Take up a saved state."""

    async def save_weights(self, description: str = "") -> str:
        """Publish the weights ready for inference; return their name. Not every engine can."""
        raise UsageError(f"{type(self).__name__} publishes no weights for inference")

    @abstractmethod
    def get_tokenizer(self) -> Any:
        """Return the model's tokenizer, as `gateway.load_renderer(tokenizer=...)` takes it."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop whatever is billed or held. Safe to call again."""
