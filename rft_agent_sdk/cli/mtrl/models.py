"""`rft mtrl models`: which base models managed jobs train, and where."""

from __future__ import annotations

import json

import click


@click.command("models", short_help="List the base models that managed jobs train.")
@click.option("--region", metavar="NAME", help="AWS region; by default the environment's.")
@click.option("--offline", is_flag=True, help="Show the published table only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(region: str | None, offline: bool, as_json: bool) -> None:
    """List the base models: the published table, and what the hub offers in a region today."""
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.hub import list_models
    from rft_agent_sdk.mtrl.models import AS_OF, MODELS

    offered: list[str] | None = None
    if not offline:
        with Clients(region) as clients:
            region, offered = clients.region, list_models(clients)
    if as_json:
        published = {model.name: list(model.regions) for model in MODELS}
        found = {"as_of": AS_OF, "published": published, "region": region, "hub": offered}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"published, {AS_OF}:")
    for model in MODELS:
        names = f" (also {', '.join(model.other_names)})" if model.other_names else ""
        here = "" if offered is None or model.name in offered else f"; not in the hub of {region}"
        click.echo(f"  {model.name}: {', '.join(model.regions)}{names}{here}")
    listed = {model.name for model in MODELS}
    if new := [name for name in offered or () if name not in listed]:
        click.echo(f"only in the hub of {region}; --allow-unlisted-model launches them:")
        for name in new:
            click.echo(f"  {name}")
