"""Lambda functions: made, described, deleted, and invoked as a Python callable of this process."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.roles import Directory
from rft_agent_sdk.twins.cloud.s3 import S3
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_SERVICE = "lambda.amazonaws.com"


@dataclass(slots=True)
class Function:
    """A function: `cloud.functions["SageMaker-forward"] = Function(call=handle)`."""

    call: Callable[[Any], Any] | None = None
    """What an invocation calls with the event; its answer must be JSON. `None` cannot be invoked."""
    role_arn: str = "arn:aws:iam::123456789012:role/FunctionRole"
    runtime: str = "python3.12"
    handler: str = "lambda_function.handler"
    timeout_s: int = 3
    memory_mb: int = 128
    environment: Mapping[str, str] = field(default_factory=dict)
    code: bytes = b""
    """The zip file."""
    aliases: tuple[str, ...] = ()
    """Names that may follow the function's in an ARN."""
    modified: datetime.datetime = field(default_factory=now)


class Functions:
    """The operations on functions. Only the table is locked: an invocation lasts as long as the callable does."""

    def __init__(self, account: Account, directory: Directory, s3: S3, tags: Tags) -> None:
        self._account = account
        self._tags = tags
        self._directory = directory
        self._s3 = s3
        self.functions: dict[str, Function] = {}
        """By name."""
        self.operations: dict[str, Handler] = {
            "CreateFunction": self._create,
            "GetFunction": self._get,
            "GetFunctionConfiguration": self._get_configuration,
            "ListFunctions": self._list,
            "UpdateFunctionCode": self._update_code,
            "DeleteFunction": self._delete,
            "Invoke": self._invoke,
        }

    def find(self, name_or_arn: str) -> Function | None:
        """Return a function by name, ARN, or either with an alias; an ARN must be of this Region."""
        name, _, alias = name_or_arn.rpartition("function:")[2].partition(":")
        function = self.functions.get(name)
        if function is None or (alias and alias not in ("$LATEST", *function.aliases)):
            return None
        if name_or_arn.startswith("arn:") and not name_or_arn.startswith(self.arn_of(name)):
            return None
        return function

    def arn_of(self, name: str) -> str:
        """Return the ARN of a name."""
        return self._account.arn("lambda", f"function:{name}")

    def _create(self, body: JSON) -> JSON:
        name = body["FunctionName"].rpartition("function:")[2]
        role = self._directory.role_of(body["Role"])
        if role is None or not role.trusts(_SERVICE, "sts:AssumeRole"):
            raise Refusal(
                400,
                "InvalidParameterValueException",
                "The role defined for the function cannot be assumed by Lambda.",
            )
        function = Function(
            role_arn=body["Role"],
            runtime=body.get("Runtime", "python3.12"),
            handler=body.get("Handler", "lambda_function.handler"),
            timeout_s=body.get("Timeout", 3),
            memory_mb=body.get("MemorySize", 128),
            environment=body.get("Environment", {}).get("Variables", {}),
            code=self._code(body["Code"]),
        )
        with self._account.lock:
            if name in self.functions:
                raise Refusal(409, "ResourceConflictException", f"Function already exist: {name}")
            self.functions[name] = function
            self._tags.by_arn[self.arn_of(name)] = dict(body.get("Tags", {}))
        return self._configuration(name, function)

    def _get(self, body: JSON) -> JSON:
        name, function = self._found(body)
        return {
            "Configuration": self._configuration(name, function),
            "Code": {"RepositoryType": "S3", "Location": "https://example.invalid/code.zip"},
        }

    def _get_configuration(self, body: JSON) -> JSON:
        return self._configuration(*self._found(body))

    def _list(self, body: JSON) -> JSON:
        with self._account.lock:
            found = sorted(self.functions.items())
        return {"Functions": [self._configuration(name, function) for name, function in found]}

    def _update_code(self, body: JSON) -> JSON:
        name, function = self._found(body)
        function.code, function.modified = self._code(body), now()
        return self._configuration(name, function)

    def _delete(self, body: JSON) -> JSON:
        name, _ = self._found(body)
        with self._account.lock:
            self.functions.pop(name, None)
        return {}

    def _invoke(self, body: JSON) -> JSON:
        _, function = self._found(body)
        try:
            event = json.loads(body.get("Payload") or b"{}")
        except ValueError:
            raise Refusal(
                400, "InvalidRequestContentException", "Could not parse request body into json"
            ) from None
        kind = body.get("InvocationType", "RequestResponse")
        if kind == "DryRun":
            return {"StatusCode": 204}
        if kind == "Event":
            threading.Thread(target=_call, args=(function, event), daemon=True).start()
            return {"StatusCode": 202}
        answer, is_error = _call(function, event)
        found = {"StatusCode": 200, "Payload": answer, "ExecutedVersion": "$LATEST"}
        return {**found, "FunctionError": "Unhandled"} if is_error else found

    def _found(self, body: JSON) -> tuple[str, Function]:
        asked = body["FunctionName"]
        if body.get("Qualifier"):
            asked = f"{asked}:{body['Qualifier']}"
        function = self.find(asked)
        if function is None:
            name = asked.rpartition("function:")[2]
            raise Refusal(
                404, "ResourceNotFoundException", f"Function not found: {self.arn_of(name)}"
            )
        return asked.rpartition("function:")[2].partition(":")[0], function

    def _code(self, code: JSON) -> bytes:
        if "ZipFile" in code:
            return bytes(code["ZipFile"])
        bucket = self._s3.buckets.get(code.get("S3Bucket", ""))
        key = code.get("S3Key", "")
        if bucket is None or key not in bucket:
            raise Refusal(
                400,
                "InvalidParameterValueException",
                f"Error occurred while GetObject. s3://{code.get('S3Bucket')}/{key} does not exist.",
            )
        return bucket[key]

    def _configuration(self, name: str, function: Function) -> JSON:
        return {
            "FunctionName": name,
            "FunctionArn": self.arn_of(name),
            "Runtime": function.runtime,
            "Role": function.role_arn,
            "Handler": function.handler,
            "CodeSize": len(function.code),
            "CodeSha256": base64.b64encode(hashlib.sha256(function.code).digest()).decode(),
            "Timeout": function.timeout_s,
            "MemorySize": function.memory_mb,
            "LastModified": function.modified.isoformat(),
            "Version": "$LATEST",
            "Environment": {"Variables": dict(function.environment)},
            "PackageType": "Zip",
            "State": "Active",
            "LastUpdateStatus": "Successful",
        }


def _call(function: Function, event: Any) -> tuple[bytes, bool]:
    """Return the answer as JSON text, and whether it is an error's."""
    if function.call is None:
        return _error("Runtime.ImportModuleError", "the twin was given nothing to call"), True
    try:
        return json.dumps(function.call(event)).encode(), False
    except Exception as error:
        # As on Lambda, whatever the function raises is its answer.
        logger.warning("function=<%s> | it raised", function.handler, exc_info=True)
        return _error(type(error).__name__, str(error)), True


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()
