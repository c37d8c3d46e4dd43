"""The response of a rollout: what the user returned, the reward, and ours under `_rft`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rft_agent_sdk.life import Ending

_TOKEN = re.compile(r"sagemaker-api-key-[\w+/=%-]*")
_DEPTH = 100
"""Levels of nesting kept; what is deeper, or contains itself, becomes text."""
_SHOWN = 4000
"""Characters of an error's text that are kept."""


def response(rollout: Rollout, ending: Ending) -> JSON:
    """Return a dict that any strict JSON parser accepts."""
    value = plain(ending.value) if isinstance(ending.value, dict) else {}
    reward = ending.reward
    theirs = value.items() if isinstance(value, dict) else ()
    body: JSON = {key: item for key, item in theirs if (key, item) != ("status", "error")}
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
        ours["error"] = redacted(shown(ending.error), rollout)
        ours["error_type"] = type(ending.error).__name__
    if ending.notes:
        ours["notes"] = [redacted(note, rollout) for note in ending.notes]
    body["_rft"] = plain(ours)
    return body


def redacted(text: str, rollout: Rollout) -> str:
    """Return text that others wrote, such as an error's, without this rollout's secrets, cut for a log."""
    text = _TOKEN.sub("<token>", text)
    gateway = rollout.request.gateway
    if gateway and len(gateway.api_key) > 7:
        text = text.replace(gateway.api_key, "<key>")
    return text[:_SHOWN]  # not before: half of a secret would go unnoticed


def shown(error: BaseException) -> str:
    """Return an error's type and text, also where its own text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - the error's own code
        return type(error).__name__


def plain(value: Any, depth: int = 0) -> Any:
    """Turn a value into plain JSON: numpy unwrapped, non-finite numbers null, unknown objects their repr.

    Never raises: the rollout is over and reported, and its response must not fail on a detail.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    try:
        return _plain(value, depth)
    except BaseException:  # noqa: BLE001 - the value's own code
        return f"<{type(value).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        # Half of a surrogate pair, as a model's cut-off JSON can leave it, has no UTF-8.
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(str(value))  # raises on one longer than Python writes
    if depth < _DEPTH and isinstance(value, Mapping):
        return {str(plain(key, _DEPTH)): plain(item, depth + 1) for key, item in value.items()}
    if depth < _DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if depth < _DEPTH and not isinstance(value, type):
        if hasattr(value, "tolist"):
            return plain(value.tolist(), depth + 1)
        if hasattr(value, "model_dump"):
            return plain(value.model_dump(), depth + 1)
    return _plain(repr(value), depth)
