"""`rft mtrl wait`: wait for a job's end, and tell it by the exit code."""

from __future__ import annotations

from typing import Any

import click

from rft_agent_sdk.cli.mtrl._jobs import (
    CODES,
    follow_job,
    following,
    following_options,
    name_argument,
    region_option,
)


@click.command(
    "wait",
    short_help="Wait for a job's end; the exit code tells which.",
    help=f"""Wait for a job's end, however long it takes, and print what changes.

    Throttling and lost connections are waited out. What the agent was when the job began is kept in
    RUNS/NAME/lock.json, and a change of it is told at once.

    {CODES}
    """,
)
@name_argument
@region_option
@following_options
@click.option("--progress", is_flag=True, help="Tell of every step too.")
def command(name: str, region: str | None, progress: bool, **options: Any) -> int:
    """Wait for a job's end."""
    return following(name, lambda: _wait(name, region, progress, options))


def _wait(name: str, region: str | None, progress: bool, options: dict[str, Any]) -> int:
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_job

    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
        click.echo(
            " ".join(filter(None, [f"{job.name}  {job.status}, {job.phase}", job.failure_reason]))
        )
        return follow_job(clients, job, with_progress=progress, **options)
