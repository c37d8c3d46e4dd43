"""What a resumed run is told otherwise than before: what it may not be, and what it may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rft_agent_sdk.errors import UsageError

_FIXED = ("engine", "base_model_arn", "base_model", "lora_rank", "lora_alpha", "seed")
"""Keys that the saved state, or the order of the rows, was made with. The rows themselves are compared by
what is in them, wherever they lie."""
_PLACES = ("run_dir", "rollout_log_path")
"""Keys of no consequence: a folder may be moved."""


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs between the config of a run and the one it is resumed with, a line each.

    Args:
        old: As it was written down; empty where that is lost, and nothing can be told.
        new: As JSON would give it back.

    Raises:
        UsageError: Keys differ that may not; all of them are named.
    """
    keys = [key for key in new if old and key not in _PLACES and old.get(key) != new[key]]
    told = {key: f"{key}: was {old.get(key)!r}, is {new[key]!r}" for key in keys}
    if fixed := [told[key] for key in keys if key in _FIXED]:
        listed = "\n".join(f"  {line}" for line in fixed)
        raise UsageError(
            f"a run goes on with the model, adapter and seed it began with:\n{listed}\nSet them back, or "
            "start a new run in another run_dir (resume_from_model_package takes up its weights)"
        )
    return list(told.values())
