"""CompleteRollout and UpdateReward, for jobs and for sessions."""

from __future__ import annotations

import math

from rft_agent_sdk.gateway.access import identify
from rft_agent_sdk.gateway.job_runtime import Job
from rft_agent_sdk.gateway.refusal import Refusal, parse_object
from rft_agent_sdk.gateway.rollout import GatewayRollout
from rft_agent_sdk.gateway.visit import Visit
from rft_agent_sdk.types import JSON, Outcome

_STATUSES = ("ready", "failed")


async def complete_rollout(visit: Visit) -> None:
    """Serve `/complete-rollout`."""
    rollout, body = await _read(visit)
    status = body.get("Status", "ready")
    if status not in _STATUSES:
        raise _bad("Status", "'ready' or 'failed'", status)
    outcome = _outcome(rollout, body)
    rollout.complete(is_ready=status == "ready", token=_token(body), outcome=outcome)
    await visit.reply({})


async def update_reward(visit: Visit) -> None:
    """Serve `/update-reward`."""
    rollout, body = await _read(visit)
    rewards = _rewards(body.get("Rewards"))
    rollout.reward(rewards, token=_token(body), outcome=_outcome(rollout, body))
    await visit.reply({})


async def _read(visit: Visit) -> tuple[GatewayRollout, JSON]:
    raw = await visit.body()
    body = parse_object(raw)
    visit.noted = body
    owner = identify(visit, raw, body.get("JobArn"))
    if isinstance(owner, Job):
        trajectory_id = body.get("TrajectoryId")
        if not isinstance(trajectory_id, str):
            raise _bad("TrajectoryId", "a string", trajectory_id)
        rollout: GatewayRollout = owner.trajectory(trajectory_id)
    else:
        rollout = owner  # the secret is the session: it needs no further id
    visit.rollout = rollout
    await visit.face(rollout.report_faults)
    return rollout, body


def _token(body: JSON) -> str | None:
    token = body.get("ClientToken")
    if token is not None and not isinstance(token, str):
        raise _bad("ClientToken", "a string", token)
    return token


def _rewards(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise _bad("Rewards", "a list of at least one number", value)
    for index, reward in enumerate(value):
        if not _is_finite(reward):
            raise _bad(f"Rewards[{index}]", "a finite number", reward)
    return tuple(float(reward) for reward in value)


def _is_finite(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer past every float
        return False


def _outcome(rollout: GatewayRollout, body: JSON) -> Outcome | None:
    """Return the `Outcome` of a report: an addition of ours, which the managed service has not."""
    value = body.get("Outcome")
    if value is None:
        return None
    if value not in list(Outcome):
        raise _bad("Outcome", f"one of {[outcome.value for outcome in Outcome]}", value)
    return Outcome(value)


def _bad(name: str, wanted: str, got: object) -> Refusal:
    return Refusal(400, f"{name}: wanted {wanted}, got {repr(got)[:60]}", param=name)
