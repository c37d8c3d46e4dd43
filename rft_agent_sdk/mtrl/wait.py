"""Watching a job until it ends: through throttling and lost connections, without a limit of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.job import Job

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 120.0


def watch(
    describe: Callable[[], Job],
    *,
    poll_s: float = 30.0,
    timeout_s: float | None = None,
    at_each_look: Callable[[Job], None] = lambda job: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Job]:
    """Yield a job at once, then whenever it has changed, until it has ended or the time is up.

    Which of the two it was, the last job yielded says. A job takes hours: a call that is throttled, or a connection
    that is lost, is logged once and waited out with growing pauses, as long as the time lasts.

    Args:
        describe: Returns the job as it is now.
        poll_s: Seconds between two looks.
        timeout_s: Seconds after which to give up; `None` for no limit.
        at_each_look: Called with the job each time, changed or not.
        clock: Tells seconds.
        sleep: Waits so many seconds.

    Raises:
        CloudError: The service refused, and another try cannot help; or no look has succeeded in time.
    """
    until = None if timeout_s is None else clock() + timeout_s
    last: Job | None = None
    failures = 0
    while True:
        try:
            job = describe()
        except CloudError as error:
            if not error.is_transient or (last is None and _is_over(until, clock)):
                raise
            if not failures:
                logger.warning("error=<%s> | no answer; the job goes on, trying again", error)
            failures += 1
        else:
            if failures:
                logger.info("job=<%s>, tries=<%d> | answered again", job.name, failures)
            failures = 0
            at_each_look(job)
            if job != last:
                yield job
            last = job
            if job.has_ended:
                return
        if _is_over(until, clock):
            return
        sleep(_pause(poll_s, failures, None if until is None else until - clock()))


def _pause(poll_s: float, failures: int, left_s: float | None) -> float:
    wanted = (
        poll_s if not failures else min(poll_s * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_S)
    )
    wanted = max(wanted, poll_s)
    return wanted if left_s is None else max(0.0, min(wanted, left_s))


def _is_over(until: float | None, clock: Callable[[], float]) -> bool:
    return until is not None and clock() >= until


@dataclass(slots=True)
class Narrator:
    """Tells of a job in lines, each fact once."""

    with_progress: bool = True
    """Whether to tell of every step."""
    _told: set[object] = field(default_factory=set)

    def lines(self, job: Job, now: datetime) -> list[str]:
        """Return what was not told yet of a job, one line each."""
        found = []
        for one in job.transitions:
            if self._is_new(("phase", one.phase, one.started)):
                found.append(f"{_at(one.started)}  {one.phase}")
            if one.message and self._is_new(("message", one.phase, one.started, one.message)):
                found.append(f"{_at(now)}  {one.phase}: {one.message}")
        if not job.transitions and self._is_new(("phase", job.phase)):
            found.append(f"{_at(now)}  {job.phase}")
        if self.with_progress and job.progress and self._is_new(("step", job.progress.step)):
            found.append(f"{_at(now)}  {progress_text(job, now)}")
        # The last phase mostly says both already.
        said = {job.phase, *(one.phase for one in job.transitions), "InProgress"}
        if self._is_new(("status", job.status)) and job.status not in said:
            found.append(f"{_at(job.ended or now)}  {job.status}")
        messages = {one.message for one in job.transitions}
        if self._is_new(("reason", job.failure_reason)) and job.failure_reason not in {
            *messages,
            "",
        }:
            found.append(f"{_at(job.ended or now)}  {job.failure_reason}")
        return found

    def _is_new(self, fact: object) -> bool:
        is_new = fact not in self._told
        self._told.add(fact)
        return is_new


def progress_text(job: Job, now: datetime) -> str:
    """Return step, epoch, rollouts and the time left, as far as they are known; else an empty text."""
    parts = []
    if (progress := job.progress) is not None:
        parts.append(f"step {progress.step} of {progress.max_steps}")
        if progress.epoch is not None:
            parts.append(f"epoch {progress.epoch} of {progress.max_epochs}")
    if job.rollouts is not None:
        parts.append(f"rollouts {job.rollouts[0]} of {job.rollouts[1]}")
    if (left := job.time_left_s(now)) is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds: `12:40:00`."""
    return str(timedelta(seconds=round(seconds)))


def _at(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
