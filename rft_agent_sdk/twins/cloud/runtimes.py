"""AgentCore runtimes: the control plane that lists, describes and deletes them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

_PAGE = 100


@dataclass(slots=True)
class Runtime:
    """An agent's runtime: `cloud.runtimes["Wordle-aBcDeFgHiJ"] = Runtime(name="Wordle", url=...)`."""

    name: str
    url: str | None = None
    """Base URL of the agent's own server, which has `/invocations`; `None` has no server up."""
    status: str = "READY"
    version: str = "1"
    description: str = "An agent"
    role_arn: str | None = None
    """`None` is the account's `AgentRole`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent."""
    network: JSON = field(default_factory=lambda: {"networkMode": "PUBLIC"})
    """`networkConfiguration`."""
    artifact: JSON | None = None
    """`agentRuntimeArtifact`; `None` is code in S3."""
    protocol: str = "HTTP"
    endpoints: tuple[str, ...] = ("DEFAULT",)
    """Names that a qualifier may be."""
    failure_reason: str | None = None
    idle_timeout_s: int = 900
    max_lifetime_s: int = 28800
    updated: datetime.datetime = field(default_factory=now)


class Runtimes:
    """The operations of the control plane."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.runtimes: dict[str, Runtime] = {}
        """By runtime id."""
        self.operations: dict[str, Handler] = {
            "ListAgentRuntimes": self._list,
            "GetAgentRuntime": self._get,
            "DeleteAgentRuntime": self._delete,
            "ListAgentRuntimeVersions": self._list_versions,
            "ListAgentRuntimeEndpoints": self._list_endpoints,
            "GetAgentRuntimeEndpoint": self._get_endpoint,
            "DeleteAgentRuntimeEndpoint": self._delete_endpoint,
        }

    def arn_of(self, runtime_id: str) -> str:
        """Return the ARN of a runtime id."""
        return self._account.arn("bedrock-agentcore", f"runtime/{runtime_id}")

    def find(self, arn_or_id: str) -> Runtime | None:
        """Return a runtime by either; an ARN must be of this account and Region."""
        runtime_id = arn_or_id.rpartition("/")[2]
        if "/" in arn_or_id and arn_or_id != self.arn_of(runtime_id):
            return None
        return self.runtimes.get(runtime_id)

    def _list(self, body: JSON) -> JSON:
        found = [self._summary(key, runtime) for key, runtime in sorted(self.runtimes.items())]
        return _page(found, "agentRuntimes", body)

    def _get(self, body: JSON) -> JSON:
        key = body["agentRuntimeId"]
        runtime = self._runtime(body)
        if body.get("agentRuntimeVersion") not in (None, runtime.version):
            raise _missing(f"version {body['agentRuntimeVersion']} of agent runtime {key}")
        answer = {
            **self._summary(key, runtime),
            "createdAt": runtime.updated,
            "roleArn": runtime.role_arn or self._account.global_arn("iam", "role/AgentRole"),
            "networkConfiguration": runtime.network,
            "environmentVariables": dict(runtime.environment),
            "agentRuntimeArtifact": runtime.artifact or _code(key, self._account.region),
            "protocolConfiguration": {"serverProtocol": runtime.protocol},
            "lifecycleConfiguration": {
                "idleRuntimeSessionTimeout": runtime.idle_timeout_s,
                "maxLifetime": runtime.max_lifetime_s,
            },
        }
        if runtime.failure_reason is not None:
            answer["failureReason"] = runtime.failure_reason
        return answer

    def _delete(self, body: JSON) -> JSON:
        runtime = self._runtime(body)
        del self.runtimes[body["agentRuntimeId"]]
        return {
            "status": "DELETING",
            "agentRuntimeId": body["agentRuntimeId"],
            "agentRuntimeVersion": runtime.version,
        }

    def _list_versions(self, body: JSON) -> JSON:
        runtime = self._runtime(body)
        versions = [
            {
                **self._summary(body["agentRuntimeId"], runtime),
                "agentRuntimeVersion": str(number),
            }
            for number in range(1, int(runtime.version) + 1)
        ]
        return _page(versions, "agentRuntimes", body)

    def _list_endpoints(self, body: JSON) -> JSON:
        runtime = self._runtime(body)
        found = [
            {**self._endpoint(body["agentRuntimeId"], runtime, name), "id": _endpoint_id(name)}
            for name in runtime.endpoints
        ]
        return _page(found, "runtimeEndpoints", body)

    def _get_endpoint(self, body: JSON) -> JSON:
        runtime, name = self._runtime(body), body["endpointName"]
        if name not in runtime.endpoints:
            raise _missing(f"endpoint {name} of agent runtime {body['agentRuntimeId']}")
        found = self._endpoint(body["agentRuntimeId"], runtime, name)
        return {**found, "id": _endpoint_id(name)}

    def _delete_endpoint(self, body: JSON) -> JSON:
        key, name = body["agentRuntimeId"], body["endpointName"]
        runtime = self._runtime(body)
        if name not in runtime.endpoints:
            raise _missing(f"endpoint {name} of agent runtime {key}")
        runtime.endpoints = tuple(kept for kept in runtime.endpoints if kept != name)
        return {"status": "DELETING", "agentRuntimeId": key, "endpointName": name}

    def _endpoint(self, key: str, runtime: Runtime, name: str) -> JSON:
        arn = self.arn_of(key)
        return {
            "name": name,
            "liveVersion": runtime.version,
            "targetVersion": runtime.version,
            "agentRuntimeEndpointArn": f"{arn}/runtime-endpoint/{name}",
            "agentRuntimeArn": arn,
            "status": "READY",
            "createdAt": runtime.updated,
            "lastUpdatedAt": runtime.updated,
        }

    def _summary(self, key: str, runtime: Runtime) -> JSON:
        return {
            "agentRuntimeArn": self.arn_of(key),
            "agentRuntimeId": key,
            "agentRuntimeVersion": runtime.version,
            "agentRuntimeName": runtime.name,
            "description": runtime.description,
            "lastUpdatedAt": runtime.updated,
            "status": runtime.status,
        }

    def _runtime(self, body: JSON) -> Runtime:
        runtime = self.runtimes.get(body["agentRuntimeId"])
        if runtime is None:
            raise _missing(f"agent runtime {body['agentRuntimeId']}")
        return runtime


def _missing(what: str) -> Refusal:
    return Refusal(404, "ResourceNotFoundException", f"{what} does not exist")


def _page(found: list[JSON], key: str, body: JSON) -> JSON:
    token = body.get("nextToken", "0")
    if not token.isdecimal():
        raise Refusal(400, "ValidationException", "nextToken is not one of ours")
    start = int(token)
    end = start + body.get("maxResults", _PAGE)
    return {key: found[start:end], **({"nextToken": str(end)} if end < len(found) else {})}


def _endpoint_id(name: str) -> str:
    return f"{name}-aBcDeFgHiJ"


def _code(key: str, region: str) -> JSON:
    return {
        "codeConfiguration": {
            "code": {"s3": {"bucket": f"agentcore-{region}", "prefix": f"{key}/code.zip"}},
            "runtime": "PYTHON_3_13",
            "entryPoint": ["main.py"],
        }
    }
