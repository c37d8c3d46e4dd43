"""`rft mtrl lock`: note which agent a job began with, and tell whether it has changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from rft_agent_sdk.cli.mtrl._jobs import (
    AGENT_CHANGED,
    name_argument,
    region_option,
    runs_option,
)
from rft_agent_sdk.errors import UsageError


@click.command("lock", short_help="Note a job's agent, and tell whether it changed since.")
@name_argument
@region_option
@runs_option
def command(name: str, region: str | None, runs: str) -> int:
    """Note which version of the agent a job began with; called again, tell whether it has changed since.

    An agent that is redeployed while a job runs ends the job, or spoils it without a word. The note is kept in
    RUNS/NAME/lock.json; `rft mtrl wait` and `rft mtrl attach` make it and look after it by themselves.

    Exit codes: 0 noted, or the same; 5 changed.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_job
    from rft_agent_sdk.mtrl.lock import changes, lock_path, read_lock, take_lock, write_lock

    now = datetime.now(UTC)
    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
        if job.agent is None:
            raise UsageError(f"job {job.name!r} does not say which agent plays it")
        path = lock_path(Path(runs), job.name)
        before = read_lock(path)
        found = changes(clients, job, before, now)
        if before is None and not job.has_ended:
            before = take_lock(clients, job.agent, now)
            write_lock(path, before)
            click.echo(f"noted in {path}", err=True)
    if before is not None:
        click.echo(json.dumps(before.to_json(), indent=2))
    elif not found:
        click.echo(
            "the job has ended, and nothing was noted while it ran; no version of its agent was deployed in that time",
            err=True,
        )
    for change in found:
        click.echo(f"WARNING: the agent of this job was changed: {change}", err=True)
    return AGENT_CHANGED if found else 0
