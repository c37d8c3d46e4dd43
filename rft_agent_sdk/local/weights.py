"""The weights at one moment, which whoever holds them can sample for as long as they like."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rft_agent_sdk.local.attention import install
from rft_agent_sdk.local.model import LocalModel

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Weights:
    """A copy of what trains: the adapter, or every weight. Never written to."""

    tensors: Mapping[str, Tensor]
    """By the name of the parameter."""
    number: int = field(default_factory=lambda: next(_numbers))
    """Tells it from every other in the process."""

    @classmethod
    def of(cls, model: LocalModel) -> Weights:
        """Copy a model's weights as they are now."""
        return cls({name: one.detach().clone() for name, one in model.trainable().items()})


class Holder:
    """A model that computes with whichever weights it is pointed at: no number is copied."""

    def __init__(self, model: LocalModel) -> None:
        """Make a twin of a model, with modules of its own."""
        names = set(model.trainable())
        self.model = model.twin()
        install(self.model.core)
        parameters = dict(self.model.core.named_parameters())
        self._parameters = {name: parameters[name] for name in names}
        self._held: int | None = None

    def hold(self, weights: Weights) -> None:
        """Compute with these from now on."""
        if weights.number == self._held:
            return
        for name, one in self._parameters.items():
            one.data = weights.tensors[name]
        self._held = weights.number
