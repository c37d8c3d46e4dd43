"""Reading roles: whom they trust, and what they allow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.doctor.check import Skipped
from rft_agent_sdk.mtrl.doctor.setup import DENIED, Setup
from rft_agent_sdk.types import JSON

_ROLE = re.compile(r"arn:(?P<partition>[^:]*):iam::(?P<account>[0-9]{12}):role/(?P<name>.+)")
_SESSION = re.compile(r"arn:[^:]*:sts::[0-9]{12}:assumed-role/(?P<name>[^/]+)/.+")
_SIMULATED_AT_ONCE = 50


def denied(error: CloudError) -> bool:
    """Whether the caller may not ask."""
    return error.code in DENIED


def role_name(arn: str) -> str:
    """Return the name that IAM's operations take: what follows the last slash of a role's ARN.

    Raises:
        Skipped: It is no role's ARN.
    """
    found = _ROLE.fullmatch(arn)
    if found is None:
        raise Skipped(f"{arn!r} is no role's ARN", "Name it as arn:aws:iam::ACCOUNT:role/NAME.")
    return found["name"].rpartition("/")[2]


def principal_of(setup: Setup, caller_arn: str) -> str:
    """Return whose policies a caller has: of a role's session the role, whose path only IAM knows.

    Raises:
        CloudError: IAM refused to say.
    """
    session = _SESSION.fullmatch(caller_arn)
    if session is None:
        return caller_arn
    answer = setup.ask("looking up the caller's role", "iam", "get_role", RoleName=session["name"])
    arn: str = answer["Role"]["Arn"]
    return arn


def role(setup: Setup, arn: str) -> JSON:
    """Return a role as IAM describes it.

    Raises:
        CloudError: There is none, or IAM refused.
    """
    name = role_name(arn)
    return setup.once(
        f"role {name}",
        lambda: dict(
            setup.ask(f"looking up the role {name}", "iam", "get_role", RoleName=name)["Role"]
        ),
    )


def attached(setup: Setup, arn: str) -> list[str]:
    """Return the names of the managed policies attached to a role.

    Raises:
        CloudError: IAM refused.
    """
    name = role_name(arn)
    answer = setup.ask(
        f"looking up the policies of {name}", "iam", "list_attached_role_policies", RoleName=name
    )
    return [one["PolicyName"] for one in answer["AttachedPolicies"]]


def simulate(
    setup: Setup,
    source: str,
    actions: Sequence[str],
    *,
    resources: Sequence[str] = (),
    context: Mapping[str, str] | None = None,
) -> list[str]:
    """Return those of the actions that IAM says a role or user may not do.

    Raises:
        CloudError: IAM refused to say.
    """
    refused = []
    parameters: dict[str, Any] = {"PolicySourceArn": source}
    if resources:
        parameters["ResourceArns"] = list(resources)
    if context:
        parameters["ContextEntries"] = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ]
    for start in range(0, len(actions), _SIMULATED_AT_ONCE):
        answer = setup.ask(
            f"simulating the policies of {source}",
            "iam",
            "simulate_principal_policy",
            ActionNames=list(actions[start : start + _SIMULATED_AT_ONCE]),
            **parameters,
        )
        refused += [
            one["EvalActionName"]
            for one in answer["EvaluationResults"]
            if one["EvalDecision"] != "allowed"
        ]
    return refused


def services_trusted(role_: JSON) -> list[str]:
    """Return every service that a role's trust policy names."""
    document = role_.get("AssumeRolePolicyDocument") or {}
    found: list[str] = []
    for statement in _listed(document.get("Statement")):
        principal = statement.get("Principal", {})
        if isinstance(principal, dict) and statement.get("Effect") == "Allow":
            found += map(str, _listed(principal.get("Service")))
    return found


def _listed(value: Any) -> list[Any]:
    """Return what a policy may write as one thing or as a list, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
