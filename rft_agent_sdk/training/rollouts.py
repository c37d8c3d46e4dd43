"""Rollouts of a training loop: a session is opened, an agent invoked, and what it left is judged.

Which gateway the sessions come from and how the agent is reached is told from outside. What a rollout's
outcome means is decided here: the policy's own doing is trained on, anything else is tried again in a
fresh session, then dropped, and too much of it stops the run.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

from rft_agent_sdk.errors import RolloutsFailed, UsageError
from rft_agent_sdk.training.agents import AgentRunner
from rft_agent_sdk.training.probe import unsampled
from rft_agent_sdk.training.sessions import (
    SessionHost,
    is_accepted,
    reported,
    sealed,
)
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import JSON, Outcome, SamplingParams

logger = logging.getLogger(__name__)

T = TypeVar("T")

_REPORTS = frozenset({"CompleteRollout", "UpdateReward"})
_RETRIED = frozenset(
    {
        Outcome.NO_SAMPLING,
        Outcome.AGENT_ERROR,
        Outcome.ENVIRONMENT_ERROR,
        Outcome.INFRASTRUCTURE_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How rollouts are played and judged."""

    base_url: str
    """The gateway's URL as agents reach it."""
    model_id: str = "default"
    """Model name that agents are to send."""
    deadline_s: float = 1800.0
    """Seconds a rollout may take."""
    grace_s: float = 30.0
    """Seconds past the deadline in which its result may still arrive."""
    max_context_tokens: int | None = None
    """Most tokens of a prompt and its reply together."""
    concurrency: int = 512
    """Most rollouts at one time."""
    retries: int = 1
    """How often a failed rollout is played again in a fresh session."""
    failed_rollout: Literal["drop", "zero"] = "drop"
    """`zero` trains a rollout that failed for no fault of the policy as reward 0."""
    failure_rate_limit: float = 0.2
    """Share of a batch's rollouts that may fail before the run stops."""

    def __post_init__(self) -> None:
        if self.deadline_s <= 0 or self.grace_s < 0 or self.concurrency < 1 or self.retries < 0:
            raise UsageError(
                "wanted deadline_s > 0, grace_s >= 0, concurrency >= 1 and retries >= 0, got "
                f"{self.deadline_s!r}, {self.grace_s!r}, {self.concurrency!r} and {self.retries!r}"
            )
        if not 0 <= self.failure_rate_limit <= 1:
            raise UsageError(f"failure_rate_limit is a share, got {self.failure_rate_limit!r}")


@dataclass(frozen=True, slots=True)
class Played:
    """A rollout that has ended, one way or another."""

    trajectory: Trajectory
    session_id: str
    """The session it was invoked in; an AgentCore runtime's logs name it."""
    wall_s: float = 0.0
    """Seconds it took, the last attempt only."""
    attempts: int = 1
    detail: str = ""
    """What went wrong, for people."""
    is_answered: bool = True
    """Whether the agent answered at all."""
    sampling_requests: int = 0
    """Requests for a sample that reached the gateway, answered or not."""
    reports: int = 0
    """Reports of its end that reached the gateway."""
    is_zeroed: bool = False
    """Whether its reward is the 0 of `failed_rollout: zero`."""

    @property
    def has_failed(self) -> bool:
        """Whether something other than the policy ended it, or it has no reward."""
        found = self.trajectory
        return self.is_zeroed or not found.outcome.is_policy or found.reward is None

    @property
    def trains(self) -> bool:
        """Whether its reward may be trained on."""
        return self.is_zeroed or not self.has_failed

    @property
    def reward(self) -> float:
        """Its reward; NaN where there is none."""
        reward = self.trajectory.reward
        return math.nan if reward is None else reward

    def to_json(self) -> JSON:
        """Return its diagnostics: everything but tokens and texts."""
        found = self.trajectory
        return {
            "rollout_id": found.rollout_id,
            "session_id": self.session_id,
            "outcome": found.outcome.value,
            "trains": self.trains,
            "reward": found.reward,
            "per_turn": None if found.per_turn is None else list(found.per_turn),
            "components": dict(found.components),
            "turns": found.turns,
            "samples": len(found.samples),
            "trained_tokens": found.trained_tokens,
            "versions": list(found.versions),
            "counters": dict(found.counters),
            "attempts": self.attempts,
            "wall_s": round(self.wall_s, 3),
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task."""

    payload: Mapping[str, Any]
    rollouts: tuple[Played, ...]

    @property
    def trained(self) -> tuple[Played, ...]:
        """Those whose reward may be trained on."""
        return tuple(played for played in self.rollouts if played.trains)

    @property
    def is_flat(self) -> bool:
        """Whether all rewards are the same, per turn too, so that nothing can be learned from them."""
        seen = {(one.trajectory.reward, one.trajectory.per_turn) for one in self.trained}
        return len(seen) < 2


class Rollouts:
    """Plays rollouts, on one event loop: `async with Rollouts(...) as rollouts`, which closes the agent."""

    def __init__(self, host: SessionHost, agent: AgentRunner, settings: RolloutSettings) -> None:
        """Compose a gateway and an agent; nothing is opened yet.

        Args:
            host: Where sessions are opened.
            agent: Who plays.
            settings: On what terms.
        """
        self._host = host
        self._agent = agent
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.concurrency)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._agent.aclose()

    async def run_batch(
        self,
        payloads: Iterable[Mapping[str, Any]],
        group_size: int,
        sampling: SamplingParams | None = None,
        seed: int | None = None,
    ) -> list[Group]:
        """Play a group of each payload, all at once; groups come in the order of the payloads.

        With a `seed`, each rollout's turns are sampled by seeds derived from it, the rollout's place in
        the batch and the attempt, so that the same weights play the same batch again.

        Raises:
            RolloutsFailed: More than `failure_rate_limit` of the rollouts failed.
        """
        groups = await _all_of(
            self.run_group(one, group_size, sampling, derived(seed, number))
            for number, one in enumerate(payloads)
        )
        self._check_rate(groups)
        return groups

    async def run_group(
        self,
        payload: Mapping[str, Any],
        group_size: int,
        sampling: SamplingParams | None = None,
        seed: int | None = None,
    ) -> Group:
        """Play one payload `group_size` times at once."""
        works = (
            self.run_rollout(payload, sampling, derived(seed, number))
            for number in range(group_size)
        )
        return Group(payload, tuple(await _all_of(works)))

    async def run_rollout(
        self,
        payload: Mapping[str, Any],
        sampling: SamplingParams | None = None,
        seed: int | None = None,
    ) -> Played:
        """Play one payload to its end, again in a fresh session where it failed."""
        async with self._slots:
            played = await self._tried(payload, sampling, seed, _may_retry)
        if played.has_failed:
            found = played.trajectory
            logger.warning(
                "rollout=<%s>, outcome=<%s>, attempts=<%s> | rollout failed: %s",
                *(found.rollout_id, found.outcome, played.attempts, played.detail),
            )
            if self._settings.failed_rollout == "zero":
                zero = replace(played.trajectory, reward=0.0, per_turn=None)
                played = replace(played, trajectory=zero, is_zeroed=True)
        return played

    async def preflight(
        self, payload: Mapping[str, Any], sampling: SamplingParams | None = None
    ) -> Played:
        """Play one probe, so that a run whose agent cannot reach the gateway never starts.

        It is played again as any rollout is, until a turn was sampled.

        Raises:
            UsageError: Not one turn was sampled; the message says what to look at.
        """
        since = time.time()
        played = await self._tried(
            payload, sampling, None, lambda one: not one.trajectory.turns and _may_retry(one)
        )
        if not played.trajectory.turns:
            strays = getattr(self._host, "stray_calls", ())
            refused = Counter(call.status for call in strays if call.at >= since)
            raise UsageError(unsampled(played, refused, self._settings.base_url))
        if played.has_failed:
            outcome = played.trajectory.outcome
            logger.warning("outcome=<%s> | the probe failed: %s", outcome, played.detail)
        return played

    async def _tried(
        self,
        payload: Mapping[str, Any],
        sampling: SamplingParams | None,
        seed: int | None,
        is_again: Callable[[Played], bool],
    ) -> Played:
        """Play, and again while that is worth a try and there is one left."""
        attempts = 1
        played = await self._attempt(payload, sampling, seed)
        while attempts <= self._settings.retries and is_again(played):
            attempts += 1
            played = await self._attempt(payload, sampling, derived(seed, attempts))
        return replace(played, attempts=attempts)

    async def _attempt(
        self,
        payload: Mapping[str, Any],
        sampling: SamplingParams | None,
        seed: int | None = None,
    ) -> Played:
        settings = self._settings
        session = self._host.open(
            sampling=sampling, max_context_tokens=settings.max_context_tokens, seed=seed
        )
        # Begins with the gateway's name of the session, and is as long as AgentCore wants it: 33 to 256.
        session_id = f"{session.id}-{uuid.uuid4().hex}"
        config = session.config(
            settings.base_url,
            model_id=settings.model_id,
            deadline_s=settings.deadline_s,
            report=True,
        )
        started = time.monotonic()
        timeout_s = settings.deadline_s + settings.grace_s
        try:
            answer = await self._agent.invoke({**payload, "_config": config}, session_id, timeout_s)
            wall_s = time.monotonic() - started
            if answer.body is not None and is_accepted(answer.body):
                answer = await reported(session, timeout_s - wall_s)
                wall_s = time.monotonic() - started
            trajectory, detail = sealed(session, answer)
            kinds = Counter(call.operation in _REPORTS for call in session.rollout.calls)
        finally:
            await self._agent.stop(session_id)
            session.drop()
        return Played(
            trajectory,
            session_id,
            wall_s=wall_s,
            detail=detail,
            is_answered=answer.body is not None,
            sampling_requests=kinds[False],
            reports=kinds[True],
        )

    def _check_rate(self, groups: Sequence[Group]) -> None:
        rollouts = [played for group in groups for played in group.rollouts]
        failed = [played for played in rollouts if played.has_failed]
        if not failed or len(failed) <= self._settings.failure_rate_limit * len(rollouts):
            return
        kinds = Counter(played.trajectory.outcome.value for played in failed)
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        example = {played.trajectory.outcome.value: played.detail for played in failed}
        such = "; ".join(f"{kind}: {example[kind] or 'no more known'}" for kind in kinds)
        raise RolloutsFailed(
            f"{len(failed)} of {len(rollouts)} rollouts failed ({told}), more than the share of "
            f"{self._settings.failure_rate_limit:g} that may (failure_rate_limit). The last {such}",
            groups=groups,
        )


def derived(seed: int | None, *place: object) -> int | None:
    """Return a seed of its own for a place under a seed; `None` stays `None`."""
    if seed is None:
        return None
    said = repr((seed, *place))
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=4).digest(), "big") >> 1


def _may_retry(played: Played) -> bool:
    return played.has_failed and played.trajectory.outcome in _RETRIED


async def _all_of(works: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once, in order; the first error cancels the others and is raised itself."""

    async def one(work: Awaitable[T]) -> T:
        return await work

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
