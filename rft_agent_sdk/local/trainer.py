"""Training passes and steps: the summed loss of sequences, its gradient, and what is worth knowing of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.local.batches import Example, MicroBatch, check_examples, micro_batches
from rft_agent_sdk.local.cache import Masks
from rft_agent_sdk.local.losses import LOG_RATIO_BOUND, KlKind, LossSpec, divergence, token_losses
from rft_agent_sdk.local.model import LocalModel
from rft_agent_sdk.local.optimizer import AdamParams, Optimizer
from rft_agent_sdk.local.weights import Weights

_LOGITS_AT_ONCE = 1 << 26
"""Most logits that are kept for the backward pass; beyond it they are computed twice."""


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """How a trainer computes."""

    micro_batch_tokens: int = 8192
    """Most places of a forward pass, the padding included."""
    packed: bool = False
    """Whether sequences share a row, one after the other, in place of padding to the longest."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises to what is asked for."""
    kl_coef: float = 0.0
    """Factor of the divergence from the weights that the trainer began with; 0 computes none."""
    kl_kind: KlKind = "exact"
    """How that is told: exactly, over the whole vocabulary, or estimated from the target alone."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass tells."""

    metrics: Mapping[str, float]
    """Means over the tokens that train, beside counts."""
    logprobs: list[list[float]]
    """The model's log-probability of each wanted target, a row for each example."""
    losses: list[float]
    """The loss summed over each example's positions, without the divergence."""


@dataclass(slots=True)
class _Sums:
    """Sums over the tokens that train."""

    values: dict[str, float] = field(default_factory=dict)

    def add(self, **tensors: Tensor) -> None:
        # In one piece: each number fetched from an accelerator waits for all that is under way there.
        found = torch.stack([one.detach().float().sum() for one in tensors.values()]).tolist()
        for name, value in zip(tensors, found, strict=True):
            self.values[name] = self.values.get(name, 0.0) + value


class Trainer:
    """A model and its optimizer. One thread at a time."""

    def __init__(self, model: LocalModel, settings: TrainerSettings | None = None) -> None:
        """Take a model over.

        Args:
            model: What of it trains is the model's own matter.
            settings: How to compute.
        """
        self.model = model
        self.settings = settings or TrainerSettings()
        self.optimizer = Optimizer(model.trainable(), warmup_steps=self.settings.warmup_steps)
        self._masks = Masks(model) if self.settings.packed else None
        # With an adapter the reference is the model without it, and costs nothing.
        has_reference = self.settings.kl_coef > 0 and model.adapted is None
        self._reference = model.twin(with_copies=True) if has_reference else None
        self._is_as_sampled = True

    def forward_backward(
        self,
        examples: Sequence[Example],
        loss: LossSpec,
        *,
        backward: bool = True,
        only_trained: bool = True,
    ) -> PassResult:
        """Return the loss; with `backward`, add the gradient of its sum to what is accumulated.

        Args:
            examples: At least one.
            loss: Which loss.
            backward: Whether the gradient is wanted.
            only_trained: Whether log-probabilities are wanted of targets with a weight only.

        Raises:
            UsageError: An example that cannot train; nothing has changed then.
        """
        check_examples(examples, has_ratio=loss.has_ratio)
        for one in examples:
            self.model.check_tokens(one.tokens)
            self.model.check_tokens(one.targets)
        sums, logprobs = _Sums(), [[0.0]] * len(examples)
        losses = [0.0] * len(examples)
        padded = 0
        parts = micro_batches(
            examples,
            budget=self.settings.micro_batch_tokens,
            device=self.model.device,
            packed=self.settings.packed,
            only_trained=only_trained,
        )
        for part in parts:
            padded += part.tokens
            self._pass(part, loss, sums, logprobs, losses, backward=backward)
        metrics = self._metrics(sums, loss)
        tokens = sum(len(one.tokens) for one in examples)
        metrics |= {"tokens": float(tokens), "tokens/padded": float(padded)}
        if backward:
            metrics["actor/grad_norm"] = self.optimizer.gradient_norm()
        return PassResult(metrics, logprobs, losses)

    def step(self, params: AdamParams) -> dict[str, float]:
        """Apply the accumulated gradient, and clear it.

        Raises:
            EngineError: The gradient is not finite; nothing has changed then, and it is gone.
        """
        done = self.optimizer.step(params)
        self._is_as_sampled = False
        return {"actor/lr": done.learning_rate, "actor/grad_norm": done.gradient_norm}

    def weights(self) -> Weights:
        """Return a copy of the weights as they are now, to sample with."""
        self._is_as_sampled = True
        return Weights.of(self.model)

    def _pass(
        self,
        part: MicroBatch,
        loss: LossSpec,
        sums: _Sums,
        logprobs: list[list[float]],
        losses: list[float],
        *,
        backward: bool,
    ) -> None:
        if not len(part.chosen):
            for at in part.indices:
                logprobs[at] = []
            return
        with torch.set_grad_enabled(backward):
            hidden = self._hidden(self.model, part)
            reference = self._reference_hidden(part) if self.settings.kl_coef else None
            found, entropy, kl = self._heads(hidden, reference, part.targets)
            terms = token_losses(loss, found, part.sampled, part.weights, part.advantages)
            total = terms.losses.sum()
            if kl is not None:
                total = total + self.settings.kl_coef * (part.weights * kl).sum()
            if backward:
                total.backward()
        trained = part.is_trained
        said = {"trained": trained, "loss": terms.losses, "entropy": entropy[trained]}
        if kl is not None:
            said["kl"] = kl[trained]
        if loss.has_ratio:
            apart = (found.detach() - part.sampled)[trained]
            said["apart"], said["distance"] = -apart, apart.abs()
            said["k3"] = torch.expm1(apart.clamp(max=LOG_RATIO_BOUND)) - apart
            said["clipped"] = terms.is_clipped[trained]
        sums.add(**said)
        self._hand_out(part, found, terms.losses, logprobs, losses)

    def _hand_out(
        self,
        part: MicroBatch,
        found: Tensor,
        values: Tensor,
        logprobs: list[list[float]],
        losses: list[float],
    ) -> None:
        counts = torch.bincount(part.owners, minlength=len(part.indices)).tolist()
        rows = found.detach().float().cpu().split(counts)
        for at, row, value in zip(
            part.indices, rows, values.detach().cpu().split(counts), strict=True
        ):
            logprobs[at] = row.tolist()
            losses[at] = float(value.sum())

    def _hidden(self, model: LocalModel, part: MicroBatch) -> Tensor:
        """Return what the head takes at the wanted positions, shape `(N, D)`."""
        arguments: dict[str, Any] = {}
        if self._masks is not None:
            assert part.positions is not None
            places = torch.arange(part.ids.shape[1], device=part.ids.device)[None]
            mask = self._masks.of(places, part.ids.shape[1], part.segments)
            arguments = {"position_ids": part.positions, "attention_mask": mask}
        # Padding stands at the right, where no real token sees it: a causal mask is all that is needed.
        hidden = model.hidden(part.ids, **arguments)
        return hidden.flatten(0, 1)[part.chosen]

    def _reference_hidden(self, part: MicroBatch) -> Tensor:
        with torch.no_grad():
            if self._reference is not None:
                return self._hidden(self._reference, part)
            with self.model.without_adapter():
                return self._hidden(self.model, part)

    def _heads(
        self, hidden: Tensor, reference: Tensor | None, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return log-probability, entropy and divergence at each position, shape `(N,)`."""
        size = max(1, _LOGITS_AT_ONCE // self.model.vocab_size)
        is_split = len(targets) > size and torch.is_grad_enabled()
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for at in range(0, len(targets), size):
            part = slice(at, at + size)
            given = (hidden[part], None if reference is None else reference[part], targets[part])
            found.append(
                checkpoint(self._head, *given, use_reentrant=False)
                if is_split
                else self._head(*given)
            )
        logprobs, entropies, kls = zip(*found, strict=True)
        kl = None if reference is None else torch.cat(kls)
        return torch.cat(logprobs), torch.cat(entropies), kl

    def _head(
        self, hidden: Tensor, reference: Tensor | None, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        logits = self.model.head(hidden)
        logprobs = torch.log_softmax(logits, dim=-1)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        kl = None
        if reference is not None:
            with torch.no_grad():
                other = (self._reference or self.model).head(reference)
            kl = divergence(self.settings.kl_kind, logits, other, targets)
        return logprobs.gather(1, targets[:, None])[:, 0], entropy, kl

    def _metrics(self, sums: _Sums, loss: LossSpec) -> dict[str, float]:
        values = sums.values
        count = max(values.get("trained", 0.0), 1.0)

        def mean(name: str) -> float:
            return values.get(name, 0.0) / count

        metrics = {
            "actor/pg_loss": mean("loss"),
            "actor/entropy": mean("entropy"),
            "tokens/trained": values.get("trained", 0.0),
        }
        if self.settings.kl_coef:
            metrics["actor/reference_kl"] = mean("kl")
        if loss.has_ratio:
            metrics["actor/ppo_kl"] = mean("apart")
            metrics["actor/pg_clipfrac"] = mean("clipped")
            if self._is_as_sampled:
                # No step was taken since these weights were given out: sampler and trainer should agree.
                metrics["sampler/kl"] = mean("k3")
                metrics["sampler/logprob_distance"] = mean("distance")
        return metrics


def check_settings(settings: TrainerSettings) -> None:
    """Refuse settings that make no sense.

    Raises:
        UsageError: A number is out of its range.
    """
    if settings.micro_batch_tokens < 1 or settings.warmup_steps < 0 or settings.kl_coef < 0:
        raise UsageError(
            "wanted micro_batch_tokens >= 1, warmup_steps >= 0 and kl_coef >= 0, "
            f"got {settings.micro_batch_tokens!r}, {settings.warmup_steps!r} and {settings.kl_coef!r}"
        )
