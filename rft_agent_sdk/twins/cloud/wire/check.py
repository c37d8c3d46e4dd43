"""Values against a model's shape: what is required, patterns, lengths, ranges and enums.

boto3 checks only a part of this before it sends; the services check all of it. The twin's own answers go
through the same check, so that it cannot answer what the service could not.
"""

from __future__ import annotations

import datetime
import functools
import re
from typing import Any

from botocore.model import Shape

_SHOWN = 80
_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list, tuple),
    "string": (str,),
    "character": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str, datetime.datetime),
    "blob": (bytes,),
}


def faults_of(shape: Shape, value: Any, place: str = "") -> list[str]:
    """Return what is wrong with a value, one sentence each; nothing where it fits."""
    kind = shape.type_name
    is_odd = not isinstance(value, _TYPES[kind])
    if is_odd or (isinstance(value, bool) and kind != "boolean"):
        return [f"'{place or 'body'}' must be of type {kind}, not {type(value).__name__}"]
    if kind == "structure":
        return _structure_faults(shape, value, place)
    found = _bound_faults(shape, value, place)
    if kind == "list":
        for index, item in enumerate(value, 1):
            found += faults_of(shape.member, item, f"{place}.{index}")
    elif kind == "map":
        for key, item in value.items():
            found += faults_of(shape.value, item, f"{place}.{key}")
    elif kind in ("string", "character"):
        found += _text_faults(shape, value, place)
    return found


def _structure_faults(shape: Shape, value: dict[str, Any], place: str) -> list[str]:
    prefix = f"{place}." if place else ""
    found = [
        f"'{prefix}{name}' must not be null"
        for name in shape.required_members
        if value.get(name) is None
    ]
    for name, item in value.items():
        if name not in shape.members:
            found.append(f"'{prefix}{name}' is not a member of {shape.name}")
        elif item is not None:
            found += faults_of(shape.members[name], item, f"{prefix}{name}")
    return found


def _bound_faults(shape: Shape, value: Any, place: str) -> list[str]:
    is_sized = isinstance(value, (str, bytes, list, tuple, dict))
    if not is_sized and not isinstance(value, (int, float)):
        return []
    size = len(value) if is_sized else value
    what = "length" if is_sized else "value"
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    found = []
    if low is not None and size < low:
        found.append(f"'{place}' must have {what} greater than or equal to {low}, not {size}")
    if high is not None and size > high:
        found.append(f"'{place}' must have {what} less than or equal to {high}, not {size}")
    return found


def _text_faults(shape: Shape, value: str, place: str) -> list[str]:
    allowed = shape.metadata.get("enum")
    if allowed and value not in allowed:
        return [
            f"Value {_shown(value)} at '{place}' must satisfy enum value set: [{', '.join(allowed)}]"
        ]
    pattern = shape.metadata.get("pattern")
    compiled = _compiled(pattern) if pattern else None
    if compiled is not None and compiled.fullmatch(value) is None:
        return [
            f"Value {_shown(value)} at '{place}' must satisfy regular expression pattern: {pattern}"
        ]
    return []


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    # Unicode classes are Java's; Python's `re` has none, and no pattern needed here uses them.
    return None if "\\p{" in pattern else re.compile(pattern)
