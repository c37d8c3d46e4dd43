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

from rft_agent_sdk.gateway.rollout import GatewayRollout, RolloutState, Terms
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

    def seal(self, outcome: Outcome | None, rewards: Sequence[float]) -> SessionResult:
        """End the rollout from the trainer's side, unless it has ended; return how it ended."""
        with self._lock:
            if not self.done.done():
                self._rewards = tuple(rewards) or self._rewards
                self._outcome = outcome or self._outcome
                has_reward = bool(self._rewards)
                self._move(RolloutState.REWARD_RECEIVED if has_reward else RolloutState.FAILED)
            return self.done.result(timeout=0)

    def _move(self, state: RolloutState) -> None:
        super()._move(state)
        if state in (RolloutState.FAILED, RolloutState.REWARD_RECEIVED):
            self.done.set_result(
                SessionResult(state, self._outcome, self._rewards, tuple(self._turns))
            )


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
        config: JSON = {
            "base_url": f"{base_url.rstrip('/')}/v1",
            "api_key": self.secret,
            "model_id": model_id,
            "report": report,
        }
        return config if deadline_s is None else config | {"deadline_s": deadline_s}

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

    def seal(self, outcome: Outcome | None = None, rewards: Sequence[float] = ()) -> SessionResult:
        """End the session: nothing is sampled any more. What was reported first stays."""
        return self.rollout.seal(outcome, rewards)

    def drop(self) -> None:
        """Seal the session and forget it; its secret becomes unknown (401)."""
        self.rollout.seal(None, ())
        self._forget(self.secret)
