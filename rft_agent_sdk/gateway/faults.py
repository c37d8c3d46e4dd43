"""Faults on request: what a rollout must survive, in a plan that a seed repeats exactly.

The plan is laid per rollout, by the number of the request in it, so that rollouts which run at the
same time cannot change each other's fate.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from dataclasses import dataclass

from rft_agent_sdk.errors import UsageError


class Fault(enum.StrEnum):
    """What is done to one request instead of answering it."""

    DENY = "deny"
    """403, as for a token that no longer verifies."""
    THROTTLE = "throttle"
    """429."""
    ERROR = "error"
    """500."""
    DROP = "drop"
    """The connection is closed, nothing was done."""
    LOSE_REPLY = "lose_reply"
    """The work is done, then the connection is closed: without a byte, or in mid-stream."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and how often. The default is nothing.

    `*_first` counts are for each rollout's first requests, one kind after the other in the order of
    the fields; every later request draws from the rates, which are probabilities.
    """

    deny_once: bool = False
    throttle_first: int = 0
    error_first: int = 0
    drop_first: int = 0
    lose_reply_first: int = 0
    throttle_rate: float = 0.0
    error_rate: float = 0.0
    drop_rate: float = 0.0
    lose_reply_rate: float = 0.0
    delay_s: float = 0.0
    """Seconds every request waits before anything else happens to it."""
    retry_after_s: float | None = None
    """Seconds a throttled client is told to wait; `None` sends no such header."""
    seed: int = 0

    def __post_init__(self) -> None:
        rates = self._rates()
        if any(rate < 0 for rate in rates.values()) or sum(rates.values()) > 1:
            raise UsageError(f"fault rates must be probabilities that sum to at most 1: {rates}")

    def _rates(self) -> dict[Fault, float]:
        return {
            Fault.THROTTLE: self.throttle_rate,
            Fault.ERROR: self.error_rate,
            Fault.DROP: self.drop_rate,
            Fault.LOSE_REPLY: self.lose_reply_rate,
        }

    def plan(self, rollout_id: str, index: int) -> Fault | None:
        """Return what happens to request `index` (from 0) of a rollout; `None` for nothing."""
        firsts = (
            (Fault.DENY, int(self.deny_once)),
            (Fault.THROTTLE, self.throttle_first),
            (Fault.ERROR, self.error_first),
            (Fault.DROP, self.drop_first),
            (Fault.LOSE_REPLY, self.lose_reply_first),
        )
        for fault, count in firsts:
            if index < count:
                return fault
            index -= count
        return self._draw(rollout_id, index)

    def _draw(self, rollout_id: str, index: int) -> Fault | None:
        rates = self._rates()
        if not any(rates.values()):
            return None
        chance = random.Random(f"{self.seed}/{rollout_id}/{index}").random()  # noqa: S311
        for fault, rate in rates.items():
            if chance < rate:
                return fault
            chance -= rate
        return None


NO_FAULTS = Faults()


class FaultPlan:
    """The faults of one rollout's requests of one kind, drawn in order and counted."""

    def __init__(self, faults: Faults, rollout_id: str) -> None:
        self.faults = faults
        self.counts: Counter[Fault] = Counter()
        self._rollout_id = rollout_id
        self._index = 0

    def next(self) -> Fault | None:
        """Return the fault of the next request."""
        if self.faults is NO_FAULTS:
            return None
        fault = self.faults.plan(self._rollout_id, self._index)
        self._index += 1
        if fault is not None:
            self.counts[fault] += 1
        return fault
