"""What the verbs about one job share: options, exit codes, and following a job."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.errors import CloudError, CredentialsError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import Job
    from rft_agent_sdk.mtrl.lock import Lock

COMPLETED, FAILED, STOPPED, TIMED_OUT, AGENT_CHANGED, UNSEEN = 0, 1, 3, 4, 5, 6
TERMINATED = 128 + signal.SIGTERM
CODES = """Exit codes: 0 the job completed, 1 it failed, 2 the command was wrong, 3 the job was stopped, 4 the time of
    --timeout is up and the job goes on, 5 the job completed but its agent was changed meanwhile, 6 the job cannot be
    looked at (credentials, permission, no connection, no such job) and one that runs goes on, 130 or 143 interrupted
    or terminated (the job goes on)."""

name_argument = click.argument("name", metavar="NAME")
region_option = click.option("--region", help="AWS region.  [default: the environment's]")
runs_option = click.option(
    "--runs",
    default="runs/mtrl",
    show_default=True,
    metavar="DIR",
    help="Where files about jobs are kept, a folder each.",
)
_FOLLOWING = (
    click.option(
        "--poll", default=30.0, show_default=True, type=click.FloatRange(0.01), help="Seconds."
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        help="Seconds after which to stop waiting.  [default: no limit]",
    ),
    click.option("--no-lock", is_flag=True, help="Do not look whether the agent changes."),
    runs_option,
)


class Terminated(BaseException):
    """SIGTERM came while somebody waited."""


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM meanwhile, so that what goes on without us can be told."""

    def terminated(number: int, frame: Any) -> None:
        raise Terminated

    # Only the main thread may say what a signal does.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def following(name: str, follow: Callable[[], int]) -> int:
    """Follow a job, and tell that it goes on if nobody can follow it any more.

    Args:
        name: The job's.
        follow: Follows it and returns the exit code.

    Returns:
        The exit code.
    """
    goes_on = f"the job goes on: `rft mtrl attach {name}`"
    try:
        with heeding_sigterm():
            return follow()
    except KeyboardInterrupt:
        click.echo(goes_on, err=True)
        raise
    except Terminated:
        click.echo(f"terminated; {goes_on}", err=True)
        return TERMINATED
    except (CloudError, CredentialsError) as error:
        is_gone = isinstance(error, CloudError) and error.is_missing
        rest = "if it was ever there, it is gone" if is_gone else f"if it runs, {goes_on}"
        click.echo(f"{error}; nothing is known of the job's end: {rest}", err=True)
        return UNSEEN


def following_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of whoever follows a job."""
    return functools.reduce(lambda made, option: option(made), reversed(_FOLLOWING), command)


def follow_job(
    clients: Clients,
    job: Job,
    *,
    poll: float,
    timeout: float | None,
    no_lock: bool,
    runs: str,
    with_progress: bool,
) -> int:
    """Follow a job to its end, telling what changes from here on, and return the exit code.

    Raises:
        CloudError: The service refused for good.
        UsageError: The file of the lock is none.
    """
    from rft_agent_sdk.mtrl.job import describe_again
    from rft_agent_sdk.mtrl.lock import LockWatch
    from rft_agent_sdk.mtrl.wait import Narrator, watch

    narrator = Narrator(with_progress)
    narrator.lines(job, datetime.now(UTC))  # told already
    before = None if no_lock else _locked(clients, job, Path(runs))
    lock = LockWatch(clients, before, tell=_warn_of_change)
    client, seen = clients("sagemaker"), job
    for seen in watch(
        lambda: describe_again(client, job),
        poll_s=poll,
        timeout_s=timeout,
        at_each_look=(lambda looked: None) if no_lock else lock,
    ):
        for line in narrator.lines(seen, datetime.now(UTC)):
            click.echo(line)
    return tell_end(seen, is_changed=bool(lock.found))


def tell_end(job: Job, *, is_changed: bool = False) -> int:
    """Say how a job ended and what to do about it; return the exit code."""
    from rft_agent_sdk.mtrl.failure import advice
    from rft_agent_sdk.mtrl.job_report import CHECKPOINTS

    if not job.has_ended:
        click.echo("the time is up; the job goes on", err=True)
        return TIMED_OUT
    if what := advice(job):
        click.echo(f"what to do: {what.replace('NAME', job.name)}", err=True)
    if job.status == "Completed":
        if job.output_package:
            click.echo(f"output package {job.output_package}")
        return AGENT_CHANGED if is_changed else COMPLETED
    if job.category == "AgentRFT":
        click.echo(CHECKPOINTS, err=True)
    return FAILED if job.status == "Failed" else STOPPED


def _locked(clients: Clients, job: Job, runs: Path) -> Lock | None:
    """Return what was deployed when the job began; noted now where nobody did."""
    from rft_agent_sdk.mtrl.lock import lock_path, read_lock, take_lock, write_lock

    path = lock_path(runs, job.name)
    before = read_lock(path)
    if before is not None or job.agent is None or job.has_ended:
        return before
    try:
        before = take_lock(clients, job.agent, datetime.now(UTC))
    except CloudError as error:
        click.echo(f"whether the agent changes is not seen: {error}", err=True)
        return None
    write_lock(path, before)
    return before


def _warn_of_change(change: str) -> None:
    click.echo(f"WARNING: the agent of this job was changed: {change}", err=True)
