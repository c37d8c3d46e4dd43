"""AdamW on float32 copies of the weights, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rft_agent_sdk.errors import EngineError


class AdamParams(Protocol):
    """AdamW's parameters of one step."""

    @property
    def learning_rate(self) -> float:
        """Step size."""
        ...

    @property
    def beta1(self) -> float:
        """Decay of the first moment."""
        ...

    @property
    def beta2(self) -> float:
        """Decay of the second moment."""
        ...

    @property
    def eps(self) -> float:
        """Added to the second moment's root."""
        ...

    @property
    def weight_decay(self) -> float:
        """Decoupled decay, times the learning rate."""
        ...

    @property
    def grad_clip_norm(self) -> float:
        """Largest norm of the gradient; 0 does not clip."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did."""

    learning_rate: float
    """After the warm-up's factor."""
    gradient_norm: float
    """Before clipping."""


class Optimizer:
    """Steps the parameters that train. Gradients of several passes add up until then."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, warmup_steps: int = 0) -> None:
        """Start afresh.

        Args:
            parameters: What trains, by name; their order is that of the optimizer's state.
            warmup_steps: Steps over which the learning rate rises to what is asked for.
        """
        self._parameters = dict(parameters)
        self._warmup_steps = warmup_steps
        self.steps = 0
        """Steps taken."""
        # In 8 bits of mantissa a small step would be rounded away: a copy in float32 takes it, and is rounded.
        self._masters = {
            name: one if one.dtype == torch.float32 else nn.Parameter(one.detach().float())
            for name, one in self._parameters.items()
        }
        self._hooks = [
            one.register_post_accumulate_grad_hook(self._accumulate(name))
            for name, one in self._parameters.items()
            if self._masters[name] is not one
        ]
        self._reset()

    def step(self, params: AdamParams) -> Step:
        """Apply the accumulated gradient, and clear it.

        Raises:
            EngineError: The gradient is not finite. It is cleared, and nothing else has changed.
        """
        masters = list(self._masters.values())
        for one in masters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        norm = self.gradient_norm()
        if not norm < float("inf"):
            self.clear()
            raise EngineError(
                f"the gradient's norm is {norm}: it is thrown away, and the weights are as before",
                usable=True,
            )
        if 0 < params.grad_clip_norm < norm:
            torch._foreach_mul_([one.grad for one in masters], params.grad_clip_norm / norm)
        rate = params.learning_rate * self._warmth()
        self._adam.param_groups[0].update(
            lr=rate,
            betas=(params.beta1, params.beta2),
            eps=params.eps,
            weight_decay=params.weight_decay,
        )
        self._adam.step()
        self.steps += 1
        self.clear()
        self._publish()
        return Step(rate, norm)

    def gradient_norm(self) -> float:
        """Return the norm of what is accumulated."""
        found = [one.grad for one in self._masters.values() if one.grad is not None]
        return float(nn.utils.get_total_norm(found)) if found else 0.0

    def clear(self) -> None:
        """Throw the accumulated gradient away."""
        for one in (*self._masters.values(), *self._parameters.values()):
            one.grad = None

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of the weights in float32."""
        return {name: one.detach().clone() for name, one in self._masters.items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take up weights; the accumulated gradient is thrown away, the optimizer starts afresh.

        Raises:
            EngineError: They are another model's.
        """
        wanted = {name: tuple(one.shape) for name, one in self._masters.items()}
        found = {name: tuple(one.shape) for name, one in weights.items()}
        if wanted != found:
            differ = sorted(set(wanted.items()) ^ set(found.items()))[:3]
            raise EngineError(
                f"the saved weights are another model's, such as {differ}", usable=True
            )
        with torch.no_grad():
            for name, one in self._masters.items():
                one.copy_(weights[name])
        self.clear()
        self._publish()
        self._reset()

    def state(self) -> dict[str, Any]:
        """Return a copy of the moments and the number of steps."""
        return {"adam": _copied(self._adam.state_dict()["state"]), "steps": self.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned, after `load_weights`; it stays as it is, to be taken up again."""
        whole = self._adam.state_dict()
        # AdamW goes on in the very tensors it is given.
        self._adam.load_state_dict({**whole, "state": _copied(state["adam"])})
        self.steps = int(state["steps"])

    def _reset(self) -> None:
        self._adam = torch.optim.AdamW(list(self._masters.values()), lr=0.0)
        self.steps = 0

    def _warmth(self) -> float:
        return min(1.0, (self.steps + 1) / self._warmup_steps) if self._warmup_steps else 1.0

    def _publish(self) -> None:
        """Write the float32 copies into the model."""
        with torch.no_grad():
            for name, one in self._parameters.items():
                if self._masters[name] is not one:
                    one.copy_(self._masters[name])

    def _accumulate(self, name: str) -> Any:
        def add(parameter: Any) -> None:
            master = self._masters[name]
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

        return add


def _copied(moments: Mapping[Any, Mapping[str, Tensor]]) -> dict[Any, dict[str, Tensor]]:
    return {at: {key: value.clone() for key, value in one.items()} for at, one in moments.items()}
