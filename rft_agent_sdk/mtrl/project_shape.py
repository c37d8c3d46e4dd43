"""The keys that the AgentCore CLI knows, and what it takes under them: it drops any other key without a word.

Of the CLI's release 0.30.0; `project_check` looks up what a project has against it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TypeVar

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.types import JSON

_NUMBER, _TEXT, _SWITCH, _LIST, _OBJECT = int, str, bool, list, dict

PROJECT: Mapping[str, type] = {
    "$schema": _TEXT,
    "name": _TEXT,
    "version": _NUMBER,
    "managedBy": _TEXT,
    "tags": _OBJECT,
    "runtimes": _LIST,
    "memories": _LIST,
    "knowledgeBases": _LIST,
    "credentials": _LIST,
    "evaluators": _LIST,
    "onlineEvalConfigs": _LIST,
    "agentCoreGateways": _LIST,
    "policyEngines": _LIST,
    "configBundles": _LIST,
    "abTests": _LIST,
    "harnesses": _LIST,
    "mcpRuntimeTools": _LIST,
    "unassignedTargets": _LIST,
    "datasets": _LIST,
    "capacityProviders": _LIST,
    "payments": _LIST,
    "httpGateways": _LIST,
}
RUNTIME: Mapping[str, type] = {
    "name": _TEXT,
    "description": _TEXT,
    "build": _TEXT,
    "entrypoint": _TEXT,
    "codeLocation": _TEXT,
    "runtimeVersion": _TEXT,
    "envVars": _LIST,
    "networkMode": _TEXT,
    "networkConfig": _OBJECT,
    "instrumentation": _OBJECT,
    "protocol": _TEXT,
    "requestHeaderAllowlist": _LIST,
    "executionRoleArn": _TEXT,
    "additionalPolicies": _LIST,
    "authorizerType": _TEXT,
    "authorizerConfiguration": _OBJECT,
    "tags": _OBJECT,
    "lifecycleConfiguration": _OBJECT,
    "filesystemConfigurations": _LIST,
    "endpoints": _OBJECT,
    "connections": _LIST,
    "capacityProviderConfiguration": _OBJECT,
    "dockerfile": _TEXT,
    "buildContextPath": _TEXT,
    "customDockerBuildArgs": _OBJECT,
}
NESTED: Mapping[str, Mapping[str, type]] = {
    "instrumentation": {"enableOtel": _SWITCH},
    "lifecycleConfiguration": {"idleRuntimeSessionTimeout": _NUMBER, "maxLifetime": _NUMBER},
    "networkConfig": {"subnets": _LIST, "securityGroups": _LIST, "vpcId": _TEXT},
}
"""The objects in a runtime whose keys are looked at too."""
VARIABLE: Mapping[str, type] = {"name": _TEXT, "value": _TEXT}
TARGET: Mapping[str, type] = {
    "name": _TEXT,
    "description": _TEXT,
    "account": _TEXT,
    "region": _TEXT,
}

_WORDS = {
    _NUMBER: "a whole number",
    _TEXT: "a text",
    _SWITCH: "true or false",
    _LIST: "a list",
    _OBJECT: "an object",
    float: "a number",
    type(None): "null",
}
_T = TypeVar("_T")


def unfit(place: Place, item: JSON, kinds: Mapping[str, type]) -> Iterator[Finding]:
    """Yield what is wrong with the keys of an object, and with the kinds of its values."""
    for key, value in item.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, 1)
            yield place.at(key).error(
                "unknown-key",
                f"the AgentCore CLI knows no {key!r} here, and drops it or refuses the file",
                f"Write {near[0]!r} if that was meant." if near else "Take it out.",
            )
        elif type(value) is not kinds[key]:  # not isinstance: true is an int in Python alone
            yield place.at(key).error(
                "wrong-type",
                f"wanted {_WORDS[kinds[key]]}, got {_WORDS.get(type(value), 'something else')}",
                f"Give {_WORDS[kinds[key]]}.",
            )


def get(item: object, key: str, default: _T) -> _T:
    """Return the value under a key if it is of the default's kind, else the default: `unfit` tells of it."""
    value = item.get(key) if isinstance(item, dict) else None
    return value if type(value) is type(default) else default
