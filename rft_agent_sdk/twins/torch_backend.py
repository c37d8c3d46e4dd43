"""A real language model behind training sessions: trained and sampled on this machine, with torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.choose import Choosing
from rft_agent_sdk.local.generate import Decoder, SamplingSettings
from rft_agent_sdk.local.losses import LossSpec
from rft_agent_sdk.local.model import LocalModel
from rft_agent_sdk.local.trainer import Trainer, TrainerSettings
from rft_agent_sdk.local.turns import Ask
from rft_agent_sdk.local.weights import Weights
from rft_agent_sdk.twins.backend import (
    Adam,
    Loss,
    LossResult,
    OperationFailed,
    SampledTokens,
    SampleRequest,
    TrainingDatum,
)

_TAIL = 24
"""Last tokens that are decoded to look for a stop text; one longer than they are is not found."""


@dataclass(frozen=True, slots=True)
class _State:
    """Weights and optimizer at one moment."""

    sampled: Weights
    exact: Mapping[str, Tensor]
    """The weights in float32, whatever the model computes in."""
    optimizer: Mapping[str, Any]


class TorchBackend:
    """One training session's model. What is saved stays in memory, as long as somebody names it."""

    def __init__(
        self,
        base: LocalModel,
        *,
        lora_rank: int,
        lora_alpha: int = 64,
        trainer: TrainerSettings | None = None,
        sampling: SamplingSettings | None = None,
    ) -> None:
        """Begin as the base model.

        Args:
            base: A model that nobody trains; its weights are shared where an adapter is trained.
            lora_rank: Rank of the adapter; 0 trains a copy of all weights.
            lora_alpha: Its effect grows with alpha / rank.
            trainer: How to train.
            sampling: How to sample.
        """
        settings = replace(base.settings, lora_rank=lora_rank, lora_alpha=lora_alpha)
        model = base.fresh(settings)
        self._trainer = Trainer(model, trainer)
        self._decoder = Decoder(model, sampling)
        self._tokenizer = base.tokenizer
        self._base = self._trainer.weights()
        self._training = threading.Lock()

    def forward_backward(
        self, datums: Sequence[TrainingDatum], loss: Loss, *, backward: bool
    ) -> LossResult:
        """Return the loss of a batch, and accumulate its gradient."""
        spec = LossSpec(loss.name, loss.clip_low, loss.clip_high)
        with _told(), self._training:
            found = self._trainer.forward_backward(
                datums, spec, backward=backward, only_trained=False
            )
        metrics = {
            **found.metrics,
            "actor/pg_loss": sum(found.losses),  # of this one the service tells the sum
            "global_token_num": found.metrics["tokens"],
        }
        return LossResult(tuple(map(tuple, found.logprobs)), tuple(found.losses), metrics)

    def optimizer_step(self, params: Adam) -> Mapping[str, float]:
        """Take one step of AdamW with the accumulated gradient."""
        with _told(), self._training:
            return self._trainer.step(params)

    def weights(self) -> Weights:
        """Return a copy of the weights as they are now."""
        with self._training:
            return self._trainer.weights()

    def state(self) -> _State:
        """Return a copy of weights and optimizer as they are now."""
        with self._training:
            optimizer = self._trainer.optimizer
            return _State(self._trainer.weights(), optimizer.weights(), optimizer.state())

    def load_state(self, state: Any, *, with_optimizer: bool) -> None:
        """Take up a state; what gradient was accumulated is dropped."""
        with _told(), self._training:
            self._trainer.optimizer.load_weights(state.exact)
            if with_optimizer:
                self._trainer.optimizer.load_state(state.optimizer)

    def weights_of(self, state: Any) -> Weights:
        """Return a state's weights."""
        sampled: Weights = state.sampled
        return sampled

    def sample(self, weights: Weights | None, request: SampleRequest) -> list[SampledTokens]:
        """Sample sequences together, each by a seed of its own."""
        first = self._decoder.next_seed() if request.seed is None else request.seed
        with _told():
            futures = [
                self._decoder.submit(weights or self._base, self._ask(request, first, index))
                for index in range(request.num_samples)
            ]
            said = [future.result() for future in futures]
        return [SampledTokens(tuple(one.tokens), tuple(one.logprobs), one.end) for one in said]

    def logprobs(self, weights: Weights | None, prompt: Sequence[int]) -> list[float | None]:
        """Return each prompt token's log-probability; `None` for the first."""
        with _told():
            return self._decoder.score(weights or self._base, prompt).result().logprobs

    def top_logprobs(
        self, weights: Weights | None, prompt: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        """Return the likeliest tokens at each position."""
        with _told():
            return self._decoder.score(weights or self._base, prompt, k).result().top

    def close(self) -> None:
        """End the sampling thread."""
        self._decoder.close()

    def _ask(self, request: SampleRequest, seed: int, index: int) -> Ask:
        choosing = Choosing(
            request.temperature,
            request.top_k,
            request.top_p,
            seed=(seed << 10) + index,  # there are at most a thousand
        )
        return Ask(
            request.prompt,
            request.max_tokens,
            choosing,
            self._decoder.eos_ids,
            is_over=self._stopper(request.stop),
        )

    def _stopper(self, texts: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
        """Return what tells whether the newest token completed a stop text."""
        if not texts:
            return None
        if self._tokenizer is None:
            raise OperationFailed("this model has no tokenizer, so it knows no stop texts")
        tokenizer = self._tokenizer

        def is_over(tokens: Sequence[int]) -> bool:
            tail = tokenizer.decode(list(tokens[-_TAIL:]))
            return any(text in tail for text in texts)

        return is_over


@contextmanager
def _told() -> Iterator[None]:
    """Turn what can be told into an operation that failed."""
    try:
        yield
    except (UsageError, EngineError) as error:
        raise OperationFailed(str(error)) from error
