"""One door for all services: which one a request is for, and its answer in that service's protocol."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rft_agent_sdk.twins.cloud.account import Handler
from rft_agent_sdk.twins.cloud.calls import Call, Faults
from rft_agent_sdk.twins.cloud.wire.check import faults_of
from rft_agent_sdk.twins.cloud.wire.decode import Undecodable, decode
from rft_agent_sdk.twins.cloud.wire.encode import encode, encode_refusal
from rft_agent_sdk.twins.cloud.wire.models import operation_model, service_model
from rft_agent_sdk.twins.cloud.wire.received import Received
from rft_agent_sdk.twins.cloud.wire.routes import find_operation
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_TARGETS = {
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "ServiceQuotasV20190624": "service-quotas",
}
_SCOPE = re.compile(r"Credential=[^/]*/\d{8}/[^/]*/([a-z0-9-]+)/aws4_request")
_SIGNED_AS = {"bedrock-agentcore": ("bedrock-agentcore-control", "bedrock-agentcore")}
"""Services that sign with one name: told apart by their paths."""
_INVALID = {
    "logs": "InvalidParameterException",
    "service-quotas": "IllegalArgumentException",
    "lambda": "InvalidParameterValueException",
    "s3": "InvalidArgument",
    "sts": "ValidationError",
    "iam": "ValidationError",
    "cloudformation": "ValidationError",
}


class Dispatch:
    """The ASGI application."""

    def __init__(
        self,
        services: Mapping[str, Mapping[str, Handler]],
        *,
        calls: list[Call],
        faults: Faults,
        others: Callable[[Received], Response | None],
    ) -> None:
        """Serve operations.

        Args:
            services: Handlers by operation, by botocore's name of the service.
            calls: Gets every call.
            faults: Which calls are to fail.
            others: Answers what no AWS client sent, such as MLflow's; `None` where that is nothing of its.
        """
        self._services = services
        self._calls = calls
        self._faults = faults
        self._others = others
        # An invocation holds its thread until the agent has answered; a job keeps some hundred in flight.
        self._executor = ThreadPoolExecutor(max_workers=256, thread_name_prefix="rft-cloud")

    def close(self) -> None:
        """Wait for what runs."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        received = Received(
            method=request.method,
            path=scope["raw_path"].decode().partition("?")[0],
            query_string=scope["query_string"].decode(),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.body(),
        )
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(self._executor, self._answer, received)
        await response(scope, receive, send)

    def _answer(self, received: Received) -> Response:
        other = self._others(received)
        if other is not None:
            return other
        found = self._find(received)
        if found is None:
            return _unknown(received)
        service, operation = found
        protocol = service_model(service).protocol
        try:
            return self._run(service, operation, received)
        except Refusal as refusal:
            return encode_refusal(protocol, refusal, is_head=received.method == "HEAD")
        except Exception as error:
            logger.exception("operation=<%s> | the twin failed", operation)
            failure = Refusal(500, "InternalFailure", f"the twin failed: {error}")
            return encode_refusal(protocol, failure)

    def _find(self, received: Received) -> tuple[str, str] | None:
        prefix, _, operation = received.headers.get("x-amz-target", "").partition(".")
        if operation:
            service = _TARGETS.get(prefix)
            return None if service is None else (service, operation)
        signed, found = _signing_name(received), None
        for service in _SIGNED_AS.get(signed, (signed,)):
            handlers = self._services.get(service, {})
            if not handlers:
                continue
            protocol = service_model(service).protocol
            if protocol == "query":
                return service, _action(received)
            if not protocol.startswith("rest"):
                continue  # these name their operation in a header
            name = find_operation(service, handlers, received)
            if name is not None:
                return service, name
            found = service, f"{received.method} {received.path}"
        return found

    def _run(self, service: str, operation: str, received: Received) -> Response:
        handler = self._services.get(service, {}).get(operation)
        if handler is None:
            raise Refusal(400, "UnknownOperationException", f"{operation!r} is not served here")
        model = operation_model(service, operation)
        try:
            body = decode(model, received)
        except Undecodable as error:
            raise Refusal(400, "SerializationException", str(error)) from None
        self._calls.append(Call(service, operation, body))
        self._faults.take(service, operation, after=False)
        self._check(service, operation, body)
        answer = handler(body)
        self._faults.take(service, operation, after=True)
        if model.output_shape is not None and (wrong := faults_of(model.output_shape, answer)):
            raise AssertionError(f"{operation} answers what its model forbids: {'; '.join(wrong)}")
        return encode(model, answer)

    def _check(self, service: str, operation: str, body: JSON) -> None:
        shape = operation_model(service, operation).input_shape
        wrong = faults_of(shape, body) if shape is not None else []
        if wrong:
            plural = "" if len(wrong) == 1 else "s"
            message = f"{len(wrong)} validation error{plural} detected: {'; '.join(wrong)}"
            raise Refusal(400, _INVALID.get(service, "ValidationException"), message)


def _signing_name(received: Received) -> str:
    credential = received.headers.get("authorization", "")
    if not credential:
        query = received.query
        if "AWSAccessKeyId" in query:
            return "s3"  # only S3 still takes URLs that are presigned the old way
        credential = f"Credential={query.get('X-Amz-Credential', '')}"
    match = _SCOPE.search(credential)
    return match[1] if match else ""


def _action(received: Received) -> str:
    pairs = f"{received.body.decode(errors='replace')}&{received.query_string}"
    match = re.search(r"(?:^|&)Action=(\w+)", pairs)
    return match[1] if match else ""


def _unknown(received: Received) -> Response:
    logger.warning("path=<%s> | no service here is asked for by this", received.path)
    content: dict[str, Any] = {
        "__type": "UnknownOperationException",
        "message": f"nothing here answers {received.method} {received.path}",
    }
    return JSONResponse(content, status_code=404)
