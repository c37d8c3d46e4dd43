"""Bearer tokens for the Job Runtime: minted, cached, and signed anew once after a rejection.

A token is a presigned SigV4 request for `CallWithBearerToken`, wrapped in base64. It is bound to an
identity, a region and a time, not to a job or a host, so where it may go is decided in `endpoint`.

Not here: retries of 5xx and 429, which are `policy`'s and `job_runtime`'s. Clients must not follow
redirects while they carry a token.
"""

from __future__ import annotations

import asyncio
import bisect
import contextvars
import functools
import logging
import math
import random
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from rft_agent_sdk.credentials import (
    MAX_LIFETIME_S,
    Credentials,
    CredentialSource,
    FrozenCredentials,
    SharedCredentials,
    shared_credentials,
    sign_token,
)
from rft_agent_sdk.errors import CredentialsError, EndpointError
from rft_agent_sdk.region import check_region
from rft_agent_sdk.tracing import span

if TYPE_CHECKING:
    import requests

logger = logging.getLogger(__name__)

CACHE_S = 300
"""Longest time a token is reused. Short, since role credentials are rotated under it."""
_MARGIN_S = 10
"""How long before an expiry a token is no longer handed out: its request still has to arrive."""
_COLD_START_S = 10.0
_FAILURE_S = 5.0
_REJECTED = (401, 403)
_NO_CREDENTIALS = (
    "no AWS credentials after {attempts} attempts (last: {cause}): looked where botocore looks (AWS_* variables, "
    "AWS_PROFILE and the shared files, web identity, the container's and the instance's provider); "
    "give the agent an execution role, or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True, slots=True)
class _Minted:
    text: str = field(repr=False)
    at: float
    usable_s: float


class BearerTokenSession(httpx.Auth):
    """The bearer token of one region, and the auth object that sends it.

    Give it as `auth=` to `httpx` (sync or async) or to `requests`. However many threads and event
    loops ask at once, credentials are loaded once. After a 401 or 403 the request is sent once more
    with a token signed after the rejection; then the response is the caller's, whatever it says.
    """

    def __init__(
        self,
        region: str,
        *,
        credentials: CredentialSource | None = None,
        lifetime_s: int = MAX_LIFETIME_S,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Make a session; nothing is loaded yet.

        Args:
            region: The region the tokens are for.
            credentials: Where credentials come from; `None` means `shared_credentials()`. Called
                anew for every token that is minted.
            lifetime_s: Validity of a token, 1 to 43200 seconds.
            clock: Seconds since the epoch.
            sleep: Pauses between attempts while no credentials are to be had.
            jitter: Draws from [0, 1).

        Raises:
            EndpointError: `region` is no region, or `lifetime_s` is out of range.
        """
        if not 1 <= lifetime_s <= MAX_LIFETIME_S:
            raise EndpointError(f"a token lives 1 to {MAX_LIFETIME_S} s, got {lifetime_s!r}")
        self.region = check_region(region, "region")
        self._source = shared_credentials() if credentials is None else credentials
        self._lifetime_s = lifetime_s
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._lock = threading.Lock()  # held for moments only, never during a load
        self._cached: _Minted | None = None
        self._flight: Future[str] | None = None
        self._failure: tuple[str, float] | None = None
        self._last_signed = (-1, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(region={self.region!r})"

    def token(self) -> str:
        """Return a token, minting one if need be; blocks while credentials are loaded.

        Raises:
            CredentialsError: No credentials after bounded retries, or moments ago.
        """
        if (text := self._fresh()) is not None:
            return text
        flight, is_mine = self._board(in_thread=False)
        if is_mine:
            self._fly(flight)
        return flight.result()

    async def token_async(self) -> str:
        """Return a token like `token`, without ever blocking the event loop."""
        if (text := self._fresh()) is not None:
            return text
        return await asyncio.wrap_future(self._board(in_thread=True)[0])

    def invalidate(self, token: str) -> None:
        """Never hand out `token` again, since the service rejected it.

        A token other than the current one is old news and changes nothing.
        """
        with self._lock:
            if self._cached is None or self._cached.text != token:
                return
            self._cached = None
        logger.warning("region=<%s> | bearer token rejected; signing a new one", self.region)
        if isinstance(self._source, SharedCredentials):
            self._source.reject()

    def refresh(self) -> None:
        """Sign anew for the next request, whether or not the current token was rejected."""
        if (cached := self._cached) is not None:
            self.invalidate(cached.text)

    def prepare(self) -> None:
        """Have a token at hand, so that missing credentials fail here and not amid a client's retries."""
        self.token()

    async def prepare_async(self) -> None:
        """Do the same without blocking the event loop."""
        await self.token_async()

    def _fresh(self) -> str | None:
        cached = self._cached  # one read: the record is replaced whole, never changed
        if cached is None or not 0 <= self._clock() - cached.at < cached.usable_s:
            return None  # a clock set back counts as stale, too
        return cached.text

    def _board(self, *, in_thread: bool) -> tuple[Future[str], bool]:
        """Return the load in progress and whether the caller is to carry it out."""
        with self._lock:
            if self._flight is not None:
                return self._flight, False
            flight: Future[str] = Future()
            flight.set_running_or_notify_cancel()  # so that no waiter can cancel it for the others
            if (text := self._fresh()) is not None:
                flight.set_result(text)
                return flight, False
            if self._failure is not None and 0 <= self._clock() - self._failure[1] < _FAILURE_S:
                raise CredentialsError(self._failure[0])
            if in_thread:
                # A thread of its own: the loop's executor may be full of agents at work, and the load
                # must go on for the others when the task that started it is cancelled. Started before
                # the flight is known: where no thread can start, nobody is left waiting.
                run = contextvars.copy_context().run
                threading.Thread(target=run, args=(self._fly, flight), daemon=True).start()
            self._flight = flight
            return flight, not in_thread

    def _fly(self, flight: Future[str]) -> None:
        """Mint a token for everyone who waits; the outcome is in `flight`, whatever happens."""
        minted: _Minted | None = None
        failure: tuple[str, float] | None = None
        try:
            with span("mint_token", {"region": self.region}):
                minted = self._mint()
        except CredentialsError as error:
            failure = (str(error), self._clock())
        finally:
            with self._lock:
                self._cached, self._failure, self._flight = minted, failure, None
            if minted is not None:
                flight.set_result(minted.text)
            else:
                message = failure[0] if failure else "the load of AWS credentials was interrupted"
                flight.set_exception(CredentialsError(message))

    def _mint(self) -> _Minted:
        credentials, frozen = self._load()
        now = self._clock()
        # A later signature must differ from every earlier one, also within one second and with the
        # same keys: each further one of a second lives a second less. A later date would also do,
        # but a date in the future is for the service to judge; a shorter life is always valid.
        second, repeats = self._last_signed
        self._last_signed = (int(now), 0) if now >= second + 1 else (second, repeats + 1)
        expires_s = max(1, self._lifetime_s - self._last_signed[1])
        text = sign_token(frozen, self.region, at=now, expires_s=expires_s)
        usable_s = min(CACHE_S, expires_s - _MARGIN_S, _remaining_s(credentials) - _MARGIN_S)
        return _Minted(text, now, usable_s)

    def _load(self) -> tuple[Credentials, FrozenCredentials]:
        """Return credentials, waiting up to 10 s for a provider that is not ready yet."""
        began, slept, delay, attempts = self._clock(), 0.0, 0.1, 0
        while True:
            attempts += 1
            cause = "the provider had none"
            try:
                credentials = self._source()
                frozen = credentials.get_frozen_credentials() if credentials else None
            except Exception as error:  # noqa: BLE001 - providers are plug-ins and raise anything
                # Its text stays out: it can hold what a credential process printed.
                credentials, frozen, cause = None, None, type(error).__name__
            if credentials and frozen and frozen.access_key and frozen.secret_key:
                return credentials, frozen
            pause = delay * (1 + self._jitter()) / 2
            if max(slept, self._clock() - began) + pause > _COLD_START_S:
                raise CredentialsError(_NO_CREDENTIALS.format(attempts=attempts, cause=cause))
            self._sleep(pause)
            slept, delay = slept + pause, min(2 * delay, 2.0)

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send with a token, and once more with a new one after a 401 or 403."""
        request.read()  # a streamed body must be there for the second time
        token = self.token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code in _REJECTED:
            self.invalidate(token)
            request.headers["Authorization"] = f"Bearer {self.token()}"
            yield request

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same on an event loop."""
        await request.aread()
        token = await self.token_async()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code in _REJECTED:
            self.invalidate(token)
            request.headers["Authorization"] = f"Bearer {await self.token_async()}"
            yield request

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request of `requests`; its response hook sends it anew after a 401 or 403."""
        request.headers["Authorization"] = f"Bearer {self.token()}"
        hook = functools.partial(self._answer, start=_position(request.body))
        request.register_hook("response", hook)  # type: ignore[no-untyped-call]
        return request

    def _answer(
        self, response: requests.Response, /, *, start: int | None, **options: Any
    ) -> requests.Response:
        # The header says what was rejected. After a redirect to another host requests has taken it
        # off, and then no new token may follow either.
        scheme, _, token = response.request.headers.get("Authorization", "").partition(" ")
        if response.status_code not in _REJECTED or scheme != "Bearer":
            return response
        self.invalidate(token)
        again = response.request.copy()
        body: Any = again.body
        if not isinstance(body, str | bytes | None):
            if start is None:
                return response  # a generator or a pipe cannot be sent twice
            body.seek(start)
        again.headers["Authorization"] = f"Bearer {self.token()}"
        response.content  # noqa: B018 - read to its end, so that the connection can be used again
        response.close()
        answer: requests.Response = response.connection.send(again, **options)
        answer.history.append(response)
        answer.request = again
        return answer


def _position(body: Any) -> int | None:
    """Return where a streamed body starts, or `None` if it cannot be sent twice."""
    try:
        start: int = body.tell()
    except (AttributeError, OSError):  # text or a generator; a pipe
        return None
    return start


def _remaining_s(credentials: Credentials) -> float:
    """Return whole seconds until the credentials expire, at most what a cached token needs.

    The expiry itself is no public attribute of botocore's credentials; whether it is nearer than
    so many seconds is a public question, so ask it a few times.
    """
    is_nearer = getattr(credentials, "refresh_needed", None)
    if is_nearer is None:
        return math.inf
    horizon = CACHE_S + _MARGIN_S
    return bisect.bisect_left(range(1, horizon + 1), True, key=lambda s: is_nearer(refresh_in=s))


class KeyAuth(httpx.Auth):
    """A gateway's session secret as a bearer, for `httpx` and `requests` alike; never signed anew."""

    def __init__(self, key: str) -> None:
        """Hold the key.

        Raises:
            EndpointError: The key cannot stand in a header.
        """
        if not key or not key.isascii() or not key.isprintable():
            raise EndpointError(
                "the gateway's api_key must be printable ASCII; it is not shown here"
            )
        self._header = f"Bearer {key}"

    def __repr__(self) -> str:
        return "KeyAuth(...)"

    def prepare(self) -> None:
        """Do nothing: the key is at hand."""

    async def prepare_async(self) -> None:
        """Do nothing: the key is at hand."""

    def refresh(self) -> None:
        """Do nothing: there is only the one key."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send with the key."""
        request.headers["Authorization"] = self._header
        yield request

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the key on a request of `requests`."""
        request.headers["Authorization"] = self._header
        return request


_sessions: dict[str, BearerTokenSession] = {}
_sessions_lock = threading.Lock()


def bearer_session(region: str) -> BearerTokenSession:
    """Return this process's session for a region, so that all rollouts share one token.

    Raises:
        EndpointError: `region` is no region.
    """
    with _sessions_lock:
        if region not in _sessions:
            _sessions[region] = BearerTokenSession(region)
        return _sessions[region]
