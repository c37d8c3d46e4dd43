"""Hyperparameters of a job: their names, types, ranges and defaults, and what a launch chooses of them.

The numbers below are those of the published recipes. A launch that may look asks the hub for today's, in the
same form (`read_hub`), and they win. On the wire a hyperparameter is a string, and the client sends only those
that differ from the hub's default.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.models import Family, find_model

Value = int | float | str | list[int]
Kind = Literal["integer", "float", "string", "array"]

_LOSSES = ("importance_sampling", "ppo", "cispo")
_ADVANTAGES = (
    "monte_carlo",
    "group_based",
    "group_based_per_turn",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "opo",
    "grpo_passk",
    "gpg",
)
PLATFORM = frozenset({"name", "data_path", "model_name_or_path", "output_path"})
"""Filled in by the service, though the hub lists them among the rest."""
HIGHEST_PUBLISHED_RATE = 4e-5
"""Highest learning rate that any published recipe starts from."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a hyperparameter takes."""

    kind: Kind
    default: Any
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    """The only values; empty for any in range."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The hyperparameters that a launch settles; all others are left to the service."""

    values: Mapping[str, Value]
    asked: frozenset[str]
    """Those that somebody asked for; the rest are this package's defaults."""


def published(model: str) -> dict[str, Rule]:
    """Return the rules of a model's published recipe; those of the open models for an unlisted one.

    Args:
        model: Name in the hub.
    """
    listed = find_model(model)
    family: Family = listed.family if listed else "open"
    rate = HIGHEST_PUBLISHED_RATE if "qwen" in model else 1e-5
    rules = {"learning_rate": Rule("float", rate, 0, 0.01), **_COMMON}
    return {**rules, **(_NOVA if family == "nova" else _OPEN)}


def read_hub(specification: Mapping[str, Any]) -> dict[str, Rule]:
    """Return the rules that the hub serves for a model's recipe.

    Args:
        specification: Name to `{type, default, min?, max?, enum?}`, as the hub's file has it.
    """
    kinds: dict[str, Kind] = {
        "integer": "integer",
        "int": "integer",
        "float": "float",
        "array": "array",
        "list": "array",
    }
    return {
        name: Rule(
            kinds.get(str(entry.get("type")), "string"),
            entry.get("default"),
            entry.get("min"),
            entry.get("max"),
            tuple(entry.get("enum") or ()),
        )
        if isinstance(entry, Mapping)
        else Rule("string", entry)
        for name, entry in specification.items()
    }


def choose(
    model: str, asked: Mapping[str, Value | None], rules: Mapping[str, Rule] | None = None
) -> Chosen:
    """Settle what a run's plan and this package's advice stand on; leave the rest to the service.

    A default of the service may change between two launches; those named in `SETTLED` then do not.

    Args:
        model: Name in the hub.
        asked: What somebody asked for; `None` entries are left out.
        rules: Today's; a default of this package's that they do not know is dropped. `None` drops none.
    """
    wanted = {name: value for name, value in asked.items() if value is not None}
    known = published(model)
    defaults: dict[str, Value] = {name: known[name].default for name in SETTLED}
    defaults["learning_rate"] = 1e-5
    if "gpt-oss" in model:
        defaults["sampling_max_tokens"] = 8192
    if rules is not None:
        defaults = {name: value for name, value in defaults.items() if name in rules}
        known = dict(rules)
    values = {**defaults, **wanted}
    return Chosen(
        {name: _fitted(value, known.get(name)) for name, value in values.items()}, frozenset(wanted)
    )


def effective(chosen: Chosen, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return every hyperparameter as the job will have it."""
    return {**{name: rule.default for name, rule in rules.items()}, **chosen.values}


def sent(chosen: Chosen, rules: Mapping[str, Rule]) -> dict[str, str]:
    """Return what a job's document carries: strings, and of those only the ones that are no default."""
    texts = {name: str(value) for name, value in chosen.values.items()}
    return {
        name: texts[name]
        for name in [*rules, *(name for name in texts if name not in rules)]
        if name in texts and texts[name] != _default_text(rules.get(name))
    }


def read_value(name: str, text: str, rules: Mapping[str, Rule]) -> Value:
    """Return a value given as text, in the type that its hyperparameter takes; as text if it is none."""
    kind = rules[name].kind if name in rules else "string"
    try:
        if kind == "integer":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "array" and isinstance(value := json.loads(text), list):
            return value
    except ValueError:
        pass  # `check` names it, with what was wanted
    return text


def check(
    values: Mapping[str, object], rules: Mapping[str, Rule], known_from: str
) -> Iterator[Finding]:
    """Yield what is wrong with hyperparameters, each with what was wanted.

    Args:
        values: By name.
        rules: What they are held against.
        known_from: Where the rules come from, to tell whom to believe.
    """
    for name, value in values.items():
        where = f"hyperparameters.{name}"
        if name in PLATFORM:
            told = "is filled in by the service"
            yield Finding("hyperparameter-name", Severity.ERROR, where, told, "Leave it out.")
        elif name not in rules:
            yield _unknown(name, where, [*rules], known_from)
        elif wanted := _wanted(value, rules[name]):
            told = f"wanted {wanted} ({known_from}), got {value!r}"
            fix = f"Change it; the default is {rules[name].default!r}."
            yield Finding("hyperparameter-value", Severity.ERROR, where, told, fix)


def advise(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield warnings about values that are allowed and have gone wrong for others."""
    rate = values.get("learning_rate")
    if isinstance(rate, float) and rate > HIGHEST_PUBLISHED_RATE:
        yield Finding(
            "learning-rate-high",
            Severity.WARNING,
            "learning_rate",
            f"{rate:g} is above {HIGHEST_PUBLISHED_RATE:g}, the highest that a published recipe starts from",
            "Take 1e-5: at too high a rate the policy writes its tool calls as text, all rewards become "
            "the floor, and nothing is left to learn from.",
        )


def _fitted(value: Value, rule: Rule | None) -> Value:
    """Return a value in its hyperparameter's own type; the client refuses `32.0` for a whole number."""
    if rule is not None and isinstance(value, list) and rule.kind == "string":
        return str(value)  # what it is sent as in any case
    if rule is None or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if rule.kind == "float":
        return float(value)
    is_whole = rule.kind == "integer" and math.isfinite(value) and value == int(value)
    return int(value) if is_whole else value


def _default_text(rule: Rule | None) -> str | None:
    """Return a default as the client compares it; `None` for what has none."""
    return None if rule is None or rule.default is None else str(rule.default)


def _unknown(name: str, where: str, names: Collection[str], known_from: str) -> Finding:
    near = difflib.get_close_matches(name, names, 1)
    if name in _FIXED:
        return Finding("hyperparameter-name", Severity.ERROR, where, _FIXED[name], "Leave it out.")
    told = f"a job has no hyperparameter {name!r} ({known_from})"
    fix = f"Did you mean {near[0]!r}?" if near else f"The names are: {', '.join(sorted(names))}."
    return Finding("hyperparameter-name", Severity.ERROR, where, told, fix)


def _wanted(value: object, rule: Rule) -> str:
    """Say what was wanted in place of a value; nothing where it is right."""
    if rule.choices:
        return "" if value in rule.choices and _is_kind(value, rule.kind) else _listed(rule.choices)
    low = "" if rule.low is None else f" from {rule.low:g}"
    high = "" if rule.high is None else f" up to {rule.high:g}"
    words = {"integer": "a whole number", "float": "a number", "string": "a text"}
    wanted = words.get(rule.kind, "a list of whole numbers from 1") + low + high
    if not _is_kind(value, rule.kind):
        return wanted
    if not isinstance(value, int | float):
        return ""
    inside = (rule.low is None or value >= rule.low) and (rule.high is None or value <= rule.high)
    return "" if inside else wanted


def _is_kind(value: object, kind: Kind) -> bool:
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int)
    if kind == "float":
        return isinstance(value, int | float) and math.isfinite(value)
    if kind == "array":
        return (
            isinstance(value, list)
            and bool(value)
            and all(type(item) is int and item >= 1 for item in value)
        )
    return isinstance(value, str)


def _listed(choices: tuple[Any, ...]) -> str:
    return f"one of {', '.join(map(str, choices))}"


_COMMON = {
    "max_steps": Rule("integer", 100, 1, 1000),
    "max_epochs": Rule("integer", 1, 1, 30),
    "max_steps_off_policy": Rule("integer", 3, 0, 10),
    "sampling_max_tokens": Rule("integer", 4096, 512, 8192),
    "temperature": Rule("float", 1.0, 0, 2),
    "sampling_top_p": Rule("float", 1.0, 0, 1),
    "rollout_timeout": Rule("float", 600.0, 300, 86_400),
    "rollout_max_concurrency": Rule("integer", 96, 32, 96),
    "rollout_max_retries": Rule("integer", 3, 1, 10),
    "val_every": Rule("integer", 10, 0, 100),
    "loss_fn": Rule("string", "ppo", choices=_LOSSES),
    "clip_low_threshold": Rule("float", 0.8, 0, 1),
    "clip_high_threshold": Rule("float", 1.2, 1, 10),
    "advantage_method": Rule("string", "group_based", choices=_ADVANTAGES),
    "lora_alpha": Rule("integer", 64, 16, 128),
    "adam_beta1": Rule("float", 0.9, 0, 0.999999),
    "adam_beta2": Rule("float", 0.95, 0, 0.999999),
    "adam_eps": Rule("float", 1e-8, 1e-16, 1e-2),
    "adam_grad_clip_norm": Rule("float", 1.0, 0, 100),
    "pass_k_values": Rule("array", [1, 2, 4, 8, 16, 32]),
    "success_threshold": Rule("float", 1.0),
}
_OPEN = {
    "global_batch_size": Rule("integer", 128, choices=(32, 64, 128)),
    "group_size": Rule("integer", 8, 2, 32),
    "lora_rank": Rule("integer", 32, 16, 64),
    "adam_weight_decay": Rule("float", 0.0, 0, 1),
}
_NOVA = {
    "global_batch_size": Rule("integer", 32, choices=(8, 16, 32, 64)),
    "group_size": Rule("integer", 4, 2, 32),
    "lora_rank": Rule("integer", 32, 16, 32),
    "adam_weight_decay": Rule("float", 0.01, 0, 1),
    "lora_plus_lr_ratio": Rule("float", 32.0, 1, 100),
    "save_every": Rule("integer", 5, 0, 100),
}
_FIXED = {
    "gamma": "is fixed at 1.0",
    "advantage_normalization": "is always on",
    "val_group_size": "is fixed at 1: validation plays each row once, so only pass@1 says anything there",
    "val_batch_size": "is fixed: validation plays every row",
    "val_at_start": "is always on",
    "rollout_tps": "is fixed at 5 rollouts started a second",
    "max_sequence_length": "is fixed by the model's recipe",
    "seed": "does not exist: these jobs take no seed",
    "kl_coefficient": "does not exist: these jobs have no KL term",
    "max_turns": "does not exist: the agent limits its own turns",
}
SETTLED = (
    "learning_rate",
    "global_batch_size",
    "group_size",
    "max_steps",
    "max_epochs",
    "val_every",
    "sampling_max_tokens",
    "rollout_timeout",
    "success_threshold",
)
"""What every launch settles itself; see `choose`."""
