"""What the tests of tracing share: a provider of their own, spans as trees, a rollout against the gateway."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once
from strands.telemetry import tracer as strands_tracer

from rft_agent_sdk import tracing
from rft_agent_sdk.gateway import Gateway, GatewayServer, Job
from rft_agent_sdk.testing import FakeCredentials
from tests.servers import JOB_ARN

KEYS = FakeCredentials()


def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the provider, and whoever asked for it: a process sets one once, and tests are many."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(strands_tracer, "_tracer_instance", None)
    monkeypatch.setattr(tracing._Found, "is_asked", False)
    monkeypatch.setattr(tracing._Found, "provider", None)
    monkeypatch.setattr(tracing._Found, "tracer", None)


class Spans:
    """The spans of this process, as its provider got them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(self.provider)

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans of ours with a name, in the order they began."""
        found = [one for one in self.all if one.name == name and scope(one) == tracing.SCOPE]
        return sorted(found, key=lambda one: one.start_time or 0)

    def below(self, top: ReadableSpan) -> list[ReadableSpan]:
        """Every span under one."""
        children = [one for one in self.all if one.parent and one.parent.span_id == id_of(top)]
        return children + [deeper for child in children for deeper in self.below(child)]


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def scope(span: ReadableSpan) -> str:
    assert span.instrumentation_scope is not None
    return span.instrumentation_scope.name


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@contextmanager
def job_runtime(monkeypatch: pytest.MonkeyPatch, policy: Any) -> Iterator[tuple[str, Job]]:
    """The gateway in the Job Runtime's place; yields its URL and the job."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
    gateway = Gateway(secrets={KEYS.access_key: KEYS.secret_key})
    job = gateway.register_job(JOB_ARN, policy=policy)
    with GatewayServer(gateway) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.url.removeprefix("http://"))
        yield server.url, job
