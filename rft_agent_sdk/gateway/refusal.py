"""Every way the gateway says no, and how botocore and the OpenAI and Anthropic clients read it.

A `Refusal` is raised anywhere below the routes; the route decides in whose shape it is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from rft_agent_sdk.types import JSON

Shape = Literal["anthropic", "aws", "openai"]
"""In whose words an error is written."""

MESSAGE_LIMIT = 1024
"""Characters of an AWS error message; the service model allows no more."""

MAX_DEPTH = 200
"""Levels of nesting that a request's schemas and extras may have; real ones have a dozen."""

_AWS_TYPES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    402: "ServiceQuotaExceededException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    405: "ValidationException",
    409: "ConflictException",
    413: "ValidationException",
    429: "ThrottlingException",
}
_AWS_SERVER_ERROR = "InternalServiceError"
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    **_OPENAI_TYPES,
    402: "billing_error",
    413: "request_too_large",
    504: "timeout_error",
    529: "overloaded_error",
}
_TOO_LONG = "context_length_exceeded"


class Refusal(Exception):
    """A request the gateway answers with an error; never holds a secret."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        """The request field that is at fault, as a path such as `messages[2].content`."""
        self.code = code or aws_type(status)
        """OpenAI's `error.code`; the AWS type where nothing more telling is known."""
        self.retry_after_s = retry_after_s

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell a client's retry logic what to do."""
        found = [(b"x-amzn-errortype", aws_type(self.status).encode())]
        if self.status == 409:
            # The OpenAI and Anthropic clients retry 409, but a sealed rollout never opens again.
            found.append((b"x-should-retry", b"false"))
        if self.retry_after_s is not None:
            found.append((b"retry-after", b"%d" % max(0, round(self.retry_after_s))))
            found.append((b"retry-after-ms", b"%d" % round(self.retry_after_s * 1000)))
        return found

    def written(self, shape: Shape) -> JSON:
        """Return the body of the error."""
        if shape == "anthropic":
            return self.as_anthropic()
        return self.as_openai() if shape == "openai" else self.as_aws()

    def as_aws(self) -> JSON:
        """Return the body of a rest-json service error."""
        return {"Message": self.message[:MESSAGE_LIMIT]}

    def as_openai(self) -> JSON:
        """Return the body of an OpenAI error."""
        return {
            "error": {
                "message": self.message,
                "type": _OPENAI_TYPES.get(self.status, self._kind),
                "param": self.param,
                "code": self.code,
            }
        }

    def as_anthropic(self) -> JSON:
        """Return the body of an Anthropic error, whose message alone says what is at fault."""
        message = self.message
        if self.code == _TOO_LONG:
            # There is no code for it: agents know a full context by these words.
            message = f"prompt is too long: {message}"
        elif self.param is not None and self.param not in message:
            message = f"{self.param}: {message}"
        kind = _ANTHROPIC_TYPES.get(self.status, self._kind)
        return {"type": "error", "error": {"type": kind, "message": message}}

    @property
    def _kind(self) -> str:
        return "api_error" if self.status >= 500 else "invalid_request_error"


def aws_type(status: int) -> str:
    """Return the Job Runtime's exception name for an HTTP status."""
    return _AWS_SERVER_ERROR if status >= 500 else _AWS_TYPES.get(status, "ValidationException")


def to_json(value: Any) -> bytes:
    """Return `value` as JSON; lone surrogates, which a policy may well write, are escaped."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, allow_nan=False).encode()


def parse_object(body: bytes) -> JSON:
    """Return the JSON object in a request body.

    Raises:
        Refusal: 400, the body is not JSON or not an object.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(parsed, dict):
        raise Refusal(400, f"the body must be a JSON object, got a {type(parsed).__name__}")
    return parsed


def too_deep() -> Refusal:
    """Return the refusal of a request that is nested too deeply."""
    return Refusal(400, "the request is nested too deeply", code="invalid_value")


def check_depth(value: object) -> None:
    """Refuse JSON nested more deeply than `MAX_DEPTH`.

    A limit of our own: how deep the interpreter and the libraries go differs from version to version.

    Raises:
        Refusal: 400, it is.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, Mapping | list)
            for child in (node.values() if isinstance(node, Mapping) else node)
        ]
        if not level:
            return
    raise too_deep()
