"""`rft gateway`: the in-repo gateway on this machine."""

from __future__ import annotations

import os
from typing import Any

import click

from rft_agent_sdk.cli.capturing import gateway_parts, options
from rft_agent_sdk.cli.conform import command as conform
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.errors import UsageError


@click.group(
    "gateway",
    invoke_without_command=True,
    short_help="Serve the in-repo gateway: a Job Runtime of your own, or a trainer's.",
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8090, show_default=True, type=click.IntRange(0, 65535))
@click.option("--allow-remote", is_flag=True, help="Serve other machines too; there is no TLS.")
@click.option("--job", "jobs", multiple=True, metavar="ARN", help="Register a job; repeatable.")
@click.option(
    "--policy",
    default="solver",
    show_default=True,
    help="What answers the jobs' turns: a policy of the environment, or openai:URL.",
)
@click.option("--environment", default="wordle", show_default=True, help="Whose policies to use.")
@click.option("--account", help="AWS account whose jobs may be called.  [default: any]")
@options
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Serve OpenAI chat completions, Anthropic Messages and the Job Runtime protocol.

    Without --job it knows no job and answers as the service does to a made-up one. Point an agent at it
    with RFT_RUNTIME_ENDPOINT=http://127.0.0.1:8090.

    With --capture it records the tokens of sessions. A trainer opens them by RemoteGateway, or POST
    /sessions, with the key that --admin-key-env names.
    """
    if context.invoked_subcommand is None:
        _serve(**given)


command.add_command(conform)


def _serve(
    host: str,
    port: int,
    allow_remote: bool,
    jobs: tuple[str, ...],
    policy: str,
    environment: str,
    account: str | None,
    admin_key_env: str | None,
    **capture: Any,
) -> None:
    from rft_agent_sdk.gateway import Gateway, GatewayServer

    admin_key = _admin_key(admin_key_env)
    parts = gateway_parts(environment=environment, **capture)
    # Without jobs nobody asks it, but a wrong name is told at once; unless samplers are all it has.
    answers: Any = find_policy(policy, environment) if jobs or not parts else None
    gateway = Gateway(account=account, admin_key=admin_key, **parts)
    for arn in jobs:
        gateway.register_job(arn, policy=answers)
    server = GatewayServer(gateway, host=host, port=port, allow_remote=allow_remote)
    known = f"knows {', '.join(jobs)}" if jobs else "knows no job: name one with --job"
    if parts:
        held = sum(gateway.stats()["sessions"].values())
        known = f"captures tokens by {parts['renderer'].name}, holds {held} sessions"
        if admin_key is None:
            known += ", and opens none over HTTP: name its key's variable with --admin-key-env"
    server.serve_forever(
        on_ready=lambda url: click.echo(f"gateway on {url}, {known}; Ctrl-C stops it", err=True)
    )


def _admin_key(variable: str | None) -> str | None:
    """Return the admin key in an environment variable; from there only, since anyone sees a command line.

    Raises:
        UsageError: The variable is named and not set.
    """
    if variable is None:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise UsageError(f"--admin-key-env names {variable!r}, which is not set or empty")
    return key
