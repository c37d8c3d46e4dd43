"""Write an agent and its reward once; train it with SageMaker multi-turn RL or your own loop.

The public names, sorted. They load on first use: an agent's container must answer its first `/ping`
before anything heavy is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rft_agent_sdk.agent import play
    from rft_agent_sdk.auth import BearerTokenSession
    from rft_agent_sdk.context import current_rollout
    from rft_agent_sdk.environment import (
        Environment,
        Episode,
        available_environments,
        load_environment,
    )
    from rft_agent_sdk.errors import RftError, TaskError, UsageError
    from rft_agent_sdk.handler import rft_handler, sagemaker_rft_handler
    from rft_agent_sdk.payload import RolloutRequest, parse_request
    from rft_agent_sdk.recovery import recover_calls
    from rft_agent_sdk.reward import Reward, Tier, TieredReward
    from rft_agent_sdk.rollout import Rollout
    from rft_agent_sdk.serving import serve
    from rft_agent_sdk.types import (
        Message,
        Outcome,
        SamplingParams,
        ToolCall,
        ToolResult,
        ToolSpec,
        Turn,
    )

__all__ = [
    "BearerTokenSession",
    "Environment",
    "Episode",
    "Message",
    "Outcome",
    "Reward",
    "RftError",
    "Rollout",
    "RolloutRequest",
    "SamplingParams",
    "TaskError",
    "Tier",
    "TieredReward",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "UsageError",
    "available_environments",
    "current_rollout",
    "load_environment",
    "parse_request",
    "play",
    "recover_calls",
    "rft_handler",
    "sagemaker_rft_handler",
    "serve",
]

_HOMES = {
    "agent": ("play",),
    "auth": ("BearerTokenSession",),
    "context": ("current_rollout",),
    "environment": ("Environment", "Episode", "available_environments", "load_environment"),
    "errors": ("RftError", "TaskError", "UsageError"),
    "handler": ("rft_handler", "sagemaker_rft_handler"),
    "payload": ("RolloutRequest", "parse_request"),
    "recovery": ("recover_calls",),
    "reward": ("Reward", "Tier", "TieredReward"),
    "rollout": ("Rollout",),
    "serving": ("serve",),
    "types": (
        "Message",
        "Outcome",
        "SamplingParams",
        "ToolCall",
        "ToolResult",
        "ToolSpec",
        "Turn",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load a public name from the module that has it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
