"""`rft sessions`: training sessions that a killed process left running, and stopping them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from rft_agent_sdk.errors import UsageError

_region = click.option("--region", help="AWS region.  [default: the environment's]")


@click.group("sessions", short_help="List and stop SageMaker training sessions, which are billed.")
def command() -> None:
    """List and stop SageMaker training sessions.

    A run stops its own session on every way out but one: a process killed outright leaves it running, and
    billed.
    """


@command.command("list")
@_region
@click.option("--name", default="", help="Only sessions with this in their name, such as rft-.")
@click.option("--all", "include_ended", is_flag=True, help="Those too that have ended.")
def list_command(region: str | None, name: str, include_ended: bool) -> None:
    """List sessions that run: name, status, age, and tokens billed so far.

    Columns are separated by tabs.
    """
    from rft_agent_sdk.training.orphans import control_plane, describe_session, list_sessions

    client = control_plane(region)
    found = list_sessions(client, name_contains=name, include_ended=include_ended)
    for one in found:
        tokens = describe_session(client, one.name).tokens or {}
        billed = sum(tokens.values())
        click.echo(f"{one.name}\t{one.status}\t{_age(one.created)}\t{billed} tokens")
    if not found:
        click.echo("no session" if include_ended else "no session runs", err=True)


@command.command("stop")
@_region
@click.argument("names", nargs=-1, metavar="NAME...")
def stop_command(region: str | None, names: tuple[str, ...]) -> None:
    """Stop sessions by name. What has ended already is left as it is."""
    from rft_agent_sdk.training.orphans import control_plane, stop_session

    if not names:
        raise UsageError("wanted the name of a session to stop: see `rft sessions list`")
    client = control_plane(region)
    for name in names:
        is_stopped = stop_session(client, name)
        click.echo(f"{name}\t{'stopping' if is_stopped else 'had ended already'}")


def _age(created: datetime) -> str:
    return str(timedelta(seconds=int((datetime.now(UTC) - created).total_seconds())))
