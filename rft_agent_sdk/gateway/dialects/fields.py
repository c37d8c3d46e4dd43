"""Typed reads from a request body; what is wrong is refused by a 400 that names the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.types import JSON

T = TypeVar("T")
_SHOWN = 60


class FieldError(Refusal):
    """A 400 that names the field.

    The path is put together on the way out: to write one down for every field that is right would
    cost more than to read the field.
    """

    def __init__(self, path: str, text: str, code: str) -> None:
        super().__init__(400, f"{path}: {text}", param=path, code=code)
        self._path = path
        self._text = text

    def under(self, parent: str) -> FieldError:
        """Return the same error, its path seen from further out."""
        return FieldError(f"{parent}.{self._path}" if self._path else parent, self._text, self.code)


def bad(path: str, wanted: str, got: object) -> FieldError:
    """Return the refusal of a field: what was wanted, what came."""
    shown = repr(got)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return FieldError(path, f"wanted {wanted}, got {shown}", "invalid_value")


def unsupported(path: str, why: str) -> FieldError:
    """Return the refusal of a field that is well-formed but cannot be honoured here."""
    return FieldError(path, why, "unsupported_value")


def each(value: object, path: str, read: Callable[[Any], T], *, start: int = 0) -> tuple[T, ...]:
    """Return every entry of a list from `start` on, read; `null` is the empty list."""
    found = []
    for index, entry in enumerate(a_list(value, path)[start:], start):
        try:
            found.append(read(entry))
        except FieldError as error:
            raise error.under(f"{path}[{index}]") from None
    return tuple(found)


def an_object(value: object, path: str = "") -> JSON:
    """Return `value` as a JSON object."""
    if not isinstance(value, dict):
        raise bad(path, "an object", value)
    return value


def a_list(value: object, path: str) -> list[Any]:
    """Return `value` as a list; `null` is the empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad(path, "a list", value)
    return value


def a_string(value: object, path: str, *, default: str | None = None) -> str:
    """Return `value` as a string; `null` and absence are `default`, where there is one."""
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise bad(path, "a string", value)
    return value


def a_name(value: object, path: str) -> str:
    """Return `value` as a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise bad(path, "a string that is not empty", value)
    return value


def a_bool(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return field `name` as a truth value; `null` is `default`."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(name, "true or false", value)
    return value


def a_number(
    body: Mapping[str, Any], name: str, *, low: float, high: float = math.inf
) -> float | None:
    """Return field `name` as a number in `[low, high]`; `null` and absence are `None`."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limit = "" if high == math.inf else f" and at most {high:g}"
        raise bad(name, f"a number of at least {low:g}{limit}", value)
    return float(value)


def a_count(body: Mapping[str, Any], name: str, *, low: int = 1) -> int | None:
    """Return field `name` as a whole number of at least `low`; `null` and absence are `None`."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise bad(name, f"a whole number of at least {low}", value)
    return value
