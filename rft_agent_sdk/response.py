"""The response of a rollout: what the user returned, the reward, and ours under `_rft`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rft_agent_sdk.life import Ending


def response(rollout: Rollout, ending: Ending) -> JSON:
    """Return a dict that any strict JSON parser accepts."""
    value = ending.value if isinstance(ending.value, dict) else {}
    reward = ending.reward
    body: JSON = {
        key: item for key, item in plain(value).items() if (key, item) != ("status", "error")
    }
    body["reward"] = reward.total if reward.per_turn is None else list(reward.per_turn)
    calls = rollout.calls
    ours: JSON = {
        "outcome": ending.outcome.value,
        "reported": ending.reported,
        "calls": {
            "attempted": calls.attempted,
            "succeeded": calls.succeeded,
            "throttled": calls.throttled,
            "truncated": calls.truncated,
        },
        "usage": {
            "prompt_tokens": calls.usage.prompt_tokens,
            "completion_tokens": calls.usage.completion_tokens,
        },
    }
    if reward.components:
        ours["components"] = plain(reward.components)
    if ending.rescued:
        ours["rescued"] = True
    if ending.error is not None:
        ours["error"] = f"{type(ending.error).__name__}: {ending.error}"
    if ending.notes:
        ours["notes"] = list(ending.notes)
    body["_rft"] = ours
    return body


def plain(value: Any) -> Any:
    """Turn a value into plain JSON: numpy unwrapped, non-finite numbers null, unknown objects their repr."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    return repr(value)
