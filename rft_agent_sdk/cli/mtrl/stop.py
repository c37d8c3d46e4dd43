"""`rft mtrl stop`: stop a job, and wait until it has stopped."""

from __future__ import annotations

import click

from rft_agent_sdk.cli.mtrl._jobs import (
    STOPPED,
    TIMED_OUT,
    name_argument,
    region_option,
    tell_end,
)


@click.command("stop", short_help="Stop a job and wait until it has.")
@name_argument
@region_option
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@click.option(
    "--poll", default=5.0, show_default=True, type=click.FloatRange(0.01), help="Seconds."
)
@click.option(
    "--timeout", default=1800.0, show_default=True, type=click.FloatRange(0), help="Seconds."
)
def command(name: str, region: str | None, no_wait: bool, poll: float, timeout: float) -> int:
    """Stop a job by its name or ARN, and wait until it has stopped.

    What was trained so far stays in the checkpoint group; the service promotes the last checkpoint to the output
    group as far as it can. A new job goes on from a checkpoint.

    Exit codes: 0 it has stopped or is told to, or had ended already; 1 it failed meanwhile; 4 it has not
    stopped in time.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_again, describe_job, stop_job
    from rft_agent_sdk.mtrl.wait import watch

    with Clients(region) as clients:
        client = clients("sagemaker")
        job = asked = describe_job(client, name)
        is_stopped = stop_job(client, asked)
        if not is_stopped and job.has_ended:
            click.echo(f"{job.name}\thad ended already: {job.status}")
            return 0
        click.echo(f"{job.name}\tstopping")
        if no_wait:
            return 0
        seen = watch(lambda: describe_again(client, asked), poll_s=poll, timeout_s=timeout)
        job = list(seen)[-1]
    if not job.has_ended:
        click.echo(f"{job.name}\t{job.status} still, after {timeout:g} s")
        return TIMED_OUT
    click.echo(f"{job.name}\t{job.status}")
    code = tell_end(job)
    return 0 if code == STOPPED else code
