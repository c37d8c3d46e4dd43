"""OpenTelemetry spans of what a rollout does; nothing at all where nobody asked for them.

    rollout
    ├── mint_token                      a bearer token, when one was needed
    ├── turn                            one request to the policy, each attempt of its own
    ├── execute_tool                    a call that a policy wrote as text
    ├── rescue                          the one sampling request of a rollout that had none
    └── CompleteRollout, UpdateReward   its reports, retries included

Strands adds its own between these: the agent, its cycles, each model call and each tool call, so those are
not repeated here. Who set a tracer provider, as AgentCore's distribution does, gets the spans there. Where
nobody did, `RFT_TRACES=FILE` and the standard `OTEL_EXPORTER_OTLP_ENDPOINT` make one; see `tracing.export`.

Spans hold numbers, ids and names that the code chose: no prompt, no text of an error, no secret.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

SCOPE = "rft_agent_sdk"
Value = str | bool | int | float | Sequence[float] | None
"""What an attribute may hold; one that is `None` is left out."""
_VARIABLES = ("RFT_TRACES", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_CONVENTIONS = ("error.", "gen_ai.", "http.", "session.")
"""OpenTelemetry's own names, and AgentCore's for a session; every other attribute is `rft.` something."""
_TEXT = 256
"""Characters of an attribute's text that are kept: an ARN's longest."""


class Span:
    """A span that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Make it the current one, which spans begun inside belong to."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, failed if an error leaves the block."""

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Set attributes, under `rft.` unless another convention's name is given."""

    def fail(self, kind: str) -> None:
        """Mark it as failed; `kind` is a word of the code's, such as an error's class."""

    def end(self) -> None:
        """End it; for one that no `with` block ends."""


NOTHING = Span()


class _Recorded(Span):
    __slots__ = ("_span", "_token")

    def __init__(self, tracer: Tracer, name: str, attributes: Mapping[str, Value]) -> None:
        self._span = tracer.start_span(name, attributes=_named(attributes))
        self._token: Any = None

    def __enter__(self) -> Self:
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        # A coroutine that is closed runs in another context, where there is nothing to go back to.
        if kind is not GeneratorExit:
            from opentelemetry import context

            context.detach(self._token)
        self.end()

    def set(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(_named(attributes))

    def fail(self, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        # Not the exception itself, as is usual: its text may quote a prompt or a secret.
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))

    def end(self) -> None:
        try:
            self._span.end()
        except Exception as error:  # noqa: BLE001 - so is what a provider does with a span
            logger.error("a span was lost: %s", type(error).__name__)


def span(name: str, attributes: Mapping[str, Value]) -> Span:
    """Begin a span below the current one; use it in a `with` block, or `end` it.

    Never raises: a rollout must not fail on being watched.
    """
    try:
        tracer = _tracer()
        return NOTHING if tracer is None else _Recorded(tracer, name, attributes)
    except Exception as error:  # noqa: BLE001 - a provider is somebody else's code
        logger.error("span=<%s> | not begun: %s", name, type(error).__name__)
        return NOTHING


def annotate(attributes: Mapping[str, Value]) -> None:
    """Set attributes of the current span, whoever began it."""
    if _tracer() is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(_named(attributes))


def flush(timeout_s: float = 2.0) -> None:
    """Send what is still held back; for a process that a signal is about to end."""
    if _tracer() is None:
        return
    from opentelemetry import trace

    force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if callable(force_flush):
        force_flush(int(1000 * timeout_s))


class _Found:
    """The provider that spans go to, and whether the environment was asked for one."""

    is_asked = False
    lock = threading.Lock()
    provider: Any = None
    tracer: Tracer | None = None


def configure() -> None:
    """Have spans sent where the environment says, now rather than with the first one.

    Raises:
        UsageError: They cannot be sent there.
    """
    with _Found.lock:
        if _Found.is_asked:
            return
        try:
            if any(os.environ.get(name, "").strip() for name in _VARIABLES):
                from rft_agent_sdk.tracing.export import send

                send(os.environ, SCOPE)
        finally:
            _Found.is_asked = (
                True  # at the end: others wait for the provider, or lose their first spans
            )


def _tracer() -> Tracer | None:
    """Return the tracer of whoever set a provider, or `None`."""
    if not _Found.is_asked:
        try:
            configure()
        except Exception as error:  # noqa: BLE001 - what cannot be written must not cost a rollout
            logger.error("spans are not sent: %s: %s", type(error).__name__, error)
    # Nobody can have set one without it. An import here would cost each cold start, for nothing.
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_tracer_provider"):
        return None
    provider = trace.get_tracer_provider()
    if provider is not _Found.provider:
        is_real = not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        _Found.tracer = provider.get_tracer(SCOPE) if is_real else None
        _Found.provider = provider
    return _Found.tracer


def _named(attributes: Mapping[str, Value]) -> dict[str, Any]:
    return {
        name if name.startswith(_CONVENTIONS) else f"rft.{name}": value[:_TEXT]
        if isinstance(value, str)
        else value
        for name, value in attributes.items()
        if value is not None
    }
