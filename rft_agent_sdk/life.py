"""One rollout from its start to its response; `handler` makes one `Life` for each invocation."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.context import Deadline, rollout_context
from rft_agent_sdk.errors import (
    EnvironmentFault,
    RewardError,
    RftError,
    RolloutCancelled,
    RolloutExit,
    RolloutOver,
    UnreachableError,
)
from rft_agent_sdk.faults import classify
from rft_agent_sdk.response import redacted, response, shown
from rft_agent_sdk.reward import Reward, as_reward
from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.shutdown import Running
from rft_agent_sdk.spans import rollout_span, tell
from rft_agent_sdk.tracing import span
from rft_agent_sdk.types import JSON, Outcome

logger = logging.getLogger(__name__)

REPORT_S = 60.0
"""Seconds that reporting may take, retries included: together with the default budget well inside the
600 s a managed job waits."""
RESCUE_S = 30.0
"""Seconds for the one sampling request of a managed rollout that had none."""
HURRY_S = 10.0
"""Seconds for reporting when the process or task is being stopped."""
CANCEL_GRACE_S = 2.0
"""Seconds an asynchronous function has to end after it was cancelled."""
SCORE_S = 5.0
"""Seconds an episode may take to score a play that was cut short, and a returned value to become a
number."""
LATE_S = 1.0
"""Seconds after which a request that outlives its own timeout, byte by byte, is no longer waited for."""


@dataclass
class Ending:
    """How a rollout ended, as told to the trainer and to the caller."""

    outcome: Outcome
    reward: Reward
    value: Any = None
    """What the user's function returned, where it did."""
    error: BaseException | None = None
    rescued: bool = False
    """Whether a sampling request was sent in the end because there had been none."""
    reported: bool = False
    notes: list[str] = field(default_factory=list)


class Life:
    """Runs a user's function as one rollout, and ends it exactly once."""

    def __init__(self, rollout: Rollout, floor: float, running: Running) -> None:
        self._rollout = rollout
        self._floor = floor
        self._running = running
        self._ended = False
        self.span = rollout_span(rollout)
        """To be entered around all of it; `run` does so itself."""

    async def run(self, work: Callable[[], Any]) -> JSON:
        """Run `work` under the deadline, report, and return the response.

        Raises:
            BaseException: `work` raised `SystemExit`, or this task was cancelled; after reporting.
        """
        with self._running.holding(self._rollout), rollout_context(self._rollout), self.span:
            try:
                value = await self._finish(work)
                outcome = Outcome(self._rollout.outcome)  # the user's to set, so perhaps plain text
            except asyncio.CancelledError as error:
                await self.end(Outcome.CANCELLED, error=error, within_s=HURRY_S)
                raise
            except GeneratorExit as error:  # the coroutine is being closed: nothing may be awaited
                self._end(Outcome.CANCELLED, error=error, within_s=HURRY_S)
                raise
            except (SystemExit, KeyboardInterrupt) as error:
                await self.end(Outcome.AGENT_ERROR, error=error, within_s=HURRY_S)
                raise
            except Exception as error:  # noqa: BLE001 - attributed, logged and reported
                within_s = HURRY_S if isinstance(error, RolloutCancelled) else REPORT_S
                outcome = classify(error, self._rollout)
                return await self.end(outcome, error=error, within_s=within_s)
            return await self.end(outcome, value=value)

    async def _finish(self, work: Callable[[], Any]) -> Any:
        """Wait for `work`, the deadline or a cancellation, whichever is first.

        Raises:
            RolloutOver: The deadline passed.
            RolloutCancelled: The rollout was asked to stop.
            RolloutExit: `work` raised what no `except Exception` catches, other than an exit.
        """
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        self._rollout.when_cancelled(functools.partial(_soon, loop, stop.set))
        task = asyncio.ensure_future(_outcome_of(work))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait(
                {task, stopped},
                timeout=self._rollout.deadline.remaining(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        except BaseException:  # nothing may be awaited now, and this may not be the loop's thread
            _soon(loop, task.cancel)
            raise
        finally:
            _soon(loop, stopped.cancel)
        if not task.done():
            await _abandon(task)
            self._rollout.check_open()  # only the deadline or a cancellation leads here
            raise RolloutOver("the rollout's time is up")  # its timer fired a moment early
        try:
            value, error = task.result()
        except asyncio.CancelledError as own:  # nobody cancelled the rollout: the function did
            value, error = None, own
        if error is None:
            return value
        if isinstance(error, Exception | SystemExit | KeyboardInterrupt):
            raise error
        # A cancelled task of its own, a panic of compiled code: an error like any other, which must
        # not pass for the end of this task.
        raise RolloutExit(f"the rollout's function raised {shown(error)}") from error

    async def end(
        self,
        outcome: Outcome,
        *,
        value: Any = None,
        error: BaseException | None = None,
        within_s: float = REPORT_S,
    ) -> JSON:
        """Settle the reward, report it to the last, and return the response.

        Raises:
            CancelledError: This task was cancelled meanwhile, once or more often; after reporting.
        """
        end = functools.partial(self._end, outcome, value=value, error=error, within_s=within_s)
        ending = asyncio.ensure_future(_in_thread(end))
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled
        body: JSON = ending.result()
        return body

    def _end(
        self,
        outcome: Outcome,
        *,
        value: Any = None,
        error: BaseException | None = None,
        within_s: float = REPORT_S,
    ) -> JSON:
        ending = self._settle(outcome, value, error)
        self._rollout.close()
        if not self._ended:
            self._ended = True
            self._report(ending, Deadline(within_s))
        tell(self.span, rollout=self._rollout, ending=ending)
        _log(self._rollout, ending)
        return response(self._rollout, ending)

    def _settle(self, outcome: Outcome, value: Any, error: BaseException | None) -> Ending:
        """Choose the reward: what the function returned, else the episode's score, else the floor."""
        if error is None:
            try:
                reward = _within(
                    SCORE_S,
                    lambda: as_reward(_reward_in(value)),
                    late=RewardError(f"the returned value was no number within {SCORE_S:g} s"),
                )
            except BaseException as refused:  # noqa: BLE001 - no reward, or the value's own code raised
                error, outcome = refused, Outcome.AGENT_ERROR
            else:
                return self._checked(Ending(outcome, reward, value))
        return self._checked(self._scored(outcome, value, error))

    def _scored(self, outcome: Outcome, value: Any, error: BaseException) -> Ending:
        reward = Reward(self._floor)
        if (episode := self._rollout.episode) is not None:
            try:
                reward = _within(
                    SCORE_S,
                    lambda: self._told_by_turn(as_reward(episode.reward(outcome))),
                    late=EnvironmentFault(
                        f"the episode's reward() did not return within {SCORE_S:g} s"
                    ),
                )
            except BaseException as fault:  # noqa: BLE001 - the environment's fault, recorded as such
                error, outcome = fault, Outcome.ENVIRONMENT_ERROR
        return Ending(outcome, reward, value, error)

    def _told_by_turn(self, reward: Reward) -> Reward:
        """Share it out as where the play ends by itself; credits that do not fit cost no reward."""
        try:
            return self._rollout.by_turn(reward)
        except RewardError as error:
            logger.warning("rollout=<%s> | %s", self._rollout.request.rollout_id, error)
            return reward

    def _checked(self, ending: Ending) -> Ending:
        if self._rollout.calls.succeeded == 0 and ending.outcome in (
            Outcome.COMPLETED,
            Outcome.TRUNCATED,
        ):
            ending.outcome = Outcome.NO_SAMPLING
        per_turn, sampled = ending.reward.per_turn, self._rollout.calls.succeeded
        if per_turn is not None and len(per_turn) not in (1, sampled):
            ending.notes.append(f"{len(per_turn)} rewards for {sampled} sampled turns")
        return ending

    def _report(self, ending: Ending, deadline: Deadline) -> None:
        """Send the ending to where the rollout came from, if it takes reports."""
        request = self._rollout.request
        if request.job is None and not (request.gateway and request.gateway.report):
            return
        from rft_agent_sdk.job_runtime import JobRuntimeClient

        try:
            endpoint = self._rollout.endpoint
            if request.job is not None and self._rollout.calls.succeeded == 0:
                self._rescue(ending, min(RESCUE_S, deadline.remaining() / 2))
            client = JobRuntimeClient(
                endpoint,
                job_arn=request.job.job_arn if request.job else None,
                trajectory_id=request.rollout_id or self._rollout.invocation_id,
                invocation_id=self._rollout.invocation_id,
            )
            report = _within(
                deadline.remaining() + LATE_S,
                lambda: client.report(ending.reward.values, ending.outcome, deadline),
                late=UnreachableError(
                    "the reports got no answer in time", operation="UpdateReward"
                ),
            )
            ending.reported, refused = report.reported, report.error
        except Exception as error:  # noqa: BLE001 - no endpoint, no report; the response says so
            refused = shown(error)
        if refused:
            _note(ending, "not reported", refused)

    def _rescue(self, ending: Ending, within_s: float) -> None:
        """Sample once with the rollout's own first request: a managed job fails over a rollout without."""
        from rft_agent_sdk.policy import bound_body, sample_once

        rollout = self._rollout
        body = rollout.calls.first_body or bound_body(
            rollout.opening or {"messages": [{"role": "user", "content": rollout.prompt or "-"}]},
            rollout,
        )
        with span("rescue", {"trajectory_id": rollout.request.rollout_id}) as traced:
            try:
                error = _within(
                    within_s + LATE_S,
                    lambda: sample_once(rollout, body, timeout_s=within_s),
                    late=UnreachableError("no whole answer in time", operation="Sample"),
                )
            except Exception as fault:  # noqa: BLE001 - a rescue may fail; the report must still be tried
                error = shown(fault)
            if error is not None:
                traced.fail("no sample")
        ending.rescued = error is None
        if error:
            _note(ending, "no sampling request succeeded", error)


async def _outcome_of(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Run `work`, a coroutine function here and anything else on a thread; return what came of it.

    The error is returned, since a `SystemExit` that leaves a task ends the loop before anyone sees it.
    """
    try:
        if not inspect.iscoroutinefunction(getattr(work, "func", work)):
            value = await _in_thread(work)
        else:
            value = work()
        return (await value if inspect.isawaitable(value) else value), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return None, error


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` on a new daemon thread with this context.

    Not a pool: a function that hangs past its deadline cannot be stopped, and would hold a pool's place,
    and the interpreter's exit, for ever.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():  # the one who waited may have been cancelled
            future.set_result((result, error))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - handed to whoever waits, SystemExit too
            error = raised
        _soon(loop, functools.partial(settle, result, error))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name="rft-rollout").start()
    result, error = await future
    if error is not None:
        raise error
    return result


def _within(seconds: float, work: Callable[[], Any], *, late: RftError) -> Any:
    """Run another's code on a thread of its own for so long: it may hang, or wait for one that does.

    Raises:
        RftError: `late`; it had not returned by then.
    """
    done: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            done.append((None, error))

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True, name="rft-score")
    thread.start()
    thread.join(seconds)
    if not done:
        raise late
    value, error = done[0]
    if error is not None:
        raise error
    return value


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call back on a loop from whatever thread; a loop that is closed needs no call any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


async def _abandon(task: asyncio.Future[Any]) -> None:
    """Cancel a task and give it a moment; what it still raises is of no interest to anyone."""
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _reward_in(value: Any) -> Any:
    """Return what the user's function gave as the reward.

    Raises:
        RewardError: It gave none, or declared an error.
    """
    if not isinstance(value, dict):
        return value
    if value.get("status") == "error" and "reward" not in value:
        raise RewardError(f"the function returned an error status: {value.get('error')!r}")
    if "reward" not in value:
        raise RewardError(f"the returned dict has no 'reward', only {sorted(map(str, value))}")
    return value["reward"]


def _note(ending: Ending, what: str, why: str) -> None:
    """Note what went wrong; the reason is told once, since one cause commonly spoils several steps."""
    told = [*ending.notes, *([shown(ending.error)] if ending.error else [])]
    ending.notes.append(what if any(why in earlier for earlier in told) else f"{what}: {why}")


def _log(rollout: Rollout, ending: Ending) -> None:
    """Log the rollout's end, and why, in one line."""
    why = [shown(ending.error)] if ending.error is not None else []
    if ending.outcome is Outcome.INFRASTRUCTURE_ERROR and rollout.calls.last_error:
        why.append(rollout.calls.last_error)
    logger.log(
        logging.INFO if ending.outcome.is_policy and not ending.notes else logging.WARNING,
        "rollout=<%s> outcome=<%s> reward=<%g> reported=<%s> calls=<%d/%d> | %s",
        rollout.request.rollout_id or rollout.invocation_id,
        ending.outcome,
        ending.reward.total,
        ending.reported,
        rollout.calls.succeeded,
        rollout.calls.attempted,
        redacted(" ".join("; ".join([*why, *ending.notes]).split()) or "ended", rollout),
    )
