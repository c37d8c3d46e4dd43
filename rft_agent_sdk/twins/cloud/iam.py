"""IAM, the reading half: roles, their policies, and what they allow."""

from __future__ import annotations

import json
from urllib.parse import quote

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.roles import Directory, Role
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON


class Iam:
    """The operations on roles."""

    def __init__(self, account: Account, directory: Directory) -> None:
        self._account = account
        self._directory = directory
        self._created = now()
        self.operations: dict[str, Handler] = {
            "GetRole": self._get_role,
            "ListRoles": self._list_roles,
            "ListAttachedRolePolicies": self._list_attached,
            "ListRolePolicies": self._list_inline,
            "GetRolePolicy": self._get_inline,
            "SimulatePrincipalPolicy": self._simulate,
        }

    def _get_role(self, body: JSON) -> JSON:
        return {"Role": self._described(body["RoleName"], self._role(body))}

    def _list_roles(self, body: JSON) -> JSON:
        roles = sorted(self._directory.roles.items())
        prefix = body.get("PathPrefix", "/")
        found = [
            self._described(name, role) for name, role in roles if role.path.startswith(prefix)
        ]
        return {"Roles": found, "IsTruncated": False}

    def _list_attached(self, body: JSON) -> JSON:
        attached = [
            {"PolicyName": arn.rpartition("/")[2], "PolicyArn": arn}
            for arn in self._role(body).attached
        ]
        return {"AttachedPolicies": attached, "IsTruncated": False}

    def _list_inline(self, body: JSON) -> JSON:
        return {"PolicyNames": sorted(self._role(body).policies), "IsTruncated": False}

    def _get_inline(self, body: JSON) -> JSON:
        document = self._role(body).policies.get(body["PolicyName"])
        if document is None:
            raise _missing(f"The role policy with name {body['PolicyName']} cannot be found.")
        return {
            "RoleName": body["RoleName"],
            "PolicyName": body["PolicyName"],
            "PolicyDocument": _text(document),
        }

    def _simulate(self, body: JSON) -> JSON:
        principal = self._directory.principal_of(body["PolicySourceArn"])
        if principal is None:
            raise _missing(f"The entity {body['PolicySourceArn']} cannot be found.")
        context = {
            entry["ContextKeyName"]: entry.get("ContextKeyValues", [])
            for entry in body.get("ContextEntries", ())
        }
        results = [
            {
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": principal.decide(action, resource, context),
            }
            for action in body["ActionNames"]
            for resource in body.get("ResourceArns") or ["*"]
        ]
        return {"EvaluationResults": results, "IsTruncated": False}

    def _described(self, name: str, role: Role) -> JSON:
        return {
            "Path": role.path,
            "RoleName": name,
            "RoleId": "AROACKCEVSQ6C2EXAMPLE",
            "Arn": self._account.global_arn("iam", f"role{role.path}{name}"),
            "CreateDate": self._created,
            "AssumeRolePolicyDocument": _text(role.trust),
        }

    def _role(self, body: JSON) -> Role:
        role = self._directory.roles.get(body["RoleName"])
        if role is None:
            raise _missing(f"The role with name {body['RoleName']} cannot be found.")
        return role


def _missing(message: str) -> Refusal:
    return Refusal(404, "NoSuchEntity", message)


def _text(document: JSON) -> str:
    # IAM answers documents percent-encoded, and botocore decodes them.
    return quote(json.dumps(document))
