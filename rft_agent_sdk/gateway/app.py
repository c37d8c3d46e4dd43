"""The ASGI application: routes, and how anything that goes wrong is answered.

Raw ASGI rather than a framework's routing: a turn with a quick policy spends most of its time here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rft_agent_sdk.gateway import admin
from rft_agent_sdk.gateway.chat import chat, count_tokens, messages, sample_stream
from rft_agent_sdk.gateway.core import Gateway
from rft_agent_sdk.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from rft_agent_sdk.gateway.refusal import Refusal, Shape
from rft_agent_sdk.gateway.reports import complete_rollout, update_reward
from rft_agent_sdk.gateway.rollout import Call
from rft_agent_sdk.gateway.visit import Dropped, Visit

logger = logging.getLogger(__name__)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    operation: str
    shape: Shape
    handle: Callable[[Visit], Awaitable[None]]
    is_probe: bool = False
    """Whether it asks without doing, and so is in nobody's record."""
    is_admin: bool = False
    """Whether it is the trainer's: not there in a gateway without an admin key."""


def _admin(method: str, operation: str, handle: Callable[[Visit], Awaitable[None]]) -> _Route:
    return _Route(method, operation, "openai", handle, is_admin=True)


async def _models(visit: Visit) -> None:
    """List the one model there is; probes come here, so it costs and changes nothing."""
    model = {"id": visit.gateway.model, "object": "model", "created": 0, "owned_by": "rft"}
    await visit.reply({"object": "list", "data": [model]})


async def _health(visit: Visit) -> None:
    await visit.reply({"status": "ok"})


_ROUTES = {
    "/v1/chat/completions": _Route("POST", "ChatCompletions", "openai", chat),
    "/v1/messages": _Route("POST", "Messages", "anthropic", messages),
    "/v1/messages/count_tokens": _Route(
        "POST", "CountTokens", "anthropic", count_tokens, is_probe=True
    ),
    "/v1/models": _Route("GET", "Models", "openai", _models, is_probe=True),
    "/health": _Route("GET", "Health", "openai", _health, is_probe=True),
    "/sample": _Route("POST", "Sample", "aws", chat),
    "/sample-with-response-stream": _Route(
        "POST", "SampleWithResponseStream", "aws", sample_stream
    ),
    "/complete-rollout": _Route("POST", "CompleteRollout", "aws", complete_rollout),
    "/update-reward": _Route("POST", "UpdateReward", "aws", update_reward),
    "/sessions": _admin("POST", "OpenSession", admin.open_session),
    "/sessions/result": _admin("POST", "AwaitSession", admin.await_session),
    "/sessions/seal": _admin("POST", "SealSession", admin.seal_session),
    "/sessions/drop": _admin("POST", "DropSession", admin.drop_session),
    "/stats": _admin("GET", "Stats", admin.stats),
}


def create_app(gateway: Gateway) -> Application:
    """Return the ASGI application that serves a gateway.

    It serves HTTP and the lifespan protocol; at shutdown it closes the gateway's policies.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _serve(gateway, Exchange(scope, receive, send))
        elif scope["type"] == "lifespan":
            await _live(gateway, receive, send)

    return app


async def _serve(gateway: Gateway, exchange: Exchange) -> None:
    route = _ROUTES.get(exchange.path)
    if route is not None and route.is_admin and not gateway.has_admin:
        route = None
    if route is None or route.method != exchange.method:
        if exchange.path not in _ROUTES:  # such as a client whose base URL lacks the /v1
            _record_lost(gateway, exchange)
        await _refuse_route(exchange, route)
        return
    is_unrecorded = route.is_probe or route.is_admin
    visit = Visit(gateway, exchange, route.operation, route.shape, is_probe=is_unrecorded)
    try:
        await route.handle(visit)
    except Refusal as refusal:
        await visit.refuse(refusal)
    except Dropped:
        await visit.hang_up()
    except ClientGone:
        return
    except Exception:
        logger.exception("operation=<%s> | the gateway failed", route.operation)
        if exchange.started:
            await visit.hang_up()
        else:
            await visit.refuse(Refusal(500, "the gateway failed; its log says why"))


def _record_lost(gateway: Gateway, exchange: Exchange) -> None:
    operation = f"{exchange.method} {exchange.path:.200}"
    gateway.record_stray(Call(operation=operation, at=gateway.clock(), status=404))


async def _refuse_route(exchange: Exchange, route: _Route | None) -> None:
    if route is None:
        refusal = Refusal(404, f"there is nothing at {exchange.path!r:.200}", code="not_found")
    else:
        refusal = Refusal(405, f"{exchange.path} takes {route.method}, not {exchange.method}")
    # Nobody knows whose client this is, so the body is one that any of them can read.
    body = refusal.as_anthropic() | refusal.as_openai() | refusal.as_aws()
    allowed = [] if route is None else [(b"allow", route.method.encode())]
    await exchange.reply(refusal.status, body, [*refusal.headers(), *allowed])


async def _live(gateway: Gateway, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await gateway.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return
