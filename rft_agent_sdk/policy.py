"""Clients of the policy model: OpenAI clients that belong to no rollout until they send.

One synchronous and one asynchronous client serve the whole process. Nothing about a rollout is stored
on them: at each attempt, the SDK's own retries included, the current rollout supplies the URL, the
tracking headers, the credentials, the sampling parameters and the time left. So any number of
rollouts can share one client, or one Strands model, and none can send another's id.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import httpx
import openai
from openai._models import FinalRequestOptions  # the type of the documented hook `_prepare_options`

from rft_agent_sdk.context import Deadline, current_rollout
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON, Usage

if TYPE_CHECKING:
    from strands.models.openai import OpenAIModel

    from rft_agent_sdk.endpoint import Endpoint
    from rft_agent_sdk.rollout import Rollout

logger = logging.getLogger(__name__)

MAX_RETRIES = 8
"""Retries of one call on 408, 409, 429, 5xx and connection errors: about 40 s of back-off in all."""
CONNECT_TIMEOUT_S = 10.0

_refused_fields: set[tuple[str, str, str]] = set()
"""(endpoint root, model id, field) of optional fields that an endpoint answered with a 400."""


def openai_client() -> openai.OpenAI:
    """Return the process's `openai.OpenAI` for the policy; usable inside rollouts only."""
    return _sync_client()


def async_openai_client() -> openai.AsyncOpenAI:
    """Return the process's `openai.AsyncOpenAI` for the policy; usable from any event loop."""
    return _async_client()


def strands_model(**config: Any) -> OpenAIModel:
    """Return a Strands model of the policy; one object may serve any number of rollouts.

    `config` goes to `OpenAIModel`, such as `params`. The model id and the sampling parameters of the
    job are set on each request and win over those in `config`.
    """
    from strands.models.openai import OpenAIModel

    return OpenAIModel(client=async_openai_client(), **{"model_id": "default", **config})


@functools.lru_cache(maxsize=1)
def _sync_client() -> openai.OpenAI:
    http_client = httpx.Client(auth=_PolicyAuth(), transport=_Transport(), follow_redirects=False)
    return _PolicyOpenAI(**_client_options(), http_client=http_client)


@functools.lru_cache(maxsize=1)
def _async_client() -> openai.AsyncOpenAI:
    http_client = httpx.AsyncClient(
        auth=_PolicyAuth(), transport=_AsyncTransport(), follow_redirects=False
    )
    return _PolicyAsyncOpenAI(**_client_options(), http_client=http_client)


def _client_options() -> dict[str, Any]:
    """The key and the URL are placeholders: each request gets its rollout's own."""
    return {"api_key": "unset", "base_url": "http://rollout.invalid/v1", "max_retries": MAX_RETRIES}


class _PolicyOpenAI(openai.OpenAI):
    # The SDK calls the hook before each attempt and outside its retry handling, so an error raised in
    # it (no rollout, no time, no credentials) ends the call at once and as what it is.
    def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
        rollout = current_rollout()
        rollout.check_open()
        rollout.endpoint.auth.prepare()
        return super()._prepare_options(_bind(options, rollout))


class _PolicyAsyncOpenAI(openai.AsyncOpenAI):
    async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
        rollout = current_rollout()
        rollout.check_open()
        await rollout.endpoint.auth.prepare_async()
        return await super()._prepare_options(_bind(options, rollout))


def _bind(options: FinalRequestOptions, rollout: Rollout) -> FinalRequestOptions:
    """Make one attempt's options the rollout's own."""
    endpoint = rollout.endpoint
    options.url = endpoint.base_url + "/" + options.url.lstrip("/")
    given = cast(Mapping[str, Any], options.headers or {})
    # The transport reads the reply as it passes, so it must come uncompressed.
    options.headers = {**given, **endpoint.headers, "Accept-Encoding": "identity"}
    if isinstance(options.json_data, dict) and "messages" in options.json_data:
        options.json_data = bound_body(options.json_data, rollout)
        if rollout.calls.first_body is None:
            rollout.calls.first_body = options.json_data
    remaining = rollout.deadline.remaining()
    options.timeout = httpx.Timeout(remaining, connect=min(CONNECT_TIMEOUT_S, remaining))
    return options


def bound_body(body: JSON, rollout: Rollout) -> JSON:
    """Return a chat-completion body with the rollout's model, parameters and optional fields."""
    endpoint = rollout.endpoint
    optional = {
        name: value
        for name, value in rollout.optional_fields.items()
        if (endpoint.root, endpoint.model_id, name) not in _refused_fields
    }
    return {
        **optional,
        **body,
        **rollout.request.sampling.as_openai(),
        "model": endpoint.model_id,
    }


class _PolicyAuth(httpx.Auth):
    """The current rollout's credentials, and a second try without an optional field refused."""

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        rollout = current_rollout()
        auth = rollout.endpoint.auth
        response = yield from _delegate(auth.sync_auth_flow(request))
        if response.status_code == 400:
            response.read()
            if (leaner := _without_refused_field(request, response, rollout)) is not None:
                yield from auth.sync_auth_flow(leaner)

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        rollout = current_rollout()
        auth = rollout.endpoint.auth
        flow = auth.async_auth_flow(request)
        response = yield await anext(flow)
        while True:
            try:
                response = yield await flow.asend(response)
            except StopAsyncIteration:
                break
        if response.status_code == 400:
            await response.aread()
            if (leaner := _without_refused_field(request, response, rollout)) is not None:
                flow = auth.async_auth_flow(leaner)
                yield await anext(flow)


def _delegate(
    flow: Generator[httpx.Request, httpx.Response, None],
) -> Generator[httpx.Request, httpx.Response, httpx.Response]:
    """Run another auth flow inside this one and return the last response it saw."""
    request = next(flow)
    while True:
        response = yield request
        try:
            request = flow.send(response)
        except StopIteration:
            return response


def _without_refused_field(
    request: httpx.Request, response: httpx.Response, rollout: Rollout
) -> httpx.Request | None:
    """Return the request without an optional field that this 400 names, or `None`."""
    body = json.loads(request.content)
    refused = [name for name in rollout.optional_fields if name in body and _names(response, name)]
    if not refused:
        return None
    endpoint = rollout.endpoint
    for name in refused:
        del body[name]
        _refused_fields.add((endpoint.root, endpoint.model_id, name))
        logger.warning(
            "field=<%s> model=<%s> | endpoint refuses it; dropped", name, endpoint.model_id
        )
    headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
    return httpx.Request(
        request.method,
        request.url,
        headers=headers,
        content=json.dumps(body).encode(),
        extensions=request.extensions,
    )


def _names(response: httpx.Response, name: str) -> bool:
    """Whether a typed error reply is about this request field."""
    try:
        reply = response.json()
    except ValueError:
        return False
    error = reply.get("error", reply) if isinstance(reply, dict) else None
    if not isinstance(error, dict):
        return False
    text = error.get("message") or error.get("Message") or ""
    return error.get("param") == name or (isinstance(text, str) and name in text)


class _Transport(httpx.BaseTransport):
    """One connection per exchange, so that no client belongs to an event loop and nothing leaks.

    A pool ties connections to the loop that opened them, agent frameworks make a loop per call, and an
    idle connection that the server dropped costs a retry. Next to a sampled turn a handshake costs
    little; the TLS context, the costly part, is shared.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        rollout = current_rollout()
        rollout.calls.begin()
        inner = httpx.HTTPTransport(verify=tls_context())
        try:
            response = inner.handle_request(request)
        except BaseException as error:
            inner.close()
            _lost(rollout, error)
            raise
        source = cast(httpx.SyncByteStream, response.stream)
        return _passed_on(response, _Stream(source, _Exchange(rollout, response), inner))


class _AsyncTransport(httpx.AsyncBaseTransport):
    """The same on an event loop."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        rollout = current_rollout()
        rollout.calls.begin()
        inner = httpx.AsyncHTTPTransport(verify=tls_context())
        try:
            response = await inner.handle_async_request(request)
        except BaseException as error:
            await inner.aclose()
            _lost(rollout, error)
            raise
        source = cast(httpx.AsyncByteStream, response.stream)
        return _passed_on(response, _AsyncStream(source, _Exchange(rollout, response), inner))


def _passed_on(
    response: httpx.Response, stream: httpx.SyncByteStream | httpx.AsyncByteStream
) -> httpx.Response:
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=stream,
        extensions=response.extensions,
    )


def _lost(rollout: Rollout, error: BaseException) -> None:
    """Count an attempt that got no response; one cut off by the rollout's own deadline is no fault."""
    if not isinstance(error, httpx.TransportError):
        return
    if rollout.deadline.expired and isinstance(error, httpx.TimeoutException):
        return
    rollout.calls.fail(f"{type(error).__name__}: {error}")


class _Exchange:
    """One reply as it passes by: counted when it is complete."""

    def __init__(self, rollout: Rollout, response: httpx.Response) -> None:
        self._rollout = rollout
        self._status = response.status_code
        self._is_stream = "text/event-stream" in response.headers.get("content-type", "")
        self._chunks: list[bytes] = []
        self._done = False

    def see(self, chunk: bytes) -> None:
        """Keep a chunk; stop a stream that outlives the rollout, which no read timeout would."""
        self._chunks.append(chunk)
        if self._rollout.deadline.expired:
            raise httpx.ReadTimeout("the rollout's deadline passed while the reply was coming")

    def lost(self, error: BaseException) -> None:
        """Count a reply that broke off."""
        if not self._done:
            self._done = True
            _lost(self._rollout, error)

    def end(self) -> None:
        """Count the reply by what came."""
        if self._done:
            return
        self._done = True
        body = b"".join(self._chunks)
        calls = self._rollout.calls
        if self._status >= 400:
            calls.fail(f"HTTP {self._status}: {_summary(body)}", status=self._status)
            return
        finish_reason, usage = _read_stream(body) if self._is_stream else _read_json(body)
        if finish_reason is None:
            calls.fail(f"HTTP {self._status}: the reply is no whole chat completion")
        else:
            calls.succeed(finish_reason, usage)


class _Stream(httpx.SyncByteStream):
    def __init__(
        self, source: httpx.SyncByteStream, exchange: _Exchange, owner: httpx.HTTPTransport
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._owner = owner

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._source:
                self._exchange.see(chunk)
                yield chunk
        except httpx.TransportError as error:
            self._exchange.lost(error)
            raise

    def close(self) -> None:
        try:
            self._source.close()
        finally:
            self._owner.close()
            self._exchange.end()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(
        self, source: httpx.AsyncByteStream, exchange: _Exchange, owner: httpx.AsyncHTTPTransport
    ) -> None:
        self._source = source
        self._exchange = exchange
        self._owner = owner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._source:
                self._exchange.see(chunk)
                yield chunk
        except httpx.TransportError as error:
            self._exchange.lost(error)
            raise

    async def aclose(self) -> None:
        try:
            await self._source.aclose()
        finally:
            await self._owner.aclose()
            self._exchange.end()


def _read_json(body: bytes) -> tuple[str | None, Usage]:
    try:
        reply = json.loads(body)
        return reply["choices"][0].get("finish_reason") or "stop", _usage(reply)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None, Usage()


def _read_stream(body: bytes) -> tuple[str | None, Usage]:
    """Read the finish reason and usage out of server-sent events; only lines that hold them are parsed."""
    finish_reason, usage = None, Usage()
    for line in body.split(b"\n"):
        if not line.startswith(b"data:") or not (b'"finish_reason"' in line or b'"usage"' in line):
            continue
        try:
            event = json.loads(line[5:])
        except ValueError:
            continue
        for choice in event.get("choices") or ():
            finish_reason = choice.get("finish_reason") or finish_reason
        if event.get("usage"):
            usage = _usage(event)
    return finish_reason, usage


def _usage(reply: JSON) -> Usage:
    usage = reply.get("usage") or {}
    return Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


def _summary(body: bytes) -> str:
    return " ".join(body[:300].decode("utf-8", "replace").split())


def sample_once(
    endpoint: Endpoint, body: JSON, *, timeout_s: float, attempts: int = 3
) -> str | None:
    """Send one plain sampling request outside any deadline of the agent; return why it failed, or `None`.

    Used when a managed rollout is about to end without a single sampled turn, which would fail the
    whole job. Signs anew: a cached token may be what went wrong.
    """
    deadline = Deadline(timeout_s)
    error = "no time was left"
    endpoint.auth.refresh()
    body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    with httpx.Client(
        auth=endpoint.auth, transport=httpx.HTTPTransport(verify=tls_context())
    ) as client:
        for attempt in range(attempts):
            time.sleep(min(attempt, deadline.remaining()))
            if deadline.expired:
                break
            try:
                response = client.post(
                    f"{endpoint.base_url}/chat/completions",
                    json=body,
                    headers=dict(endpoint.headers),
                    timeout=deadline.remaining(),
                )
            except httpx.TransportError as lost:
                error = f"{type(lost).__name__}: {lost}"
                continue
            if response.status_code < 300:
                return None
            error = f"HTTP {response.status_code}: {_summary(response.content)}"
            if response.status_code < 429:
                break
    return error
