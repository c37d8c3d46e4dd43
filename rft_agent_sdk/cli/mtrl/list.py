"""`rft mtrl list`: the jobs of an account."""

from __future__ import annotations

import json
from datetime import UTC

import click

from rft_agent_sdk.cli.mtrl._jobs import region_option


@click.command("list", short_help="Training and evaluation jobs, newest first.")
@region_option
@click.option("--evaluations", is_flag=True, help="Evaluation jobs only.")
@click.option("--training", is_flag=True, help="Training jobs only.")
@click.option("--name", "name_contains", default="", help="Only jobs with this in their name.")
@click.option("--status", default="", help="Only jobs of this status, such as InProgress.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="Of each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    region: str | None,
    evaluations: bool,
    training: bool,
    name_contains: str,
    status: str,
    limit: int,
    as_json: bool,
) -> None:
    """List jobs: name, category, status, phase, and when they were created.

    Columns are separated by tabs.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import EVALUATION, TRAINING, list_jobs

    both = evaluations == training
    categories = [
        category
        for category, is_wanted in ((TRAINING, training), (EVALUATION, evaluations))
        if both or is_wanted
    ]
    with Clients(region) as clients:
        found = [
            job
            for category in categories
            for job in list_jobs(
                clients("sagemaker"),
                category,
                name_contains=name_contains,
                status=status,
                limit=limit,
            )
        ]
    for job in sorted(found, key=lambda job: job.created, reverse=True):
        created = job.created.astimezone(UTC).isoformat(timespec="seconds")
        told = {
            "name": job.name,
            "category": job.category,
            "status": job.status,
            "phase": job.phase,
            "created": created,
        }
        click.echo(json.dumps(told) if as_json else "\t".join(told.values()))
    if not found:
        click.echo("no job", err=True)
