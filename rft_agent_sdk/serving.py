"""Serve a handler on your own infrastructure: `POST /rollout`, `GET /health`.

For agents that run on EC2, EKS or Fargate instead of AgentCore. AgentCore's paths, `/invocations` and
`/ping`, answer too, so the same client reaches either. Needs the `[gateway]` extra or AgentCore's own
dependencies (starlette, uvicorn).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.errors import RolloutExit, UsageError
from rft_agent_sdk.handler import Entrypoint
from rft_agent_sdk.shutdown import Running, report_on_sigterm

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)

SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"


@dataclass(frozen=True, slots=True)
class ServedContext:
    """What a handler's `context` parameter gets here; AgentCore's has more."""

    session_id: str | None


def asgi_app(entrypoint: Entrypoint) -> Starlette:
    """Return an ASGI app of one decorated function.

    Raises:
        UsageError: The function is not under `@rft_handler`.
    """
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    if not isinstance(getattr(entrypoint, "running", None), Running):
        raise UsageError(f"wanted a function under @rft_handler to serve, got {entrypoint!r}")

    async def rollout(request: Request) -> Response:
        try:
            payload = json.loads(await request.body())
        except (ValueError, RecursionError) as error:
            return JSONResponse(
                {"error": f"the request body is not JSON: {error}"}, status_code=400
            )
        context = ServedContext(request.headers.get(SESSION_HEADER))
        try:
            return JSONResponse(await entrypoint(payload, context))
        except (SystemExit, RolloutExit) as error:  # would end the server, and every other rollout
            return JSONResponse(
                {"error": f"the rollout's function raised {error!r}"}, status_code=500
            )

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "healthy"})

    return Starlette(
        routes=[
            Route("/rollout", rollout, methods=["POST"]),
            Route("/invocations", rollout, methods=["POST"]),
            Route("/health", health),
            Route("/ping", health),
        ]
    )


def serve(
    entrypoint: Entrypoint, *, host: str = "127.0.0.1", port: int = 8080, **options: Any
) -> None:
    """Serve a decorated function until the process is stopped; `options` go to `uvicorn.run`."""
    import uvicorn

    app = asgi_app(entrypoint)
    report_on_sigterm(app, entrypoint.running)  # type: ignore[attr-defined]  # set by rft_handler
    uvicorn.run(app, host=host, port=port, **{"log_level": "warning", **options})
