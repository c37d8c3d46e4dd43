"""What stands between a trainer and an agent on AgentCore, and the processes of both sides."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.servers import serving

ROOT = Path(__file__).parents[2]
PEER = ROOT / ".venv-peers" / "bin" / "python"
INSIDE = ROOT / "tests" / "peers" / "inside"
ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/agent-abc123"
SESSION_HEADER = "x-amzn-bedrock-agentcore-runtime-session-id"
READY_S = 60.0


class Runtime:
    """InvokeAgentRuntime and StopRuntimeSession for one agent, which gets each body as it came."""

    def __init__(self, agent_url: str) -> None:
        self.agent_url = agent_url
        self.invoked: list[str] = []
        """Session ids, one per invocation."""
        self.stopped: list[str] = []
        self.app = Starlette(
            routes=[
                Route("/runtimes/{arn:path}/invocations", self._invoke, methods=["POST"]),
                Route("/runtimes/{arn:path}/stopruntimesession", self._stop, methods=["POST"]),
            ]
        )

    async def _invoke(self, request: Request) -> Response:
        assert request.path_params["arn"] == ARN
        session = request.headers[SESSION_HEADER]
        self.invoked.append(session)
        headers = {SESSION_HEADER: session, "content-type": request.headers["content-type"]}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.post(
                f"{self.agent_url}/invocations", content=await request.body(), headers=headers
            )
        return Response(
            answer.content,
            answer.status_code,
            {SESSION_HEADER: session, "content-type": answer.headers["content-type"]},
        )

    async def _stop(self, request: Request) -> Response:
        session = request.headers[SESSION_HEADER]
        self.stopped.append(session)
        return JSONResponse({"runtimeSessionId": session})


@contextmanager
def runtime(agent_url: str) -> Iterator[tuple[Runtime, str]]:
    """Serve a runtime before an agent; yields it and its URL."""
    found = Runtime(agent_url)
    with serving(found.app) as url:
        yield found, url


@contextmanager
def our_agent() -> Iterator[str]:
    """Serve the deployed entrypoint; yields its URL."""
    app = ROOT / "agentcore" / "app"
    start = "import sys, main; main.app.run(port=int(sys.argv[1]), host='127.0.0.1')"
    with _agent([sys.executable, "-c", start], app, {"RFT_ENVIRONMENT": "wordle"}) as url:
        yield url


@contextmanager
def their_agent() -> Iterator[str]:
    """Serve the math agent in the peer's environment; yields its URL."""
    with _agent([str(PEER), str(INSIDE / "math_agent.py")], INSIDE, {}) as url:
        yield url


def train(arguments: Sequence[str], runtime_url: str) -> list[str]:
    """Run the peer's trainer side; return the lines it printed.

    Raises:
        subprocess.CalledProcessError: It ended with another status than 0.
        subprocess.TimeoutExpired: It took longer than three minutes.
    """
    settings = {
        **_environment(),
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL_BEDROCK_AGENTCORE": runtime_url,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    }
    command = [str(PEER), str(INSIDE / "trainer.py"), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True, timeout=180, check=True
    )
    return done.stdout.splitlines()


@contextmanager
def _agent(command: Sequence[str], folder: Path, settings: dict[str, str]) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*command, str(port)], cwd=folder, env=_environment() | settings, start_new_session=True
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _environment() -> dict[str, str]:
    """Return what a process needs, and nothing of whoever runs the tests."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", ""),
        "AWS_EC2_METADATA_DISABLED": "true",
        "HF_HUB_OFFLINE": "1",
    }


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/ping", trust_env=False, timeout=5)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the agent did not serve within {READY_S:g} s, status {process.poll()}")
