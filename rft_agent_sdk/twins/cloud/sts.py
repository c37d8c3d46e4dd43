"""STS: who the caller is, and taking on a role."""

from __future__ import annotations

import datetime

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.roles import Directory
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON


class Sts:
    """The operations on identities."""

    def __init__(self, account: Account, directory: Directory) -> None:
        self._account = account
        self._directory = directory
        self.operations: dict[str, Handler] = {
            "GetCallerIdentity": self._get_caller_identity,
            "AssumeRole": self._assume_role,
        }

    def _get_caller_identity(self, body: JSON) -> JSON:
        arn = self._directory.caller_arn
        return {"UserId": "AIDACKCEVSQ6C2EXAMPLE", "Account": self._account.id, "Arn": arn}

    def _assume_role(self, body: JSON) -> JSON:
        role = self._directory.role_of(body["RoleArn"])
        caller = self._directory.caller_arn
        if role is None or not role.trusts(caller, "sts:AssumeRole"):
            raise Refusal(
                403,
                "AccessDenied",
                f"User: {caller} is not authorized to perform: sts:AssumeRole on resource: {body['RoleArn']}",
            )
        name, session = body["RoleArn"].rpartition("/")[2], body["RoleSessionName"]
        lasts = datetime.timedelta(seconds=body.get("DurationSeconds", 3600))
        return {
            "Credentials": {
                "AccessKeyId": "ASIAIOSFODNN7EXAMPLE",
                "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "SessionToken": "EXAMPLE",
                "Expiration": now() + lasts,
            },
            "AssumedRoleUser": {
                "AssumedRoleId": f"AROACKCEVSQ6C2EXAMPLE:{session}",
                "Arn": self._account.global_arn("sts", f"assumed-role/{name}/{session}"),
            },
        }
