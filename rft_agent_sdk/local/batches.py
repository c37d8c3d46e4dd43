"""Training sequences as tensors: those of about one length together, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rft_agent_sdk.errors import UsageError


class Example(Protocol):
    """One training sequence: position t predicts `targets[t]`. Arrays have shape `(T,)`."""

    @property
    def tokens(self) -> Sequence[int]:
        """Inputs."""
        ...

    @property
    def targets(self) -> Sequence[int]:
        """Tokens whose log-probability the loss is about."""
        ...

    @property
    def weights(self) -> Sequence[float]:
        """Factor of each position's loss; 0 leaves it out."""
        ...

    @property
    def logprobs(self) -> Sequence[float]:
        """Log-probability of the target when it was sampled, nats; may be empty for cross entropy."""
        ...

    @property
    def advantages(self) -> Sequence[float]:
        """Advantage of the target; may be empty for cross entropy."""
        ...


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What goes through the model in one pass."""

    indices: list[int]
    """Which examples, in the order of their positions below."""
    ids: Tensor
    """Inputs, shape `(B, T)`: padded at the right, or all in one row."""
    positions: Tensor | None
    """Position of each input in its sequence, where several stand in one row; else `None`."""
    segments: Tensor | None
    """Which sequence each input belongs to, where several stand in one row; else `None`."""
    chosen: Tensor
    """Where the wanted positions are in `ids`, flat, shape `(N,)`; ordered by example."""
    owners: Tensor
    """Which of `indices` each wanted position belongs to, shape `(N,)`."""
    targets: Tensor
    """Shape `(N,)`, as all that follow."""
    weights: Tensor
    sampled: Tensor
    advantages: Tensor
    is_trained: Tensor
    """Whether the weight is not 0."""

    @property
    def tokens(self) -> int:
        """Places in `ids`, the padding included."""
        return int(self.ids.numel())


def micro_batches(
    examples: Sequence[Example],
    *,
    budget: int,
    device: torch.device,
    packed: bool = False,
    only_trained: bool = True,
) -> Iterator[MicroBatch]:
    """Yield all examples in few passes; each is in one of them.

    Args:
        examples: At least one.
        budget: Most places of a pass, the padding included; a longer sequence goes alone.
        device: Where the tensors are wanted.
        packed: Whether sequences share a row, one after the other, in place of padding.
        only_trained: Whether positions of weight 0 are left out of what is computed after the last layer.
    """
    order = sorted(range(len(examples)), key=lambda at: -len(examples[at].tokens))
    group: list[int] = []
    total = 0
    for at in order:
        length = len(examples[at].tokens)
        longest = len(examples[group[0]].tokens) if group else length
        size = total + length if packed else longest * (len(group) + 1)
        if group and size > budget:
            yield _made(examples, group, device, packed, only_trained)
            group, total = [], 0
        group.append(at)
        total += length
    yield _made(examples, group, device, packed, only_trained)


def _made(
    examples: Sequence[Example],
    group: list[int],
    device: torch.device,
    packed: bool,
    only_trained: bool,
) -> MicroBatch:
    members = [examples[at] for at in group]
    lengths = np.array([len(one.tokens) for one in members])
    width = int(lengths.sum() if packed else lengths.max())
    starts = np.cumsum(lengths) - lengths if packed else np.arange(len(members)) * width
    within = np.concatenate([np.arange(length) for length in lengths])
    owners = np.repeat(np.arange(len(members)), lengths)
    places = starts[owners] + within
    ids = np.zeros((1 if packed else len(members), width), dtype=np.int64)
    ids.reshape(-1)[places] = _joined([one.tokens for one in members], np.int64)
    weights = _joined([one.weights for one in members], np.float32)
    is_wanted = weights != 0 if only_trained else np.ones_like(weights, dtype=bool)

    def at(values: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values[is_wanted])).to(device)

    def given(rows: Sequence[Sequence[float]]) -> Any:
        values = _joined(
            [row if len(row) else np.zeros(n) for row, n in zip(rows, lengths, strict=True)],
            np.float32,
        )
        return np.where(weights != 0, values, np.float32(0))  # what stands there may be no number

    def laid(values: Any) -> Tensor | None:
        return torch.from_numpy(values[None]).to(device) if packed else None

    return MicroBatch(
        indices=group,
        ids=torch.from_numpy(ids).to(device),
        positions=laid(within),
        segments=laid(owners),
        chosen=at(places),
        owners=at(owners),
        targets=at(_joined([one.targets for one in members], np.int64)),
        weights=at(weights),
        sampled=at(given([one.logprobs for one in members])),
        advantages=at(given([one.advantages for one in members])),
        is_trained=at(weights != 0),
    )


def check_examples(examples: Sequence[Example], *, has_ratio: bool) -> None:
    """Refuse what cannot train.

    Raises:
        UsageError: No example, lengths that do not fit, or a trained token whose numbers are not finite.
    """
    if not examples:
        raise UsageError("wanted at least one training sequence, got none")
    for one in examples:
        length = len(one.tokens)
        arrays = [one.targets, one.weights]
        arrays += [one.logprobs, one.advantages] if has_ratio else []
        if not length or any(len(array) != length for array in arrays):
            raise UsageError(
                "a training sequence needs as many targets, weights, logprobs and advantages as tokens, and at least "
                f"one, got lengths {[length, *map(len, arrays)]}"
            )
        numbers = np.array(arrays[1:], dtype=np.float64)
        is_bad = ~np.isfinite(numbers).all(axis=0)
        if (is_bad & (numbers[0] != 0)).any():
            raise UsageError(
                "every trained token needs a finite weight, advantage and sampling log-probability"
            )


def _joined(rows: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate([np.asarray(row, dtype=dtype) for row in rows])
