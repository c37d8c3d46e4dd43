"""`rft serve`: the AgentCore entrypoint on this machine."""

from __future__ import annotations

import logging
import socket

import click

from rft_agent_sdk.cli.inputs import ENTRYPOINT, load_app
from rft_agent_sdk.cli.traced import traces


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
@traces
def command(target: str, host: str, port: int) -> None:
    """Serve an AgentCore app here: POST /invocations, GET /ping.

    It is the very file that `agentcore deploy` ships. Name its function, as in main.py:invoke, to serve it as
    on infrastructure of your own: POST /rollout, GET /health. Stop it with Ctrl-C.
    """
    import uvicorn

    from rft_agent_sdk.serving import asgi_app
    from rft_agent_sdk.shutdown import Running

    app = load_app(target)
    if isinstance(getattr(app, "running", None), Running):
        app = asgi_app(app)
    # It writes its log itself, as it does deployed, and would write it twice through ours.
    logging.getLogger("bedrock_agentcore.app").propagate = False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"serving {target} on http://{shown}:{port}; Ctrl-C stops it", err=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).run([listener])
