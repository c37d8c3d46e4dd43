"""The gateway in the Job Runtime's place, as the stand-in trainer looks into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Call, Gateway, Job
    from rft_agent_sdk.mtrl.rehearsal import Progress, Seen, Strays

_SAMPLING = frozenset({"ChatCompletions", "Messages", "Sample", "SampleWithResponseStream"})
_REPORTS = frozenset({"CompleteRollout", "UpdateReward"})
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_ID_HEADER = "x-amzn-sagemaker-trajectory-id"


class GatewayRuntime:
    """One job at a gateway; see `rehearsal.JobRuntime`."""

    def __init__(self, gateway: Gateway, job: Job) -> None:
        """Look into a job.

        Args:
            gateway: Where it is registered.
            job: Its record.
        """
        self._gateway = gateway
        self._job = job
        self._given: set[str] = set()

    def open(self, rollout_id: str) -> None:
        """Make a trajectory known."""
        self._given.add(rollout_id)
        self._job.trajectory(rollout_id)

    def progress(self, rollout_id: str) -> Progress:
        """Where a trajectory stands."""
        from rft_agent_sdk.mtrl.rehearsal import Progress, State

        found = self._job.trajectory(rollout_id)
        return Progress(State(found.state.value), len(found.calls))

    def seen(self, rollout_id: str) -> Seen:
        """Everything there is to know of a trajectory so far."""
        from rft_agent_sdk.mtrl.rehearsal import Seen, State

        found = self._job.trajectory(rollout_id)
        usages = [turn.usage for turn in found.turns]
        rewarded = [call.at for call in found.calls if _is_good(call, "UpdateReward")]
        sampled = (call for call in found.calls if call.operation in _SAMPLING)
        asked = next((call.body for call in sampled if call.status == 200), {})
        # One whose token does not verify is in nobody's record, whatever its headers say.
        calls = [
            *found.calls,
            *(call for call in self._gateway.stray_calls if _named(call) == rollout_id),
        ]
        return Seen(
            state=State(found.state.value),
            turns=len(usages),
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            longest_reply=max((usage.completion_tokens for usage in usages), default=0),
            context=max(
                (usage.prompt_tokens + usage.completion_tokens for usage in usages), default=0
            ),
            cut_off=sum(turn.finish_reason == "length" for turn in found.turns),
            sampling_refused=_refused(calls, _SAMPLING),
            reports_refused=_refused(calls, _REPORTS),
            sampling_said=_said(calls, _SAMPLING),
            reports_said=_said(calls, _REPORTS),
            asked=_params(asked),
            rewards=found.rewards,
            rewarded_at=rewarded[0] if found.rewards and rewarded else None,
        )

    def strays(self) -> Strays:
        """What came in and belongs to nobody."""
        from rft_agent_sdk.mtrl.rehearsal import Strays

        unknown = sorted(set(self._job.trajectories) - self._given)
        calls = [call for call in self._gateway.stray_calls if _named(call) not in self._given]
        return Strays(_refused(calls, _SAMPLING | _REPORTS), tuple(unknown))


def _named(call: Call) -> str:
    """Return the trajectory that a request names: in its header, else in its body; empty for none."""
    return call.headers.get(_ID_HEADER) or str(call.body.get("TrajectoryId", ""))


def _said(calls: Iterable[Call], operations: frozenset[str]) -> str:
    """Return what the last refused call was told."""
    told = [call.error for call in calls if call.operation in operations and call.error]
    return told[-1] if told else ""


def _is_good(call: Call, operation: str) -> bool:
    return call.operation == operation and call.status == 200


def _refused(calls: Iterable[Call], operations: frozenset[str]) -> dict[int, int]:
    """Return how many calls were refused, by HTTP status; one that was dropped has none."""
    found = (call.status for call in calls if call.operation in operations)
    return dict(Counter(status for status in found if status is not None and status >= 400))


def _params(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters of a request, by one name each."""
    found = {name: body[name] for name in ("temperature", "top_p") if name in body}
    for name in _MAX_TOKENS:
        if name in body:
            found["max_tokens"] = body[name]
    return found
