"""`rft mtrl cost`: what a job has cost so far."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from rft_agent_sdk.cli.mtrl._jobs import name_argument, region_option
from rft_agent_sdk.errors import UsageError


@click.command("cost", short_help="What a job has cost so far, tokens and agent.")
@name_argument
@region_option
@click.option("--prices", metavar="FILE", help="JSON or YAML with prices to use instead.")
@click.option("--rollout-seconds", type=click.FloatRange(0, min_open=True), help="For an estimate.")
@click.option("--vcpus", default=0.6, show_default=True, help="In use, for an estimate.")
@click.option("--memory-gb", default=1.2, show_default=True, help="In use, for an estimate.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str,
    region: str | None,
    prices: str | None,
    rollout_seconds: float | None,
    vcpus: float,
    memory_gb: float,
    as_json: bool,
) -> None:
    """Tell what a job has cost so far, at list prices: its billable tokens and its agent.

    The agent's processor and memory hours are CloudWatch's; where they cannot be read they are estimated, and
    the estimate says what it assumes. The prices have a date: AWS's own pages and bills are what counts.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.cost import Load, job_cost
    from rft_agent_sdk.mtrl.job import describe_job
    from rft_agent_sdk.mtrl.prices import Prices, read_prices, unused_prices

    table = Prices({}) if prices is None else read_prices(_read(Path(prices)), prices)
    with Clients(region) as clients:
        job = describe_job(clients("sagemaker"), name)
        load = Load(vcpus, memory_gb, rollout_seconds)
        for finding in unused_prices(table, job.base_model):
            click.echo(f"{finding.severity}: {finding.message}", err=True)
        cost = job_cost(clients, job, table, load, datetime.now(UTC))
    if as_json:
        click.echo(json.dumps({"job": job.name, **cost.to_json()}, indent=2))
    else:
        click.echo("\n".join(cost.lines()))


def _read(path: Path) -> dict[str, object]:
    text = path.read_text("utf-8")
    try:
        if path.suffix in (".yaml", ".yml"):
            import yaml

            found = yaml.safe_load(text)
        else:
            found = json.loads(text)
    except ModuleNotFoundError as error:
        raise UsageError(f"{str(path)!r}: YAML needs pip install 'rft-agent-sdk[train]'") from error
    except ValueError as error:
        raise UsageError(f"{str(path)!r}: wanted JSON, got something else: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{str(path)!r}: wanted names of models with their prices, got {found!r}")
    return found
