"""`rft mtrl attach`: see where a job stands, and follow it."""

from __future__ import annotations

from datetime import UTC, datetime
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
    "attach",
    short_help="Tell where a job stands, and follow it step by step.",
    help=f"""Tell where a job stands, then follow it to its end, step by step.

    Interrupting this leaves the job running. `rft mtrl logs NAME --follow` follows its log instead.

    {CODES}
    """,
)
@name_argument
@region_option
@following_options
def command(name: str, region: str | None, **options: Any) -> int:
    """Tell where a job stands, and follow it."""
    return following(name, lambda: _attach(name, region, options))


def _attach(name: str, region: str | None, options: dict[str, Any]) -> int:
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.job import describe_job
    from rft_agent_sdk.mtrl.job_report import report_lines

    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
        click.echo("\n".join(report_lines(job, datetime.now(UTC))))
        return follow_job(clients, job, with_progress=True, **options)
