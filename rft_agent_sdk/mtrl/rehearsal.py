"""Rehearsing a managed job: what is played, on whose terms, and what was seen of it.

A stand-in for the service's trainer (`rehearsal_trainer`) starts rollouts as the service does and ends the job
as the service would. It trains nothing. It knows the agent and the Job Runtime by the two protocols here, so
that it runs in a test as it runs against a gateway and a served agent.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rft_agent_sdk.types import JSON, SamplingParams

TRAIN_SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, max_tokens=4096)
"""What a training rollout is told to sample with, by the service's defaults."""
VALIDATION_SAMPLING = SamplingParams(temperature=0.0, top_p=1.0, max_tokens=4096)
"""The same of a validation rollout, which no setting changes."""


class FailureReason(enum.StrEnum):
    """What ends a managed job, in the service's words."""

    NO_SAMPLING = "No sampling requests were received for this rollout"
    AGENT_FAILED = "The agent signaled that the trajectory failed"
    NO_REWARD = "The rollout completed but no reward was received in time"


class State(enum.StrEnum):
    """Where a trajectory stands at the Job Runtime."""

    PENDING = "PENDING"
    READY = "READY"
    FAILED = "FAILED"
    REWARD_RECEIVED = "REWARD_RECEIVED"


@dataclass(frozen=True, slots=True)
class Progress:
    """The little that is asked of a trajectory while it runs."""

    state: State
    calls: int
    """Requests answered so far, of whatever kind: a sign of life."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the Job Runtime saw of one trajectory."""

    state: State = State.PENDING
    turns: int = 0
    """Sampling requests that were answered."""
    prompt_tokens: int = 0
    """Of all turns together: each turn sends the conversation again."""
    completion_tokens: int = 0
    """Of all turns together."""
    longest_reply: int = 0
    """Tokens of the longest reply."""
    context: int = 0
    """Tokens of the longest prompt and its reply together."""
    cut_off: int = 0
    """Replies that ended at the token limit."""
    sampling_refused: Mapping[int, int] = field(default_factory=dict)
    """Sampling requests that were refused, by HTTP status."""
    reports_refused: Mapping[int, int] = field(default_factory=dict)
    """CompleteRollout and UpdateReward requests that were refused, by HTTP status."""
    sampling_said: str = ""
    """What the last refused sampling request was told."""
    reports_said: str = ""
    """The same of the last refused report."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """`temperature`, `top_p` and `max_tokens` of the first sampling request, as far as it had them."""
    rewards: tuple[float, ...] = ()
    rewarded_at: float | None = None
    """When UpdateReward came, by the rehearsal's clock."""

    @property
    def reward(self) -> float | None:
        """The rollout's return: its rewards added up, one or one per turn; `None` without any."""
        return sum(self.rewards) if self.rewards else None


@dataclass(frozen=True, slots=True)
class Strays:
    """Requests that the Job Runtime could lay to no rollout of the job."""

    unattributed: Mapping[int, int] = field(default_factory=dict)
    """Requests without a trajectory id of the job, by HTTP status."""
    unknown_ids: tuple[str, ...] = ()
    """Trajectory ids that were sampled or reported, and that the job had never given out."""


class JobRuntime(Protocol):
    """The Job Runtime, as the trainer looks into it."""

    def open(self, rollout_id: str) -> None:
        """Make a trajectory known, before its agent is invoked."""
        ...

    def progress(self, rollout_id: str) -> Progress:
        """Where a trajectory stands. Asked often."""
        ...

    def seen(self, rollout_id: str) -> Seen:
        """Everything there is to know of a trajectory so far."""
        ...

    def strays(self) -> Strays:
        """What came in and belongs to nobody."""
        ...


class AnswerKind(enum.StrEnum):
    """What became of an invocation."""

    ANSWERED = "answered"
    """HTTP 200."""
    ERROR = "error"
    """The agent's server answered another status."""
    UNREACHABLE = "unreachable"
    """Nobody takes connections where the agent should be."""
    DROPPED = "dropped"
    """The connection ended before an answer."""
    REFUSED = "refused"
    """AgentCore itself refused: unknown runtime, no permission."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an invocation was answered with."""

    kind: AnswerKind
    status: int | None = None
    """HTTP status of the agent, or of AgentCore where it refused."""
    body: Any = None
    """The parsed body of a 200."""
    detail: str = ""
    """What was said instead, for people."""
    is_foreign: bool = False
    """Whether the body is neither JSON nor a stream of events, one of which AgentCore's servers always answer with."""

    @property
    def ours(self) -> JSON:
        """What this package's handler says of the rollout; empty for other agents' answers."""
        found = self.body.get("_rft") if isinstance(self.body, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def goes_on(self) -> bool:
        """Whether the answer says that the rollout has only begun."""
        return isinstance(self.body, dict) and self.body.get("status") == "accepted"


class Agent(Protocol):
    """The agent under rehearsal, invoked as the service invokes it."""

    async def invoke(self, payload: JSON, session_id: str) -> Answer:
        """Send a payload and wait for the answer, however long it takes."""
        ...

    async def is_busy(self) -> bool:
        """Whether the agent says that it works in the background. Never raises."""
        ...

    async def stop(self, session_id: str) -> None:
        """End a session, as the service does after each rollout. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms the service runs rollouts. The defaults are the service's."""

    tps: float = 5.0
    """Invocations started per second (`rollout_tps`); no job can change it."""
    concurrency: int = 96
    """Rollouts in flight (`rollout_max_concurrency`)."""
    timeout_s: float = 600.0
    """Seconds from invoking the agent to its reward (`rollout_timeout`)."""
    attempts: int = 3
    """Attempts at one rollout (`rollout_max_retries`)."""
    listen_s: float = 30.0
    """Seconds that AgentCore waits for the container's server to take connections."""
    speed: float = 1.0
    """All seconds above are divided by it and the rate multiplied; the agent's own pace stays."""
    silence_s: float | None = 5.0
    """Real seconds after which an agent that has answered, and of which nothing is heard, is not waited for
    until the timeout; `None` waits."""

    def real(self, seconds: float) -> float:
        """Return how long so many seconds of the service last here."""
        return seconds / self.speed


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is played."""

    steps: int = 2
    batch: int = 4
    """Prompts per step (`global_batch_size`)."""
    group: int = 4
    """Rollouts per prompt (`group_size`)."""
    val_every: int = 10
    """Steps between validations; 0 for none but the first and the last."""
    sampling: SamplingParams = TRAIN_SAMPLING
    success_threshold: float = 1.0


class Kind(enum.StrEnum):
    """What a rollout is played for."""

    TRAIN = "train"
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one rollout."""

    rollout_id: str
    number: int
    """From 1."""
    started_at: float
    ended_at: float
    """By the rehearsal's clock: when its reward came, else when it was given up."""
    answer: Answer | None
    """`None` where the agent had not answered by then."""
    seen: Seen
    failure: FailureReason | None
    timed_out: bool = False
    """Whether it was given up at the timeout, rather than for what had become of it."""

    @property
    def seconds(self) -> float:
        """Real seconds from the invocation to the end."""
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout with all its attempts."""

    kind: Kind
    step: int
    """Training steps done before it, for validation; else the step's number from 1."""
    row: int
    """Which row of the dataset, from 0."""
    group: int
    """Which prompt of the batch, from 0: a small dataset may be in a batch twice."""
    member: int
    """Which of its group, from 0."""
    attempts: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def failure(self) -> FailureReason | None:
        """Why it ends the job; `None` where it has a reward."""
        return self.last.failure

    @property
    def reward(self) -> float | None:
        """Its return; `None` where it failed."""
        return None if self.failure else self.last.seen.reward


@dataclass(frozen=True, slots=True)
class Phase:
    """The rollouts of one step, or of one validation."""

    kind: Kind
    step: int
    rollouts: tuple[Rollout, ...]
    seconds: float
    """Real seconds it took."""

    @property
    def groups(self) -> list[list[Rollout]]:
        """The rollouts of each prompt, by member."""
        found: dict[int, list[Rollout]] = {}
        for rollout in self.rollouts:
            found.setdefault(rollout.group, []).append(rollout)
        return list(found.values())


class Status(enum.StrEnum):
    """How the job ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A job, played."""

    status: Status
    phases: tuple[Phase, ...]
    killer: Rollout | None = None
    """The rollout that ended the job."""
    strays: Strays = Strays()
    late: Mapping[str, float] = field(default_factory=dict)
    """Seconds from the invocation to a reward that came after the attempt was given up, by trajectory id."""
    cancelled: int = 0
    """Rollouts that were in flight, or still to start, when the job ended."""

    @property
    def failure_reason(self) -> FailureReason | None:
        """What DescribeJob would say."""
        return self.killer.failure if self.killer else None

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts that were played to an end, in the order of the phases."""
        return [rollout for phase in self.phases for rollout in phase.rollouts]


class Listener(Protocol):
    """Told how the rehearsal goes."""

    def failed(self, attempt: Attempt, row: int) -> None:
        """Take an attempt that failed, whether or not another follows."""
        ...

    def ended(self, rollout: Rollout, done: int, total: int) -> None:
        """Take a rollout that ended; `done` of the phase's `total` have."""
        ...

    def phase(self, phase: Phase) -> None:
        """Take a phase that was played in full."""
        ...


def payload(
    prompt: str,
    job_arn: str,
    rollout_id: str,
    sampling: SamplingParams,
    *,
    endpoint: str | None = None,
    region: str | None = None,
) -> JSON:
    """Return what the service sends to an agent.

    Args:
        prompt: The dataset's cell, to the character.
        job_arn: The job's ARN.
        rollout_id: The trajectory's id.
        sampling: What the agent is to sample with; it must pass this on itself.
        endpoint: The Job Runtime's URL, for agents that are not told otherwise; the service may leave it out.
        region: The job's region; the service may leave it out.
    """
    metadata = {"jobArn": job_arn, "rolloutId": rollout_id}
    if endpoint is not None:
        metadata["endpoint"] = endpoint
    if region is not None:
        metadata["region"] = region
    params = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "maxTokens": sampling.max_tokens,
    }
    return {"prompt": prompt, "metadata": metadata, "inferenceParams": params}
