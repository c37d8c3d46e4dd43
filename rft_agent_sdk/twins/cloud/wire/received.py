"""One HTTP request as it arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl


@dataclass(frozen=True, slots=True)
class Received:
    """What a client sent."""

    method: str
    path: str
    """Still percent-encoded: an ARN is one segment of it."""
    query_string: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters, the last of a name."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))
