"""What a training loop needs of a gateway, and how a session ends by what its agent said."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeGuard

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.advantages import LARGEST_REWARD
from rft_agent_sdk.training.agents import Answer
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import JSON, Outcome, SamplingParams

_UNDERWAY = ("accepted", "processing")
"""What an agent's response says in `status` while it plays on: ours, and agentcore-rl-toolkit's."""
_KEPT_AT = "result_key"
"""The key of agentcore-rl-toolkit's response that names the S3 object its result goes to, and nowhere else."""


class Call(Protocol):
    """One request as a gateway answered it."""

    @property
    def operation(self) -> str:
        """`ChatCompletions`, `Messages`, `CompleteRollout`, `UpdateReward` and so on."""
        ...

    @property
    def status(self) -> int | None:
        """HTTP status of the reply."""
        ...


class Record(Protocol):
    """A session's record at a gateway."""

    @property
    def calls(self) -> Sequence[Call]:
        """The requests so far."""
        ...


class Session(Protocol):
    """One rollout seen from its gateway, as `gateway.Session` is."""

    @property
    def id(self) -> str:
        """A name that opens nothing."""
        ...

    @property
    def rollout(self) -> Record:
        """What happened so far."""
        ...

    def config(
        self, base_url: str, *, model_id: str, deadline_s: float | None, report: bool
    ) -> JSON:
        """Return the `_config` object for the agent, secret included."""
        ...

    async def ended(self) -> Any:
        """Wait until the agent has reported its end."""
        ...

    def seal(self, outcome: Outcome | None, rewards: Sequence[float]) -> Trajectory:
        """End the session, unless it has ended; return its record."""
        ...

    def drop(self) -> None:
        """Forget the session."""
        ...


class SessionHost(Protocol):
    """Opens sessions that capture tokens, as `gateway.Gateway` does."""

    def open(
        self,
        *,
        task: str | None = None,
        sampling: SamplingParams | None = None,
        max_context_tokens: int | None = None,
        seed: int | None = None,
    ) -> Session:
        """Open a session for one rollout."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """What of an agent's response concerns a trainer."""

    rewards: tuple[float, ...] = ()
    """One for the rollout, one per turn, or none where there is no usable one."""
    outcome: Outcome | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


def read_response(body: JSON) -> Response:
    """Read `reward` and `_rft` of an agent's response. Never raises; ours may be missing altogether."""
    ours = body.get("_rft")
    ours = ours if isinstance(ours, dict) else {}
    outcome = ours.get("outcome")
    components = ours.get("components")
    found = components.items() if isinstance(components, dict) else ()
    error = ours.get("error") or body.get("error") or ""
    return Response(
        _rewards(body.get("reward")),
        Outcome(outcome) if outcome in list(Outcome) else None,
        {name: float(value) for name, value in found if _is_number(value)},
        str(error)[:500],
    )


def _rewards(value: object) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(map(float, values)) if all(map(_is_number, values)) else ()


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST_REWARD  # exact for any integer; not a number compares false


def is_accepted(body: JSON) -> bool:
    """Return whether an agent plays on in the background, and will report its end."""
    is_underway = body.get("status") in _UNDERWAY and "reward" not in body
    return is_underway and _KEPT_AT not in body


async def reported(session: Session, timeout_s: float) -> Answer:
    """Wait for the report of an agent that plays on in the background; its session keeps the result."""
    try:
        async with asyncio.timeout(timeout_s):
            await session.ended()
    except TimeoutError:
        return Answer(
            None,
            Outcome.TIMEOUT,
            "the agent answered that it plays on in the background, and reported no end in time: it must "
            "report its reward to the gateway (UpdateReward), or answer with it",
        )
    return Answer({"reward": None, "_rft": {}})


def sealed(session: Session, answer: Answer) -> tuple[Trajectory, str]:
    """End a session by what its agent said; what the agent has reported there goes before.

    Returns:
        The record, and what went wrong.
    """
    if answer.body is None:
        return _within_limits(session.seal(answer.failure, ()), answer.detail)
    said = read_response(answer.body)
    detail = said.error
    outcome = said.outcome if said.rewards else said.outcome or Outcome.AGENT_ERROR
    try:
        trajectory = session.seal(outcome, said.rewards)
    except UsageError as error:  # as many rewards as there are no turns
        detail = str(error)
        trajectory = session.seal(Outcome.AGENT_ERROR, ())
    trajectory, detail = _within_limits(trajectory, detail)
    if not trajectory.turns and trajectory.outcome.is_policy:
        trajectory = replace(trajectory, outcome=Outcome.NO_SAMPLING)
    if trajectory.reward is None and not detail:
        detail = _unrewarded(answer.body)
    return replace(trajectory, components=said.components or trajectory.components), detail


def _within_limits(trajectory: Trajectory, detail: str) -> tuple[Trajectory, str]:
    """Take away a reward too large to be compared with others, also one that was reported."""
    reward = trajectory.reward
    given = (() if reward is None else (reward,)) + (trajectory.per_turn or ())
    if all(map(_is_number, given)):
        return trajectory, detail
    told = f"rewards must be at most {LARGEST_REWARD:g} in magnitude, got {reward!r} in all"
    rewardless = replace(trajectory, outcome=Outcome.AGENT_ERROR, reward=None, per_turn=None)
    return rewardless, detail or told


def _unrewarded(body: JSON) -> str:
    """Tell why a response has no reward."""
    if body.get("status") in _UNDERWAY and _KEPT_AT in body:
        place = f"s3://{body.get('s3_bucket')}/{body[_KEPT_AT]}"
        return (
            f"the agent plays on in the background and leaves its result at {place:.300}, where nobody here "
            "looks: have it answer with its reward, or report it to the gateway (UpdateReward)"
        )
    return (
        f"the agent's response has no usable number under 'reward', but {body.get('reward')!r:.200}"
    )
