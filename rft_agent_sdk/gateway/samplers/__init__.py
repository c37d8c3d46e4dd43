"""What answers the turns of a gateway."""

from rft_agent_sdk.gateway.samplers.base import Delta, Policy, PolicyRequest, Reply, ToolChoice
from rft_agent_sdk.gateway.samplers.openai_http import OpenAIPolicy
from rft_agent_sdk.gateway.samplers.scripted import ScriptedPolicy, ScriptFunction

__all__ = [
    "Delta",
    "OpenAIPolicy",
    "Policy",
    "PolicyRequest",
    "Reply",
    "ScriptFunction",
    "ScriptedPolicy",
    "ToolChoice",
    "as_policy",
]


def as_policy(policy: Policy | ScriptFunction | str) -> Policy:
    """Return a policy: one as it is, a function wrapped, or the server that `openai:<url>` names."""
    if isinstance(policy, str):
        return OpenAIPolicy.from_spec(policy)
    return policy if isinstance(policy, Policy) else ScriptedPolicy(policy)
