"""`rft mtrl runtimes`: the AgentCore runtimes that a job could call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.aws import Clients


@click.command("runtimes", short_help="List the AgentCore runtimes that a job could call.")
@click.option("--region", metavar="NAME", help="AWS region; by default the environment's.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(region: str | None, as_json: bool) -> None:
    """List the AgentCore runtimes of a region: id, status, version, ARN."""
    from rft_agent_sdk.mtrl.aws import Clients

    with Clients(region) as clients:
        found = list(_runtimes(clients))
        region = clients.region
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo(f"there are no runtimes in {region}: `agentcore deploy` makes one", err=True)
    for one in found:
        click.echo(
            f"{one['runtime_id']}  {one['status']}  version {one['version']}\n  {one['arn']}"
        )


def _runtimes(clients: Clients) -> Iterator[dict[str, str]]:
    from rft_agent_sdk.mtrl.aws import told

    asked: dict[str, str] = {}
    while True:
        with told("the runtimes cannot be listed"):
            page = clients("bedrock-agentcore-control").list_agent_runtimes(**asked)
        for one in page["agentRuntimes"]:
            yield {
                "name": one["agentRuntimeName"],
                "runtime_id": one["agentRuntimeId"],
                "version": one["agentRuntimeVersion"],
                "status": one["status"],
                "arn": one["agentRuntimeArn"],
            }
        if not page.get("nextToken"):
            return
        asked["nextToken"] = page["nextToken"]
