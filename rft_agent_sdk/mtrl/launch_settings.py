"""What a launch settles of its run, and what can be told about the run before any call to AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rft_agent_sdk.environment import Environment
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.hyperparameters import (
    SETTLED,
    Chosen,
    Rule,
    advise,
    check,
    choose,
    effective,
    published,
)
from rft_agent_sdk.mtrl.launch_checks import error, warning
from rft_agent_sdk.mtrl.launch_data import LaunchData, all_findings
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.mtrl.models import AS_OF, LONGEST, find_model
from rft_agent_sdk.mtrl.plan import JobPlan, check_length, check_plan, check_rows, make_plan
from rft_agent_sdk.mtrl.recipe import read_recipe
from rft_agent_sdk.reward import TieredReward

BUDGET_VARIABLE = "ROLLOUT_BUDGET_SECONDS"
"""The agent's environment variable that limits a rollout."""
DEFAULT_BUDGET_S = 420.0
"""What an agent of this package allows itself where the variable is not set."""
LAMBDA_S = 900.0
"""Longest run of a Lambda function."""
PROJECT = Path("agentcore/agentcore.json")
_PUBLISHED = f"published, {AS_OF}"


@dataclass(frozen=True, slots=True)
class Budget:
    """How long an agent allows itself for a rollout."""

    seconds: float
    source: str
    """Where that stands, in words."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyperparameters of a launch."""

    chosen: Chosen
    """Those that the launch settles."""
    rules: Mapping[str, Rule]
    values: Mapping[str, Any]
    """All that the job will have."""
    findings: tuple[Finding, ...]
    """What is wrong with them."""
    model_name: str = ""
    """Of whose recipe they are; empty where only AWS can tell."""

    @property
    def is_sound(self) -> bool:
        """Whether they can be counted with."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def have(self, *names: str) -> bool:
        """Whether these can be counted with, whatever is wrong with others."""
        return not any(
            finding.severity is Severity.ERROR
            and finding.where.rpartition(".")[2].rpartition(" ")[2] in names
            for finding in self.findings
        ) and all(name in self.values for name in names)


def settle(
    spec: LaunchSpec, model_name: str = "", rules: Mapping[str, Rule] | None = None
) -> Settings:
    """Settle the hyperparameters of a launch.

    Args:
        spec: The launch.
        model_name: The base model's name in the hub, where `spec.model` alone does not tell it.
        rules: What the hub serves today; `None` takes the published ones.
    """
    name = spec.model_name or model_name
    known = published(name) if rules is None else rules
    recipe, findings = read_recipe(spec.recipe, known, "recipe")
    overrides, more = read_recipe(spec.overrides, known, "overrides")
    findings += more
    twice = [
        one for one in SETTLED if one in spec.hyperparameters and getattr(spec, one) is not None
    ]
    findings += [
        error(
            "said-twice",
            one,
            "it is said twice, by itself and in hyperparameters",
            "Leave one out.",
        )
        for one in twice
    ]
    findings += [
        error(
            "hyperparameter-value", f"hyperparameters.{one}", "wanted a value, got None", "Say it."
        )
        for one, value in spec.hyperparameters.items()
        if value is None
    ]
    chosen = choose(name, {**recipe, **overrides, **spec.asked}, rules)
    findings += check(chosen.values, known, _PUBLISHED if rules is None else "the hub today")
    values = effective(chosen, known)
    findings += advise(values)
    return Settings(chosen, known, values, tuple(findings), name)


def check_run(
    spec: LaunchSpec,
    settings: Settings,
    *,
    budget: Budget,
    worst_solve: float | None,
    is_lambda: bool = False,
) -> list[Finding]:
    """Return what is wrong with a run: its agent's time, its rewards, the length of its conversations."""
    findings = list(settings.findings)
    values, model = settings.values, find_model(settings.model_name)
    if settings.have("rollout_timeout"):
        findings += _check_budget(budget, values["rollout_timeout"], is_lambda)
    if settings.have("success_threshold"):
        findings += _check_rewards(worst_solve, values["success_threshold"])
    if settings.have("sampling_max_tokens"):
        findings += check_length(
            values,
            max_turns=spec.max_turns,
            turn_tokens=spec.turn_tokens,
            prompt_tokens=spec.prompt_tokens,
            max_sequence_length=model.max_sequence_length if model else LONGEST,
        )
    return findings


def plan_of(
    spec: LaunchSpec, settings: Settings, data: LaunchData | None, validation: LaunchData | None
) -> tuple[JobPlan | None, list[Finding]]:
    """Return what the job will play, and what is wrong with its rows.

    Returns:
        `None` in place of a plan where the rows are not known, or the hyperparameters are wrong.
    """
    findings = list(all_findings(data, validation))
    rows = (data.rows if data else None) or spec.rows or None
    held_out = (validation.rows if validation else None) or spec.validation_rows or None
    for name, given, count in (("rows", data, rows), ("validation_rows", validation, held_out)):
        if given is not None and count is None and not given.findings:
            told = f"{given.name} cannot be counted from here"
            option = f"Say how many there are with --{name.replace('_', '-')}."
            findings.append(warning("rows-unknown", name, told, option))
    if rows is None:
        return None, findings
    if not settings.is_sound:
        if settings.have("global_batch_size"):
            findings += check_rows(rows, settings.values["global_batch_size"])
        return None, findings
    plan = make_plan(rows, settings.values, validation_rows=held_out or 0)
    findings += [one for one in check_plan(plan) if one.id != "no-validation" or validation is None]
    return plan, findings


def project_budget(path: Path = PROJECT) -> Budget | None:
    """Return the budget that a project gives its agent; `None` where it says none.

    A project that cannot be read says none: other checks tell about that.
    """
    try:
        project = json.loads(path.read_text("utf-8"))
        pairs = [
            (pair.get("name"), pair.get("value"))
            for runtime in project["runtimes"]
            for pair in runtime.get("envVars", [])
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    found = [budget_of({str(name): value}, str(path)) for name, value in pairs]
    # of several agents the slowest one counts
    return max((one for one in found if one), key=lambda one: one.seconds, default=None)


def budget_of(variables: Mapping[str, Any], source: str) -> Budget | None:
    """Return the budget that environment variables give an agent; `None` where they give none it would take."""
    try:
        seconds = float(variables[BUDGET_VARIABLE])
    except (KeyError, TypeError, ValueError):
        return None
    return Budget(seconds, f"{BUDGET_VARIABLE} in {source}") if seconds > 0 else None


def default_budget(spec: LaunchSpec, deployed: Budget | None = None) -> Budget:
    """Return the budget to hold against the timeout: the given one, the deployed one, the project's, 420 s."""
    if spec.agent_budget_s is not None:
        return Budget(spec.agent_budget_s, "agent_budget_s")
    unset = Budget(DEFAULT_BUDGET_S, f"the default without {BUDGET_VARIABLE}")
    return deployed or project_budget() or unset


def worst_solve_of(environment: Environment) -> float | None:
    """Return the lowest reward of a solved task, the best tier's; `None` where an environment keeps no tiers."""
    for kept in getattr(environment, "__dict__", {}).values():
        for tiers in (kept, getattr(kept, "tiers", None)):
            if isinstance(tiers, TieredReward):
                best = tiers.tiers[0]
                return min(best.band(grade)[0] for grade in range(len(best.outcomes)))
    return None


def _check_budget(budget: Budget, timeout_s: float, is_lambda: bool) -> Iterator[Finding]:
    if budget.seconds >= timeout_s:
        yield error(
            "budget",
            "agent_budget_s",
            f"the agent allows itself {budget.seconds:g} s ({budget.source}), and the service waits "
            f"{timeout_s:g} s for a rollout: one that reports no reward in time fails the whole job",
            f"Raise --rollout-timeout above {budget.seconds:g}, or lower {BUDGET_VARIABLE} and deploy again.",
        )
    if is_lambda and timeout_s > LAMBDA_S:
        yield warning(
            "lambda-time",
            "rollout_timeout",
            f"it is {timeout_s:g} s, but a Lambda function ends after {LAMBDA_S:g} s",
            "Let the function hand the rollout on and return at once.",
        )


def _check_rewards(worst_solve: float | None, threshold: float) -> Iterator[Finding]:
    if worst_solve is None:
        yield Finding(
            "worst-solve-unknown",
            Severity.NOTE,
            "worst_solve",
            f"it is not known whether every solve reaches the success_threshold of {threshold:g}",
            "Name the --environment, or give --worst-solve.",
        )
    elif worst_solve < threshold:
        yield error(
            "worst-solve",
            "success_threshold",
            f"the worst solve pays {worst_solve:g}, below the success_threshold of {threshold:g}: "
            "val/reward/pass_at_1 would not count it as solved",
            f"Lower --success-threshold to {worst_solve:g} or less, or pay solves more.",
        )
