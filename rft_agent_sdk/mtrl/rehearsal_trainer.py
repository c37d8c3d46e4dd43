"""The stand-in for the service's trainer: starts rollouts by its rules, and ends the job by its rules.

Validation at the start, every so many steps and at the end; in between, steps of `batch` prompts with `group`
rollouts each. A failed rollout is tried again under a new trajectory id; one that has failed its last attempt
ends the job. What the service does besides (updates, checkpoints, steps that overlap) is not played.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.rehearsal import (
    VALIDATION_SAMPLING,
    Agent,
    Attempt,
    FailureReason,
    JobRuntime,
    Kind,
    Listener,
    Phase,
    Plan,
    Rehearsed,
    Rollout,
    Status,
    Terms,
)
from rft_agent_sdk.mtrl.rehearsal_attempt import Player
from rft_agent_sdk.types import JSON, SamplingParams

Payloads = Callable[[str, str, SamplingParams], JSON]
"""Takes a prompt, a trajectory id and sampling parameters; gives what the agent is sent."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What one rollout plays, and where it stands in its phase."""

    row: int
    group: int
    member: int
    prompt: str


class _Killed(Exception):
    """A rollout has failed its last attempt."""

    def __init__(self, rollout: Rollout) -> None:
        super().__init__(rollout.failure)
        self.rollout = rollout


class StandInTrainer:
    """Plays one job. Used once."""

    def __init__(
        self,
        agent: Agent,
        runtime: JobRuntime,
        payloads: Payloads,
        *,
        terms: Terms | None = None,
        plan: Plan | None = None,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a trainer; nothing is played yet.

        Args:
            agent: What is rehearsed.
            runtime: Where it samples and reports.
            payloads: Makes what the agent is sent.
            terms: How the service runs rollouts; `None` for its defaults.
            plan: How much is played; `None` for a little.
            listener: Told of each end.
            clock: Seconds, the same by which `runtime` dates what it saw.

        Raises:
            UsageError: A number of the plan or the terms makes no sense.
        """
        self._terms, self._plan = terms or Terms(), plan or Plan()
        _check(self._terms, self._plan)
        self._player = Player(agent, runtime, self._terms, clock)
        self._runtime = runtime
        self._payloads = payloads
        self._listener = listener
        self._clock = clock
        self._slots = asyncio.Semaphore(self._terms.concurrency)
        self._rate = _Rate(self._terms.tps * self._terms.speed)
        self._stopped = asyncio.Event()
        self._phases: list[Phase] = []
        self._cancelled = 0

    def stop(self) -> None:
        """End the job, as StopJob does. To be called on the loop that plays it."""
        self._stopped.set()

    async def run(self, train: Sequence[str], validation: Sequence[str] = ()) -> Rehearsed:
        """Play the job and return how it ended.

        Args:
            train: The prompts, verbatim; taken in order, and again from the first when they run out.
            validation: The prompts of the validation channel; empty for none.

        Raises:
            UsageError: There is no prompt.
        """
        if not train:
            raise UsageError("a job needs at least one row to train on, got none")
        killer: Rollout | None = None
        try:
            await self._play(train, validation)
        except _Killed as killed:
            killer = killed.rollout
        status = Status.FAILED if killer else Status.COMPLETED
        if killer is None and self._stopped.is_set():
            status = Status.STOPPED
        return Rehearsed(
            status,
            tuple(self._phases),
            killer,
            self._runtime.strays(),
            self._late(),
            self._cancelled,
        )

    def _late(self) -> dict[str, float]:
        """Return when rewards came that were no longer waited for."""
        found = {}
        for rollout in (one for phase in self._phases for one in phase.rollouts):
            for attempt in rollout.attempts:
                if attempt.failure is not FailureReason.NO_REWARD:
                    continue
                rewarded_at = self._runtime.seen(attempt.rollout_id).rewarded_at
                if rewarded_at is not None:
                    found[attempt.rollout_id] = rewarded_at - attempt.started_at
        return found

    async def _play(self, train: Sequence[str], validation: Sequence[str]) -> None:
        plan = self._plan
        await self._validate(0, validation)
        for step in range(1, plan.steps + 1):
            places = []
            for group in range(plan.batch):
                row = ((step - 1) * plan.batch + group) % len(train)
                members = range(plan.group)
                places += [_Place(row, group, member, train[row]) for member in members]
            await self._phase(Kind.TRAIN, step, places, plan.sampling)
            if step == plan.steps or (plan.val_every and step % plan.val_every == 0):
                await self._validate(step, validation)

    async def _validate(self, step: int, prompts: Sequence[str]) -> None:
        if prompts:
            places = [_Place(row, row, 0, prompt) for row, prompt in enumerate(prompts)]
            await self._phase(Kind.VALIDATION, step, places, VALIDATION_SAMPLING)

    async def _phase(
        self, kind: Kind, step: int, places: Sequence[_Place], sampling: SamplingParams
    ) -> None:
        """Play a phase's rollouts: all, or as many as there were when the job ended.

        Raises:
            _Killed: One of them ended the job; the others are cancelled.
        """
        if self._stopped.is_set():
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended: list[Rollout] = []

        def note(task: asyncio.Task[Rollout]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is None or isinstance(error, _Killed):
                rollout = error.rollout if isinstance(error, _Killed) else task.result()
                ended.append(rollout)
                if self._listener is not None:
                    self._listener.ended(rollout, len(ended), len(places))
            if not over.done() and (error is not None or len(ended) == len(places)):
                over.set_exception(error) if error is not None else over.set_result(None)

        started_at = self._clock()
        stopped = asyncio.create_task(self._stopped.wait())
        tasks = [
            asyncio.create_task(self._rollout(kind, step, place, sampling)) for place in places
        ]
        for task in tasks:
            task.add_done_callback(note)
        try:
            await asyncio.wait(_futures(over, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()  # does nothing to one that is done
            self._cancelled += sum(task.cancel() for task in tasks)
            stopped.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
        order = sorted(ended, key=lambda one: (one.group, one.member))
        phase = Phase(kind, step, tuple(order), self._clock() - started_at)
        self._phases.append(phase)
        if not over.cancelled():
            over.result()
            if self._listener is not None:
                self._listener.phase(phase)

    async def _rollout(
        self, kind: Kind, step: int, place: _Place, sampling: SamplingParams
    ) -> Rollout:
        attempts: list[Attempt] = []
        while True:
            async with self._slots:
                await self._rate.wait()
                attempt = await self._player.attempt(
                    lambda rollout_id: self._payloads(place.prompt, rollout_id, sampling),
                    len(attempts) + 1,
                )
            attempts.append(attempt)
            rollout = Rollout(kind, step, place.row, place.group, place.member, tuple(attempts))
            if attempt.failure is None:
                return rollout
            if self._listener is not None:
                self._listener.failed(attempt, place.row)
            if len(attempts) == self._terms.attempts:
                raise _Killed(rollout)


def _futures(*futures: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    return set(futures)


class _Rate:
    """Lets so many pass per second, evenly."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        """Wait for the next place."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._interval_s
        await asyncio.sleep(at - now)


def _check(terms: Terms, plan: Plan) -> None:
    numbers = {
        "tps": terms.tps,
        "concurrency": terms.concurrency,
        "timeout_s": terms.timeout_s,
        "attempts": terms.attempts,
        "speed": terms.speed,
        "steps": plan.steps,
        "batch": plan.batch,
        "group": plan.group,
    }
    for name, value in numbers.items():
        if not value > 0:
            raise UsageError(f"{name} of a rehearsal must be above 0, got {value!r}")
