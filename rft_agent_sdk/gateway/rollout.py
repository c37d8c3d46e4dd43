"""One rollout as the gateway sees it: turns, calls, state, reward.

A trajectory of a job and a session of an own trainer are both this; they differ in who may call and
in who reads the end. All state is guarded by one lock, since the server runs on its own thread and
tests, trainers and live pages read from theirs.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.gateway.faults import NO_FAULTS, Fault, FaultPlan, Faults
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import Policy
from rft_agent_sdk.types import Outcome, SamplingParams, Turn


class RolloutState(enum.StrEnum):
    """Where a rollout stands."""

    PENDING = "PENDING"
    """Open: may be sampled."""
    READY = "READY"
    """Completed, its reward still to come."""
    FAILED = "FAILED"
    """Ended without a reward."""
    REWARD_RECEIVED = "REWARD_RECEIVED"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as it was answered."""

    operation: str
    """`ChatCompletions`, `Messages`, `Sample`, `SampleWithResponseStream`, `CompleteRollout`, `UpdateReward`."""
    at: float
    """Unix time in seconds at which it came."""
    status: int | None
    """HTTP status of the reply; `None` where the connection was dropped without one."""
    fault: Fault | None = None
    """The fault that was laid on it."""
    auth: str = ""
    """`bearer`, `sigv4` or `session`; empty where nobody could be told."""
    signed_at: str | None = None
    """Date of the token or signature, as `yyyymmddThhmmssZ`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that tell something of the client; none that holds a secret."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The parsed body, but for the messages and tools of a sampling request."""
    error: str = ""
    """What a refused request was told."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms rollouts are served; shared by those of one job."""

    policy: Policy
    """What answers their turns."""
    sampling: SamplingParams | None = None
    """Parameters that hold whatever a client asks for; `None`, or an unset one, fixes nothing."""
    faults: Faults = NO_FAULTS
    """What goes wrong with sampling requests."""
    report_faults: Faults = NO_FAULTS
    """What goes wrong with CompleteRollout and UpdateReward."""


class GatewayRollout:
    """A rollout's record and the transitions it allows."""

    def __init__(self, rollout_id: str, terms: Terms) -> None:
        self.id = rollout_id
        """Trajectory id in a job; in a session a name for people, which opens nothing."""
        self.terms = terms
        self.faults = FaultPlan(terms.faults, rollout_id)
        self.report_faults = FaultPlan(terms.report_faults, rollout_id)
        self.counts: Counter[str] = Counter()
        """`sampling_ignored`: parameters a client asked for in vain. `late`: replies that came after
        the end and were dropped. `stream_broken`: streams that ended in an error."""
        self.recall = Recall()
        """The history its agent sent last, which the next one begins with."""
        self._lock = threading.RLock()
        self._state = RolloutState.PENDING
        self._turns: list[Turn] = []
        self._calls: list[Call] = []
        self._rewards: tuple[float, ...] = ()
        self._outcome: Outcome | None = None
        self._tokens: dict[str, str | None] = {}

    @property
    def state(self) -> RolloutState:
        """Where the rollout stands."""
        return self._state

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns answered so far, in order."""
        with self._lock:
            return tuple(self._turns)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests answered so far, refused ones too, in the order of their replies."""
        with self._lock:
            return tuple(self._calls)

    @property
    def rewards(self) -> tuple[float, ...]:
        """The rewards received; empty before that."""
        return self._rewards

    @property
    def outcome(self) -> Outcome | None:
        """Why the rollout ended, where the caller said so; the Job Runtime has no such field."""
        return self._outcome

    def record(self, call: Call) -> None:
        """Add a request to the record."""
        with self._lock:
            self._calls.append(call)

    def check_open(self) -> None:
        """Raise unless the rollout may be sampled.

        Raises:
            Refusal: 409, it has ended.
        """
        if self._state is not RolloutState.PENDING:
            raise Refusal(
                409,
                f"rollout {self.id!r} is {self._state.value} and not in valid status for sampling: "
                "nothing can be sampled after its end",
            )

    def store(self, turn: Turn) -> None:
        """Add a turn to the record.

        Raises:
            Refusal: 409, the rollout ended while the policy was thinking: whoever ended it has read
                the turns, so none may be added behind their back.
        """
        with self._lock:
            if self._state is not RolloutState.PENDING:
                self.counts["late"] += 1
            self.check_open()
            self._turns.append(turn)

    def complete(
        self, *, is_ready: bool, token: str | None, outcome: Outcome | None = None
    ) -> None:
        """Take CompleteRollout.

        Args:
            is_ready: Status `ready`, rather than `failed`.
            token: The call's `ClientToken`, by which its repetition is known.
            outcome: Why it ended, from callers that say so.

        Raises:
            Refusal: 409, it was completed already, by another call.
        """
        with self._lock:
            if self._is_repeated("complete", token):
                return
            target = RolloutState.READY if is_ready else RolloutState.FAILED
            if self._state is not RolloutState.PENDING:
                raise Refusal(
                    409,
                    f"Cannot transition trajectory {self.id!r} from {self._state.value} "
                    f"to {target.value}",
                )
            self._tokens["complete"] = token
            self._outcome = outcome
            self._move(target)

    def reward(
        self, rewards: tuple[float, ...], *, token: str | None, outcome: Outcome | None = None
    ) -> None:
        """Take UpdateReward.

        Args:
            rewards: Finite; one for the rollout, or one per turn.
            token: The call's `ClientToken`, by which its repetition is known.
            outcome: Why it ended, from callers that say so.

        Raises:
            Refusal: 409, it is not completed yet, failed, or was rewarded already, by another call.
        """
        with self._lock:
            if self._is_repeated("reward", token):
                return
            if self._state is not RolloutState.READY:
                raise Refusal(
                    409,
                    f"trajectory {self.id!r} is {self._state.value} and not in valid status for "
                    "a reward: wanted READY",
                )
            self._tokens["reward"] = token
            self._rewards = rewards
            self._outcome = outcome or self._outcome
            self._move(RolloutState.REWARD_RECEIVED)

    def _is_repeated(self, operation: str, token: str | None) -> bool:
        return token is not None and self._tokens.get(operation) == token

    def _move(self, state: RolloutState) -> None:
        self._state = state
        if state is not RolloutState.PENDING:
            self.recall = Recall()  # nothing will be sent on top of it
