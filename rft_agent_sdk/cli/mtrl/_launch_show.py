"""What `rft mtrl launch` prints: findings on standard error, the plan and its result on standard output."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rft_agent_sdk.mtrl.findings import Finding
    from rft_agent_sdk.mtrl.launch import Launched
    from rft_agent_sdk.mtrl.plan import JobPlan
    from rft_agent_sdk.mtrl.prices import Estimate


class Show:
    """Prints as it goes, or keeps everything for one JSON object at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._found: dict[str, Any] = {"findings": []}
        self._told: set[Finding] = set()

    def findings(self, findings: Iterable[Finding], when: str) -> None:
        """Tell findings that were not told yet, gravest first.

        Args:
            findings: What checks found.
            when: How far the launch had come, for its refusal.

        Raises:
            UsageError: There are errors among them.
        """
        from rft_agent_sdk.mtrl.findings import Severity

        order = list(Severity)
        new = [one for one in dict.fromkeys(findings) if one not in self._told]
        new.sort(key=lambda one: order.index(one.severity))
        self._told.update(new)
        self._found["findings"] += [asdict(one) for one in new]
        for one in new:
            click.echo(f"{one.severity}: {one.where}: {one.message}\n    {one.fix}", err=True)
        if errors := sum(one.severity is Severity.ERROR for one in new):
            if self._as_json:
                self.end()
            problems = "1 problem" if errors == 1 else f"{errors} problems"
            raise UsageError(f"not launched: {problems}, told above, {when}")

    def plan(self, plan: JobPlan | None, estimate: Estimate | None) -> None:
        """Tell what the job plays, and what that may cost."""
        self._found["plan"] = None if plan is None else _plan(plan)
        self._found["estimate"] = None if estimate is None else _estimate(estimate)
        if self._as_json:
            return
        lines = plan.lines() if plan else ["how many rows there are is not known, nor the rest"]
        _block("plan", lines)
        if estimate:
            _block("estimate", estimate.lines())

    def changes(self, made: list[str], is_dry: bool) -> None:
        """Tell what the launch makes besides the job."""
        self._found["changes"] = made
        if not self._as_json:
            _block("would be made" if is_dry else "to be made", [*made, "the job"])

    def request(self, request: dict[str, Any]) -> None:
        """Tell what would be sent."""
        sent = {**request, "JobConfigDocument": json.loads(request["JobConfigDocument"])}
        self._found["request"] = sent
        if not self._as_json:
            click.echo("CreateJob, its document as JSON instead of text:")
            click.echo(json.dumps(sent, indent=2))

    def job(self, job: Launched, following: list[str]) -> None:
        """Tell the job, and what to do next."""
        self._found["job"] = {
            "name": job.name,
            "arn": job.arn or None,
            "is_certain": job.is_certain,
        }
        if self._as_json:
            return
        click.echo(f"job {job.name}\n{job.arn}".rstrip())
        _block("next", following)

    def end(self) -> None:
        """Print what was kept."""
        if self._as_json:
            click.echo(json.dumps(self._found, indent=2))


def _block(title: str, lines: list[str]) -> None:
    click.echo(f"{title}:")
    for line in lines:
        click.echo(f"  {line}")


def _plan(plan: JobPlan) -> dict[str, Any]:
    counted = (
        "steps_per_epoch",
        "rollouts_per_step",
        "training_rollouts",
        "validation_rollouts",
        "rollouts",
        "least_s",
    )
    return {**asdict(plan), **{name: getattr(plan, name) for name in counted}}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {**asdict(estimate), "usd": estimate.usd, "basis": estimate.lines()[3:]}
