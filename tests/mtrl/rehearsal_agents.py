"""Agents that keep no rule but their own, served for real: what goes wrong in them is what a rehearsal is for."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rft_agent_sdk.types import JSON
from tests.gateway.serve import mint

HTTP = httpx.Client(trust_env=False, timeout=30)
MESSAGES = [{"role": "user", "content": "Say something."}]


@dataclass
class Wire:
    """The Job Runtime of one payload, over HTTP, as an agent without this SDK calls it."""

    payload: JSON
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        metadata = self.payload["metadata"]
        self.endpoint = metadata["endpoint"]
        self.rollout_id = metadata["rolloutId"]
        self.headers = {
            "authorization": f"Bearer {mint()}",
            "x-amzn-sagemaker-job-arn": metadata["jobArn"],
            "x-amzn-sagemaker-trajectory-id": self.rollout_id,
        }

    def sample(self, **params: Any) -> JSON:
        given = self.payload["inferenceParams"]
        asked = {
            "temperature": given["temperature"],
            "top_p": given["topP"],
            "max_tokens": given["maxTokens"],
        }
        return self.post(
            "v1/chat/completions", model="default", messages=MESSAGES, **asked, **params
        )

    def complete(self, status: str = "ready") -> None:
        self.post("complete-rollout", TrajectoryId=self.rollout_id, Status=status)

    def reward(self, *rewards: float) -> None:
        self.post("update-reward", TrajectoryId=self.rollout_id, Rewards=list(rewards))

    def post(self, path: str, **body: Any) -> JSON:
        answer = HTTP.post(f"{self.endpoint}/{path}", json=body, headers=self.headers)
        found: JSON = answer.json()
        return found


def plain_agent(play: Callable[[Wire], Any]) -> Starlette:
    """Return an agent that answers with what a function returns: a body, or a whole response."""

    async def invocations(request: Request) -> Response:
        found = await asyncio.to_thread(play, Wire(await request.json()))
        return found if isinstance(found, Response) else JSONResponse(found or {})

    async def ping(request: Request) -> Response:
        return JSONResponse({"status": "Healthy"})

    return Starlette(
        routes=[Route("/invocations", invocations, methods=["POST"]), Route("/ping", ping)]
    )


def plays_well(wire: Wire, reward: float = 1.0) -> None:
    """Play a rollout of one call to its reward."""
    wire.sample()
    wire.complete()
    wire.reward(reward)


_started = itertools.count(1)


def plays_slowly(wire: Wire) -> None:
    """Play a rollout that takes half a second; at the one that CRASH_AT numbers, end the process instead."""
    wire.sample()
    if str(next(_started)) == os.environ.get("CRASH_AT"):
        os._exit(1)
    time.sleep(0.5)
    wire.complete()
    wire.reward(time.monotonic() % 1)


slow = plain_agent(plays_slowly)
"""For a process of its own: `uvicorn tests.mtrl.rehearsal_agents:slow`."""
