"""A list that a client sends whole each time, a little longer: only what is new of it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rft_agent_sdk.gateway.dialects.fields import a_list, each
from rft_agent_sdk.gateway.refusal import to_json


class Recall:
    """What one client sent last, and how it was read.

    Told by the very bytes: Python takes `1`, `1.0` and `true` for equal, JSON does not. To write the list
    down again costs a tenth of reading it.
    """

    def __init__(self) -> None:
        self._sent = b""
        self._read: tuple[Any, ...] = ()
        self._reader: Callable[[Any], Any] | None = None

    def each(self, value: object, path: str, read: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Return every entry of a list, read; see `fields.each`. `read` depends on the entry alone.

        Raises:
            Refusal: 400, naming the entry and field that is wrong; what was sent before stays known.
        """
        sent = to_json(a_list(value, path))
        # Without its bracket, what was sent before ends with an entry: a list that goes on from
        # there begins with the same entries.
        is_known = self._reader is read and sent.startswith(self._sent)
        known = self._read if is_known else ()
        found = known + each(value, path, read, start=len(known))
        self._sent, self._read, self._reader = sent[:-1], found, read
        return found
