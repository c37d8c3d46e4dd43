"""Runs a series of evaluations: creates each job when the account has room for it, follows it, keeps its numbers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.created import IN_USE, is_asked_for
from rft_agent_sdk.mtrl.evaluation import evaluation_name, evaluation_request
from rft_agent_sdk.mtrl.evaluation_results import read_metrics
from rft_agent_sdk.mtrl.failure import advice
from rft_agent_sdk.mtrl.job import (
    EVALUATION,
    Job,
    agent_of,
    describe_again,
    describe_job,
    list_jobs,
)
from rft_agent_sdk.mtrl.lock import Lock, LockWatch, take_lock
from rft_agent_sdk.mtrl.mlflow import run_metrics
from rft_agent_sdk.mtrl.series import Cell, Series
from rft_agent_sdk.mtrl.wait import Narrator, watch

logger = logging.getLogger(__name__)
T = TypeVar("T")

UNKNOWN_EFFORT = "unknown"
DEFAULT_EFFORT = "default"
_METRICS_TRIES = 3
_EMPTY_REFUSALS = 10
"""How often the service may say that too many jobs run, while none does, before it is believed to allow none."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a series waits."""

    poll_s: float = 30.0
    """Seconds between two looks."""
    timeout_s: float | None = None
    """Seconds after which to leave the series as it is; `None` for no limit."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Deployed:
    """The agent that plays, as far as it can be told."""

    effort: str
    """Reasoning effort: what the runtime's environment sets, or what was stated where that is out of sight."""
    lock: Lock | None
    remark: str = ""
    """What to know about the effort."""


class SeriesTimeout(Exception):
    """The time for a series is up; it is kept, and can go on."""


def deployed_agent(clients: Clients, series: Series, stated: str | None, now: datetime) -> Deployed:
    """Return which agent plays now, and at which reasoning effort.

    Args:
        clients: Of the jobs' region.
        series: Which names the agent.
        stated: The effort that somebody says is deployed; `None` takes what is.
        now: The time.

    Raises:
        UsageError: Another effort is deployed than stated.
        CloudError: What is deployed cannot be read, and nothing was stated.
    """
    agent = agent_of({"AgentConfig": series.setting.agent})
    if agent is None:
        raise UsageError(f"wanted the agent of a series, got {series.setting.agent!r}")
    try:
        lock = take_lock(clients, agent, now)
    except CloudError as error:
        if stated is None or error.is_missing or error.is_transient:
            raise
        return Deployed(stated, None, "its effort is as stated: what is deployed could not be read")
    if agent.is_lambda:
        remark = "its effort is as stated: the agent is behind a function" if stated else ""
        return Deployed(stated or UNKNOWN_EFFORT, lock, remark)
    found = lock.settings.get("REASONING_EFFORT") or DEFAULT_EFFORT
    if stated is not None and stated != found:
        raise UsageError(
            f"wanted reasoning effort {stated!r}, but the deployed agent asks for {found!r}: it is set by the agent's "
            "environment, so set REASONING_EFFORT in agentcore/agentcore.json, deploy again, and repeat this command. "
            "Not while a job runs"
        )
    return Deployed(found, lock)


def run_series(
    clients: Clients,
    series: Series,
    cells: Sequence[Cell],
    *,
    name: str,
    stated_effort: str | None = None,
    pace: Pace | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Bring cells to their end, one after the other; each that ends is kept at once.

    A job that fails is kept as failed, and the next one goes on.

    Args:
        clients: Of the jobs' region.
        series: What they belong to.
        cells: Of `series.plan`; those that are done are passed over.
        name: What the jobs' names begin with.
        stated_effort: See `deployed_agent`.
        pace: How to wait.
        tell: Takes a line about what happens.

    Raises:
        SeriesTimeout: The time is up.
        UsageError: The agent was redeployed with another effort, or the account may run no evaluation.
        CloudError: The service refused.
    """
    pace = pace or Pace()
    until = None if pace.timeout_s is None else pace.clock() + pace.timeout_s
    run = _Run(clients, series, name, stated_effort, pace, until, tell)
    for cell in cells:
        if not cell.is_over or (cell.status == "Completed" and not cell.is_done):
            run.bring_to_end(cell)


def drop_unborn(clients: Clients, series: Series, asked: Sequence[Cell]) -> None:
    """Take out of a series what nobody asks for any more and no job plays: its job was named, and then refused.

    Args:
        clients: Of the jobs' region.
        series: The series, which is not saved.
        asked: Cells that stay in any case.

    Raises:
        CloudError: The service refused to say whether there is a job.
    """
    for cell in [one for one in series.cells if one.status is None and one not in asked]:
        if cell.job is None or _find(clients, cell.job) is None:
            series.cells.remove(cell)


def retry_failed(cells: Sequence[Cell]) -> int:
    """Make cells whose job did not complete as if it had never been; return how many."""
    found = [cell for cell in cells if cell.is_over and cell.status != "Completed"]
    for cell in found:
        cell.forget_job()
    return len(found)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all cells of one call of `run_series` are brought to their end with."""

    clients: Clients
    series: Series
    name: str
    stated_effort: str | None
    pace: Pace
    until: float | None
    """The clock's time at which to leave the series as it is."""
    tell: Callable[[str], None]

    def bring_to_end(self, cell: Cell) -> None:
        """Create a cell's job unless it is there, follow it, and keep what comes of it."""
        self.tell(cell.title)
        if cell.job is None:
            self._choose(cell)
        job = self._find(cell) or self._create(cell)
        if not cell.is_over:
            job = self._follow(cell, job)
        if job.status == "Completed":
            self._collect(cell, job)
        self.series.save()

    def _choose(self, cell: Cell) -> None:
        """Settle what a cell's job is called and which agent plays it, before there is a job."""
        now = self.pace.now()
        deployed = self._patiently(
            lambda: deployed_agent(self.clients, self.series, self.stated_effort, now)
        )
        if deployed.effort != cell.effort:
            raise UsageError(
                f"{cell.title}: the agent was redeployed meanwhile and asks for {deployed.effort!r} now. "
                "Deploy it as it was and repeat this command, or say --across-efforts to go on with both"
            )
        cell.lock = None if deployed.lock is None else deployed.lock.to_json()
        cell.remarks = [deployed.remark] if deployed.remark else []
        cell.job = evaluation_name(self.name, cell.model, cell.temperature, now)
        self.series.save()

    def _find(self, cell: Cell) -> Job | None:
        """Return a cell's job; `None` where it was never created."""
        name = cell.job
        assert name is not None
        job = self._patiently(lambda: _find(self.clients, name))
        return job if job is None or is_asked_for(job, self._request(cell)) else None

    def _request(self, cell: Cell) -> dict[str, Any]:
        assert cell.job is not None
        return evaluation_request(self.series.setting, cell.model, cell.temperature, cell.job)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return what a call returns, as soon as the service answers it; a series goes on for hours unattended.

        Raises:
            SeriesTimeout: The time is up.
            CloudError: The service refused, and another try cannot help.
        """
        while True:
            try:
                return call()
            except CloudError as error:
                if not error.is_transient:
                    raise
                logger.warning("error=<%s> | no answer; trying again", error)
            self._pause()

    def _pause(self) -> None:
        if self.until is not None and self.pace.clock() >= self.until:
            raise SeriesTimeout
        self.pace.sleep(self.pace.poll_s)

    def _create(self, cell: Cell) -> Job:
        """Create a cell's job as soon as the account has room for it."""
        request, client = self._request(cell), self.clients("sagemaker")
        refusals = 0
        while True:
            try:
                with told(f"evaluation {cell.job!r} cannot be created"):
                    client.create_job(**request)
                break
            except CloudError as error:
                # A job of that name is this one, created by a call whose answer was lost, if it is what we asked for.
                if error.code == IN_USE and self._find(cell) is not None:
                    break
                if error.code != "ResourceLimitExceeded" and not error.is_transient:
                    raise
                # The job in the way may be this very one, if it was a repeated call that was refused.
                if error.code == "ResourceLimitExceeded" and self._find(cell) is not None:
                    break
                if error.code == "ResourceLimitExceeded":
                    refusals = self._count_refusal(refusals)
                else:
                    logger.warning("error=<%s> | not created; trying again", error)
            self._pause()
        self.tell(f"  job {cell.job}")
        return self._patiently(lambda: describe_job(client, request["JobName"], EVALUATION))

    def _count_refusal(self, refusals: int) -> int:
        """Tell once who is in the way; give up where nobody is."""
        running = self._patiently(self._running)
        if not refusals:
            self.tell(
                f"  waiting for {', '.join(running) or 'room'}: the account runs no more evaluations at a time"
            )
        if running:
            return 1
        if refusals >= _EMPTY_REFUSALS:
            raise UsageError(
                "the service says that too many evaluations run, and none does: the account's quota of concurrent "
                "evaluation jobs is probably 0. Ask for an increase in Service Quotas, under Amazon SageMaker"
            )
        return refusals + 1

    def _running(self) -> list[str]:
        client = self.clients("sagemaker")
        return [
            job.name
            for status in ("InProgress", "Stopping")
            for job in list_jobs(client, EVALUATION, status=status, limit=5)
        ]

    def _follow(self, cell: Cell, created: Job) -> Job:
        """Follow a cell's job to its end."""
        pace, job = self.pace, created
        narrator = Narrator(with_progress=False)
        before = Lock(**cell.lock) if cell.lock else None
        lock = LockWatch(self.clients, before, now=pace.now, clock=pace.clock)
        client = self.clients("sagemaker")
        for job in watch(
            lambda: describe_again(client, created),
            poll_s=pace.poll_s,
            timeout_s=None if self.until is None else self.until - pace.clock(),
            at_each_look=lock,
            clock=pace.clock,
            sleep=pace.sleep,
        ):
            for line in narrator.lines(job, pace.now()):
                self.tell(f"  {line}")
        cell.status = job.status
        cell.failure = job.failure_reason
        cell.tokens = dict(job.tokens)
        if not job.has_ended:
            self.series.save()
            raise SeriesTimeout
        cell.remarks += [f"the agent changed meanwhile: {one}" for one in lock.found]
        if what := advice(job):
            self.tell(f"  {what}")
        return job

    def _collect(self, cell: Cell, job: Job) -> None:
        """Keep a job's numbers: those of its document, else those that it logged."""
        cell.rollouts = job.rollouts[1] if job.rollouts else None
        cell.tokens = dict(job.tokens)
        if found := read_metrics(job.output.get("EvaluationMetrics")):
            cell.metrics, cell.source = found, "ServiceOutput"
            return
        for tries_left in range(_METRICS_TRIES - 1, -1, -1):
            if found := self._logged(job):
                cell.metrics, cell.source = found, "MLflow"
                return
            if tries_left:
                self.pace.sleep(self.pace.poll_s)
        logger.warning(
            "job=<%s> | it has completed, and its numbers cannot be read yet: repeat the command",
            job.name,
        )

    def _logged(self, job: Job) -> dict[str, float]:
        """Return what a job logged to MLflow; nothing where that cannot be read."""
        run, app = job.mlflow.get("RunId"), job.mlflow_app
        if not run or app is None:
            return {}
        try:
            found = run_metrics(self.clients, app, str(run))
        except CloudError as error:
            logger.warning("error=<%s> | the job's numbers are not read", error)
            return {}
        return {name: found[name] for name in found if name.startswith("eval/")}


def _find(clients: Clients, name: str) -> Job | None:
    """Return the evaluation job of a name; `None` where there is none."""
    try:
        return describe_job(clients("sagemaker"), name, EVALUATION)
    except CloudError as error:
        if error.is_missing:
            return None
        raise
