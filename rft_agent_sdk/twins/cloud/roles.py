"""The roles and users of the account, as a test declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account
from rft_agent_sdk.twins.cloud.managed_policies import MANAGED
from rft_agent_sdk.twins.cloud.policies import Decision, decide, statement, trust, trusts
from rft_agent_sdk.types import JSON

JOB_SERVICE = "job.sagemaker.amazonaws.com"
"""The service that takes on a job's role."""
AGENT_SERVICE = "bedrock-agentcore.amazonaws.com"
"""The service that takes on an agent's role."""


@dataclass(slots=True)
class Role:
    """A role, or a user where nobody takes it on."""

    trust: JSON = field(default_factory=lambda: trust(JOB_SERVICE))
    """Trust policy; the default is what a job needs."""
    policies: Mapping[str, JSON] = field(default_factory=dict)
    """Inline policies by name."""
    attached: Sequence[str] = ()
    """ARNs of managed policies. Of AWS's, those of SageMaker jobs are known here; others allow nothing."""
    path: str = "/"

    def trusts(self, principal: str, *actions: str) -> bool:
        """Return whether a service or an ARN may do all of the actions on this role."""
        return all(trusts(self.trust, principal, action) for action in actions)

    def decide(
        self, action: str, resource: str = "*", context: Mapping[str, list[str]] | None = None
    ) -> Decision:
        """Return what its policies say of an action on a resource."""
        managed = [MANAGED[arn] for arn in self.attached if arn in MANAGED]
        return decide([*self.policies.values(), *managed], action, resource, context or {})


class Directory:
    """Who there is, and who calls."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.roles: dict[str, Role] = {
            "JobRole": Role(attached=["arn:aws:iam::aws:policy/AmazonSageMakerJobFullAccess"]),
            "AgentRole": Role(
                trust=trust(AGENT_SERVICE),
                attached=["arn:aws:iam::aws:policy/AmazonSageMakerJobRuntimeAccess"],
            ),
        }
        self.users: dict[str, Role] = {
            "developer": Role(trust={}, policies={"Everything": statement("*")})
        }
        self.caller_arn = account.global_arn("iam", "user/developer")

    def role_of(self, arn: str) -> Role | None:
        """Return the role of an ARN of this account, also of a session of it."""
        kind, _, rest = arn.partition(f"::{self._account.id}:")[2].partition("/")
        parts = rest.split("/")
        if kind == "role":
            return self.roles.get(parts[-1])
        return self.roles.get(parts[0]) if kind == "assumed-role" else None

    def principal_of(self, arn: str) -> Role | None:
        """Return the role or user of an ARN."""
        kind, _, rest = arn.partition(f"::{self._account.id}:")[2].partition("/")
        return self.users.get(rest.rpartition("/")[2]) if kind == "user" else self.role_of(arn)
