"""IAM policy documents: whether one allows an action on a resource.

Denials win, wildcards work, and of conditions the string comparisons do. Boundaries, organisations' policies
and resource policies do not exist here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from rft_agent_sdk.types import JSON

Decision = Literal["allowed", "explicitDeny", "implicitDeny"]


def statement(
    *actions: str,
    resource: str | list[str] = "*",
    effect: Literal["Allow", "Deny"] = "Allow",
    condition: JSON | None = None,
) -> JSON:
    """Return a policy document of one statement."""
    single: JSON = {"Effect": effect, "Action": list(actions), "Resource": resource}
    if condition is not None:
        single["Condition"] = condition
    return {"Version": "2012-10-17", "Statement": [single]}


def trust(*services: str, actions: Iterable[str] = ("sts:AssumeRole", "sts:TagSession")) -> JSON:
    """Return a trust policy that lets services take on the role."""
    single = {
        "Effect": "Allow",
        "Principal": {"Service": list(services)},
        "Action": list(actions),
    }
    return {"Version": "2012-10-17", "Statement": [single]}


def decide(
    documents: Iterable[JSON], action: str, resource: str, context: Mapping[str, list[str]]
) -> Decision:
    """Return what policies say of an action on a resource, in IAM's words."""
    decision: Decision = "implicitDeny"
    for document in documents:
        for single in as_list(document.get("Statement")):
            if not _applies(single, action, resource, context):
                continue
            if single.get("Effect") == "Deny":
                return "explicitDeny"
            decision = "allowed"
    return decision


def trusts(document: JSON, principal: str, action: str) -> bool:
    """Return whether a trust policy lets a principal, a service's name or an ARN, do an action."""
    answer = False
    for single in as_list(document.get("Statement")):
        named = single.get("Principal", {})
        names = (
            ["*"] if named == "*" else [name for kind in named.values() for name in as_list(kind)]
        )
        if not any(_names(name, principal) for name in names):
            continue
        if not _matches(as_list(single.get("Action")), action):
            continue
        if single.get("Effect") == "Deny":
            return False
        answer = True
    return answer


def as_list(value: Any) -> list[Any]:
    """Return what may be one thing or a list as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _names(name: str, principal: str) -> bool:
    if name in ("*", principal):
        return True
    # The account, or its root, is everybody in it who is allowed to.
    account = re.fullmatch(r"(?:arn:aws:iam::)?(\d{12})(?::root)?", name)
    return account is not None and f"::{account[1]}:" in principal


def _applies(single: JSON, action: str, resource: str, context: Mapping[str, list[str]]) -> bool:
    if "NotAction" in single:
        covers_action = not _matches(as_list(single["NotAction"]), action)
    else:
        covers_action = _matches(as_list(single.get("Action")), action)
    patterns = as_list(single.get("Resource", "*"))
    covers_resource = any(fnmatchcase(resource, pattern) or pattern == "*" for pattern in patterns)
    return covers_action and covers_resource and _holds(single.get("Condition", {}), context)


def _matches(patterns: list[str], action: str) -> bool:
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def _holds(condition: JSON, context: Mapping[str, list[str]]) -> bool:
    present = {key.lower(): values for key, values in context.items()}
    for operator, tests in condition.items():
        base = operator.removesuffix("IfExists").rpartition(":")[2]
        for key, wanted in tests.items():
            values = present.get(key.lower())
            if values is None:
                if operator.endswith("IfExists"):
                    continue
                return False
            is_found = any(
                fnmatchcase(value, pattern) for value in values for pattern in as_list(wanted)
            )
            if is_found == ("Not" in base):
                return False
    return True
