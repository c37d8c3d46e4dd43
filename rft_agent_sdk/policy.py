"""Clients of the policy model: OpenAI clients that belong to no rollout until they send.

One synchronous and one asynchronous client serve the whole process. Nothing about a rollout is stored
on them: at each attempt, the SDK's own retries included, the current rollout supplies the URL, the
tracking headers, the credentials, the sampling parameters and the time left. So any number of
rollouts can share one client, or one Strands model, and none can send another's id.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

import httpx
import openai
from openai._models import FinalRequestOptions  # the type of the documented hook `_prepare_options`

from rft_agent_sdk.bodies import run_out
from rft_agent_sdk.context import Deadline, current_rollout, rollout_context
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.transport import (
    AsyncCountingTransport,
    CountingTransport,
    is_completion,
    summary,
)
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from strands.models.openai import OpenAIModel

    from rft_agent_sdk.rollout import Rollout

logger = logging.getLogger(__name__)

MAX_RETRIES = 30
"""Retries of one call on 408, 409, 429, 5xx and connection errors: minutes of back-off, so that in practice
the deadline ends them. A throttled rollout that gave up early would be scored as if it had played badly."""
CONNECT_TIMEOUT_S = 10.0
_TAIL_S = 0.2
"""Longest wait, in seconds, for the end of a streamed body after its last event, which comes along with it."""

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
    http_client = httpx.Client(
        auth=_PolicyAuth(), transport=CountingTransport(), follow_redirects=False
    )
    return _PolicyOpenAI(**_client_options(), http_client=http_client)


@functools.lru_cache(maxsize=1)
def _async_client() -> openai.AsyncOpenAI:
    http_client = httpx.AsyncClient(
        auth=_PolicyAuth(), transport=AsyncCountingTransport(), follow_redirects=False
    )
    return _PolicyAsyncOpenAI(**_client_options(), http_client=http_client)


def _client_options() -> dict[str, Any]:
    """The key and the URL are placeholders: each request gets its rollout's own."""
    return {
        "api_key": "unset",
        "base_url": "http://rollout.invalid/v1",
        "max_retries": MAX_RETRIES,
        "timeout": httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
    }


class _InTime:
    """Keeps a client's pauses between attempts inside the rollout's deadline, `Retry-After` included."""

    def _calculate_retry_timeout(self, *args: Any, **kwargs: Any) -> float:
        pause: float = super()._calculate_retry_timeout(*args, **kwargs)  # type: ignore[misc]
        return min(pause, current_rollout().deadline.remaining())


class _PolicyOpenAI(_InTime, openai.OpenAI):
    # The SDK calls the hook before each attempt and outside its retry handling, so an error raised in
    # it (no rollout, no time, no credentials) ends the call at once and as what it is.
    def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
        rollout = current_rollout()
        rollout.check_open()
        rollout.endpoint.auth.prepare()
        return super()._prepare_options(_bind(options, rollout, self.timeout))

    def close(self) -> None:
        """Do nothing: `with rollout.openai() as client` must not end the client of all other rollouts."""


class _PolicyAsyncOpenAI(_InTime, openai.AsyncOpenAI):
    async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
        rollout = current_rollout()
        rollout.check_open()
        await rollout.endpoint.auth.prepare_async()
        return await super()._prepare_options(_bind(options, rollout, self.timeout))

    def _make_sse_decoder(self) -> Any:
        # Of a version that does not ask for it here, streams end as they come.
        decoder: Any = super()._make_sse_decoder()
        decoder.aiter_bytes = functools.partial(_whole, decoder.aiter_bytes)
        return decoder

    async def close(self) -> None:
        """Do nothing, as in the synchronous client."""


async def _whole(
    decode: Callable[[AsyncIterator[bytes]], AsyncIterator[Any]], body: AsyncIterator[bytes]
) -> AsyncIterator[Any]:
    """Yield a streamed reply's events; it ends at the last one, with nothing left of it.

    The SDK's own decoder yields `[DONE]`, at which its stream stops and drops it, and with it a dozen generators
    inside one another, for the event loop to close one by one. An agent framework's loop is over before that.
    """
    events = decode(body)
    async for event in events:
        if not event.data.startswith("[DONE]"):
            yield event
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAIL_S):  # ends each of them from inside
                await run_out(events)


def _bind(
    options: FinalRequestOptions, rollout: Rollout, usual: float | httpx.Timeout | None
) -> FinalRequestOptions:
    """Make one attempt's options the rollout's own; `usual` is the client's timeout."""
    endpoint = rollout.endpoint
    options.url = endpoint.base_url + "/" + options.url.lstrip("/")
    # The transport reads the reply as it passes, so it must come uncompressed.
    ours = {**endpoint.headers, "Accept-Encoding": "identity"}
    names = {name.lower() for name in ours}
    given = cast(Mapping[str, Any], options.headers or {})
    options.headers = {
        **{name: value for name, value in given.items() if name.lower() not in names},
        **ours,
    }
    if isinstance(options.json_data, dict) and "messages" in options.json_data:
        # The SDK would lay `extra_body` over the body later, and so over the job's parameters.
        extra, options.extra_json = options.extra_json, None
        options.json_data = bound_body({**options.json_data, **(extra or {})}, rollout)
        if rollout.calls.first_body is None:
            rollout.calls.first_body = options.json_data
    asked = usual if isinstance(options.timeout, openai.NotGiven) else options.timeout
    options.timeout = _timeout(rollout, asked)
    return options


def _timeout(rollout: Rollout, asked: float | httpx.Timeout | None) -> httpx.Timeout:
    """Return the caller's timeout, cut to the time the rollout has left."""
    rollout.check_open()  # again, since waiting for credentials may have used the time up
    remaining = max(0.001, rollout.deadline.remaining())  # 0 would mean not to wait at all
    limits = httpx.Timeout(asked).as_dict()
    return httpx.Timeout(
        **{
            name: remaining if limit is None else min(limit, remaining)
            for name, limit in limits.items()
        }
    )


def bound_body(body: JSON, rollout: Rollout) -> JSON:
    """Return a chat-completion body with the rollout's model, parameters and optional fields."""
    endpoint = rollout.endpoint
    optional = {
        name: value
        for name, value in rollout.optional_fields.items()
        if (endpoint.root, endpoint.model_id, name) not in _refused_fields
    }
    sampling = rollout.request.sampling.as_openai()
    if "max_tokens" in sampling:  # its newer name would go before it, or clash with it
        body = {name: value for name, value in body.items() if name != "max_completion_tokens"}
    whole: JSON = _encodable({**optional, **body, **sampling, "model": endpoint.model_id})
    return whole


def _encodable(value: Any) -> Any:
    r"""Return a JSON value whose text has UTF-8.

    A policy may write half a surrogate pair (`"\ud83d"`) into a call's arguments; agents parse them and
    send them back as text, and the one bad call would end the rollout in the client's encoder.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


class _PolicyAuth(httpx.Auth):
    """The current rollout's credentials, and a second try without an optional field refused."""

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        rollout = current_rollout()
        attempt: httpx.Request | None = request
        while attempt is not None:
            response = yield from _delegate(rollout.endpoint.auth.sync_auth_flow(attempt))
            if response.status_code != 400:
                return
            response.read()
            attempt = _without_refused_field(attempt, response, rollout)

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        rollout = current_rollout()
        attempt: httpx.Request | None = request
        while attempt is not None:
            async with aclosing(rollout.endpoint.auth.async_auth_flow(attempt)) as flow:
                response = yield await anext(flow)
                with suppress(StopAsyncIteration):
                    while True:
                        response = yield await flow.asend(response)
            if response.status_code != 400:
                return
            await response.aread()
            attempt = _without_refused_field(attempt, response, rollout)


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
    if not rollout.optional_fields or not request.content.startswith(b"{"):
        return None
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


def sample_once(rollout: Rollout, body: JSON, *, timeout_s: float, attempts: int = 5) -> str | None:
    """Send one plain sampling request outside any deadline of the agent; return why it failed, or `None`.

    Used when a managed rollout is about to end without a single sampled turn, which would fail the
    whole job. Signs anew: a cached token may be what went wrong.
    """
    deadline = Deadline(timeout_s)
    error = "no time was left"
    endpoint = rollout.endpoint
    endpoint.auth.refresh()
    body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    transport = httpx.HTTPTransport(verify=tls_context())
    with rollout_context(rollout), httpx.Client(auth=_PolicyAuth(), transport=transport) as client:
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
            error = f"HTTP {response.status_code}: {summary(response.content)}"
            if response.status_code < 300:
                if is_completion(response.content):
                    return None
            elif response.status_code < 429:
                break
    return error
