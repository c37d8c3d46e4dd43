"""The door before a rehearsed agent: what it forwards can be stopped at any moment, and nothing stays open."""

import asyncio
import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rft_agent_sdk.cli.mtrl._rehearsal_agent import SESSION, Door
from rft_agent_sdk.twins.serve import LoopbackServer
from tests.servers import serving

ROUNDS, AT_ONCE = 8, 12


def test_sessions_stopped_as_they_are_answered_leave_no_connection():
    """A transport that is left when the door's server stops is an error of its thread, which fails the test."""
    pauses = random.Random(7)

    async def answered(request: Request) -> JSONResponse:
        await request.body()
        await asyncio.sleep(pauses.random() * 0.004)
        return JSONResponse({})

    agent = Starlette(routes=[Route("/invocations", answered, methods=["POST"])])
    with serving(agent) as url, ThreadPoolExecutor(AT_ONCE) as callers:
        door = Door(url)
        front = LoopbackServer(door)
        front.start()
        with httpx.Client(trust_env=False) as http:
            for number in range(ROUNDS):
                sessions = [f"{number}-{member}" for member in range(AT_ONCE)]
                calls = [
                    callers.submit(
                        http.post, f"{front.url}/invocations", json={}, headers={SESSION: session}
                    )
                    for session in sessions
                ]
                for session, _ in itertools.product(sessions, range(2)):
                    time.sleep(pauses.random() * 0.001)
                    door.stop(session)
                assert {call.result().status_code for call in calls} <= {200, 502}
        front.stop()
