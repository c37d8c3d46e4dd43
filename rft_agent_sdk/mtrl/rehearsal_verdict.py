"""What a rehearsal comes to: whether the job would complete, would be launched at all, and would teach anything."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.rehearsal import Kind, Rehearsed, Status
from rft_agent_sdk.mtrl.rehearsal_metrics import is_flat, rewards_of
from rft_agent_sdk.mtrl.rehearsal_saved import WORTHLESS, outcome_of


class Verdict(IntEnum):
    """What a rehearsal comes to; the value is the verb's exit code, 2 being that of wrong options."""

    GOOD = 0
    """The job would complete."""
    FAILS = 1
    """It would not complete."""
    TEACHES_NOTHING = 3
    """It would complete, cost the same, and teach nothing."""
    NOT_LAUNCHED = 4
    """What was played completed, and the job as a whole cannot be launched like this."""


def verdict_of(rehearsed: Rehearsed, findings: Sequence[Finding]) -> Verdict:
    """Return what a rehearsal comes to, the gravest first."""
    if rehearsed.status is not Status.COMPLETED:
        return Verdict.FAILS
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Verdict.NOT_LAUNCHED
    return Verdict.TEACHES_NOTHING if teaches_nothing(rehearsed) else Verdict.GOOD


def teaches_nothing(rehearsed: Rehearsed) -> str:
    """Return why not one training rollout was worth anything, in words; empty where one was."""
    phases = [phase for phase in rehearsed.phases if phase.kind is Kind.TRAIN]
    rollouts = [rollout for phase in phases for rollout in phase.rollouts]
    if rollouts and all(outcome_of(rollout) in WORTHLESS for rollout in rollouts):
        return "every rollout went wrong before it could be scored"
    groups = [group for phase in phases for group in phase.groups if len(rewards_of(group)) > 1]
    if groups and all(map(is_flat, groups)):
        return "every rollout got the same reward as the others of its prompt"
    return ""
