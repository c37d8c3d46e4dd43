"""One attempt at one rollout: the agent is invoked, the Job Runtime is watched, the end is judged."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rft_agent_sdk.mtrl.rehearsal import (
    Agent,
    Answer,
    AnswerKind,
    Attempt,
    FailureReason,
    JobRuntime,
    Seen,
    State,
    Terms,
)
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.02, 1.0
_KNOCK_S = 0.5
"""Real seconds between two tries to reach a server that does not listen yet."""
_GRACE_S = 0.5
"""Real seconds that a report may still take after the invocation broke, and an answer after the reward."""
_OVER = (State.FAILED, State.REWARD_RECEIVED)

MakePayload = Callable[[str], JSON]
"""Takes a trajectory id, gives what the agent is sent."""


@dataclass(frozen=True, slots=True)
class Player:
    """Plays attempts, any number at the same time."""

    agent: Agent
    runtime: JobRuntime
    terms: Terms
    clock: Callable[[], float]
    """Seconds, the same by which the Job Runtime dates what it saw."""

    async def attempt(self, make_payload: MakePayload, number: int) -> Attempt:
        """Play one attempt under an id of its own, and never longer than the timeout.

        Args:
            make_payload: Gives the payload for the attempt's trajectory id.
            number: Which attempt at this rollout, from 1.
        """
        rollout_id, session_id = f"rollout-{uuid.uuid4().hex}", f"rft-rehearsal-{uuid.uuid4()}"
        self.runtime.open(rollout_id)
        started_at = self.clock()
        call = asyncio.create_task(self._invoke(make_payload(rollout_id), session_id))
        try:
            timed_out = await self._watch(rollout_id, call, started_at)
            if not timed_out:
                await asyncio.wait({call}, timeout=_GRACE_S)
            answer = call.result() if call.done() else None
        finally:
            await _cancelled(call)
            await self.agent.stop(session_id)
        seen = self.runtime.seen(rollout_id)
        failure = judged(seen)
        ended_at = seen.rewarded_at if failure is None and seen.rewarded_at else self.clock()
        return Attempt(rollout_id, number, started_at, ended_at, answer, seen, failure, timed_out)

    async def _invoke(self, payload: JSON, session_id: str) -> Answer:
        """Invoke the agent; while nobody listens, again, for as long as AgentCore waits."""
        until = self.clock() + self.terms.real(self.terms.listen_s)
        while True:
            answer = await self.agent.invoke(payload, session_id)
            left = until - self.clock()
            if answer.kind is not AnswerKind.UNREACHABLE or left <= 0:
                return answer
            await asyncio.sleep(min(_KNOCK_S, left))

    async def _watch(self, rollout_id: str, call: asyncio.Task[Answer], started_at: float) -> bool:
        """Wait until the trajectory is over, cannot get there, or has had its time; say whether the last."""
        until = started_at + self.terms.real(self.terms.timeout_s)
        calls, heard_at = 0, started_at
        is_answered = False
        while True:
            now = self.clock()
            progress = self.runtime.progress(rollout_id)
            if progress.state in _OVER:
                return False
            if now >= until:
                return True
            if progress.calls != calls or call.done() is not is_answered:
                calls, is_answered, heard_at = progress.calls, call.done(), now
            if is_answered and await self._is_hopeless(call.result(), now - heard_at):
                return False
            look_s = min(max(_SHORTEST_LOOK_S, 0.05 * (now - started_at)), _LONGEST_LOOK_S)
            pause_s = min(look_s, max(0.001, until - now))
            if is_answered:
                await asyncio.sleep(pause_s)
            else:
                await asyncio.wait({call}, timeout=pause_s)

    async def _is_hopeless(self, answer: Answer, silent_s: float) -> bool:
        """Whether nothing will come any more of an agent that has answered and been silent for so long."""
        if answer.kind is not AnswerKind.ANSWERED:
            return silent_s >= _GRACE_S
        patience_s = self.terms.silence_s
        if patience_s is None or silent_s < patience_s or answer.goes_on:
            return False
        return not await self.agent.is_busy()


def judged(seen: Seen) -> FailureReason | None:
    """Return why the service would fail a trajectory that ends like this; `None` where it would not."""
    if seen.state is State.FAILED:
        return FailureReason.AGENT_FAILED
    if not seen.turns:
        return FailureReason.NO_SAMPLING
    if seen.state is not State.REWARD_RECEIVED:
        return FailureReason.NO_REWARD
    return None


async def _cancelled(call: asyncio.Task[Answer]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
