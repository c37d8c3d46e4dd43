"""Spans out of files: OTLP JSON as written here and by collectors, and what CloudWatch exports.

CloudWatch keeps a span as one JSON object, in the log group `aws/spans`; such an object is read alone, in the
answers of `filter-log-events`, `get-log-events` and `get-query-results`, and behind a time stamp, as in an
export to S3.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

_WANTED = "wanted OTLP JSON (resourceSpans) or spans of CloudWatch's aws/spans log group"
_ERRORS = (2, "2", "ERROR", "STATUS_CODE_ERROR")


@dataclass(frozen=True, slots=True)
class FoundSpan:
    """One span of a file."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    scope: str = ""
    has_failed: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class SpanFile:
    """What was in a file."""

    spans: list[FoundSpan]
    others: int
    """Records that are no spans, such as CloudWatch's events; left out."""


def read_spans(path: str) -> SpanFile:
    """Read a file of spans; `-` is standard input, and a name in `.gz` is unpacked.

    Raises:
        UsageError: It cannot be read, or holds something else; the message names the line.
    """
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    spans: dict[tuple[str, str], FoundSpan] = {}
    others = 0
    for where, value in _values(path, text):
        for found in _walk(where, value):
            if found is None:
                others += 1
            else:
                spans[found.trace_id, found.span_id] = found
    if not spans:
        raise UsageError(f"{path}: holds no span: {_WANTED}")
    return SpanFile(sorted(spans.values(), key=lambda span: span.start_ns), others)


def _values(path: str, text: str) -> Iterator[tuple[str, Any]]:
    """Every JSON value of a text with where it stands: one a line, or laid out over many."""
    decoder, at, line = json.JSONDecoder(), 0, 1
    while at < len(text):
        if text[at].isspace():
            line += text[at] == "\n"
            at += 1
            continue
        start = at
        if text[at] not in "{[":  # a time stamp, or a log stream's name
            until = text.find("\n", at)
            start = text.find("{", at, until if until >= 0 else len(text))
        where = f"{path}, line {line}"
        if start < 0:
            raise UsageError(f"{where}: is not JSON: {text[at : at + 40].splitlines()[0]!r}")
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise UsageError(f"{where}: is not JSON: {said}") from None
        yield where, value
        line += text.count("\n", at, end)
        at = end


def _walk(where: str, value: Any) -> Iterator[FoundSpan | None]:
    """The spans in a value; `None` for each record that is none."""
    if isinstance(value, list):
        for index, item in enumerate(value, 1):
            yield from _walk(f"{where}, item {index}", item)
    elif not isinstance(value, dict):
        raise UsageError(f"{where}: {_WANTED}, got {type(value).__name__}")
    elif "resourceSpans" in value:
        yield from _otlp(where, value)
    elif "spanId" in value:
        is_span = "name" in value and "startTimeUnixNano" in value
        yield _span(where, value, _scope(value)) if is_span else None
    elif (messages := _messages(value)) is not None:
        for index, message in enumerate(messages, 1):
            yield from _from_message(f"{where}, event {index}", message)
    else:
        raise UsageError(f"{where}: {_WANTED}, got an object of {sorted(map(str, value))[:6]}")


def _otlp(where: str, request: JSON) -> Iterator[FoundSpan]:
    for resource in _list(where, request, "resourceSpans"):
        for scoped in _list(where, resource, "scopeSpans"):
            for span in _list(where, scoped, "spans"):
                yield _span(where, span, _scope(scoped))


def _messages(value: JSON) -> list[Any] | None:
    """The texts of log events, in whichever answer of CloudWatch Logs they came."""
    if isinstance(value.get("events"), list):
        return [
            event.get("message") if isinstance(event, dict) else None for event in value["events"]
        ]
    if isinstance(value.get("results"), list):
        rows = [row if isinstance(row, list) else [] for row in value["results"]]
        cells = [{cell.get("field"): cell.get("value") for cell in row} for row in rows]
        return [row.get("@message") for row in cells]
    return [value["message"]] if isinstance(value.get("message"), str) else None


def _from_message(where: str, message: Any) -> Iterator[FoundSpan | None]:
    try:
        value = json.loads(message)
    except (TypeError, ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and ("spanId" in value or "resourceSpans" in value):
        yield from _walk(where, value)
    else:
        yield None  # a line of an ordinary log


def _list(where: str, value: Any, name: str) -> list[JSON]:
    found = value.get(name, []) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f"{where}: {name} must be a list of objects, got {found!r:.60}")
    return found


def _scope(value: JSON) -> str:
    scope = value.get("scope")
    return str(scope.get("name", "")) if isinstance(scope, dict) else ""


def _span(where: str, span: JSON, scope: str) -> FoundSpan:
    start_ns = _nanoseconds(where, span, "startTimeUnixNano")
    if span.get("endTimeUnixNano") is None and span.get("durationNano") is not None:
        end_ns = start_ns + _nanoseconds(where, span, "durationNano")
    else:
        end_ns = _nanoseconds(where, span, "endTimeUnixNano")
    status = span.get("status")
    code = status.get("code") if isinstance(status, dict) else status
    return FoundSpan(
        trace_id=_text(where, span, "traceId"),
        span_id=_text(where, span, "spanId"),
        parent_id=str(span.get("parentSpanId") or ""),
        name=_text(where, span, "name"),
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns),
        scope=scope,
        has_failed=code in _ERRORS,
        attributes=_attributes(where, span.get("attributes")),
    )


def _text(where: str, span: JSON, name: str) -> str:
    value = span.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: a span's {name} must be text, got {value!r:.60}")
    return value


def _nanoseconds(where: str, span: JSON, name: str) -> int:
    value = span.get(name)
    try:
        if isinstance(value, str | int) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise UsageError(f"{where}: a span's {name} must be nanoseconds, got {value!r:.60}")


def _attributes(where: str, given: Any) -> JSON:
    """Return attributes as plain values: OTLP wraps each, CloudWatch does not."""
    if given is None or isinstance(given, dict):
        return given or {}
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise UsageError(f"{where}: attributes must be an object or key-values, got {given!r:.60}")
    return {str(item.get("key")): _plain(item.get("value")) for item in given}


def _plain(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return int(inner) if str(inner).lstrip("-").isdecimal() else inner
    if kind == "arrayValue" and isinstance(inner, dict):
        return [_plain(item) for item in inner.get("values", [])]
    return inner
