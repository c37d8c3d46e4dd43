"""The agent under rehearsal: its process, the door in front of it, and how it is invoked.

    trainer -> InvokeAgentRuntime at the local AWS -> the door -> the agent's own server

AgentCore tells its caller little of an agent that failed, and so does the local one. The door notes what the agent
really answered, so that the report can say why.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.rehearsal import Answer
    from rft_agent_sdk.training.agents import AgentRunner

_LOOK_S = 0.05
_END_S = 30.0
_LOG_LINES, _LOG_CHARACTERS = 15, 2000
_SHOWN = 1000
_ASK_S = 15.0
SESSION = "x-amzn-bedrock-agentcore-runtime-session-id"
_FORWARDED = (SESSION, "content-type", "accept", "traceparent", "baggage")


class AgentProcess:
    """An agent's server, started by us: `FILE.py` as the runtime starts it, else `MODULE:OBJECT` served."""

    def __init__(self, target: str, environment: Mapping[str, str], log: Path) -> None:
        """Describe the process; nothing is started yet.

        Args:
            target: What to serve.
            environment: The process's variables, all of them.
            log: Where its output goes.

        Raises:
            UsageError: There is no such file.
        """
        if target.endswith(".py") and not Path(target).is_file():
            raise UsageError(
                f"there is no entrypoint {target!r}: run from the project's root, or name your own with --agent"
            )
        self._log = log
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        served = [str(Path(__file__).with_name("_entrypoint.py")), target, str(self._port)]
        if not target.endswith(".py"):
            served = [
                "-m",
                "rft_agent_sdk.cli",
                "serve",
                "--app",
                target,
                "--port",
                str(self._port),
            ]
        self._command = [sys.executable, *served]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_tail(self) -> str:
        """The last lines it wrote."""
        if not self._log.exists():
            return ""
        text = self._log.read_bytes()[-_LOG_CHARACTERS:].decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])

    @property
    def exit_code(self) -> int | None:
        """What it ended with, a signal as its number below 0; `None` while it runs."""
        return None if self._process is None else self._process.poll()

    def __enter__(self) -> AgentProcess:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, the user's agent
                self._command, env=dict(self._environment), stdout=log, stderr=log
            )
        return self

    def wait(self, seconds: float) -> bool:
        """Wait until it takes connections, or has ended; return whether it does."""
        assert self._process is not None
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._process.poll() is None:
            if _takes_connections(self.url):
                return True
            time.sleep(_LOOK_S)
        return False

    def __exit__(self, *raised: object) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Door:
    """An ASGI application in front of an agent's server that notes every answer."""

    def __init__(self, url: str) -> None:
        """Stand in front of an agent; no connection is opened yet.

        Args:
            url: Where the agent serves, with or without `/invocations`.

        Raises:
            UsageError: No http or https URL.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"an agent's URL is http://… or https://…, got {url!r}")
        self.url = url.rstrip("/").removesuffix("/invocations")
        self.answers: dict[str, Answer] = {}
        """What the agent answered last, by session id."""
        self._calls: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Forward an invocation."""
        from starlette.requests import Request
        from starlette.responses import Response

        request = Request(scope, receive)
        session = request.headers.get(SESSION, "")
        body = await request.body()
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        call = asyncio.create_task(self._forwarded(body, headers))
        self._calls[session] = (asyncio.get_running_loop(), call)
        try:
            self.answers[session], content, kind = await call
        except asyncio.CancelledError:
            content, kind = b"the session was stopped", "text/plain"
        finally:
            self._calls.pop(session, None)
        answer = self.answers.get(session)
        status = (answer.status if answer else None) or 502
        await Response(content, status, media_type=kind)(scope, receive, send)

    def stop(self, session: str) -> None:
        """Close the connection of a session to the agent, as its end does. Callable from any thread."""
        loop, call = self._calls.get(session, (None, None))
        if loop is not None and call is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call.cancel)

    async def _forwarded(
        self, body: bytes, headers: Mapping[str, str]
    ) -> tuple[Answer, bytes, str]:
        import httpx

        from rft_agent_sdk.mtrl.rehearsal import Answer, AnswerKind

        try:
            # A client for each: kept connections would hide that a server was started anew, and one whose
            # request is cancelled just as the answer comes is closed by nothing but its client's end.
            async with httpx.AsyncClient(
                verify=tls_context(), trust_env=False, timeout=httpx.Timeout(None, connect=10)
            ) as client:
                response = await client.post(
                    f"{self.url}/invocations", content=body, headers=headers
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            answer = Answer(AnswerKind.UNREACHABLE, detail=f"{type(error).__name__} at {self.url}")
            return answer, answer.detail.encode(), "text/plain"
        except httpx.HTTPError as error:
            answer = Answer(AnswerKind.DROPPED, detail=f"{type(error).__name__}: {error}")
            return answer, answer.detail.encode(), "text/plain"
        kind = response.headers.get("content-type", "application/octet-stream")
        return _noted(response), response.content, kind


class CloudAgent:
    """Invokes the agent through the local AWS; what came of it, the door knows."""

    def __init__(self, runner: AgentRunner, door: Door, timeout_s: float) -> None:
        """Invoke by a client.

        Args:
            runner: The client of InvokeAgentRuntime and StopRuntimeSession.
            door: In front of the agent.
            timeout_s: Longest wait for an answer, in seconds.
        """
        self._runner = runner
        self._door = door
        self._timeout_s = timeout_s

    async def invoke(self, payload: JSON, session_id: str) -> Answer:
        """Send a payload; see `rehearsal.Agent`."""
        from rft_agent_sdk.mtrl.rehearsal import Answer, AnswerKind

        self._door.answers.pop(session_id, None)
        found = await self._runner.invoke(payload, session_id, self._timeout_s)
        noted = self._door.answers.get(session_id)
        return noted or Answer(AnswerKind.REFUSED, detail=found.detail)

    async def is_busy(self) -> bool:
        """Ask the agent's `/ping`, as AgentCore does; see `rehearsal.Agent`."""
        import httpx

        try:
            async with httpx.AsyncClient(
                verify=tls_context(), trust_env=False, timeout=2
            ) as client:
                found = (await client.get(f"{self._door.url}/ping")).json()
        except (httpx.HTTPError, ValueError):
            return False
        return isinstance(found, dict) and found.get("status") == "HealthyBusy"

    async def stop(self, session_id: str) -> None:
        """End a session; see `rehearsal.Agent`."""
        self._door.stop(session_id)
        await self._runner.stop(session_id)


def own_budget_s(url: str) -> float | None:
    """Ask an agent of this package how long it plays; `None` from any other, and where none answers."""
    import httpx

    try:
        with httpx.Client(verify=tls_context(), trust_env=False, timeout=_ASK_S) as client:
            found = client.post(f"{url}/invocations", json={"rft_doctor": True}).json()
    except (httpx.HTTPError, ValueError):
        return None
    told = found.get("rft_doctor") if isinstance(found, dict) else None
    budget = told.get("budget_s") if isinstance(told, dict) else None
    return float(budget) if isinstance(budget, int | float) else None


@contextmanager
def only_these_aws_variables(given: Mapping[str, str]) -> Iterator[None]:
    """Put the process's AWS variables aside for a while, and these in their place.

    Clients read them where they are made, and nothing in a rehearsal may find its way to an account.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in kept:
        del os.environ[name]
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.environ.update(kept)


def without_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep loopback off any proxy, with what they say already."""
    named = {environ.get(name, "") for name in ("NO_PROXY", "no_proxy")}
    hosts = ",".join(sorted({*filter(None, named), "127.0.0.1", "localhost"}))
    return {"NO_PROXY": hosts, "no_proxy": hosts}


def _noted(response: Any) -> Answer:
    from rft_agent_sdk.mtrl.rehearsal import Answer, AnswerKind

    status, text = int(response.status_code), response.text[:_SHOWN]
    streams = response.headers.get("content-type", "").startswith("text/event-stream")
    try:
        body, is_foreign = response.json(), False
    except ValueError:
        body, is_foreign = text, not streams
    if status != 200:
        return Answer(AnswerKind.ERROR, status, detail=text, is_foreign=is_foreign)
    return Answer(AnswerKind.ANSWERED, status, body, is_foreign=is_foreign)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _takes_connections(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((parts.hostname or "", parts.port or 80)) == 0
