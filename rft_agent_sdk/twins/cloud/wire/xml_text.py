"""XML text of a value by its shape."""

from __future__ import annotations

import datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.model import Shape


def element(name: str, text: str) -> str:
    """Return an element that holds text."""
    return f"<{name}>{escape(text)}</{name}>"


def to_xml(shape: Shape, name: str, value: Any) -> str:
    """Return a member of a structure, or the elements of a flattened list."""
    tag = shape.serialization.get("name", name)
    match shape.type_name:
        case "structure":
            inner = (to_xml(shape.members[key], key, item) for key, item in value.items())
            return f"<{tag}>{''.join(inner)}</{tag}>"
        case "list":
            inner_tag = shape.member.serialization.get("name")
            if shape.serialization.get("flattened"):
                return "".join(_item(shape.member, inner_tag or tag, item) for item in value)
            items = (_item(shape.member, inner_tag or "member", item) for item in value)
            return f"<{tag}>{''.join(items)}</{tag}>"
    return element(tag, _text(value))


def _item(shape: Shape, tag: str, value: Any) -> str:
    if shape.type_name == "structure":
        inner = (to_xml(shape.members[key], key, item) for key, item in value.items())
        return f"<{tag}>{''.join(inner)}</{tag}>"
    return element(tag, _text(value))


def _text(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
