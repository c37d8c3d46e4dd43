import asyncio
import base64
import io
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import httpx
import openai
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from rft_agent_sdk.auth import CACHE_S, BearerTokenSession, KeyAuth, bearer_session
from rft_agent_sdk.credentials import TOKEN_PREFIX, SharedCredentials, sign_token
from rft_agent_sdk.errors import CredentialsError, EndpointError
from rft_agent_sdk.region import resolve_region

ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TLS = ssl.create_default_context()  # one for all clients: loading it takes longer than a test
ROTATED = "AKIAI44QH8DHBEXAMPLE"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
DENIED = (403, {"message": "Authentication failed"})
OK = (200, {"ok": True})
COMPLETION = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "default",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
}


class Clock:
    """A clock that only moves when told, or by sleeping."""

    def __init__(self, now: float = NEW_YEAR) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Provider:
    """A credential provider that counts its loads; it plays its list, then repeats the last."""

    def __init__(self, *plays: object, seconds: float = 0.0) -> None:
        self.plays = list(plays) or [static()]
        self.seconds = seconds
        self.loads = 0
        self.lock = threading.Lock()

    def __call__(self):
        with self.lock:
            play = self.plays[min(self.loads, len(self.plays) - 1)]
            self.loads += 1
        time.sleep(self.seconds)
        if isinstance(play, Exception):
            raise play
        return play


class Server:
    """A loopback endpoint that plays scripted replies and records what came."""

    def __init__(self, *replies) -> None:
        self.replies = list(replies)
        self.tokens: list[str] = []
        self.bodies: list[bytes] = []
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, authorization: str, body: bytes):
        with self.lock:
            self.tokens.append(authorization)
            self.bodies.append(body)
            return self.replies[min(len(self.tokens), len(self.replies)) - 1]


@contextmanager
def serving(*replies) -> Iterator[Server]:
    server = Server(*replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = server.reply(self.headers.get("Authorization", ""), body)
            location = content if isinstance(content, str) and status == 307 else None
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            kind = "text/event-stream" if data.startswith(b"data:") else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Retry-After-Ms", "1")  # for clients that retry a 500
            self.send_header("Content-Length", str(len(data)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_port}/"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def static(access: str = ACCESS, token: str | None = None) -> botocore.credentials.Credentials:
    return botocore.credentials.Credentials(access, SECRET, token)


def session_of(
    *plays: object, seconds: float = 0.0, clock: Clock | None = None, **options
) -> tuple[BearerTokenSession, Provider]:
    """A session over a counting provider, and the two of them."""
    provider = Provider(*plays, seconds=seconds)
    if clock is not None:
        options |= {"clock": clock, "sleep": clock.sleep}
    return BearerTokenSession("us-west-2", credentials=provider, **options), provider


def decoded(token: str) -> str:
    assert token.startswith(TOKEN_PREFIX)
    return base64.b64decode(token.removeprefix(TOKEN_PREFIX), validate=True).decode()


def parameters(token: str) -> dict[str, str]:
    query = urlsplit("https://" + decoded(token.removeprefix("Bearer "))).query
    return {name: values[0] for name, values in parse_qs(query).items()}


# The token


def test_a_token_of_lasting_keys_is_the_service_s_text_byte_for_byte():
    session, _ = session_of(clock=Clock())
    assert decoded(session.token()) == (
        "sagemaker.amazonaws.com/?Action=CallWithBearerToken&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20260101%2Fus-west-2%2Fsagemaker%2Faws4_request"
        "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=43200&X-Amz-SignedHeaders=host&X-Amz-Signature="
        "592cd60056965504c368d0d145035e4b0e7e5429c3b42b197a83c96c90faee31&Version=1"
    )


def test_a_session_token_is_signed_and_escaped():
    provider = Provider(static("ASIAIOSFODNN7EXAMPLE", "SESSION/TOKEN+EXAMPLE=="))
    session = BearerTokenSession("eu-west-1", credentials=provider, lifetime_s=900, clock=Clock())
    text = decoded(session.token())
    assert "&X-Amz-Security-Token=SESSION%2FTOKEN%2BEXAMPLE%3D%3D&" in text
    assert (
        "&X-Amz-Signature=0747c5a81038bc51828d6f6e1b1f76eb710aac0607c36e91b5d5c7c786717117" in text
    )


@settings(max_examples=50, deadline=None)
@given(
    access=st.from_regex(r"[A-Z0-9]{16,20}", fullmatch=True),
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60),
    token=st.none() | st.text(st.characters(max_codepoint=0x2FF), min_size=1, max_size=60),
    region=st.sampled_from(["us-west-2", "us-gov-east-1", "eusc-de-east-1"]),
    expires_s=st.integers(1, 43200),
)
def test_our_signature_is_botocore_s(access, secret, token, region, expires_s):
    keys = botocore.credentials.ReadOnlyCredentials(access, secret, token)
    request = botocore.awsrequest.AWSRequest(
        "POST",
        "https://sagemaker.amazonaws.com/",
        headers={"host": "sagemaker.amazonaws.com"},
        params={"Action": "CallWithBearerToken"},
    )
    botocore.auth.SigV4QueryAuth(keys, "sagemaker", region, expires=expires_s).add_auth(request)
    stamp = parse_qs(urlsplit(request.url).query)["X-Amz-Date"][0]
    at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    ours = decoded(sign_token(keys, region, at=at + 0.7, expires_s=expires_s))
    assert ours == request.url.removeprefix("https://") + "&Version=1"


@pytest.mark.parametrize("lifetime_s", [0, -1, 43201])
def test_a_lifetime_the_service_would_refuse_is_refused_here(lifetime_s):
    with pytest.raises(EndpointError, match="1 to 43200"):
        BearerTokenSession("us-west-2", lifetime_s=lifetime_s)


# The cache


def test_a_token_is_reused_for_five_minutes_and_then_minted_anew():
    clock = Clock()
    session, provider = session_of(clock=clock)
    first = session.token()
    clock.now += CACHE_S - 1
    assert session.token() == first
    clock.now += 1
    assert session.token() != first
    assert provider.loads == 2


def test_a_token_is_not_handed_out_when_it_is_about_to_expire():
    clock = Clock()
    session, _ = session_of(clock=clock, lifetime_s=60)
    first = session.token()
    clock.now += 49
    assert session.token() == first
    clock.now += 1
    assert session.token() != first


def test_a_token_is_not_handed_out_when_its_credentials_are_about_to_expire():
    clock = Clock()

    def now() -> datetime:
        return datetime.fromtimestamp(clock.now, UTC)

    def refresh():
        raise botocore.exceptions.CredentialRetrievalError(provider="container", error_msg="away")

    def refreshable(seconds: float):
        return botocore.credentials.RefreshableCredentials(
            ACCESS, SECRET, "T", now() + timedelta(seconds=seconds), refresh, "test",
            time_fetcher=now, advisory_timeout=0, mandatory_timeout=0,
        )  # fmt: skip

    session, provider = session_of(refreshable(100), refreshable(10_000), clock=clock)
    first = session.token()
    clock.now += 89
    assert session.token() == first
    clock.now += 1
    second = session.token()
    assert second != first
    clock.now += CACHE_S - 1
    assert session.token() == second
    assert provider.loads == 2


def test_a_clock_set_back_makes_the_cached_token_stale():
    clock = Clock()
    session, provider = session_of(clock=clock)
    session.token()
    clock.now -= 3600
    session.token()
    assert provider.loads == 2


def test_a_cached_token_costs_microseconds():
    session, _ = session_of()
    session.token()
    best = min(timed(session.token) for _ in range(200))
    assert best < 100e-6


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


# One load for everyone


def test_64_threads_at_once_cause_one_load_and_the_next_64_none():
    session, provider = session_of(seconds=0.02)
    for _ in range(2):
        barrier = threading.Barrier(64)

        def ask(_, barrier=barrier) -> str:
            barrier.wait()
            return session.token()

        with ThreadPoolExecutor(64) as pool:
            assert len(set(pool.map(ask, range(64)))) == 1
    assert provider.loads == 1


def test_tasks_on_several_loops_and_threads_cause_one_load():
    session, provider = session_of(seconds=0.05)
    barrier = threading.Barrier(8)

    async def many() -> list[str]:
        return await asyncio.gather(*(session.token_async() for _ in range(8)))

    def ask(number: int) -> set[str]:
        barrier.wait()
        return set(asyncio.run(many())) if number % 2 else {session.token()}

    with ThreadPoolExecutor(8) as pool:
        assert len(set.union(*pool.map(ask, range(8)))) == 1
    assert provider.loads == 1


async def test_an_event_loop_goes_on_while_credentials_are_loaded():
    session, _ = session_of(seconds=0.2)
    task = asyncio.create_task(session.token_async())
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks >= 5
    assert await session.token_async() == task.result()


async def test_cancelling_the_task_that_started_a_load_leaves_it_to_the_others():
    session, provider = session_of(seconds=0.1)
    first = asyncio.create_task(session.token_async())
    second = asyncio.create_task(session.token_async())
    await asyncio.sleep(0.02)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == session.token()
    assert provider.loads == 1


def test_threads_waiting_for_an_interrupted_load_are_told():
    started = threading.Event()
    raised: list[BaseException] = []

    def interrupted():
        started.set()
        time.sleep(0.1)
        raise KeyboardInterrupt

    session = BearerTokenSession("us-west-2", credentials=interrupted)

    def lead() -> None:
        try:
            session.token()
        except KeyboardInterrupt as error:
            raised.append(error)

    leader = threading.Thread(target=lead)
    leader.start()
    started.wait()
    with pytest.raises(CredentialsError, match="interrupted"):
        session.token()
    leader.join()
    assert raised


def test_a_token_minted_while_one_was_asking_is_taken():
    provider = Provider()
    meanwhile: list[str] = []

    class Racing(Clock):
        def __call__(self) -> float:
            if self.now > NEW_YEAR and not meanwhile:
                meanwhile.append("")  # the nested call must not start over
                meanwhile.append(session.token())
            return self.now

    clock = Racing()
    session = BearerTokenSession("us-west-2", credentials=provider, clock=clock)
    session.token()
    clock.now += CACHE_S
    assert session.token() == meanwhile[1]
    assert provider.loads == 2


# Cold start


def test_a_provider_that_is_not_ready_yet_is_asked_again():
    clock = Clock()
    session, provider = session_of(None, None, static(), clock=clock, jitter=lambda: 1.0)
    assert parameters(session.token())["X-Amz-Credential"].startswith(ACCESS)
    assert provider.loads == 3
    assert clock.slept == [0.1, 0.2]


def test_a_provider_that_fails_is_asked_again():
    error = botocore.exceptions.CredentialRetrievalError(provider="p", error_msg="x")
    no_secret = botocore.credentials.Credentials(ACCESS, "")
    plays = [error, OSError("x"), static(""), no_secret, static()]
    session, provider = session_of(*plays, clock=Clock())
    session.token()
    assert provider.loads == len(plays)


@pytest.mark.parametrize("jitter", [0.0, 0.999])
def test_no_credentials_is_an_error_within_ten_seconds(jitter):
    clock = Clock()
    session, provider = session_of(None, clock=clock, jitter=lambda: jitter)
    with pytest.raises(CredentialsError, match=r"no AWS credentials after .* execution role"):
        session.token()
    assert 8 < sum(clock.slept) <= 10
    assert provider.loads == len(clock.slept) + 1


def test_time_a_slow_provider_takes_counts_towards_the_ten_seconds():
    clock = Clock()

    def slow() -> None:
        clock.now += 4

    session = BearerTokenSession("us-west-2", credentials=slow, clock=clock, sleep=clock.sleep)
    with pytest.raises(CredentialsError):
        session.token()
    assert clock.now - NEW_YEAR < 15


def test_waiting_ends_also_where_the_clock_stands_still():
    slept: list[float] = []
    session = BearerTokenSession(
        "us-west-2", credentials=lambda: None, clock=lambda: NEW_YEAR, sleep=slept.append
    )
    with pytest.raises(CredentialsError):
        session.token()
    assert sum(slept) <= 10


def test_a_failure_is_remembered_for_five_seconds_only():
    clock = Clock()
    session, provider = session_of(None, clock=clock)
    with pytest.raises(CredentialsError):
        session.token()
    loads = provider.loads
    clock.now += 4.9
    with pytest.raises(CredentialsError):
        session.token()
    with pytest.raises(CredentialsError):
        asyncio.run(session.token_async())
    assert provider.loads == loads
    provider.plays = [static()]
    clock.now += 0.2
    assert session.token()


def test_threads_share_one_failure():
    clock = Clock()
    session, provider = session_of(None, seconds=0.001, clock=clock)

    def ask(_) -> bool:
        with pytest.raises(CredentialsError):
            session.token()
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(16)))
    assert provider.loads == len(clock.slept) + 1


def test_what_a_provider_prints_stays_out_of_the_error(caplog):
    session, _ = session_of(ValueError(f"helper printed {SECRET}"), clock=Clock())
    with pytest.raises(CredentialsError, match="ValueError") as caught:
        session.token()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__} {caplog.text}"
    assert caught.value.__context__ is None


# Credentials of the process


def test_sessions_of_two_regions_load_the_shared_credentials_once():
    provider = Provider(seconds=0.02)
    shared = SharedCredentials(provider)
    sessions = [
        BearerTokenSession(region, credentials=shared) for region in ("us-west-2", "eu-west-1")
    ]
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda number: sessions[number % 2].token(), range(16)))
    assert len(tokens) == 2
    assert provider.loads == 1


def test_a_rejection_makes_shared_credentials_be_read_anew_once_a_second():
    clock = Clock()
    provider = Provider(static(), static(ROTATED), static(ACCESS))
    shared = SharedCredentials(provider, clock=clock)
    session = BearerTokenSession("us-west-2", credentials=shared, clock=clock)
    session.invalidate(session.token())
    assert parameters(session.token())["X-Amz-Credential"].startswith(ROTATED)
    session.invalidate(session.token())
    assert parameters(session.token())["X-Amz-Credential"].startswith(ROTATED)
    assert provider.loads == 2
    clock.now += 1
    session.invalidate(session.token())
    assert parameters(session.token())["X-Amz-Credential"].startswith(ACCESS)
    assert provider.loads == 3


@pytest.mark.parametrize("play", [None, OSError("provider is busy")])
def test_credentials_are_kept_where_reading_them_anew_fails(play):
    clock = Clock()
    shared = SharedCredentials(Provider(static(), play), clock=clock)
    session = BearerTokenSession("us-west-2", credentials=shared, clock=clock, sleep=clock.sleep)
    session.invalidate(session.token())
    assert session.token()
    assert not clock.slept


def test_one_session_per_region_serves_the_whole_process(monkeypatch):
    monkeypatch.setattr("rft_agent_sdk.auth._sessions", {})
    monkeypatch.setattr("rft_agent_sdk.credentials._shared_credentials", SharedCredentials())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    session = bearer_session("us-west-2")
    assert bearer_session("us-west-2") is session
    assert bearer_session("eu-west-1") is not session
    scope = parameters(session.token())["X-Amz-Credential"]
    assert scope.startswith(ACCESS)
    assert "/us-west-2/" in scope
    with pytest.raises(EndpointError, match="region"):
        bearer_session("us-west-2.evil.example/")


# Rejections


def send_httpx(session, url, **options) -> tuple[int, bytes]:
    with httpx.Client(verify=TLS, auth=session) as client:
        response = client.post(url, **options)
        return response.status_code, response.content


def send_httpx_stream(session, url, **options) -> tuple[int, bytes]:
    with (
        httpx.Client(verify=TLS, auth=session) as client,
        client.stream("POST", url, **options) as response,
    ):
        return response.status_code, response.read()


def send_httpx_async(session, url, **options) -> tuple[int, bytes]:
    async def send() -> tuple[int, bytes]:
        async with httpx.AsyncClient(verify=TLS, auth=session) as client:
            response = await client.post(url, **options)
            return response.status_code, response.content

    return asyncio.run(send())


def send_httpx_async_stream(session, url, **options) -> tuple[int, bytes]:
    async def send() -> tuple[int, bytes]:
        async with (
            httpx.AsyncClient(verify=TLS, auth=session) as client,
            client.stream("POST", url, **options) as response,
        ):
            return response.status_code, await response.aread()

    return asyncio.run(send())


def send_requests(session, url, **options) -> tuple[int, bytes]:
    with requests.Session() as client:
        response = client.post(url, auth=session, timeout=5, **options)
        return response.status_code, response.content


def send_requests_stream(session, url, **options) -> tuple[int, bytes]:
    with (
        requests.Session() as client,
        client.post(url, auth=session, timeout=5, stream=True, **options) as response,
    ):
        return response.status_code, b"".join(response.iter_content())


SENDERS = [
    send_httpx,
    send_httpx_stream,
    send_httpx_async,
    send_httpx_async_stream,
    send_requests,
    send_requests_stream,
]
every_client = pytest.mark.parametrize("send", SENDERS)


@every_client
@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_request_is_signed_anew_within_the_same_second(send, status):
    session, provider = session_of(static(), static(ROTATED), clock=Clock())
    with serving((status, DENIED[1]), OK) as server:
        assert send(session, server.url, json={"a": 1}) == (200, b'{"ok": true}')
    first, second = map(parameters, server.tokens)
    assert first["X-Amz-Credential"].startswith(ACCESS)
    assert second["X-Amz-Credential"].startswith(ROTATED)
    assert [json.loads(body) for body in server.bodies] == [{"a": 1}] * 2
    assert provider.loads == 2


@every_client
def test_a_rejection_that_signing_cannot_cure_is_the_caller_s_after_two_requests(send):
    session, _ = session_of(clock=Clock())
    denied = (403, {"message": "not authorized to access this resource"})
    with serving(denied) as server:
        status, body = send(session, server.url, json={})
    assert (status, json.loads(body)) == denied
    assert len(server.tokens) == len(set(server.tokens)) == 2


@every_client
def test_digits_in_an_error_text_are_no_rejection(send):
    session, provider = session_of()
    with serving((500, "upstream gave up after 403 ms"), OK) as server:
        assert send(session, server.url, json={})[0] == 500
        assert send(session, server.url, json={})[0] == 200
    assert len(server.tokens) == 2
    assert len(set(server.tokens)) == 1
    assert provider.loads == 1


def test_an_answer_after_signing_anew_is_the_caller_s_whatever_it_says():
    session, _ = session_of()
    with serving(DENIED, (500, "down")) as server:
        assert send_httpx(session, server.url) == (500, b"down")
        assert len(server.tokens) == 2


@pytest.mark.parametrize("status", [200, 400, 404, 407, 409, 429, 503])
def test_no_other_status_is_a_rejection(status):
    session, _ = session_of()
    with serving((status, "x")) as server:
        assert send_httpx(session, server.url)[0] == status
        assert send_requests(session, server.url)[0] == status
    assert len(server.tokens) == 2
    assert len(set(server.tokens)) == 1


def test_tokens_signed_after_a_rejection_in_one_second_all_differ():
    session, _ = session_of(clock=Clock())
    tokens = []
    for _ in range(5):
        tokens.append(session.token())
        session.invalidate(tokens[-1])
    assert len({parameters(token)["X-Amz-Signature"] for token in tokens}) == 5
    assert parameters(tokens[-1])["X-Amz-Expires"] == "43196"


def test_the_full_lifetime_is_back_in_the_next_second():
    clock = Clock()
    session, _ = session_of(clock=clock)
    session.invalidate(session.token())
    session.invalidate(session.token())
    clock.now += 1
    assert parameters(session.token())["X-Amz-Expires"] == "43200"


def test_a_stale_rejection_does_not_throw_away_a_fresh_token():
    session, provider = session_of()
    old = session.token()
    session.invalidate(old)
    fresh = session.token()
    session.invalidate(old)
    session.invalidate("sagemaker-api-key-unknown")
    assert session.token() == fresh
    assert provider.loads == 2


def test_refresh_drops_whatever_token_is_cached():
    session, _ = session_of()
    session.refresh()
    old = session.token()
    session.refresh()
    assert session.token() != old


def test_many_threads_rejected_at_once_share_one_new_token():
    session, provider = session_of(static(), static(ROTATED), seconds=0.01)
    old = session.token()
    barrier = threading.Barrier(32)

    def rejected(_) -> str:
        barrier.wait()
        session.invalidate(old)
        return session.token()

    with ThreadPoolExecutor(32) as pool:
        tokens = set(pool.map(rejected, range(32)))
    assert len(tokens) == 1
    assert old not in tokens
    assert provider.loads == 2


def test_credentials_gone_after_a_rejection_are_said_to_be_gone():
    session, _ = session_of(static(), None, clock=Clock())
    with serving(DENIED) as server:
        with pytest.raises(CredentialsError, match="no AWS credentials"):
            send_httpx(session, server.url)
        assert len(server.tokens) == 1


# Bodies that stream


def test_httpx_sends_a_generated_body_again():
    session, _ = session_of()
    with serving(DENIED, OK) as server:
        assert send_httpx(session, server.url, content=iter([b"ab", b"cd"]))[0] == 200
    assert server.bodies == [b"abcd", b"abcd"]


def test_httpx_sends_an_asynchronously_generated_body_again():
    async def body() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cd"

    session, _ = session_of()
    with serving(DENIED, OK) as server:
        assert send_httpx_async(session, server.url, content=body())[0] == 200
    assert server.bodies == [b"abcd", b"abcd"]


def test_requests_rewinds_a_file_to_where_it_was():
    session, _ = session_of()
    file = io.BytesIO(b"skipped|body")
    file.seek(len(b"skipped|"))
    with serving(DENIED, OK) as server:
        assert send_requests(session, server.url, data=file)[0] == 200
    assert server.bodies == [b"body", b"body"]


def test_requests_does_not_send_a_generated_body_again_but_signs_the_next_request_anew():
    session, _ = session_of()
    with serving(DENIED, OK) as server:
        assert send_requests(session, server.url, data=iter([b"ab", b"cd"]))[0] == 403
        assert send_requests(session, server.url, data=b"x")[0] == 200
    assert server.bodies == [b"abcd", b"x"]
    assert len(set(server.tokens)) == 2


def test_requests_takes_a_body_that_cannot_tell_where_it_is():
    class Pipe(io.BytesIO):
        def tell(self) -> int:
            raise OSError("a pipe")

    session, _ = session_of()
    with serving(DENIED) as server:
        assert send_requests(session, server.url, data=Pipe(b"ab"))[0] == 403
        assert len(server.tokens) == 1


# Around requests


def test_requests_keeps_the_rejected_response_in_the_history():
    session, _ = session_of()
    with serving(DENIED, OK) as server:
        response = requests.post(server.url, auth=session, timeout=5)
    assert [earlier.status_code for earlier in response.history] == [403]
    assert response.request.headers["Authorization"] == server.tokens[1]


def test_a_requests_session_shared_by_threads_signs_each_request_anew_at_most_once():
    session, _ = session_of()
    with serving(DENIED) as server, requests.Session() as client:

        def send(_) -> int:
            return client.post(server.url, auth=session, timeout=5).status_code

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(send, range(16))) == {403}
    assert len(server.tokens) == 32


def test_a_redirect_to_another_host_never_gets_a_token():
    session, _ = session_of()
    with serving(DENIED) as other, serving((307, other.url)) as server:
        assert send_requests(session, server.url, json={})[0] == 403
        with httpx.Client(verify=TLS, auth=session, follow_redirects=True) as client:
            assert client.post(server.url, json={}).status_code == 403
    assert other.tokens
    assert set(other.tokens) == {""}


# The OpenAI client


def test_the_openai_client_retries_a_500_with_the_same_token():
    session, _ = session_of()
    with (
        serving((500, "upstream gave up after 403 ms"), (200, COMPLETION)) as server,
        httpx.Client(verify=TLS, auth=session) as http,
    ):
        client = openai.OpenAI(base_url=server.url, api_key="x", http_client=http)
        client.chat.completions.create(model="default", messages=[])
    assert len(server.tokens) == 2
    assert len(set(server.tokens)) == 1


async def test_the_openai_client_streams_after_a_rejection():
    session, _ = session_of()
    chunk = {
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "default",
        "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],
    }  # fmt: skip
    events = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
    with serving(DENIED, (200, events)) as server:
        async with httpx.AsyncClient(verify=TLS, auth=session) as http:
            client = openai.AsyncOpenAI(base_url=server.url, api_key="x", http_client=http)
            stream = await client.chat.completions.create(model="default", messages=[], stream=True)
            assert [part.choices[0].delta.content async for part in stream] == ["hi"]
    assert len(set(server.tokens)) == 2


# Nothing secret is shown


@every_client
def test_no_token_is_in_a_log_or_a_repr(send, caplog):
    caplog.set_level("DEBUG")
    session, _ = session_of(static(token="SESSION/TOKEN"))
    with serving(DENIED, OK) as server:
        send(session, server.url, json={})
    shown = f"{caplog.text} {session!r} {session}"
    assert "bearer token rejected" in caplog.text
    for secret in (*server.tokens, SECRET, ACCESS, "SESSION/TOKEN", TOKEN_PREFIX):
        assert secret not in shown
    assert repr(session) == "BearerTokenSession(region='us-west-2')"


# The gateway's key


@every_client
def test_a_gateway_key_is_sent_once_as_it_is(send):
    auth = KeyAuth("sk-secret")
    auth.refresh()
    with serving(DENIED) as server:
        assert send(auth, server.url, json={})[0] == 403
    assert server.tokens == ["Bearer sk-secret"]
    assert "secret" not in f"{auth!r} {auth}"


@pytest.mark.parametrize("key", ["", "sk-é", "sk-a\r\nX-Other: b", "sk-\x00"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_without_showing_it(key):
    with pytest.raises(EndpointError, match="printable ASCII") as caught:
        KeyAuth(key)
    assert "sk-" not in str(caught.value)


# The region

ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/j1"
HOST = "https://job-runtime.sagemaker.us-east-1.api.aws"


def test_the_endpoint_s_region_wins_over_the_environment():
    assert resolve_region(endpoint=HOST, environ={"AWS_REGION": "us-west-2"}) == "us-east-1"


@pytest.mark.parametrize(
    ("said", "region"),
    [
        ({"endpoint": HOST + ":443/v1", "region": "us-east-1"}, "us-east-1"),
        (
            {"endpoint": "https://JOB-RUNTIME.sagemaker-fips.US-gov-west-1.API.aws/"},
            "us-gov-west-1",
        ),
        ({"endpoint": "http://127.0.0.1:8080", "region": "eu-west-1"}, "eu-west-1"),
        ({"endpoint": "http://127.0.0.1:8080", "job_arn": ARN}, "us-west-2"),
        ({"endpoint": "https://job-runtime.sagemaker.eu-west-1.api.aws@evil.example"}, "sa-east-1"),
        ({"endpoint": "https://job-runtime.\u017fagemaker.eu-west-1.api.aws"}, "sa-east-1"),
        ({"job_arn": "test"}, "sa-east-1"),
        ({"job_arn": "arn:aws:sagemaker::123456789012:job/AgentRFT/j1"}, "sa-east-1"),
        ({"region": ""}, "sa-east-1"),
    ],
)
def test_what_the_rollout_says_comes_first_then_the_environment(said, region):
    assert resolve_region(**said, environ={"AWS_REGION": "sa-east-1"}) == region


def test_the_default_region_is_used_where_it_is_the_only_one():
    assert resolve_region(environ={"AWS_DEFAULT_REGION": "eu-north-1"}) == "eu-north-1"
    both = {"AWS_REGION": " eu-west-3 ", "AWS_DEFAULT_REGION": "eu-north-1"}
    assert resolve_region(environ=both) == "eu-west-3"


@pytest.mark.parametrize(
    "said",
    [
        {"endpoint": HOST, "region": "us-west-2"},
        {"endpoint": HOST, "job_arn": ARN},
        {"region": "us-east-1", "job_arn": ARN},
        {"endpoint": HOST, "region": "us-east-1", "job_arn": ARN},
    ],
)
def test_a_disagreement_is_refused_and_both_are_named(said):
    with pytest.raises(EndpointError, match=r"us-east-1.*us-west-2"):
        resolve_region(**said, environ={})


def test_no_region_at_all_is_an_error_that_says_what_to_set():
    with pytest.raises(EndpointError, match="AWS_REGION or AWS_DEFAULT_REGION"):
        resolve_region(environ={"AWS_REGION": " "})


@pytest.mark.parametrize(
    "region", ["uswest2", "us-west", "US-WEST-2", "us-west-2.evil.example/", "us-west-2\n", "-a-1", "us-west-²", "us-" + "a" * 60 + "-1"]
)  # fmt: skip
def test_what_has_not_the_shape_of_a_region_is_refused(region):
    with pytest.raises(EndpointError, match="must name an AWS region"):
        resolve_region(region=region, environ={})
    if region.strip() == region:
        with pytest.raises(EndpointError, match="AWS_REGION must name"):
            resolve_region(environ={"AWS_REGION": region})
