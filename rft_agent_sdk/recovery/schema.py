"""What a tool's schema says about found arguments: their names, their types, which must be there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rft_agent_sdk.recovery.literals import Unreadable, read_number, read_whole
from rft_agent_sdk.types import ToolCall, ToolSpec

_MAX_REFERENCES = 4


def properties(tool: ToolSpec) -> Mapping[str, Any]:
    """Return the schemas of the tool's arguments by name, in the order of the schema."""
    found = tool.parameters.get("properties")
    return found if isinstance(found, Mapping) else {}


def as_call(tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolCall | None:
    """Return the call, or `None` if a required argument is missing or this is no call at all."""
    required = tool.parameters.get("required")
    if isinstance(required, list | tuple) and any(name not in arguments for name in required):
        return None
    if (
        arguments.get("type") == "object"
        and "properties" in arguments
        and "properties" not in properties(tool)
    ):
        return None  # the policy recited the tool's definition
    encoded = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    try:
        encoded.encode()
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8 of its own
        encoded = json.dumps(arguments, allow_nan=False)
    return ToolCall(tool.name, encoded)


def typed(tool: ToolSpec, name: str, text: str) -> Any:
    """Return an argument that was written without its type, typed by the schema.

    A string property keeps the text as it is, but for one line break on each side; only a property
    that cannot be a string becomes a number, boolean, object or list, and where the text does not
    spell one it stays text, for the environment to refuse. A property unknown to the schema is text.
    """
    kinds = _kinds(properties(tool).get(name), tool.parameters)
    bare = text.strip()
    if "null" in kinds and bare in ("null", "None"):
        return None
    newline = "\r\n" if text.startswith("\r\n") else "\n"
    exact = text.removeprefix(newline).removesuffix(newline)
    if not kinds or "string" in kinds:
        return exact
    if "boolean" in kinds and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    number = read_number(bare)
    if isinstance(number, float) and number.is_integer() and "integer" in kinds:
        number = int(number)
    if number is not None and (
        "number" in kinds or (isinstance(number, int) and "integer" in kinds)
    ):
        return number
    if {"{": "object", "[": "array"}.get(bare[:1]) in kinds:
        try:
            return read_whole(bare)
        except Unreadable:
            return exact
    return exact


def _kinds(schema: object, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the JSON types a schema allows; empty when it does not say."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
        return set()
    kind = schema.get("type")
    kinds = (
        {kind} if isinstance(kind, str) else {name for name in kind or () if isinstance(name, str)}
    )
    for union in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(union) or ():
            kinds |= _kinds(option, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        kinds |= _kinds(target, root, depth + 1)
    return kinds
