"""A training-session server: SageMaker's control plane and runtime of training sessions, on this machine.

Real clients drive it, botocore's and `sagemaker-train`'s: set `SAGEMAKER_TRAINING_SESSION_ENDPOINT` and
`SAGEMAKER_TRAINING_SESSION_RUNTIME_ENDPOINT` to its URL (`environment()` says which else). It verifies no
signature, so it is for loopback. What computes is a backend; see `backend.py`.

Where the service's behaviour is not published this takes the strict reading: a failed training operation fails
the session, and a sequence number that never comes blocks those after it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rft_agent_sdk.twins.backend import TrainingBackend
from rft_agent_sdk.twins.control import ControlPlane
from rft_agent_sdk.twins.operations import Packages
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.twins.serve import LoopbackServer
from rft_agent_sdk.twins.session import Operation, TrainingSession
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_RUNTIME = "/v1/training-sessions/{name}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived, polls left out."""

    operation: str
    """Name in the service model, such as `ExecuteTrainingOperation`."""
    session: str
    """The session it is about; empty where it is about none."""
    body: JSON
    """The request."""


class TrainingSessionServer:
    """Serves training sessions: `with TrainingSessionServer(lambda _: TinyBackend()) as server: ...`."""

    def __init__(
        self,
        make_backend: Callable[[JSON], TrainingBackend],
        *,
        region: str = "us-west-2",
        account: str = "123456789012",
        tokenizer: str | None = None,
        hold_s: float = 0.5,
        port: int = 0,
        threads: int | None = None,
    ) -> None:
        """Describe the server; nothing is bound yet.

        Args:
            make_backend: Given the CreateTrainingSession request, makes what computes.
            region: Region in ARNs.
            account: Account in ARNs.
            tokenizer: What `transformers` loads a tokenizer from, such as a folder: the hub document's
                `HuggingfaceId`. `None` publishes none.
            hold_s: Longest time a poll waits for a result before it answers that there is none yet. The
                client sleeps two seconds after such an answer.
            port: Port to bind on 127.0.0.1; 0 takes a free one.
            threads: Operations that may be under way at once; `None` for a few more than there are cores.
        """
        self.region = region
        self.calls: list[Call] = []
        """Every call but polls, in order of arrival."""
        self._packages = Packages(region, account)
        self._executor = ThreadPoolExecutor(
            max_workers=threads or 4 + (os.cpu_count() or 1), thread_name_prefix="rft-twin"
        )
        self._control = ControlPlane(region, account, self._make_session, tokenizer)
        self._make_backend = make_backend
        self._hold_s = hold_s
        self._faults: deque[tuple[str, Refusal]] = deque()
        self._thread = LoopbackServer(self._app(), port=port)

    @property
    def url(self) -> str:
        """Base URL of both endpoints; there once it is started."""
        return self._thread.url

    @property
    def sessions(self) -> dict[str, TrainingSession]:
        """All sessions by name, also the stopped ones."""
        return self._control.sessions

    def environment(self) -> dict[str, str]:
        """Return the variables that send the real clients here; keys and region aside."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "SAGEMAKER_TRAINING_SESSION_ENDPOINT": self.url,
            "SAGEMAKER_TRAINING_SESSION_RUNTIME_ENDPOINT": self.url,
        }

    def fail_next(self, operation: str, status: int, code: str, message: str = "told to") -> None:
        """Answer the next call of that operation with an error; it then changes nothing."""
        self._faults.append((operation, Refusal(status, code, message)))

    def operations(self, session: str | None = None) -> Sequence[str]:
        """Return what was called, in order: names of calls, and of members where they run operations."""
        chosen = [call for call in self.calls if session in (None, call.session)]
        return [
            next(iter(call.body.get("operationConfig") or {}), call.operation) for call in chosen
        ]

    def start(self) -> TrainingSessionServer:
        """Serve on a thread of its own; return once connections are taken."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving; what runs may end first."""
        self._thread.stop()
        self._executor.shutdown(wait=True, cancel_futures=True)
        for session in self.sessions.values():
            session.backend.close()

    def __enter__(self) -> TrainingSessionServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _make_session(self, request: JSON) -> TrainingSession:
        return TrainingSession(request, self._make_backend(request), self._packages, self._executor)

    def _app(self) -> Starlette:
        runtime = [
            Route(f"{_RUNTIME}/operations", self._runtime(self._execute), methods=["POST"]),
            Route(f"{_RUNTIME}/operations/{{id}}", self._runtime(self._poll)),
            Route(
                f"{_RUNTIME}/sampling-operations",
                self._runtime(self._execute_sampling),
                methods=["POST"],
            ),
            Route(f"{_RUNTIME}/sampling-operations/{{id}}", self._runtime(self._poll_sampling)),
            *(
                Route(f"/training-sessions/{{name}}/{last}", self._runtime(_chat), methods=["POST"])
                for last in ("sample", "sample-with-response-stream")
            ),
        ]
        return Starlette(routes=[Route("/", self._answer_control, methods=["POST"]), *runtime])

    async def _answer_control(self, request: Request) -> Response:
        operation = request.headers.get("x-amz-target", "").removeprefix("SageMaker.")
        try:
            body = await _body(request)
            self._note(operation, str(body.get("TrainingSessionName", "")), body)
            return JSONResponse(self._control.answer(operation, body))
        except Refusal as refusal:
            # JSON 1.1 names the error in the body.
            content = {"__type": refusal.code, "message": refusal.message}
            return JSONResponse(content, status_code=refusal.status)

    def _runtime(
        self, handle: Callable[[Request, TrainingSession], Awaitable[JSON]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                name = request.path_params["name"]
                session = self.sessions.get(name)
                if session is None:
                    raise Refusal(
                        404, "ResourceNotFoundException", f"training session {name} does not exist"
                    )
                return JSONResponse(await handle(request, session))
            except Refusal as refusal:
                return JSONResponse(
                    {"message": refusal.message},
                    status_code=refusal.status,
                    headers={"x-amzn-errortype": refusal.code},
                )

        return answer

    async def _execute(self, request: Request, session: TrainingSession) -> JSON:
        body = await _body(request)
        self._note("ExecuteTrainingOperation", session.name, body)
        return {"operationId": session.submit_training(body).id}

    async def _execute_sampling(self, request: Request, session: TrainingSession) -> JSON:
        body = await _body(request)
        self._note("ExecuteSamplingOperation", session.name, body)
        return {"operationId": session.submit_sampling(body).id}

    async def _poll(self, request: Request, session: TrainingSession) -> JSON:
        self._trip("GetTrainingOperationResult")
        operation = session.training_operation(request.path_params["id"])
        answer = await self._result(operation)
        if operation is not None and operation.training_tokens is not None:
            answer["tokenUsage"] = {"trainingTokens": operation.training_tokens}
        return answer

    async def _poll_sampling(self, request: Request, session: TrainingSession) -> JSON:
        self._trip("GetSamplingOperationResult")
        return await self._result(session.sampling_operation(request.path_params["id"]))

    async def _result(self, operation: Operation | None) -> JSON:
        if operation is None:
            raise Refusal(404, "ResourceNotFoundException", "there is no such operation")
        try:
            async with asyncio.timeout(self._hold_s):
                await operation.settled.wait()
        except TimeoutError:
            return {"status": operation.status}
        answer: JSON = {"status": operation.status}
        if operation.result is not None:
            answer["operationResult"] = operation.result
        if operation.error is not None:
            answer["errorDetails"] = operation.error
        return answer

    def _note(self, operation: str, session: str, body: JSON) -> None:
        self.calls.append(Call(operation, session, body))
        self._trip(operation)

    def _trip(self, operation: str) -> None:
        for fault in self._faults:
            if fault[0] == operation:
                self._faults.remove(fault)
                raise fault[1]


async def _chat(request: Request, session: TrainingSession) -> JSON:
    raise invalid("this server samples token ids only: call ExecuteSamplingOperation")


async def _body(request: Request) -> JSON:
    try:
        body: Any = json.loads(await request.body() or b"{}")
    except ValueError:
        raise invalid("the body is not JSON") from None
    if not isinstance(body, dict):
        raise invalid("the body is no JSON object")
    return body
