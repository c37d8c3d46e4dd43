"""The environment variables of a runtime: the service's limits, and settings of the agent that do not work."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.mtrl.project_code import is_there
from rft_agent_sdk.mtrl.project_runtime import LIFETIME_S
from rft_agent_sdk.mtrl.project_shape import VARIABLE, get, unfit
from rft_agent_sdk.region import job_runtime_region
from rft_agent_sdk.types import JSON

MAX_VARIABLES = 50
MAX_NAME = 100
MAX_VALUE = 5000
"""Limits of the service; the CLI takes more."""
WAIT_S = 600.0
"""Seconds a managed job waits for a rollout, unless its hyperparameter `rollout_timeout` says otherwise."""
SYNCHRONOUS_S = 900.0
"""Seconds after which AgentCore ends a synchronous invocation."""
AFTER_S = 90.0
"""Seconds that ending a rollout may take beyond its budget: one sampling request, then reporting."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_NAME = re.compile(
    r".*(?:SECRET|PASSWORD|PASSWD|PRIVATE_?KEY|API_?KEY|ACCESS_?KEY|(?:^|_)TOKEN$).*", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{16}|sk-[\w-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY")
_OURS = re.compile(r"(?:RFT|REASONING|ROLLOUT)_\w+", re.ASCII)
_LEVELS = ("low", "medium", "high")


def check_variables(
    place: Place, runtime: JSON, code: Path | None, regions: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield what is wrong with a runtime's variables; no finding holds a value that could be a secret."""
    variables: dict[str, str] = {}
    entries: list[Any] = get(runtime, "envVars", [])
    where = place.at("envVars")
    if len(entries) > MAX_VARIABLES:
        yield where.error(
            "variables",
            f"AgentCore takes {MAX_VARIABLES} variables, got {len(entries)}",
            "Take some out.",
        )
    for index, entry in enumerate(entries):
        at = Place(f"{where.where}[{index}]")
        if not isinstance(entry, dict):
            yield at.error("wrong-type", "wanted an object with name and value", "Write it so.")
            continue
        yield from unfit(at, entry, VARIABLE)
        name = get(entry, "name", "")
        yield from _limits(at, name, entry)
        if name in variables:
            yield at.error(
                "variable-twice", f"{name!r} is set a second time", "Take one of the two out."
            )
        variables[name] = get(entry, "value", "")
    yield from _settings(where, variables, runtime, code, regions)


def _limits(place: Place, name: str, entry: JSON) -> Iterator[Finding]:
    value = get(entry, "value", "")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield place.error(
            "variable-name",
            f"wanted up to {MAX_NAME} letters, digits and underscores, no digit first, got {name[:60]!r}",
            "Rename it.",
        )
    if "value" not in entry:
        yield place.error("variable-value", f"{name!r} has no value", 'Give it one, "" at least.')
    if len(value) > MAX_VALUE:
        yield place.error(
            "variable-value",
            f"AgentCore takes values of {MAX_VALUE} characters, {name!r} has {len(value)}",
            "Ship it as a file beside the code.",
        )
    if _SECRET_VALUE.search(value) or (value and _SECRET_NAME.fullmatch(name)):
        yield place.warning(
            "variable-secret",
            f"{name!r} looks like a secret, and is readable to whoever may read the runtime or this file",
            "Keep it in AWS Secrets Manager, and read it with the runtime's role.",
        )


def _settings(
    place: Place,
    variables: Mapping[str, str],
    runtime: JSON,
    code: Path | None,
    regions: tuple[str, ...],
) -> Iterator[Finding]:
    """Yield the settings of our own that mean nothing, or not what was meant."""
    if "ROLLOUT_BUDGET_SECONDS" in variables:
        life: JSON = get(runtime, "lifecycleConfiguration", {})
        lifetime_s = get(life, "maxLifetime", LIFETIME_S[1])
        waits_s = math.inf if _answers_at_once(runtime, code) else SYNCHRONOUS_S
        yield from _budget(
            place.at("ROLLOUT_BUDGET_SECONDS"),
            variables["ROLLOUT_BUDGET_SECONDS"],
            lifetime_s,
            waits_s,
        )
    effort = variables.get("REASONING_EFFORT", "").strip().lower()
    if effort and effort not in _LEVELS:
        yield place.at("REASONING_EFFORT").error(
            "reasoning-effort",
            f"wanted {', '.join(_LEVELS)}, got {effort[:40]!r}",
            "Write one of them.",
        )
    yield from _environment(place.at("RFT_ENVIRONMENT"), variables.get("RFT_ENVIRONMENT", ""), code)
    region = job_runtime_region(variables.get("RFT_RUNTIME_ENDPOINT", "").strip())
    if region and (elsewhere := sorted(set(regions) - {region})):
        yield place.at("RFT_RUNTIME_ENDPOINT").error(
            "endpoint-region",
            f"the Job Runtime of {region} knows no job of {', '.join(elsewhere)}, where the targets are",
            "Take it out: the agent finds its region's endpoint.",
        )
    ours = {name for name in variables if _OURS.fullmatch(name)}
    for name in sorted(ours - _read(code, ours)) if code else ():
        yield place.at(name).warning(
            "variable-unread",
            f"nothing that is deployed reads {name!r}",
            "See that it is spelled right.",
        )


def _answers_at_once(runtime: JSON, code: Path | None) -> bool:
    """Whether the entrypoint plays its rollouts in the background."""
    entrypoint = get(runtime, "entrypoint", "").partition(":")[0]
    if code is None or not is_there((path := code / entrypoint).is_file):
        return False
    # With the doctor, which has a check of its own for it: one reading of the decorator, not two.
    from rft_agent_sdk.mtrl.doctor.source import read_source

    try:
        source = read_source(path.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError):
        return False
    return any(one.handler_options.get("background") is True for one in source.entrypoints)


def _budget(place: Place, text: str, lifetime_s: int, waits_s: float) -> Iterator[Finding]:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    ends_s = seconds + AFTER_S
    if not seconds > 0:
        yield place.error(
            "rollout-budget",
            f"wanted seconds, got {text[:40]!r}: the agent would use its default",
            "Write a number.",
        )
    elif ends_s > lifetime_s:
        yield place.error(
            "rollout-budget",
            f"a rollout may take {ends_s:g} s, and its session ends after {lifetime_s} s",
            "Lower it, or raise lifecycleConfiguration.maxLifetime.",
        )
    elif ends_s > waits_s:
        yield place.error(
            "rollout-budget",
            f"a rollout may take {ends_s:g} s, and AgentCore ends a synchronous call after {waits_s:g} s",
            f"Write at most {waits_s - AFTER_S:g}, or play in the background: rft_handler(background=True).",
        )
    elif ends_s > WAIT_S:
        yield place.warning(
            "rollout-budget",
            f"a rollout may take {ends_s:g} s, and a job waits {WAIT_S:g} s unless it is told to wait longer",
            f"Write at most {WAIT_S - AFTER_S:g}, or set the job's rollout_timeout to {math.ceil(ends_s)} or more.",
        )


def _environment(place: Place, name: str, code: Path | None) -> Iterator[Finding]:
    """Yield it where the environment's module is not deployed with the code; one installed may be anywhere."""
    module, colon, _ = name.partition(":")
    if not name or code is None:
        return
    path = code / module.replace(".", "/") if colon else code / "environments" / name
    if colon and not is_there((code / module.partition(".")[0]).is_dir):
        return  # not of this folder, so of a package
    if not is_there((path / "__init__.py").is_file) and not is_there(Path(f"{path}.py").is_file):
        yield place.error(
            "environment-missing",
            f"the environment {name[:60]!r} is not in {code.name}/, so the agent will not start",
            "See that it is spelled right, and that the folder of environments is linked beside the entrypoint.",
        )


def _read(code: Path, names: set[str]) -> set[str]:
    """Return which of the names stand in any Python file of the code; links are followed, as packaging does."""
    found: set[str] = set()
    seen: set[str] = set()
    for folder, folders, files in os.walk(code, followlinks=True):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        ]
        real = os.path.realpath(folder)
        if real in seen:  # links may lead in a circle
            folders.clear()
            continue
        seen.add(real)
        for file in (name for name in files if name.endswith(".py")):
            if found == names:
                return found
            text = (Path(folder) / file).read_text(encoding="utf-8", errors="replace")
            found |= {name for name in names if name in text}
    return found
