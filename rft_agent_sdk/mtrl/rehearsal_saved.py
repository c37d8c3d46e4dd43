"""What @rft_handler turned into a reward where a rollout went wrong: the job goes on, and trains on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.rehearsal import Kind, Rehearsed, Rollout
from rft_agent_sdk.mtrl.rehearsal_causes import Facts
from rft_agent_sdk.types import SamplingParams

_SHOWN = 300
_NO_NUMBER = "RewardError"
"""What our handler raises of what a function returned."""
_SAVED = {
    "no_sampling": (
        "never called the model; one call was made in their stead",
        "Call the model in every rollout.",
    ),
    "agent_error": ("ended with an exception of the agent", "Mend what raised."),
    "environment_error": (
        "ended with an error of the environment, such as a row it cannot read",
        "Mend the environment, or leave the row out of the dataset.",
    ),
    "infrastructure_error": (
        "ended because the model's endpoint failed or refused",
        "See the agent's log for what the Job Runtime said.",
    ),
    "timeout": (
        "ran into the agent's own time limit",
        "See what takes so long; what was reached by then is scored.",
    ),
}
WORTHLESS = frozenset(_SAVED) - {"timeout"}
"""Outcomes whose reward says nothing of what the policy did."""


def saved(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    """Yield a finding for each way in which rollouts went wrong and were rewarded all the same."""
    by_outcome: dict[str, list[Rollout]] = {}
    unrewarded = []
    for rollout in rehearsed.rollouts:
        if rollout.failure is not None:
            continue
        if _ours(rollout, "error_type") == _NO_NUMBER and outcome_of(rollout) == "agent_error":
            unrewarded.append(rollout)
        else:
            by_outcome.setdefault(outcome_of(rollout), []).append(rollout)
    if unrewarded:
        yield _found(
            "no-reward",
            unrewarded,
            "returned no reward that can be read; nothing raised",
            "Return a number, a list with one for each model call, a Reward, or a dict with one of these under "
            '\'reward\': no text, and no {"status": "error"}. Where there is nothing to score, return the lowest.',
            rehearsed,
            facts,
        )
    for outcome, (what, fix) in _SAVED.items():
        if rollouts := by_outcome.get(outcome):
            yield _found(outcome.replace("_", "-"), rollouts, what, fix, rehearsed, facts)


def _found(
    name: str,
    rollouts: Sequence[Rollout],
    what: str,
    fix: str,
    rehearsed: Rehearsed,
    facts: Facts,
) -> Finding:
    error = _ours(rollouts[0], "error")
    return Finding(
        f"saved-{name}",
        Severity.WARNING,
        where(rollouts[0], facts),
        f"{share_of(len(rollouts), rehearsed)} {what}. @rft_handler reported a reward all the same, so the job "
        f"goes on and is trained on it{f': {error[:_SHOWN]}' if error else ''}.",
        fix,
    )


def outcome_of(rollout: Rollout) -> str:
    """Return why a rollout ended, where our handler says so; else nothing."""
    return _ours(rollout, "outcome")


def share_of(count: int, rehearsed: Rehearsed) -> str:
    """Return how many of all rollouts, in words."""
    return f"{count} of {len(rehearsed.rollouts)} rollouts"


def where(rollout: Rollout, facts: Facts) -> str:
    """Return the row and the step of a rollout, for people."""
    row, step = rollout.row + 1, rollout.step
    if rollout.kind is Kind.TRAIN:
        return f"{facts.dataset}, row {row} (step {step})"
    return f"validation, row {row} ({f'after step {step}' if step else 'at the start'})"


def _ours(rollout: Rollout, name: str) -> str:
    answer = rollout.last.answer
    return str(answer.ours.get(name, "")) if answer else ""
