"""`rft mtrl status`: where a job stands."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from rft_agent_sdk.cli.mtrl._jobs import name_argument, region_option


@click.command("status", short_help="Where a job stands: phase, step, time left, tokens.")
@name_argument
@region_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str, region: str | None, as_json: bool) -> None:
    """Tell where a job stands, by its name or ARN.

    The phases that it went through, with what the service says about them; the step and epoch it is at, the
    rollouts played, the time left at the pace so far, and tokens; why it failed, and what to do about that.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_job
    from rft_agent_sdk.mtrl.job_report import report_json, report_lines

    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
    now = datetime.now(UTC)
    if as_json:
        click.echo(json.dumps(report_json(job, now), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(report_lines(job, now)))
