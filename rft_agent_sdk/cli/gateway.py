"""`rft gateway`: the in-repo gateway on this machine."""

from __future__ import annotations

from typing import Any

import click

from rft_agent_sdk.errors import UsageError


@click.command("gateway", short_help="Serve the in-repo gateway: a Job Runtime of your own.")
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
def command(
    host: str,
    port: int,
    allow_remote: bool,
    jobs: tuple[str, ...],
    policy: str,
    environment: str,
    account: str | None,
) -> None:
    """Serve OpenAI chat completions and the Job Runtime protocol.

    Without --job it knows no job and answers as the service does to a made-up one. Point an agent at it
    with RFT_RUNTIME_ENDPOINT=http://127.0.0.1:8090.
    """
    from rft_agent_sdk.gateway import Gateway, GatewayServer

    gateway, answers = Gateway(account=account), find_policy(policy, environment)
    for arn in jobs:
        gateway.register_job(arn, policy=answers)
    server = GatewayServer(gateway, host=host, port=port, allow_remote=allow_remote)
    known = f"knows {', '.join(jobs)}" if jobs else "knows no job: name one with --job"
    server.serve_forever(
        on_ready=lambda url: click.echo(f"gateway on {url}, {known}; Ctrl-C stops it", err=True)
    )


def find_policy(name: str, environment: str) -> Any:
    """Return the policy called `name`: `openai:<url>`, or a reference policy of an environment.

    Raises:
        UsageError: The environment has no such policy.
    """
    from rft_agent_sdk.environment import load_environment

    if name.startswith("openai:"):
        return name
    policies = load_environment(environment).policies()
    if name not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise UsageError(
            f"environment {environment!r} has no policy {name!r}: it has {known}; a server is openai:URL"
        )
    return policies[name]
