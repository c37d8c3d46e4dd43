"""AgentCore's data plane: a runtime's invocation goes to the agent's own server, by HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from urllib.parse import urlsplit

from rft_agent_sdk.twins.cloud.account import Handler
from rft_agent_sdk.twins.cloud.runtimes import Runtime, Runtimes
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
_SYNCHRONOUS_S = 900
_RETRY_S = 0.05


class Invocations:
    """The operations of the data plane. They hold no lock: an invocation lasts as long as the agent does."""

    def __init__(self, runtimes: Runtimes) -> None:
        self._runtimes = runtimes
        self.start_s = 30.0
        """How long an invocation waits for the agent's server to come up."""
        self.sessions: dict[str, str] = {}
        """Runtime id by session id, of the sessions that run."""
        self._closing = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self.operations: dict[str, Handler] = {
            "InvokeAgentRuntime": self._invoke,
            "StopRuntimeSession": self._stop,
        }

    def _invoke(self, body: JSON) -> JSON:
        runtime = self._runtime(body)
        # The service makes a session up where none is given.
        session = (
            body.get("runtimeSessionId") or f"session-{time.time_ns()}-{len(self.sessions)}-0000"
        )
        self.sessions[session] = body["agentRuntimeArn"].rpartition("/")[2]
        headers = {
            SESSION_HEADER: session,
            "Content-Type": body.get("contentType", "application/json"),
            "Accept": body.get("accept", "application/json"),
        }
        status, content_type, answer = self._forward(runtime, body["payload"], headers)
        if status >= 400:
            raise _failed(
                f"Received error ({status}) from runtime. Please check your CloudWatch logs for more information."
            )
        return {
            "runtimeSessionId": session,
            "contentType": content_type,
            "response": answer,
            "statusCode": status,
        }

    def close(self) -> None:
        """End what waits for an agent, with an error."""
        self._closing.set()
        for connection in list(self._open):
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _forward(
        self, runtime: Runtime, payload: bytes, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        connection = self._connect(runtime)
        self._open.add(connection)
        try:
            connection.request("POST", "/invocations", payload, headers)
            response = connection.getresponse()
            content_type = response.getheader("Content-Type") or "application/octet-stream"
            return response.status, content_type, response.read()
        except (OSError, http.client.HTTPException):
            raise _failed("The runtime closed the connection before it had answered.") from None
        finally:
            self._open.discard(connection)
            connection.close()

    def _connect(self, runtime: Runtime) -> http.client.HTTPConnection:
        """Return a connection to the agent's server, waiting for it to come up."""
        deadline = time.monotonic() + self.start_s
        while True:
            address = urlsplit(runtime.url or "")
            connection = http.client.HTTPConnection(
                address.hostname or "127.0.0.1", address.port, timeout=_SYNCHRONOUS_S
            )
            if runtime.url is not None:
                with contextlib.suppress(OSError):
                    connection.connect()
                    return connection
            connection.close()
            if time.monotonic() >= deadline or self._closing.wait(min(_RETRY_S, self.start_s)):
                raise _failed(
                    f"Runtime initialization time exceeded. Please make sure that initialization completes in {self.start_s:g}s."
                )

    def _stop(self, body: JSON) -> JSON:
        self._runtime(body)
        session = body["runtimeSessionId"]
        if self.sessions.pop(session, None) is None:
            raise _missing(f"session {json.dumps(session)}")
        return {"runtimeSessionId": session, "statusCode": 200}

    def _runtime(self, body: JSON) -> Runtime:
        arn = body["agentRuntimeArn"]
        runtime = self._runtimes.find(arn)
        if runtime is None:
            raise _missing(f"agent runtime {arn}")
        qualifier = body.get("qualifier", "DEFAULT")
        if qualifier not in runtime.endpoints:
            raise _missing(f"endpoint {qualifier} of agent runtime {arn}")
        return runtime


def _missing(what: str) -> Refusal:
    return Refusal(404, "ResourceNotFoundException", f"{what} does not exist")


def _failed(message: str) -> Refusal:
    return Refusal(424, "RuntimeClientError", message)
