"""The span of a rollout: by what it is found, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.tracing import Span, span

if TYPE_CHECKING:
    from rft_agent_sdk.life import Ending


def rollout_span(rollout: Rollout) -> Span:
    """Begin a rollout's span."""
    request = rollout.request
    return span(
        "rollout",
        {
            "trajectory_id": request.rollout_id or None,
            "job_arn": request.job.job_arn if request.job else None,
            "invocation_id": rollout.invocation_id,
            "session.id": rollout.session_id,
            "budget_s": rollout.deadline.remaining(),
        },
    )


def tell(span: Span, rollout: Rollout, ending: Ending) -> None:
    """Tell a rollout's span how it ended; of an error its class, since its text may quote anything."""
    calls, reward = rollout.calls, ending.reward
    span.set(
        {
            "outcome": ending.outcome.value,
            "reward.total": reward.total,
            "reward.per_turn": list(reward.per_turn) if reward.per_turn else None,
            "reported": ending.reported,
            "rescued": ending.rescued or None,
            "calls.attempted": calls.attempted,
            "calls.succeeded": calls.succeeded,
            "calls.throttled": calls.throttled,
            "tokens.prompt": calls.usage.prompt_tokens,
            "tokens.completion": calls.usage.completion_tokens,
        }
    )
    span.set({f"reward.component.{name}": value for name, value in reward.components.items()})
    if not ending.outcome.is_policy:
        span.fail(type(ending.error).__name__ if ending.error else ending.outcome.value)
