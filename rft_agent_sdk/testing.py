"""Shipped fakes for tests of agents and environments: a clock, credentials, a scripted policy.

The Job Runtime's own fake is the gateway: real clients talk to it over HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rft_agent_sdk.environment import PolicyFunction
from rft_agent_sdk.types import Message, ToolCall, ToolSpec


class FakeClock:
    """A clock that moves only when told to; also stands in for `sleep`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []
        """Every pause asked of `sleep`, in seconds."""
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        with self._lock:
            self.now += seconds

    def sleep(self, seconds: float) -> None:
        """Move the clock in place of waiting."""
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds


@dataclass(frozen=True, slots=True)
class FakeCredentials:
    """Credentials of AWS's public documentation; they open nothing."""

    access_key: str = "AKIAIOSFODNN7EXAMPLE"
    secret_key: str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - the documentation's
    token: str | None = None

    def get_frozen_credentials(self) -> FakeCredentials:
        """Return themselves: they never change."""
        return self


def call(name: str, arguments: str, *, id: str = "") -> Message:
    """Return an assistant message that is one tool call; `arguments` is JSON text."""
    return Message("assistant", tool_calls=(ToolCall(name, arguments, id),))


def scripted(*replies: Message | str) -> PolicyFunction:
    """Return a policy that gives its n-th reply as the n-th assistant turn of any conversation.

    It counts the turns in the history it is shown, so it serves any number of rollouts at once. Past
    the last reply it says "Done.".
    """
    script = [Message("assistant", reply) if isinstance(reply, str) else reply for reply in replies]

    def policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        turn = sum(message.role == "assistant" for message in messages)
        return script[turn] if turn < len(script) else Message("assistant", "Done.")

    return policy
