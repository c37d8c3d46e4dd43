"""What the agent finds out about itself, where it runs: `{"rft_doctor": true}` asks, `handler` answers.

Who may do what, and what can be reached, is known for sure only inside the runtime: its role, its network,
its packages. So `rft doctor` asks there. No rollout is played, no trajectory touched, no request sent that
carries a token, and no value of a variable, no key and no token is in the answer.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.metadata
import os
import platform
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from rft_agent_sdk.auth import bearer_session
from rft_agent_sdk.credentials import TOKEN_PREFIX, shared_credentials
from rft_agent_sdk.endpoint import RUNTIME_ENDPOINT, resolve_endpoint
from rft_agent_sdk.errors import RftError
from rft_agent_sdk.payload import JobAddress, RolloutRequest
from rft_agent_sdk.region import resolve_region
from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON

DEADLINE_S = 10.0
"""Seconds after which the answer goes out with whatever is known by then."""
_CONNECT_S = 5.0
_PACKAGES = (
    "rft-agent-sdk",
    "bedrock-agentcore",
    "strands-agents",
    "openai",
    "httpx",
    "requests",
    "pydantic",
    "botocore",
    "aws-opentelemetry-distro",
    "sagemaker-train",
)
_NAMED = re.compile(
    r"(?:AWS|RFT|REASONING|ROLLOUT|OTEL|BEDROCK|AGENT)_\w+|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE",
    re.IGNORECASE | re.ASCII,
)
"""Variables that change what the agent does; that others are set is nobody's business."""
_OLD_KEY = re.compile(r"A[KS]IA[IJ]")
"""Keys of before 2019, whose account cannot be told from them."""

Part = Callable[[], JSON]


async def self_check(
    *,
    floor: float,
    budget_s: float | None = None,
    allow_hosts: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> JSON:
    """Return `{"rft_doctor": {...}}`: each part with `ok`, what was found, and `error` where it is not ok.

    Args:
        floor: The handler's floor reward.
        budget_s: The handler's own budget in seconds; `None` tells the one a rollout would get.
        allow_hosts: The handler's allowed hosts, for an endpoint that the environment names.
        environ: Environment variables; `None` reads the process's own.
        deadline_s: Seconds after which parts still at work are told as such.
    """
    environ = os.environ if environ is None else environ
    began = time.monotonic()
    region, trouble = _region(environ)
    parts: dict[str, Part] = {
        "identity": lambda: _identity(environ),
        "token": lambda: _token(region or _lacking(trouble)),
        "endpoint": lambda: _reach(_endpoint(region, environ, allow_hosts)),
        "amazonaws": lambda: _reach(_amazonaws(region or _lacking(trouble), environ)),
    }
    found = await asyncio.gather(
        *(_in_time(name, part, began + deadline_s) for name, part in parts.items())
    )
    rollout = Rollout(RolloutRequest("", ""), budget_s=budget_s, environ=environ)
    return {
        "rft_doctor": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "packages": _packages(),
            "region": {"ok": region is not None, "name": region}
            | ({"error": trouble} if trouble else {}),
            "variables": sorted(name for name in environ if _NAMED.fullmatch(name)),
            "budget_s": round(rollout.deadline.remaining()),
            "floor": floor,
            **dict(zip(parts, found, strict=True)),
            "elapsed_s": round(time.monotonic() - began, 3),
        }
    }


async def _in_time(name: str, part: Part, until: float) -> JSON:
    """Run a part on a daemon thread, since a lookup or a provider may hang and cannot be stopped."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[JSON] = loop.create_future()

    def settle(result: JSON) -> None:
        if not done.done():
            done.set_result(result)

    def run() -> None:
        result = _guarded(part)
        try:
            loop.call_soon_threadsafe(settle, result)
        except RuntimeError:  # the loop is closed: it was too late
            return

    threading.Thread(target=run, daemon=True, name=f"rft-doctor-{name}").start()
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            return await done
    except TimeoutError:
        return {"ok": False, "error": "not done when the time for the answer was up"}


def _guarded(part: Part) -> JSON:
    try:
        return part()
    except RftError as error:  # ours hold no secret
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - a provider's text can hold what a process printed
        return {"ok": False, "error": type(error).__name__}


def _lacking(trouble: str | None) -> str:
    raise RftError(trouble or "no region")


def _region(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    endpoint = environ.get(RUNTIME_ENDPOINT, "").strip() or None
    try:
        return resolve_region(endpoint=endpoint, environ=environ), None
    except RftError as error:
        return None, str(error)


def _packages() -> dict[str, str]:
    """Versions of what is installed; in a bundle only the dependencies have metadata."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _identity(environ: Mapping[str, str]) -> JSON:
    """Tell whose credentials these are, without a call: the account stands in the key's own id."""
    credentials = shared_credentials()()
    if credentials is None:
        raise RftError(
            "no AWS credentials: give the runtime an execution role, or export AWS_PROFILE or keys"
        )
    frozen = credentials.get_frozen_credentials()
    named = getattr(credentials, "account_id", None)
    found: JSON = {
        "ok": True,
        "method": getattr(credentials, "method", None),
        "account": named or account_in(frozen.access_key),
        "temporary": bool(frozen.token),
    }
    if role := environ.get("AWS_ROLE_ARN", "").strip():
        found["role"] = role
    return found


def account_in(access_key: str) -> str | None:
    """Return the account that an access key id was made in, or `None` if it does not tell.

    The id's characters after its four-letter kind are base32; 40 bits of them, from the second, are the account.
    """
    if len(access_key) != 20 or _OLD_KEY.match(access_key):
        return None
    try:
        number = int.from_bytes(base64.b32decode(access_key[4:])[:6], "big")
    except (binascii.Error, ValueError):
        return None
    account = (number & 0x7FFFFFFFFF80) >> 7
    return f"{account:012d}" if account < 10**12 else None


def _token(region: str) -> JSON:
    """Mint a bearer token; a token is shown to nobody, its age of use is."""
    if shared_credentials()() is None:  # said at once, where minting would wait for a slow provider
        raise RftError("no AWS credentials to sign a token with")
    began = time.monotonic()
    token = bearer_session(region).token()
    ok = token.startswith(TOKEN_PREFIX)
    return {"ok": ok, "region": region, "ms": _ms(began)}


def _endpoint(region: str | None, environ: Mapping[str, str], allow_hosts: Iterable[str]) -> str:
    """Return the Job Runtime's URL of a rollout whose payload names none."""
    job = JobAddress("", "rft-doctor", region=region)
    request = RolloutRequest("", "", job)
    return resolve_endpoint(request, environ=environ, allow_hosts=allow_hosts).root


def _amazonaws(region: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a service whose host is an `.amazonaws.com` one, for comparison.

    An allow-list written for `*.amazonaws.com` lets this through and the Job Runtime's `.api.aws` not.
    """
    for name in ("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"):
        if url := environ.get(name, "").strip():
            return url
    return f"https://sts.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def _reach(url: str) -> JSON:
    """Look a host up, connect, and shake hands; nothing is sent."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    found: JSON = {"ok": False, "host": f"{host}:{port}"}
    began = time.monotonic()
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found["addresses"] = sorted({str(info[4][0]) for info in infos})[:4]
        with socket.create_connection((host, port), timeout=_CONNECT_S) as plain:
            if secure:
                with tls_context().wrap_socket(plain, server_hostname=host) as wrapped:
                    found["tls"] = wrapped.version()
    except OSError as error:  # also what ssl raises
        stage = "connect" if "addresses" in found else "look up"
        return {**found, "error": f"could not {stage}: {type(error).__name__}: {error}"}
    return {**found, "ok": True, "ms": _ms(began)}


def _ms(began: float) -> int:
    return round(1000 * (time.monotonic() - began))
