"""What `rft evaluate` was asked: its options read, and checked before anything is played."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.training.config import Config

_LABEL = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
BASE = "base"
"""Names the model before training."""
_SECRET = re.compile(r"(?<=//)[^/?#]*@|\?[^#]*")
"""What may be a secret in a server's URL: labels are printed and kept."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the verb was asked to play, and how."""

    agent_url: str
    agent_arn: str
    temperatures: tuple[float, ...]
    max_tokens: int | None
    reasoning_effort: str | None
    per_task: int
    rollout_s: float
    concurrency: int
    success_threshold: float
    host: str = ""
    port: int = 0
    tps: float = 5.0


def asked_of(given: Mapping[str, Any], config: Config | None) -> Asked:
    """Return what the options say; what they leave open is as the config says, if there is one.

    Raises:
        UsageError: Nobody, or two, are to play.
    """

    def first(option: str, key: str, default: Any) -> Any:
        if given[option] is not None:
            return given[option]
        return default if config is None else getattr(config, key)

    agents = given["agent_url"] or "", given["agent_arn"] or ""
    if config is not None and not any(agents):
        agents = config.agent_url, config.agent_runtime_arn
    if bool(agents[0]) is bool(agents[1]):
        raise UsageError("say who plays: --agent-url or --agent-arn, one of the two")
    temperatures = given["temperatures"] or [str(config.eval_temperature if config else 0)]
    return Asked(
        *agents,
        temperatures=_temperatures(temperatures),
        max_tokens=given["max_tokens"],
        reasoning_effort=given["reasoning_effort"],
        per_task=given["per_task"],
        rollout_s=first("rollout_time", "max_rollout_time", 1800.0),
        concurrency=first("concurrency", "max_concurrent_rollouts", 64),
        success_threshold=first("success_threshold", "success_threshold", 1.0),
        host=first("gateway_host", "gateway_host", ""),
        port=first("gateway_port", "gateway_port", 0),
        tps=config.acr_tps_limit if config else 5.0,
    )


def _temperatures(texts: Iterable[str]) -> tuple[float, ...]:
    """Return the temperatures that options list, each once, in their order.

    Raises:
        UsageError: One is no number from 0 to 2.
    """
    found = []
    for text in (part for one in texts for part in one.split(",")):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 2:  # not a number compares as neither
            raise UsageError(f"--temperature: wanted numbers from 0 to 2, got {text!r}")
        found.append(value)
    return tuple(dict.fromkeys(found))


def labelled(names: Iterable[str], environment: str) -> dict[str, Any]:
    """Return policies by their labels; one without a label is labelled by its name.

    Raises:
        UsageError: There is no such policy, or two have one label.
    """
    found: dict[str, Any] = {}
    for given in names:
        match = _LABEL.fullmatch(given)
        label, name = match.groups() if match else (_SECRET.sub("", given), given)
        if label in found:
            raise UsageError(
                f"--policy: wanted a label of its own for each, got {label!r} twice: give LABEL=NAME"
            )
        found[label] = find_policy(name, environment)
    return found


def states_of(checkpoints: Iterable[str]) -> dict[str, str | None]:
    """Return an engine's names of states by their labels; `None` for the model before training.

    Raises:
        UsageError: Two have one label, or the model before training is not the first: no engine goes back to it.
    """
    found: dict[str, str | None] = {}
    for given in checkpoints:
        match = _LABEL.fullmatch(given)
        label, name = match.groups() if match else (given, given)
        if label in found:
            raise UsageError(
                f"--checkpoint: wanted a label of its own for each, got {label!r} twice: give LABEL=NAME"
            )
        if name == BASE and found:
            raise UsageError(f"--checkpoint: wanted {BASE!r} first, got it after {list(found)!r}")
        found[label] = None if name == BASE else _state_of(name)
    return found


def _state_of(checkpoint: str) -> str:
    """Return the engine's name of a state: what a run's record says, or the name itself."""
    from rft_agent_sdk.training.checkpoint import read_checkpoint

    if checkpoint.endswith(".json") or Path(checkpoint).is_file():
        return read_checkpoint(checkpoint).engine_state
    return checkpoint


def check_states(config: Config, states: Mapping[str, str | None]) -> None:
    """Refuse a name that no engine would know, before one is started.

    Raises:
        UsageError: A training session is to load what is no model package.
    """
    for label, state in states.items():
        is_package = state is None or ":model-package/" in state
        if config.engine == "sagemaker" and not is_package:
            raise UsageError(
                f"--checkpoint {label}: wanted {BASE!r}, the record of a checkpoint such as "
                f"RUN_DIR/checkpoints/step-000020.json, or the ARN of a model package, got {state!r}"
            )
