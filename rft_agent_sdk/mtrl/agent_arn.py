"""Which agent a job calls: an AgentCore runtime or a Lambda forwarder, read and checked before any call to AWS.

The service takes whatever matches a loose pattern and refuses the job later, so everything that can be wrong
with the name of an agent is refused here: its form, its account, its region.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.errors import UsageError

DEFAULT_QUALIFIER = "DEFAULT"
"""The endpoint that every runtime has."""

_RUNTIME_ID = r"[a-zA-Z][a-zA-Z0-9_]{0,99}-[a-zA-Z0-9]{10}"
_WHERE = r"arn:(?P<partition>aws[a-z-]*):{service}:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{{12}})"
_RUNTIME = re.compile(
    rf"{_WHERE.format(service='bedrock-agentcore')}:runtime/(?P<name>{_RUNTIME_ID})"
    r"(?:/runtime-endpoint/(?P<qualifier>[a-zA-Z][a-zA-Z0-9_]{0,47}))?",
    re.ASCII,
)
_LAMBDA = re.compile(
    rf"{_WHERE.format(service='lambda')}:function:(?P<name>[a-zA-Z0-9-_.]+)"
    r"(?::(?P<qualifier>\$LATEST|[a-zA-Z0-9-_]+))?",
    re.ASCII,
)
_BARE = re.compile(_RUNTIME_ID, re.ASCII)
_FORMS = (
    "arn:aws:bedrock-agentcore:REGION:ACCOUNT:runtime/NAME-XXXXXXXXXX, a runtime's id such as "
    "NAME-XXXXXXXXXX, or arn:aws:lambda:REGION:ACCOUNT:function:NAME"
)


@dataclass(frozen=True, slots=True)
class Agent:
    """What a job calls for each rollout."""

    arn: str
    """Of the runtime, without an endpoint; or of the function, with its alias."""
    partition: str
    region: str
    account: str
    name: str
    """The runtime's id, or the function's name."""
    qualifier: str | None = None
    """The runtime's endpoint; `None` for a Lambda function, whose ARN holds it."""

    @property
    def is_lambda(self) -> bool:
        """Whether a Lambda function stands between the job and the agent."""
        return self.qualifier is None

    @property
    def config(self) -> dict[str, Any]:
        """The `AgentConfig` of a job's document."""
        if self.qualifier is None:
            return {"CustomAgentLambdaConfig": {"LambdaArn": self.arn}}
        return {
            "BedrockAgentCoreConfig": {"AgentRuntimeArn": self.arn, "Qualifier": self.qualifier}
        }


def is_runtime_id(agent: str) -> bool:
    """Whether it is the id of a runtime alone, whose ARN only AgentCore can tell."""
    return _BARE.fullmatch(agent) is not None


def is_lambda_arn(agent: str) -> bool:
    """Whether it is the ARN of a Lambda function."""
    return _LAMBDA.fullmatch(agent) is not None


def parse_agent(agent: str, *, qualifier: str = DEFAULT_QUALIFIER) -> Agent:
    """Read an ARN; the ARN of a runtime's endpoint is split into the runtime and its qualifier.

    Args:
        agent: ARN of a runtime, of a runtime's endpoint, or of a Lambda function.
        qualifier: Endpoint of the runtime, where the ARN names none.

    Raises:
        UsageError: It is none of them, or names another endpoint than `qualifier`.
    """
    if found := _LAMBDA.fullmatch(agent):
        where = found.groupdict()
        return Agent(agent, where["partition"], where["region"], where["account"], where["name"])
    found = _RUNTIME.fullmatch(agent)
    if found is None:
        raise UsageError(f"agent: wanted {_FORMS}; got {agent!r}{_hint(agent)}")
    where = found.groupdict()
    named = where["qualifier"]
    if named and qualifier not in (DEFAULT_QUALIFIER, named):
        raise UsageError(
            f"agent: its ARN names the endpoint {named!r}, but qualifier is {qualifier!r}: "
            "leave one of them out"
        )
    arn = agent.removesuffix(f"/runtime-endpoint/{named}")
    return Agent(
        arn,
        where["partition"],
        where["region"],
        where["account"],
        where["name"],
        named or qualifier,
    )


def check_place(agent: Agent, *, region: str, account: str | None = None) -> None:
    """See that the agent is where the job is.

    Args:
        agent: What the job calls.
        region: Where the job runs.
        account: Whose the job is; `None` where nobody knows yet.

    Raises:
        UsageError: It is in another region or account. CreateJob refuses the one, and the role of a job
            has no say over an agent of the other.
    """
    if agent.region != region:
        raise UsageError(
            f"the agent {agent.arn} is in {agent.region!r} but the job's region is {region!r}: a job calls "
            f"agents of its own region only. Launch it in {agent.region!r}, or deploy the agent in {region!r}"
        )
    if account is not None and agent.account != account:
        raise UsageError(
            f"the agent {agent.arn} is in account {agent.account} but the job's role is of account {account}: "
            "wanted both in one account"
        )


def agent_config(
    agent: str,
    region: str,
    *,
    qualifier: str = DEFAULT_QUALIFIER,
    account: str | None = None,
    resolve: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """Return the `AgentConfig` of a job's document.

    Args:
        agent: ARN of a runtime, of its endpoint, or of a Lambda function; or the id of a runtime.
        region: Where the job runs.
        qualifier: Endpoint of the runtime.
        account: Whose the job is; `None` checks no account.
        resolve: Returns the ARN of a runtime's id, looked up with the session and in the region of the
            launch; a lookup with any other could find another one.

    Raises:
        UsageError: See `parse_agent` and `check_place`; or there is an id and no way to resolve it.
    """
    if is_runtime_id(agent):
        if resolve is None:
            raise UsageError(f"agent: {agent!r} is a runtime's id; wanted its ARN here")
        agent = resolve(agent)
    found = parse_agent(agent, qualifier=qualifier)
    check_place(found, region=region, account=account)
    return found.config


def _hint(agent: str) -> str:
    """Say what is wrong with a string that was probably meant for an ARN."""
    parts = agent.split(":")
    if not agent.startswith("arn:") or len(parts) < 4:
        return ""
    if parts[2] not in ("bedrock-agentcore", "lambda"):
        return f", an ARN of the service {parts[2]!r}"
    if not parts[3]:
        return ": its region is empty, one colon too many?"
    if len(parts) < 5 or not re.fullmatch("[0-9]{12}", parts[4]):
        return ": an account has 12 digits"
    return ""
