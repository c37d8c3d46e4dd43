"""The hyperparameters of a job, per model: type, default, range.

The hub serves them as a recipe's overrides, and a job's document is checked against the same table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rft_agent_sdk.types import JSON

_VALUE = re.compile(r"[\w/.:,\-'\"\[\]\s]*", re.ASCII)
_MAX_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class HyperParameter:
    """One of them; on the wire its value is text."""

    name: str
    type: Literal["integer", "float", "string"]
    default: int | float | str
    low: float | None = None
    high: float | None = None
    choices: tuple[int | str, ...] = ()

    def as_override(self) -> JSON:
        """Return its entry of a recipe's overrides, as the hub serves them."""
        entry: JSON = {"type": self.type, "default": self.default, "required": False}
        if self.low is not None and self.high is not None:
            entry |= {"min": self.low, "max": self.high}
        if self.choices:
            entry["enum"] = list(self.choices)
        return entry

    def fault_of(self, text: str) -> str | None:
        """Return what is wrong with a value, `None` where it fits."""
        if self.type == "string":
            if self.choices and text not in self.choices:
                return f"{text!r} is not one of {list(self.choices)}"
            return None
        try:
            number = int(text) if self.type == "integer" else float(text)
        except ValueError:
            return f"{text!r} is not of type {self.type}"
        if self.choices and number not in self.choices:
            return f"{text!r} is not one of {list(self.choices)}"
        # Written so that nan, which compares with nothing, is outside.
        if self.low is not None and self.high is not None and not self.low <= number <= self.high:
            return f"{text!r} is not in [{self.low}, {self.high}]"
        return None


_SHARED = (
    HyperParameter("rollout_timeout", "float", 600.0, 300, 86400),
    HyperParameter("rollout_max_concurrency", "integer", 96, 32, 96),
    HyperParameter("rollout_max_retries", "integer", 3, 1, 10),
    HyperParameter("sampling_max_tokens", "integer", 4096, 512, 8192),
    HyperParameter("sampling_top_p", "float", 1.0, 0, 1),
    HyperParameter("pass_k_values", "string", "[1, 2, 4, 8, 16, 32]"),
    HyperParameter("success_threshold", "float", 1.0),
)
_TRAINING = (
    HyperParameter("learning_rate", "float", 1e-5, 0, 0.01),
    HyperParameter("global_batch_size", "integer", 128, choices=(32, 64, 128)),
    HyperParameter("group_size", "integer", 8, 2, 32),
    HyperParameter("max_steps", "integer", 100, 1, 1000),
    HyperParameter("max_epochs", "integer", 1, 1, 30),
    HyperParameter("max_steps_off_policy", "integer", 3, 0, 10),
    HyperParameter("temperature", "float", 1.0, 0, 2),
    *_SHARED,
    HyperParameter("val_every", "integer", 10, 0, 100),
    HyperParameter("loss_fn", "string", "ppo", choices=("importance_sampling", "ppo", "cispo")),
    HyperParameter("clip_low_threshold", "float", 0.8, 0, 1),
    HyperParameter("clip_high_threshold", "float", 1.2, 1, 10),
    HyperParameter(
        "advantage_method",
        "string",
        "group_based",
        choices=(
            "monte_carlo",
            "group_based",
            "group_based_per_turn",
            "rloo",
            "reinforce_pp",
            "reinforce_pp_baseline",
            "opo",
            "grpo_passk",
            "gpg",
        ),
    ),
    HyperParameter("lora_rank", "integer", 32, 16, 64),
    HyperParameter("lora_alpha", "integer", 64, 16, 128),
    HyperParameter("adam_beta1", "float", 0.9, 0, 0.999999),
    HyperParameter("adam_beta2", "float", 0.95, 0, 0.999999),
    HyperParameter("adam_eps", "float", 1e-8, 1e-16, 1e-2),
    HyperParameter("adam_weight_decay", "float", 0.0, 0, 1),
    HyperParameter("adam_grad_clip_norm", "float", 1.0, 0, 100),
    # Filled in by the platform, and in the recipe's overrides all the same.
    HyperParameter("name", "string", ""),
    HyperParameter("data_path", "string", ""),
    HyperParameter("model_name_or_path", "string", ""),
    HyperParameter("output_path", "string", ""),
)
EVALUATION = (
    HyperParameter("eval_group_size", "integer", 1, 1, 128),
    HyperParameter("temperature", "float", 0.0, 0, 2),
    *_SHARED,
)
"""Those of an evaluation job, for every model."""


def _changed(
    table: Iterable[HyperParameter], **changes: Mapping[str, object]
) -> tuple[HyperParameter, ...]:
    return tuple(replace(entry, **changes.get(entry.name, {})) for entry in table)  # type: ignore[arg-type]


_NOVA = (
    *_changed(
        _TRAINING,
        global_batch_size={"default": 32, "choices": (8, 16, 32, 64)},
        group_size={"default": 4},
        lora_rank={"high": 32},
        adam_weight_decay={"default": 0.01},
    ),
    HyperParameter("save_every", "integer", 5, 0, 100),
    HyperParameter("lora_plus_lr_ratio", "float", 32.0, 1, 100),
)
_BY_MODEL = {
    "huggingface-vlm-qwen3-6-27b": _changed(_TRAINING, learning_rate={"default": 4e-5}),
    "nova-textgeneration-lite-v2": _NOVA,
}


def training_table(model: str) -> tuple[HyperParameter, ...]:
    """Return those of a training job on a model of the hub."""
    return _BY_MODEL.get(model, _TRAINING)


def overrides(table: Iterable[HyperParameter]) -> JSON:
    """Return a recipe's overrides as the hub serves them."""
    return {entry.name: entry.as_override() for entry in table}


def faults_of(table: Iterable[HyperParameter], values: JSON) -> list[str]:
    """Return what is wrong with a document's `HyperParameters`, one sentence each."""
    known = {entry.name: entry for entry in table}
    found = []
    if len(values) > _MAX_ENTRIES:
        found.append(f"there are {len(values)} of them, and {_MAX_ENTRIES} may be")
    for name, value in values.items():
        if name not in known:
            found.append(f"{name!r} is not known")
        elif not isinstance(value, str):
            found.append(f"{name} must be text, not {type(value).__name__}")
        elif _VALUE.fullmatch(value) is None:
            found.append(f"{name} holds a character that is not allowed: {value!r}")
        elif (fault := known[name].fault_of(value)) is not None:
            found.append(f"{name}: {fault}")
    return found
