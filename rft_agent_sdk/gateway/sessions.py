"""Sessions: one rollout each of an own trainer, found by an unguessable secret.

The trainer opens a session and hands its secret to the agent as an API key. The gateway keeps the
secret's hash alone, so that neither its memory nor its records can open a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.record import split_rewards
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.rollout import GatewayRollout, RolloutState, Terms
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import JSON, Outcome, Turn

SECRET_BYTES = 32
"""256 bits: not to be guessed, whatever the number of sessions."""


def new_secret() -> str:
    """Return a fresh session secret."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: str) -> bytes:
    """Return what the gateway keeps of a secret. Full entropy needs no salt."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a session ended."""

    state: RolloutState
    outcome: Outcome | None
    """Why, where the agent or the trainer said so."""
    rewards: tuple[float, ...]
    """One for the rollout, one per turn, or none."""
    turns: tuple[Turn, ...]


class SessionRollout(GatewayRollout):
    """A session's record; resolves once the rollout is over."""

    def __init__(self, rollout_id: str, terms: Terms) -> None:
        super().__init__(rollout_id, terms)
        self.done: Future[SessionResult] = Future()
        """Resolved at the end; never to be cancelled by those who wait."""

    def reward(
        self, rewards: tuple[float, ...], *, token: str | None, outcome: Outcome | None = None
    ) -> None:
        """Take UpdateReward; see `GatewayRollout.reward`.

        Raises:
            Refusal: 400, several rewards and another number of turns; 409 as there.
        """
        with self._lock:
            try:
                split_rewards(rewards, len(self.turns))
            except UsageError as error:
                raise Refusal(400, f"Rewards: {error}", param="Rewards") from None
            super().reward(rewards, token=token, outcome=outcome)

    def seal(self, outcome: Outcome | None, rewards: Sequence[float]) -> Trajectory:
        """End the rollout from the trainer's side, unless it has ended; return its record.

        Raises:
            UsageError: The rewards are not finite, or neither one nor one per turn; nothing is ended.
        """
        with self._lock:
            if not self.done.done():
                split_rewards(rewards, len(self.turns))
                self._rewards = tuple(map(float, rewards)) or self._rewards
                self._outcome = outcome or self._outcome
                has_reward = bool(self._rewards)
                self._move(RolloutState.REWARD_RECEIVED if has_reward else RolloutState.FAILED)
            return self.trajectory()

    def trajectory(self) -> Trajectory:
        """Return the record as it stands. Turns that were answered without tokens make no samples."""
        with self._lock:
            reward, per_turn = split_rewards(self._rewards, len(self.turns))
            return Trajectory(
                rollout_id=self.id,
                outcome=self._ended_by(),
                samples=(),
                turns=len(self.turns),
                reward=reward,
                per_turn=per_turn,
                counters=self.counters(),
            )

    def counters(self) -> dict[str, int]:
        """Return what happened so far, by name."""
        with self._lock:
            return dict(self.counts)

    def forget(self) -> None:
        """Delete what is kept of the session outside of memory."""

    def _ended_by(self) -> Outcome:
        """Return why the rollout ended; where nobody has said so, what can be told from here."""
        if self._outcome is not None:
            return self._outcome
        if not self.turns:
            return Outcome.NO_SAMPLING
        return Outcome.COMPLETED if self._rewards else Outcome.INFRASTRUCTURE_ERROR

    def _move(self, state: RolloutState) -> None:
        super()._move(state)
        if state in (RolloutState.FAILED, RolloutState.REWARD_RECEIVED):
            self.done.set_result(SessionResult(state, self._outcome, self._rewards, self.turns))


def session_config(
    secret: str,
    base_url: str,
    *,
    model_id: str = "default",
    deadline_s: float | None = None,
    report: bool = True,
) -> JSON:
    """Return the `_config` object of a rollout request; see `Session.config`."""
    config: JSON = {
        "base_url": f"{base_url.rstrip('/').removesuffix('/v1')}/v1",
        "api_key": secret,
        "model_id": model_id,
        "report": report,
    }
    return config if deadline_s is None else config | {"deadline_s": deadline_s}


@dataclass(frozen=True, slots=True)
class Session:
    """What the trainer holds of a session it opened."""

    secret: str = field(repr=False)
    """The agent's API key. It exists here and in what is sent to the agent, nowhere else."""
    rollout: SessionRollout
    _forget: Callable[[str], None] = field(repr=False)

    @property
    def id(self) -> str:
        """A name for people; opens nothing."""
        return self.rollout.id

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns answered so far, in order."""
        return self.rollout.turns

    def config(
        self,
        base_url: str,
        *,
        model_id: str = "default",
        deadline_s: float | None = None,
        report: bool = True,
    ) -> JSON:
        """Return the `_config` object of a rollout request, secret included.

        Args:
            base_url: The gateway's URL as the agent reaches it, without `/v1`.
            model_id: Model name the agent is to send.
            deadline_s: Seconds the rollout may take.
            report: Whether the agent is to report its end here as well.
        """
        return session_config(
            self.secret, base_url, model_id=model_id, deadline_s=deadline_s, report=report
        )

    def result(self, timeout_s: float | None = None) -> SessionResult:
        """Wait for the end, from any thread but the server's.

        Raises:
            TimeoutError: It did not come within `timeout_s` seconds.
        """
        return self.rollout.done.result(timeout_s)

    async def ended(self) -> SessionResult:
        """Wait for the end, on any event loop."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: object) -> None:
            if not loop.is_closed():  # the waiter may be long gone when the end comes
                loop.call_soon_threadsafe(over.set)

        self.rollout.done.add_done_callback(wake)
        await over.wait()
        return self.rollout.done.result(timeout=0)

    def seal(self, outcome: Outcome | None = None, rewards: Sequence[float] = ()) -> Trajectory:
        """End the session and return its record: nothing is sampled any more.

        What was reported first stays, so after a report by the agent this only reads.

        Args:
            outcome: Why it ended; `None` for what can be told.
            rewards: One number for the rollout, one per turn, or none.

        Raises:
            UsageError: The rewards do not fit; the session is not ended.
        """
        return self.rollout.seal(outcome, rewards)

    def drop(self) -> None:
        """Seal the session and forget it, its log too; its secret becomes unknown (401)."""
        self.rollout.forget()  # first, since a full disk takes no word of the end
        self.rollout.seal(None, ())
        self._forget(self.secret)
