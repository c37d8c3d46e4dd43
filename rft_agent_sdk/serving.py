"""Serve a handler on your own infrastructure: `POST /rollout`, `GET /health`.

For agents that run on EC2, EKS or Fargate instead of AgentCore. AgentCore's paths, `/invocations` and
`/ping`, answer too, in AgentCore's words, so the same client reaches either and the same container runs on
either. `python -m rft_agent_sdk.serving main:invoke` serves a decorated function of a module.

- `Prefer: respond-async` asks for a 202 at once, `Prefer: respond-async, wait=20` for one after 20 s unless
  the rollout has ended by then; it plays on and reports either way.
- `Idempotency-Key` makes a repeated request join the rollout in flight, or get the answer of the one that
  was played and reported, in place of playing twice.
- More rollouts than `max_rollouts` are answered 429, and 503 while the server drains; both say `Retry-After`.

Needs the `[gateway]` extra or AgentCore's own dependencies (starlette, uvicorn).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.admission import Admission, Answer, Refused
from rft_agent_sdk.errors import PayloadError, UsageError
from rft_agent_sdk.handler import Entrypoint
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.response import shown
from rft_agent_sdk.shutdown import Drain, Running, report_on_sigterm

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)

SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
KEY_HEADER = "Idempotency-Key"
MAX_ROLLOUTS = 512
"""Rollouts played at once, unless told otherwise: what was measured in one process. A managed job starts 96."""
DRAIN_S = 5.0
"""Seconds that rollouts in flight may play on after SIGTERM, unless told otherwise. With the grace that
reporting gets it stays inside the 30 s after which most platforms kill a container."""
LAST_BYTES_S = 5
"""Seconds for connections to close once no rollout runs: a caller who never ends its request holds one."""


@dataclass(frozen=True, slots=True)
class ServedContext:
    """What a handler's `context` parameter gets here; AgentCore's has more."""

    session_id: str | None


def asgi_app(
    entrypoint: Entrypoint, *, max_rollouts: int | None = None, drain_s: float | None = None
) -> Starlette:
    """Return an ASGI app of one decorated function.

    On SIGTERM it stops taking up rollouts and says so at `/health`, lets those in flight end, cancels what
    is left after `drain_s` so that it reports, and only then lets the server stop.

    Args:
        entrypoint: The decorated function.
        max_rollouts: Rollouts played at once; `None` reads `RFT_MAX_ROLLOUTS`, else 512.
        drain_s: Seconds that rollouts may play on after SIGTERM; `None` reads `RFT_DRAIN_SECONDS`, else 5.
            The platform must wait that long and another 20 s for the reports before it kills.

    Raises:
        UsageError: The function is not under `@rft_handler`, or a number makes no sense.
    """
    from starlette.applications import Starlette
    from starlette.routing import Route

    running = getattr(entrypoint, "running", None)
    if not isinstance(running, Running):
        raise UsageError(f"wanted a function under @rft_handler to serve, got {entrypoint!r}")
    limit = _number("max_rollouts", max_rollouts, "RFT_MAX_ROLLOUTS", MAX_ROLLOUTS, int)
    patience_s = _number("drain_s", drain_s, "RFT_DRAIN_SECONDS", DRAIN_S, float)
    if limit < 1:
        raise UsageError(f"max_rollouts must be at least 1, got {limit}")
    door = _Door(entrypoint, Admission(limit))
    app = Starlette(
        routes=[
            Route("/rollout", door.rollout, methods=["POST"]),
            Route("/invocations", door.rollout, methods=["POST"]),
            Route("/health", door.health),
            Route("/ping", door.ping),
        ]
    )
    report_on_sigterm(app, running, Drain(door.admission, patience_s))
    return app


def serve(
    entrypoint: Entrypoint,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    max_rollouts: int | None = None,
    drain_s: float | None = None,
    **options: Any,
) -> None:
    """Serve a decorated function until the process is stopped; `options` go to `uvicorn.run`.

    `max_rollouts` and `drain_s` are those of `asgi_app`.

    Raises:
        UsageError: As `asgi_app`.
    """
    import uvicorn

    app = asgi_app(entrypoint, max_rollouts=max_rollouts, drain_s=drain_s)
    usual = {"log_level": "warning", "ws": "none", "timeout_graceful_shutdown": LAST_BYTES_S}
    uvicorn.run(app, host=host, port=port, **{**usual, **options})


class _Door:
    """The routes of one entrypoint."""

    def __init__(self, entrypoint: Entrypoint, admission: Admission) -> None:
        self._entrypoint = entrypoint
        self.admission = admission

    async def rollout(self, request: Request) -> Response:
        """Play a rollout, join the one this repeats, or refuse it."""
        try:
            payload = json.loads(await request.body())
        except (ValueError, RecursionError) as error:
            return _json(400, {"error": f"the request body is not JSON: {error}"})
        key = request.headers.get(KEY_HEADER, "")[:256]
        pending = self.admission.known(key)
        if pending is None:
            if (refused := self.admission.refusal()) is not None:
                return _refused(refused)
            context = ServedContext(request.headers.get(SESSION_HEADER))
            pending = self.admission.begin(key, lambda: self._play(payload, context))
        wait_s = _wait_s(request.headers.getlist("prefer"))
        if wait_s is None or not _reports_itself(payload):
            return _json(*await asyncio.shield(pending))
        await asyncio.wait({pending}, timeout=wait_s)
        if pending.done():
            return _json(*pending.result())
        accepted = {"status": "accepted", "_rft": {"background": True}}
        return _json(202, accepted, {"Preference-Applied": "respond-async"})

    async def _play(self, payload: Any, context: ServedContext) -> Answer:
        try:
            return 200, await self._entrypoint(payload, context)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - an exit would end the server, and every other rollout
            logger.error("the rollout's function raised %s", type(error).__name__)
            return 500, {"error": f"the rollout's function raised {shown(error)}"}

    async def health(self, request: Request) -> Response:
        """Say how it goes: 503 only while draining, since a busy agent is not to be restarted."""
        admission = self.admission
        body = {
            "status": admission.status,
            "rollouts": admission.in_flight,
            "max_rollouts": admission.limit,
        }
        return _json(503 if admission.is_draining else 200, body)

    async def ping(self, request: Request) -> Response:
        """Answer AgentCore, which keeps a busy session alive."""
        return _json(200, {"status": "HealthyBusy" if self.admission.in_flight else "Healthy"})


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status_code=status, headers=headers)


def _refused(refused: Refused) -> Response:
    headers = {"Retry-After": str(refused.retry_after_s), "Connection": "close"}
    return _json(refused.status, {"error": refused.error}, headers)


def _wait_s(preferences: list[str]) -> float | None:
    """Return for how many seconds a caller waits before it wants a 202; `None` if it waits to the end.

    RFC 7240: `respond-async` and `wait` are preferences, so what cannot be read is passed over.
    """
    given = [part.strip().lower() for part in ",".join(preferences).split(",")]
    if "respond-async" not in given:
        return None
    waits = (re.fullmatch(r"wait\s*=\s*([0-9]{1,6})", part) for part in given)
    return next((float(match[1]) for match in waits if match), 0.0)


def _reports_itself(payload: Any) -> bool:
    """Whether a rollout's result reaches the trainer without the response to this request."""
    try:
        request = parse_request(payload)
    except PayloadError as error:
        return error.job is not None
    return request.job is not None or (request.gateway is not None and request.gateway.report)


def _number(
    name: str, given: float | None, variable: str, usual: float, kind: Callable[[Any], Any]
) -> Any:
    """Return an argument, or the environment variable that stands in for it, or its usual value.

    Raises:
        UsageError: It is no such number, or negative.
    """
    value: Any = os.environ.get(variable, "").strip() or usual if given is None else given
    source = variable if given is None else name
    try:
        number = kind(value)
    except ValueError:
        number = -1
    if not 0 <= number <= 1e6:
        raise UsageError(f"{source} must be a number from 0 to 1e6, got {value!r}")
    return number


def main(arguments: list[str] | None = None) -> None:
    """Serve `module:function`, as a container's command does."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m rft_agent_sdk.serving",
        description="Serve a function under @rft_handler: POST /rollout, GET /health.",
    )
    parser.add_argument("target", help="MODULE:FUNCTION, such as main:invoke")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default=8080, type=int)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name in ("botocore", "httpcore", "httpx", "openai", "strands", "urllib3", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    module, _, function = given.target.partition(":")
    try:
        serve(getattr(importlib.import_module(module), function), host=given.host, port=given.port)
    except (AttributeError, ModuleNotFoundError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
