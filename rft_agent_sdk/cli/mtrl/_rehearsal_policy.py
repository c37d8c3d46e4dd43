"""What answers in a rehearsal: a reference policy that plays worse now and then, or a model's server."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.environment import load_environment
from rft_agent_sdk.types import Message

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Policy

PREFERRED, OTHER = "solver", "random"
_AT_A_LOSS = "I do not know."


def default_policy(environment: str) -> str:
    """Return the name of the policy that a rehearsal takes where none is asked for: `solver` if there is one."""
    names = sorted(load_environment(environment).policies())
    return PREFERRED if PREFERRED in names or not names else names[0]


def rehearsal_policy(name: str, environment: str, *, noise: float, seed: int = 0) -> Policy | str:
    """Return what answers: a scripted policy with noise, or the server that `openai:URL` names.

    A scripted policy answers a conversation always alike, and rollouts of a group begin alike; so all its rewards
    would be equal. With noise, each turn is now and then answered by the environment's `random` policy, the more
    often the higher the temperature that the agent asks for; validation, at temperature 0, is played without.

    Args:
        name: Of the policy.
        environment: Whose.
        noise: Share of turns that are answered otherwise, at temperature 1.
        seed: Of the draws; which rollout gets which depends on timing all the same.

    Raises:
        UsageError: There is no such policy.
    """
    best: Any = find_policy(name, environment)
    if isinstance(best, str) or not noise:
        return best  # type: ignore[no-any-return]
    others = load_environment(environment).policies()
    other = others[OTHER] if OTHER in others and name != OTHER else _at_a_loss
    return _mixed(best, other, noise, random.Random(seed))  # noqa: S311 - no secret


def _mixed(best: Any, other: Any, noise: float, draw: random.Random) -> Policy:
    from rft_agent_sdk.gateway import Policy, PolicyRequest, Reply, ScriptedPolicy

    lock = threading.Lock()

    class Mixed(Policy):
        """Asks one of two policies, by chance, anew for each turn."""

        extras = ScriptedPolicy.extras

        def __init__(self) -> None:
            self._best, self._other = ScriptedPolicy(best), ScriptedPolicy(other)

        async def reply(self, request: PolicyRequest) -> Reply:
            asked = request.sampling.temperature
            share = noise * (1.0 if asked is None else asked)
            with lock:
                is_other = draw.random() < share
            return await (self._other if is_other else self._best).reply(request)

        async def aclose(self) -> None:
            await self._best.aclose()
            await self._other.aclose()

    return Mixed()


def _at_a_loss(messages: object, tools: object) -> Message:
    """Answer in words, and play nothing."""
    return Message("assistant", _AT_A_LOSS)
