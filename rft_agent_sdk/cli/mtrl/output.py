"""`rft mtrl output`: the model package that a job left."""

from __future__ import annotations

import click

from rft_agent_sdk.cli.mtrl._jobs import name_argument, region_option
from rft_agent_sdk.errors import UsageError


@click.command("output", short_help="ARN of the model package that a job left.")
@name_argument
@region_option
def command(name: str, region: str | None) -> None:
    """Print the ARN of the model package that a training job left, and nothing else."""
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_job

    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
    if job.output_package is None:
        raise UsageError(
            f"job {job.name!r} has left no model package: it is {job.status}, in {job.phase}. "
            "An evaluation leaves none; a training job leaves one when it completes"
        )
    click.echo(job.output_package)
