"""What a rehearsal found: why the job would have failed, and what would have gone badly in one that completes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.rehearsal import Attempt, FailureReason, Kind, Rehearsed, Rollout
from rft_agent_sdk.mtrl.rehearsal_causes import Cause, Facts, cause_of
from rft_agent_sdk.mtrl.rehearsal_metrics import is_flat, rewards_of
from rft_agent_sdk.mtrl.rehearsal_saved import outcome_of, saved, share_of, where
from rft_agent_sdk.types import SamplingParams

NEAR = 0.8
"""Share of a limit from which a rollout counts as near it."""
_FLAT_SHARE = 0.5
"""Share of flat groups that is worth a warning."""
_REPORT_S = 60.0
"""Seconds that @rft_handler may take to report after its budget has passed."""
_NOBODY_THERE = frozenset(
    {"agent-exited", "agent-gone", "agent-not-listening", "connection-lost", "invocation-refused"}
)
"""Causes that strike whichever rollouts are in flight, so that a row says nothing."""
_NEEDED = ("temperature", "top_p", "max_tokens")


def find(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> list[Finding]:
    """Return what was found, what ended the job first.

    Args:
        rehearsed: The job, played.
        facts: What is known beside.
        sampling: What training rollouts were told to sample with.
    """
    found = [] if rehearsed.killer is None else [_killer(rehearsed.killer, rehearsed, facts)]
    for check in (_retries, _rewards, _limits, _budget, saved, _sampling, _strays):
        found += check(rehearsed, facts, sampling)
    return found


def _killer(rollout: Rollout, rehearsed: Rehearsed, facts: Facts) -> Finding:
    cause = cause_of(_telling(rollout, rehearsed), rehearsed, facts)
    others = [one for one in rehearsed.rollouts if one.failure is None]
    tries = len(rollout.attempts)
    scope = f"Each of {tries} attempts failed" if tries > 1 else "Its one attempt failed"
    if not others:
        scope += ", and no other rollout got through."
    elif cause.id in _NOBODY_THERE:
        scope += f"; {len(others)} rollouts had got through before."
    elif all(one.row == rollout.row for one in _troubled(rehearsed)):
        scope += f"; the {len(others)} rollouts of other rows had no trouble, so look at this row's data."
    else:
        scope += f"; {len(others)} other rollouts got through."
    return Finding(
        cause.id, Severity.ERROR, where(rollout, facts), f"{cause.message}\n{scope}", cause.fix
    )


def _telling(rollout: Rollout, rehearsed: Rehearsed) -> Attempt:
    """Return the attempt that tells most: the last, but for an earlier one whose reward has come meanwhile.

    The job is over as soon as the last is given up, so nobody sees how late its own reward would have been.
    """
    last = rollout.last
    if last.failure is not FailureReason.NO_REWARD or last.seen.reports_refused:
        return last
    return next((one for one in rollout.attempts if one.rollout_id in rehearsed.late), last)


def _troubled(rehearsed: Rehearsed) -> list[Rollout]:
    return [one for one in rehearsed.rollouts if one.failure or len(one.attempts) > 1]


def _retries(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    saved = [one for one in _troubled(rehearsed) if one.failure is None]
    causes: dict[str, tuple[Cause, list[Rollout]]] = {}
    for rollout in saved:
        cause = cause_of(rollout.attempts[0], rehearsed, facts)
        causes.setdefault(cause.id, (cause, []))[1].append(rollout)
    for cause, rollouts in causes.values():
        most = max(len(one.attempts) for one in rollouts)
        yield Finding(
            f"retried-{cause.id}",
            Severity.WARNING,
            where(rollouts[0], facts),
            f"{share_of(len(rollouts), rehearsed)} needed more than one attempt, up to {most} of the "
            f"{facts.terms.attempts} there are; one more failure each would have ended the job. {cause.message}",
            cause.fix,
        )


def _rewards(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    groups = [
        group
        for phase in rehearsed.phases
        if phase.kind is Kind.TRAIN
        for group in phase.groups
        if len(rewards_of(group)) > 1
    ]
    flat = sum(map(is_flat, groups))
    if groups and flat == len(groups):
        rewards = rewards_of(one for group in groups for one in group)
        same = f", all of them {rewards[0]:g}" if max(rewards) == min(rewards) else ""
        yield Finding(
            "reward-never-varies",
            Severity.WARNING,
            facts.agent,
            f"In none of {len(groups)} groups did one rollout get another reward than the rest ({len(rewards)} rewards"
            f"{same}). Rollouts are compared with those of the same prompt, so there is nothing to learn from, and the "
            "job would cost the same.",
            "See that the reward depends on what the policy did: an exception that is caught and scored as the floor "
            "looks like this. Or rehearse with a policy that is not always equally good: --noise, --policy.",
        )
    elif groups and flat / len(groups) >= _FLAT_SHARE:
        yield Finding(
            "flat-groups",
            Severity.WARNING,
            facts.dataset,
            f"In {flat} of {len(groups)} groups every rollout got the same reward: their advantage is zero, and "
            f"{flat / len(groups):.0%} of the tokens would be paid for and teach nothing.",
            "Take rows of middling difficulty for this policy, a larger group_size, a temperature nearer 1, or a "
            "reward with more steps.",
        )
    odd = [
        one
        for one in rehearsed.rollouts
        if one.failure is None and len(one.last.seen.rewards) not in (1, one.last.seen.turns)
    ]
    if odd:
        seen = odd[0].last.seen
        yield Finding(
            "reward-list-length",
            Severity.WARNING,
            where(odd[0], facts),
            f"{share_of(len(odd), rehearsed)} reported neither one reward nor one per model call ({len(seen.rewards)} for "
            f"{seen.turns} calls). What the service makes of that is not documented.",
            "Report one number for the rollout, or a list with one for each answered model call.",
        )


def _limits(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    terms = facts.terms
    timeout_s = terms.real(terms.timeout_s)
    played = [one for one in rehearsed.rollouts if one.failure is None]
    slow = [one for one in played if one.last.seconds >= NEAR * timeout_s]
    if slow:
        longest_s = max(one.last.seconds for one in slow)
        yield Finding(
            "near-timeout",
            Severity.WARNING,
            where(slow[0], facts),
            f"{share_of(len(slow), rehearsed)} took more than {NEAR:.0%} of rollout_timeout, the longest {longest_s:.1f} s "
            f"of {timeout_s:g} s"
            + (
                f" (at speed {terms.speed:g}; the agent's own pace is not changed by it)."
                if terms.speed != 1
                else "."
            ),
            "Lower the agent's budget or its turns, or raise rollout_timeout. At a speed above 1, see first whether "
            "it is so at --speed 1.",
        )
    most = sampling.max_tokens
    cut = [one for one in played if one.last.seen.cut_off]
    if cut:
        yield Finding(
            "replies-cut-off",
            Severity.WARNING,
            where(cut[0], facts),
            f"{share_of(len(cut), rehearsed)} had a reply that ended at its token limit (sampling_max_tokens {most}).",
            "Raise sampling_max_tokens (to 8192 at most), or ask the model for less reasoning.",
        )
    close = [one for one in played if most and NEAR * most <= one.last.seen.longest_reply < most]
    if close and not cut:
        yield Finding(
            "near-token-limit",
            Severity.NOTE,
            where(close[0], facts),
            f"{share_of(len(close), rehearsed)} had a reply of more than {NEAR:.0%} of sampling_max_tokens ({most}).",
            "Raise sampling_max_tokens, which can be 8192 at most.",
        )
    long = [one for one in played if one.last.seen.context >= NEAR * facts.max_context]
    if long:
        yield Finding(
            "near-context",
            Severity.WARNING,
            where(long[0], facts),
            f"{share_of(len(long), rehearsed)} grew to more than {NEAR:.0%} of the longest sequence that is trained "
            f"({facts.max_context} tokens).",
            "Fewer turns, shorter tool results, or a smaller sampling_max_tokens.",
        )
    ended = [one for one in played if outcome_of(one) == "truncated" and one not in cut]
    if ended:
        yield Finding(
            "turn-limit",
            Severity.WARNING,
            where(ended[0], facts),
            f"{share_of(len(ended), rehearsed)} were ended by the agent's own limit of turns or by the context window.",
            "Raise the agent's max_turns, or see why the policy does not come to an end.",
        )


def _budget(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    timeout_s, budget_s = facts.terms.timeout_s, facts.budget_s
    if budget_s is None or budget_s + _REPORT_S <= timeout_s:
        return
    yield Finding(
        "budget-over-timeout",
        Severity.WARNING,
        facts.agent,
        f"The agent gives a rollout {budget_s:g} s, and reporting up to {_REPORT_S:g} s more; the job waits "
        f"{timeout_s:g} s. A rollout that uses its time would be scored too late, and end the job.",
        f"Set ROLLOUT_BUDGET_SECONDS to {max(1, timeout_s * 0.7):g} at most, or raise rollout_timeout.",
    )


def _sampling(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    """Tell which parameters of the payload do not arrive with the model calls."""
    phases = [phase for phase in rehearsed.phases if phase.kind is Kind.TRAIN]
    attempts = [one.last for phase in phases for one in phase.rollouts if one.last.seen.turns]
    missing = Counter(name for one in attempts for name in _unasked(one, sampling))
    if not missing:
        return
    yield Finding(
        "sampling-not-passed-on",
        Severity.WARNING,
        facts.agent,
        f"Model calls do not carry {', '.join(sorted(missing))} as inferenceParams has them "
        f"({max(missing.values())} of {len(attempts)} rollouts). The service does not fill them in, so the job would "
        "sample with other values than its hyperparameters say, in validation too.",
        "Copy inferenceParams into every model call, as rollout.openai() and rollout.model() do.",
    )


def _unasked(attempt: Attempt, sampling: SamplingParams) -> list[str]:
    asked = attempt.seen.asked
    return [
        name
        for name in _NEEDED
        if (wanted := getattr(sampling, name)) is not None and asked.get(name) != wanted
    ]


def _strays(rehearsed: Rehearsed, facts: Facts, sampling: SamplingParams) -> Iterator[Finding]:
    strays, killer = rehearsed.strays, rehearsed.killer
    if killer is not None and not killer.last.seen.turns:
        return  # told as its cause
    if not (strays.unattributed or strays.unknown_ids):
        return
    lost = sum(strays.unattributed.values())
    shown = ", ".join(repr(one[:60]) for one in strays.unknown_ids[:3])
    parts = [f"{lost} requests named no rollout"] if lost else []
    parts += [f"others named trajectories that the job never gave out ({shown})"] if shown else []
    yield Finding(
        "stray-requests",
        Severity.WARNING,
        facts.agent,
        f"At the Job Runtime {' and '.join(parts)}.",
        "Send the job ARN and the trajectory id of the payload with every request, and keep them on no object that "
        "rollouts share.",
    )
