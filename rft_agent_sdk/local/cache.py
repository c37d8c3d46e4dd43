"""Keys and values of many sequences in one place, and the masks that let each see its own past only.

A row holds one sequence. Rows in use are the first ones, so that a forward pass sees a view of them and copies
nothing. New tokens are aligned at the right: the last logits of every row are its next token's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.local.model import LocalModel

STEP = 64
"""Lengths are rounded up to a multiple of it: fewer reallocations, and sums of the same shape."""


@dataclass(frozen=True, slots=True)
class Slabs:
    """How a model's keys and values are laid out: slabs of one shape share a bank."""

    shapes: tuple[tuple[int, int], ...]
    """Heads and size of each bank."""
    counts: tuple[int, ...]
    """Slabs of each bank."""
    keys: tuple[tuple[int, int], ...]
    """Bank and slab of each layer's keys."""
    values: tuple[tuple[int, int], ...]
    """Bank and slab of each layer's values."""
    dtype: torch.dtype
    """What keys and values are kept in."""

    @classmethod
    def of(cls, model: LocalModel) -> Slabs:
        """Ask a model by a pass over one token.

        Raises:
            UsageError: Its layers keep something else than keys and values.
        """
        cache = DynamicCache(config=model.config)
        ids = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        with torch.no_grad():
            model.core(ids, use_cache=True, **{model.cache_argument: cache})
        shapes: list[tuple[int, int]] = []
        counts: list[int] = []

        def slab(tensor: Tensor) -> tuple[int, int]:
            shape = (tensor.shape[1], tensor.shape[3])
            if shape not in shapes:
                shapes.append(shape)
                counts.append(0)
            bank = shapes.index(shape)
            counts[bank] += 1
            return bank, counts[bank] - 1

        places: list[tuple[tuple[int, int], tuple[int, int]]] = []
        dtype = model.dtype
        for layer in cache.layers:
            keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
            if keys is None or values is None or keys.dim() != 4:
                raise UsageError(
                    f"wanted a model of attention layers, got {type(model.core).__name__}, of which a layer keeps "
                    f"{type(layer).__name__}"
                )
            places.append((slab(keys), slab(values)))
            dtype = keys.dtype
        return cls(
            tuple(shapes),
            tuple(counts),
            tuple(keys for keys, _ in places),
            tuple(values for _, values in places),
            dtype,
        )


class RowCache(Cache):  # type: ignore[misc]
    """A cache of transformers with a row for each sequence, each of its own length.

    What is written beyond a row's length is never seen: masks come from lengths alone.
    """

    def __init__(self, slabs: Slabs, device: torch.device) -> None:
        super().__init__(layers=[])
        self._slabs = slabs
        self._device = device
        self.rows = 0
        self.capacity = 0
        self._banks: list[Tensor] = []
        self._span = slice(0, 0)
        self._where: tuple[Tensor, Tensor] | None = None
        self._length = 0

    def reserve(self, rows: int, length: int) -> None:
        """Make room, keeping what is there.

        Args:
            rows: Rows that will be in use.
            length: Tokens of the longest.
        """
        if rows <= self.rows and length <= self.capacity:
            return
        capacity = max(self.capacity, rounded(length))
        if length > self.capacity > 0:
            capacity = max(capacity, rounded(self.capacity * 3 // 2))
        grown = max(self.rows, rows if not self.rows else max(rows, self.rows * 3 // 2))
        fresh = [
            # One column more: what pads a row goes there, and is seen by nobody.
            torch.zeros(
                (count, grown, heads, capacity + 1, size),
                dtype=self._slabs.dtype,
                device=self._device,
            )
            for count, (heads, size) in zip(self._slabs.counts, self._slabs.shapes, strict=True)
        ]
        for new, old in zip(fresh, self._banks, strict=False):
            new[:, : self.rows, :, : self.capacity] = old[:, :, :, : self.capacity]
        self._banks, self.rows, self.capacity = fresh, grown, capacity

    def plan(self, first: int, positions: Tensor, is_pad: Tensor | None, length: int) -> None:
        """Say where the next forward pass writes and what it sees.

        Args:
            first: The first of its rows.
            positions: Position of each new token, shape `(rows, new)`.
            is_pad: Which of them are none, same shape; `None` for none of them.
            length: Columns to see, at least the longest row with its new tokens.
        """
        count = positions.shape[0]
        self._span = slice(first, first + count)
        rows = torch.arange(first, first + count, device=positions.device)[:, None]
        columns = positions if is_pad is None else positions.masked_fill(is_pad, self.capacity)
        self._where = rows, columns
        self._length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return all that its rows may see."""
        return (
            self._write(self._slabs.keys[layer_idx], key_states),
            self._write(self._slabs.values[layer_idx], value_states),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the columns in sight; positions and masks are given explicitly all the same."""
        return self._length

    def take(self, row: int, length: int) -> list[Tensor]:
        """Return a copy of a row's first tokens."""
        return [bank[:, row, :, :length].clone() for bank in self._banks]

    def put(self, row: int, kept: Sequence[Tensor], length: int) -> None:
        """Write the first tokens of what `take` returned into a row."""
        for bank, one in zip(self._banks, kept, strict=True):
            bank[:, row, :, :length] = one[:, :, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first tokens to another row."""
        for bank in self._banks:
            bank[:, target, :, :length] = bank[:, source, :, :length]

    def _write(self, place: tuple[int, int], states: Tensor) -> Tensor:
        assert self._where is not None
        bank, slab = place
        stored = self._banks[bank][slab]
        rows, columns = self._where
        stored[rows, :, columns] = states.transpose(1, 2)  # (rows, new, heads, size)
        return stored[self._span, :, : self._length]


class Masks:
    """Attention masks of a model, as it wants them: one, or one for each kind of layer."""

    def __init__(self, model: LocalModel) -> None:
        """Look at the kinds of layers.

        Raises:
            UsageError: One kind is neither full nor sliding attention.
        """
        kinds = set(getattr(model.config, "layer_types", None) or ())
        if unknown := kinds - {"full_attention", "sliding_attention"}:
            raise UsageError(
                f"wanted a model of full or sliding attention, got layers of {sorted(unknown)}"
            )
        self._is_mapped = "sliding_attention" in kinds
        # Families that name no kinds of layers have a window in all of them, or in none.
        window = getattr(model.config, "sliding_window", None)
        self._window = int(window) if window and (self._is_mapped or not kinds) else None
        self._dtype = model.dtype

    def of(self, positions: Tensor, length: int, segments: Tensor | None = None) -> Any:
        """Return what a query at each position may see of columns `0 .. length - 1`.

        Args:
            positions: Column of each query, shape `(rows, new)`.
            length: Number of columns.
            segments: Which sequence each column of each row belongs to, shape `(rows, length)`, and with
                `new == length`; `None` for one sequence a row.
        """
        columns = torch.arange(length, device=positions.device)
        back = positions[:, :, None] - columns
        sees = back >= 0
        if segments is not None:
            sees &= segments[:, :, None] == segments[:, None, :]
        if self._window is None:
            return self._additive(sees)
        sliding = self._additive(sees & (back < self._window))
        if not self._is_mapped:
            return sliding
        return {"full_attention": self._additive(sees), "sliding_attention": sliding}

    def _additive(self, sees: Tensor) -> Tensor:
        least = torch.finfo(self._dtype).min
        zero = torch.zeros((), dtype=self._dtype, device=sees.device)
        return torch.where(sees, zero, least)[:, None]


def rounded(length: int) -> int:
    """Return a length, rounded up to the next multiple of `STEP`."""
    return -(-length // STEP) * STEP
