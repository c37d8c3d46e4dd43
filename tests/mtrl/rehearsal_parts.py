"""A Job Runtime and agents in memory, for a trainer on a loop whose time passes at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rft_agent_sdk.mtrl.rehearsal import (
    Answer,
    AnswerKind,
    Attempt,
    Kind,
    Phase,
    Plan,
    Progress,
    Rehearsed,
    Rollout,
    Seen,
    State,
    Strays,
    Terms,
    payload,
)
from rft_agent_sdk.mtrl.rehearsal_trainer import StandInTrainer
from rft_agent_sdk.types import JSON
from tests.mtrl.virtual_time import clock, run

ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/rehearsal"
OK = Answer(AnswerKind.ANSWERED, 200, {"status": "success"})
UNREACHABLE = Answer(AnswerKind.UNREACHABLE, detail="connection refused")


@dataclass
class Trajectory:
    """One trajectory, as an agent here writes into it."""

    seen: Seen = field(default_factory=Seen)
    calls: int = 0

    def sample(self, times: int = 1) -> None:
        self.calls += times
        seen = self.seen
        self.seen = replace(
            seen,
            turns=seen.turns + times,
            prompt_tokens=seen.prompt_tokens + 100 * times,
            completion_tokens=seen.completion_tokens + 10 * times,
        )

    def complete(self, *, failed: bool = False) -> None:
        self.calls += 1
        self.seen = replace(self.seen, state=State.FAILED if failed else State.READY)

    def reward(self, *rewards: float) -> None:
        self.calls += 1
        state = State.REWARD_RECEIVED
        self.seen = replace(self.seen, state=state, rewards=rewards, rewarded_at=clock())


@dataclass
class MemoryRuntime:
    """The Job Runtime's record."""

    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    found_strays: Strays = field(default_factory=Strays)

    def open(self, rollout_id: str) -> None:
        assert rollout_id not in self.trajectories
        self.trajectories[rollout_id] = Trajectory()

    def progress(self, rollout_id: str) -> Progress:
        found = self.trajectories[rollout_id]
        return Progress(found.seen.state, found.calls)

    def seen(self, rollout_id: str) -> Seen:
        return self.trajectories[rollout_id].seen

    def strays(self) -> Strays:
        return self.found_strays


Play = Callable[[Trajectory, JSON], Awaitable[Answer | None]]


class MemoryAgent:
    """An agent that is a function of its trajectory and payload; counts who is inside."""

    def __init__(self, play: Play, runtime: MemoryRuntime, *, busy: bool = False) -> None:
        self.play = play
        self.runtime = runtime
        self.busy = busy
        self.payloads: list[JSON] = []
        self.started: list[float] = []
        self.sessions: list[str] = []
        self.stopped: list[str] = []
        self.inside = self.most = 0

    async def invoke(self, payload: JSON, session_id: str) -> Answer:
        self.payloads.append(payload)
        self.sessions.append(session_id)
        self.started.append(clock())
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            trajectory = self.runtime.trajectories[payload["metadata"]["rolloutId"]]
            return await self.play(trajectory, payload) or OK
        finally:
            self.inside -= 1

    async def is_busy(self) -> bool:
        return self.busy

    async def stop(self, session_id: str) -> None:
        self.stopped.append(session_id)


@dataclass
class Told:
    """A listener that remembers."""

    rollouts: list[Rollout] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    failures: list[tuple[Attempt, int]] = field(default_factory=list)

    def failed(self, attempt: Attempt, row: int) -> None:
        self.failures.append((attempt, row))

    def ended(self, rollout: Rollout, done: int, total: int) -> None:
        self.rollouts.append(rollout)

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)


@dataclass
class Outcome:
    """What a rehearsal in memory gave."""

    rehearsed: Rehearsed
    agent: MemoryAgent
    seconds: float
    told: Told

    def phases(self, kind: Kind) -> list[int]:
        return [phase.step for phase in self.rehearsed.phases if phase.kind is kind]


def rehearse(
    play: Play,
    *,
    rows: int = 4,
    validation: int = 0,
    terms: Terms | None = None,
    busy: bool = False,
    stop_after_s: float | None = None,
    **plan: Any,
) -> Outcome:
    """Rehearse in no time."""
    runtime, told = MemoryRuntime(), Told()
    agent = MemoryAgent(play, runtime, busy=busy)

    async def main() -> Outcome:
        trainer = StandInTrainer(
            agent,
            runtime,
            lambda prompt, rollout_id, sampling: payload(prompt, ARN, rollout_id, sampling),
            terms=terms or Terms(),
            plan=Plan(**plan),
            listener=told,
            clock=clock,
        )
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, trainer.stop)
        started = clock()
        prompts = [f"row {number}" for number in range(rows)]
        checks = [f"check {number}" for number in range(validation)]
        rehearsed = await trainer.run(prompts, checks)
        return Outcome(rehearsed, agent, clock() - started, told)

    return run(main())


async def well(trajectory: Trajectory, payload: JSON) -> None:
    """Play a rollout of three turns and two seconds to its reward."""
    for _ in range(3):
        await asyncio.sleep(0.5)
        trajectory.sample()
    await asyncio.sleep(0.5)
    trajectory.complete()
    trajectory.reward(1.0)
