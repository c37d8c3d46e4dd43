"""Recipes and overrides, as nested mappings, turned into hyperparameters.

A published recipe calls `max_epochs` `schedule.epochs`, and so on. The client takes such a file, but drops, with
no more than a line in its log, every leaf that is not under a name and in a section of its own, and every list.
So nothing of it is left to the client: every leaf becomes a hyperparameter here, or is told to be none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.hyperparameters import PLATFORM, Rule

_PATHS = {
    "batch.training_batch_size": "global_batch_size",
    "rollout.max_concurrency": "rollout_max_concurrency",
    "rollout.max_retries": "rollout_max_retries",
    "rollout.timeout": "rollout_timeout",
    "sampling_params.max_tokens": "sampling_max_tokens",
    "sampling_params.temperature": "temperature",
    "sampling_params.top_p": "sampling_top_p",
    "schedule.epochs": "max_epochs",
    "model.grad_clip_norm": "adam_grad_clip_norm",
    "model.weight_decay": "adam_weight_decay",
}
"""Where a published recipe keeps a hyperparameter under another name; the rest keep their names."""
_SECTIONS = (
    "async_config",
    "batch",
    "model",
    "rl",
    "schedule",
    "training_config",
    "val_metrics_config",
)
"""Where a hyperparameter keeps its name; `training_config` is the client's own section."""
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "batch.val_batch_size": (None,),
    "batch.val_group_size": (1,),
    "batch.val_random_sample": (False,),
    "model.max_sequence_length": (65_536, 32_768),
    "rl.advantage_normalization": (True,),
    "rl.gamma": (1.0,),
    "rollout.rollout_tps": (5,),
    "schedule.save_every": (1,),
    "schedule.val_at_start": (True,),
}
"""What no job can change, with the values that a published recipe has there."""
_OTHERS = frozenset(
    {
        "data_filter",
        "display_name",
        "eval_sampling_params",
        "recipe_version",
        "run",
        "val_sampling_params",
    }
)
"""Parts of a published recipe that describe it, belong to the platform, or are not for a launch to change."""


def read_recipe(
    recipe: Mapping[str, Any], rules: Mapping[str, Rule], where: str
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the hyperparameters that a recipe sets, and what in it cannot be set.

    Args:
        recipe: Hyperparameters by name, flat or under `training_config`; or a published recipe's sections.
        rules: The hyperparameters of the model.
        where: What to call it in a finding.
    """
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for path, value in _leaves(recipe):
        name = _name(path, rules)
        if name is not None and not _is_placeholder(value):
            values[name] = value
        elif name is None and not _is_harmless(path, value):
            findings.append(_unplaced(where, path, value))
    return values, findings


def _name(path: str, rules: Mapping[str, Rule]) -> str | None:
    """Return the hyperparameter that a place in a recipe stands for."""
    if path in _PATHS:
        return _PATHS[path]
    section, _, leaf = path.rpartition(".")
    if leaf in rules and leaf not in PLATFORM and section in ("", *_SECTIONS):
        return leaf
    return None


def _is_harmless(path: str, value: object) -> bool:
    if path.partition(".")[0] in _OTHERS or path == "model.model_name" or _is_placeholder(value):
        return True
    return path in _FIXED and value in _FIXED[path]


def _is_placeholder(value: object) -> bool:
    """Whether a recipe left it open for the platform to fill in."""
    return isinstance(value, str) and value.strip().startswith("{{")


def _unplaced(where: str, path: str, value: object) -> Finding:
    told = f"is fixed at {_FIXED[path][0]!r}" if path in _FIXED else "is no hyperparameter of a job"
    return Finding(
        "recipe-key",
        Severity.ERROR,
        f"{where}: {path}",
        f"{told}, got {value!r}",
        "Leave it out: the client would drop it without an error.",
    )


def _leaves(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        below = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, below)
        else:
            yield below, value
