"""Parts of a job's document, read with care: the service adds to it as it goes, and says nowhere in what form."""

from __future__ import annotations

import json
from typing import Any

from rft_agent_sdk.types import JSON


def json_object(text: str) -> JSON:
    """Return the JSON object that a text is; an empty one for any other text."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def part(of: JSON, name: str) -> JSON:
    """Return an object within another one; an empty one where there is none of that name."""
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def count(value: Any) -> int | None:
    """Return a count, told as a number or as text; `None` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
