"""Whom a role trusts: what its trust policy lets a service do."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

JOB_SERVICE = "job.sagemaker.amazonaws.com"
"""Who assumes the role of a job."""
TRUST_ACTIONS = frozenset({"sts:AssumeRole", "sts:TagSession"})
"""What the service needs to be trusted with, both of it."""


def trusted_actions(policy: Any, service: str) -> frozenset[str]:
    """Return those of `TRUST_ACTIONS` that a trust policy allows a service; conditions are not weighed.

    Args:
        policy: The policy document, as botocore reads it.
        service: The principal, such as job.sagemaker.amazonaws.com.
    """
    allowed: set[str] = set()
    denied: set[str] = set()
    for statement in _list(policy.get("Statement") if isinstance(policy, Mapping) else None):
        if not isinstance(statement, Mapping) or not _names(statement.get("Principal"), service):
            continue
        patterns = [str(pattern).lower() for pattern in _list(statement.get("Action"))]
        matched = {
            action
            for action in TRUST_ACTIONS
            if any(fnmatch.fnmatchcase(action.lower(), pattern) for pattern in patterns)
        }
        (allowed if statement.get("Effect") == "Allow" else denied).update(matched)
    return frozenset(allowed - denied)


def _names(principal: Any, service: str) -> bool:
    if isinstance(principal, Mapping):
        return service in _list(principal.get("Service"))
    return bool(principal == "*")


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
