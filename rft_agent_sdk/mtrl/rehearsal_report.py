"""What a rehearsal says in the end: as one JSON object for programs, as lines for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.rehearsal import Attempt, Kind, Phase, Plan, Rehearsed, Rollout, Terms
from rft_agent_sdk.mtrl.rehearsal_metrics import is_flat, rewards_of, spread, step_metrics
from rft_agent_sdk.mtrl.rehearsal_projection import Projection
from rft_agent_sdk.mtrl.rehearsal_verdict import Verdict, teaches_nothing, verdict_of
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class Report:
    """A rehearsal with everything that is told of it."""

    rehearsed: Rehearsed
    plan: Plan
    terms: Terms
    findings: Sequence[Finding]
    projection: Projection | None
    """`None` where no rollout got through, so that nothing was measured, or the job would have no steps."""
    policy: str
    """What answered, as it was asked for."""
    job_arn: str
    notes: Sequence[str] = ()
    """What was done otherwise than the service does, and other things worth a line."""

    @property
    def comes_to(self) -> Verdict:
        """What it comes to; the value is the exit code."""
        return verdict_of(self.rehearsed, self.findings)

    @property
    def verdict(self) -> str:
        """What DescribeJob would have said, in one line, and what that is worth."""
        reason = self.rehearsed.failure_reason
        said = f"JobStatus {self.rehearsed.status}"
        if reason is not None:
            return f"{said}, FailureReason: {reason}"
        if self.comes_to is Verdict.NOT_LAUNCHED:
            errors = (one.id for one in self.findings if one.severity is Severity.ERROR)
            return f"{said} as far as played, but not to be launched like this: {', '.join(errors)}"
        if self.comes_to is Verdict.TEACHES_NOTHING:
            return f"{said}, and nothing learned: {teaches_nothing(self.rehearsed)}"
        return said

    def as_json(self) -> JSON:
        """Return all of it."""
        rehearsed = self.rehearsed
        return {
            "status": rehearsed.status.value,
            "failure_reason": rehearsed.failure_reason and rehearsed.failure_reason.value,
            "verdict": self.verdict,
            "exit_code": self.comes_to.value,
            "job_arn": self.job_arn,
            "policy": self.policy,
            "plan": asdict(self.plan),
            "terms": asdict(self.terms),
            "findings": [asdict(finding) for finding in self.findings],
            "summary": summary(rehearsed, self.plan.success_threshold),
            "projection": self.projection
            and {**asdict(self.projection), "usd": self.projection.usd},
            "phases": [self._phase(phase) for phase in rehearsed.phases],
            "rollouts": [_rollout(rollout) for rollout in rehearsed.rollouts],
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people: the verdict, what was found, the numbers, the whole job."""
        yield self.verdict
        if self.rehearsed.cancelled:
            yield f"{self.rehearsed.cancelled} rollouts were cancelled with it"
        if self.findings:
            yield ""
            yield from finding_lines(self.findings)
        yield ""
        yield from _summary_lines(summary(self.rehearsed, self.plan.success_threshold))
        if self.projection is not None:
            yield ""
            yield f"the whole job, projected from {self.projection.measured.rollouts} rollouts of {self.policy!r}:"
            yield from (f"  {line}" for line in self.projection.lines())
        if self.notes:
            yield ""
            yield from (f"note: {note}" for note in self.notes)

    def _phase(self, phase: Phase) -> JSON:
        return {
            "kind": phase.kind.value,
            "step": phase.step,
            "metrics": step_metrics(phase, self.plan.success_threshold),
        }


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield findings for people, the gravest first."""
    order = list(Severity)
    for finding in sorted(findings, key=lambda one: order.index(one.severity)):
        yield f"{finding.severity.upper()} {finding.id} ({finding.where})"
        yield from (f"  {line}" for line in finding.message.splitlines())
        yield f"  fix: {finding.fix}"


def summary(rehearsed: Rehearsed, success_threshold: float = 1.0) -> JSON:
    """Return the numbers that people ask for, over all training steps; of validation only the rewards."""
    training = [one for one in rehearsed.rollouts if one.kind is Kind.TRAIN]
    validation = [one for one in rehearsed.rollouts if one.kind is Kind.VALIDATION]
    groups = [
        group
        for phase in rehearsed.phases
        if phase.kind is Kind.TRAIN
        for group in phase.groups
        if len(rewards_of(group)) > 1
    ]
    flat = sum(map(is_flat, groups))
    within: dict[str, Callable[[list[float]], float]] = {
        "mean": statistics.fmean,
        "min": min,
        "max": max,
        "std": spread,
    }
    rewards = [rewards_of(group) for group in groups]
    steps = [phase.seconds for phase in rehearsed.phases if phase.kind is Kind.TRAIN]
    played = [one for one in training or validation if one.failure is None]
    return {
        "rollouts": {
            "training": len(training),
            "validation": len(validation),
            "failed": sum(one.failure is not None for one in rehearsed.rollouts),
            "cancelled": rehearsed.cancelled,
            "retried": sum(len(one.attempts) > 1 for one in rehearsed.rollouts),
            "attempts": sum(len(one.attempts) for one in rehearsed.rollouts),
        },
        "reward": _stats(rewards_of(training)),
        "validation_reward": _stats(rewards_of(validation)),
        "within_groups": {
            name: statistics.fmean(map(of, rewards)) if rewards else None
            for name, of in within.items()
        },
        "groups": {
            "count": len(groups),
            "flat": flat,
            "flat_share": flat / len(groups) if groups else None,
        },
        "solve_rate": _solved(training, success_threshold),
        "validation_solve_rate": _solved(validation, success_threshold),
        "turns": _stats([float(one.last.seen.turns) for one in played]),
        "prompt_tokens": _stats([float(one.last.seen.prompt_tokens) for one in played]),
        "completion_tokens": _stats([float(one.last.seen.completion_tokens) for one in played]),
        "seconds": _stats([one.last.seconds for one in played]),
        "step_seconds": _stats(steps),
    }


def _summary_lines(found: JSON) -> Iterator[str]:
    rollouts, groups = found["rollouts"], found["groups"]
    yield (
        f"rollouts    {rollouts['training']} of training, {rollouts['validation']} of validation; "
        f"{rollouts['failed']} failed, {rollouts['retried']} needed a retry"
    )
    if found["reward"]:
        yield f"reward      {_told(found['reward'], '+.3f')}; solved {found['solve_rate']:.0%}"
    if groups["count"]:
        inside = found["within_groups"]
        yield (
            f"in groups   mean {inside['mean']:+.3f}, min {inside['min']:+.3f}, max {inside['max']:+.3f}, "
            f"std {inside['std']:.3f} (each averaged over groups)"
        )
        yield (
            f"flat groups {groups['flat']} of {groups['count']} ({groups['flat_share']:.0%}): all rewards equal, "
            "advantage zero"
        )
    if found["validation_reward"]:
        yield (
            f"validation  {_told(found['validation_reward'], '+.3f')}; "
            f"solved {found['validation_solve_rate']:.0%}"
        )
    for name, label, form in (
        ("turns", "turns", ".1f"),
        ("prompt_tokens", "tokens read", ",.0f"),
        ("completion_tokens", "generated", ",.0f"),
        ("seconds", "seconds", ".2f"),
        ("step_seconds", "a step took", ".1f"),
    ):
        if found[name]:
            unit = " s" if name == "step_seconds" else ""
            yield f"{label:11} {_told(found[name], form)}{unit}"


def _told(stats: dict[str, float], form: str) -> str:
    low, high, mean = stats["min"], stats["max"], stats["mean"]
    return f"mean {mean:{form}} (from {low:{form}} to {high:{form}})"


def _stats(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": statistics.fmean(values),
        "min": min(values),
        "max": max(values),
        "std": spread(values),
    }


def _solved(rollouts: Sequence[Rollout], threshold: float) -> float | None:
    rewards = rewards_of(rollouts)
    return sum(one >= threshold for one in rewards) / len(rewards) if rewards else None


def _rollout(rollout: Rollout) -> JSON:
    seen = rollout.last.seen
    return {
        "kind": rollout.kind.value,
        "step": rollout.step,
        "row": rollout.row,
        "group": rollout.group,
        "member": rollout.member,
        "reward": rollout.reward,
        "rewards": list(seen.rewards),
        "failure": rollout.failure and rollout.failure.value,
        "turns": seen.turns,
        "prompt_tokens": seen.prompt_tokens,
        "completion_tokens": seen.completion_tokens,
        "seconds": rollout.last.seconds,
        "attempts": [_attempt(attempt) for attempt in rollout.attempts],
    }


def _attempt(attempt: Attempt) -> JSON:
    answer = attempt.answer
    return {
        "rollout_id": attempt.rollout_id,
        "seconds": attempt.seconds,
        "state": attempt.seen.state.value,
        "failure": attempt.failure and attempt.failure.value,
        "timed_out": attempt.timed_out,
        "answer": answer
        and {
            "kind": answer.kind.value,
            "status": answer.status,
            "outcome": answer.ours.get("outcome"),
            "detail": answer.detail[:500],
        },
    }
