"""Where spans go when nobody set a tracer provider: a file of OTLP JSON, an OTLP endpoint, or both.

What leaves here never holds a conversation. Strands writes prompts and replies into its spans; of spans that
are not our own only numbers, flags and a few named texts are kept, and of no span its events. Who wants them
sets a provider of their own, which is then used as it is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Status

from rft_agent_sdk.errors import UsageError

_KEPT = frozenset(
    {
        "error.type",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.system",
        "gen_ai.tool.name",
        "gen_ai.tool.status",
        "strands.cancellation.type",
    }
)
"""Texts of other libraries' spans that are kept, where they are one word."""
_WORD = re.compile(r"[\w.:/-]{1,80}", re.ASCII)
_TOOL = "execute_tool"


def send(environ: Mapping[str, str], scope: str) -> None:
    """Send spans where the environment says.

    A file is added to a provider that somebody set already; an endpoint is theirs to set.

    Args:
        environ: The environment.
        scope: Name of the instrumentation whose spans are known to hold no content.

    Raises:
        UsageError: The file cannot be written, or the OTLP exporter is not installed.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    provider: Any = trace.get_tracer_provider()
    is_ours = isinstance(provider, trace.ProxyTracerProvider)
    processors: list[SpanProcessor] = []
    try:
        if path := environ.get("RFT_TRACES", "").strip():
            processors.append(SimpleSpanProcessor(_Discreet(TraceFile(Path(path)), scope)))
        if is_ours and _wants_endpoint(environ):
            processors.append(BatchSpanProcessor(_Discreet(_otlp(environ), scope)))
    finally:  # one that cannot be had does not cost the other
        if is_ours and processors:
            name = environ.get("OTEL_SERVICE_NAME") or "rft-agent"
            provider = TracerProvider(resource=Resource.create({"service.name": name}))
            trace.set_tracer_provider(provider)
        for processor in processors:
            provider.add_span_processor(processor)


def _wants_endpoint(environ: Mapping[str, str]) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    is_off = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    return not is_off and any(environ.get(name, "").strip() for name in names)


def _otlp(environ: Mapping[str, str]) -> SpanExporter:
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environ[name] for name in names if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise UsageError(
            f"OTLP is spoken as http/protobuf here, not as {protocol!r}: see {names[1]}"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError:
        raise UsageError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set and nothing can send there: pip install 'rft-agent-sdk[otlp]'"
        ) from None
    return OTLPSpanExporter()


class _Discreet(SpanExporter):
    """Passes spans on without what was said in them."""

    def __init__(self, inner: SpanExporter, scope: str) -> None:
        self._inner = inner
        self._scope = scope

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._inner.export([_without_content(span, self._scope) for span in spans])

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _without_content(span: ReadableSpan, own: str) -> ReadableSpan:
    scope = span.instrumentation_scope
    is_ours = scope is not None and scope.name == own
    attributes = {
        name: value
        for name, value in (span.attributes or {}).items()
        if is_ours or isinstance(value, bool | int | float) or (name in _KEPT and _is_word(value))
    }
    is_known = not span.name.startswith(_TOOL) or _is_word(span.name.removeprefix(f"{_TOOL} "))
    return ReadableSpan(
        name=span.name if is_known else _TOOL,  # a policy may call a tool whatever it likes
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        kind=span.kind,
        instrumentation_scope=scope,
        status=span.status if is_ours else Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


class TraceFile(SpanExporter):
    """Appends spans to a file, one OTLP JSON request a line, as collectors' file exporters do.

    Several processes may write one file: each line is one write, at its end.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            UsageError: It cannot be opened.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"traces cannot be written to {str(path)!r}: {error}") from None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write spans that have ended."""
        lines = [json.dumps(otlp_json(span), separators=(",", ":")) for span in spans]
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file."""
        os.close(self._file)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: what was written is in the file."""
        return True


def otlp_json(span: ReadableSpan) -> dict[str, Any]:
    """Return one span as an OTLP request: ids in hex, 64-bit numbers as text, enums as numbers."""
    context, scope = span.get_span_context(), span.instrumentation_scope
    body: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}" if context else "",
        "spanId": f"{context.span_id:016x}" if context else "",
        "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _key_values(span.attributes or {}),
        "status": {"code": span.status.status_code.value},
    }
    if span.status.description:
        body["status"]["message"] = span.status.description
    inner = {"scope": {"name": scope.name if scope else ""}, "spans": [body]}
    resource = {"attributes": _key_values(span.resource.attributes)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [inner]}]}


def _key_values(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
