"""`rft mtrl logs`: the log of a job, or of the agent that plays it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import click

from rft_agent_sdk.cli.mtrl._jobs import name_argument, region_option
from rft_agent_sdk.errors import UsageError


@click.command("logs", short_help="The log of a job, or of its agent.")
@name_argument
@region_option
@click.option("--agent", "of_agent", is_flag=True, help="The agent's log over the job's time.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--since", type=click.FloatRange(0, min_open=True), help="Only the last so many minutes."
)
@click.option(
    "--poll", default=5.0, show_default=True, type=click.FloatRange(0.01), help="Seconds."
)
@click.option("--streams", is_flag=True, help="Print each line's stream too.")
def command(
    name: str,
    region: str | None,
    of_agent: bool,
    follow: bool,
    since: float | None,
    poll: float,
    streams: bool,
) -> None:
    """Print a job's log, oldest line first, each line once; with its time in UTC.

    The agent's log holds what all its callers made it write while the job ran; an endpoint of a runtime has one
    log group. A line of it that arrives more than a minute late is not seen by --follow.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_again, describe_job
    from rft_agent_sdk.mtrl.logs import LogEvent, agent_log, job_log
    from rft_agent_sdk.mtrl.logs import follow as follow_log

    def show(event: LogEvent) -> None:
        stream = f"{event.stream}  " if streams else ""
        at = event.at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        line = f"{at}Z  {stream}{event.message.rstrip()}"
        # A log holds what a program wrote, broken text too; which characters can be printed, the terminal says.
        click.echo(line.encode("utf-8", "backslashreplace").decode("utf-8"))

    start = None if since is None else datetime.now(UTC) - timedelta(minutes=since)
    with Clients(region) as clients:
        client = clients("sagemaker")
        job = describe_job(client, name)
        if not of_agent:
            reader = job_log(clients("logs"), job, since=start)
        elif job.agent is None:
            raise UsageError(f"job {job.name!r} does not say which agent plays it")
        else:
            reader = agent_log(clients("logs"), job, job.agent, since=start)
        count = 0
        events = (
            follow_log(
                reader,
                lambda: describe_again(client, job).has_ended,
                poll_s=poll,
                sleep=time.sleep,
            )
            if follow
            else reader.read()
        )
        for event in events:
            show(event)
            count += 1
    if not count:
        click.echo(f"nothing is logged yet in {reader.group!r}", err=True)
