"""One request on its way through the gateway: whose it is, what goes wrong with it, what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from rft_agent_sdk.gateway.core import Gateway
from rft_agent_sdk.gateway.exchange import Exchange, Header
from rft_agent_sdk.gateway.faults import Fault, FaultPlan
from rft_agent_sdk.gateway.refusal import Refusal, Shape
from rft_agent_sdk.gateway.rollout import Call, GatewayRollout
from rft_agent_sdk.types import JSON

AUTH_FAILED = "Authentication failed: Please make sure your API Key is valid"

_TELLING = tuple(
    name.encode()
    for name in (
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "content-type",
        "idempotency-key",
        "user-agent",
        "x-amzn-sagemaker-job-arn",
        "x-amzn-sagemaker-trajectory-id",
        "x-stainless-retry-count",
    )
)
"""Headers worth recording; an allow-list, so that no secret can slip in."""


class Dropped(Exception):
    """The connection is to be closed without a (further) word."""


class Visit:
    """One request."""

    def __init__(
        self,
        gateway: Gateway,
        exchange: Exchange,
        operation: str,
        shape: Shape,
        *,
        is_probe: bool = False,
    ) -> None:
        self.gateway = gateway
        self.exchange = exchange
        self.operation = operation
        self.shape = shape
        """In whose shape errors are written."""
        self.at = gateway.clock()
        self.rollout: GatewayRollout | None = None
        """Whose request it is, once that is known."""
        self.auth = ""
        self.signed_at: str | None = None
        self.fault: Fault | None = None
        self.noted: Mapping[str, Any] = {}
        """What of the body is recorded."""
        self._is_recorded = is_probe  # a probe leaves no trace

    async def body(self) -> bytes:
        """Return the request body, within the gateway's limit."""
        return await self.exchange.body(self.gateway.max_body_bytes)

    async def face(self, plan: FaultPlan) -> None:
        """Let the next fault of a plan happen; one that loses the reply is left for the end.

        Raises:
            Refusal: 403, 429 or 500 on purpose.
            Dropped: The connection is to be closed.
        """
        if plan.faults.delay_s:
            await asyncio.sleep(plan.faults.delay_s)
        self.fault = plan.next()
        if self.fault is Fault.DENY:
            raise Refusal(403, AUTH_FAILED)
        if self.fault is Fault.THROTTLE:
            raise Refusal(429, "Rate exceeded", retry_after_s=plan.faults.retry_after_s)
        if self.fault is Fault.ERROR:
            raise Refusal(500, "The service failed on purpose")
        if self.fault is Fault.DROP:
            raise Dropped

    async def reply(self, value: JSON) -> None:
        """Record the request as answered and answer it, unless its reply is to be lost.

        Raises:
            Dropped: The reply is to be lost.
        """
        if self.fault is Fault.LOSE_REPLY:
            raise Dropped
        self.record(200)
        await self.exchange.reply(200, value)

    async def start(self, headers: Iterable[Header]) -> None:
        """Record the request as answered and begin a streamed answer."""
        self.record(200)
        await self.exchange.start(200, headers)

    async def refuse(self, refusal: Refusal) -> None:
        """Record the request as refused and say so in the route's shape."""
        self.record(refusal.status, refusal.message)
        body = refusal.written(self.shape)
        await self.exchange.reply(refusal.status, body, refusal.headers())

    async def hang_up(self) -> None:
        """Record the request as dropped and close the connection."""
        self.record(None)
        await self.exchange.hang_up()

    def record(self, status: int | None, error: str = "") -> None:
        """Add the request to its rollout's record, once, before anyone can have read the reply."""
        if self._is_recorded:
            return
        self._is_recorded = True
        given = self.exchange.headers
        call = Call(
            operation=self.operation,
            at=self.at,
            status=status,
            fault=self.fault,
            auth=self.auth,
            signed_at=self.signed_at,
            headers={
                name.decode(): given[name].decode("latin-1") for name in _TELLING if name in given
            },
            body=self.noted,
            error=error,
        )
        if self.rollout is None:
            self.gateway.record_stray(call)
        else:
            self.rollout.record(call)
