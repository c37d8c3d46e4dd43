"""`rft serve`: the AgentCore entrypoint on this machine."""

from __future__ import annotations

import click

from rft_agent_sdk.cli.inputs import ENTRYPOINT, load_app


@click.command("serve", short_help="Serve the AgentCore entrypoint on this machine.")
@click.option(
    "--app",
    "target",
    default=ENTRYPOINT,
    show_default=True,
    help="FILE.py, FILE.py:OBJECT or MODULE:OBJECT of the app.",
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535))
def command(target: str, host: str, port: int) -> None:
    """Serve an AgentCore app here: POST /invocations, GET /ping.

    It is the very file that `agentcore deploy` ships. Stop it with Ctrl-C.
    """
    import uvicorn

    app = load_app(target)
    click.echo(f"serving {target} on http://{host}:{port}; Ctrl-C stops it", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning", ws="none")
