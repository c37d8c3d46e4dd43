"""Who signed a request: bearer tokens of the Job Runtime, and plain SigV4.

A bearer token is a presigned SageMaker URL in base64. It says who the caller is, in which region,
and for how long; it is bound to no job, path or body. Everything in it is checked; the signature
itself only where the secret key of its access key is known. Minting is `rft_agent_sdk.auth`'s.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote

PREFIX = "sagemaker-api-key-"
SIGV4 = "AWS4-HMAC-SHA256"
MAX_EXPIRES_S = 43_200
"""12 hours, the longest life of a token."""
CLOCK_SKEW_S = 300.0
"""How far in the future a signature may be dated."""
SIGNATURE_LIFE_S = 900.0
"""How old the signature of a plain SigV4 request may be."""

_HOST_AND_PATH = "sagemaker.amazonaws.com/"
_HOST_LINE = "host:sagemaker.amazonaws.com\n"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ACCESS_KEY = re.compile(r"[A-Z0-9]{16,128}")
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_KNOWN_TOKENS = 4096
_DATE = "%Y%m%dT%H%M%SZ"


class TokenError(ValueError):
    """A token or signature that does not verify; says which part, and never quotes it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who signed, as far as the signature says."""

    access_key: str
    region: str
    signed_at: str
    """`X-Amz-Date`, as `yyyymmddThhmmssZ`: tells a fresh token from a cached one."""
    expires_at: float
    """Unix time in seconds after which the signature is worth nothing."""
    is_proved: bool
    """Whether the signature itself was checked."""


@dataclass(frozen=True, slots=True)
class _Scope:
    access_key: str
    date: str
    region: str

    @property
    def text(self) -> str:
        return f"{self.date}/{self.region}/sagemaker/aws4_request"


class TokenReader:
    """Reads signatures, and remembers the bearer tokens it has read: agents send one many times."""

    def __init__(self, secrets: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._secrets = dict(secrets)
        self._clock = clock
        self._known: dict[bytes, Caller] = {}

    def bearer(self, token: str) -> Caller:
        """Return the caller a bearer token speaks for.

        Raises:
            TokenError: See `read_bearer`.
        """
        key = hashlib.sha256(token.encode()).digest()  # no token is kept
        caller = self._known.get(key)
        now = self._clock()
        if caller is None:
            caller = read_bearer(token, now=now, secrets=self._secrets)
            if len(self._known) >= _KNOWN_TOKENS:
                self._known.clear()
            self._known[key] = caller
        _check_expiry(now, caller.expires_at)
        return caller

    def sigv4(
        self, *, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> Caller:
        """Return the caller a SigV4 `Authorization` header speaks for.

        Raises:
            TokenError: See `read_sigv4`.
        """
        return read_sigv4(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=body,
            now=self._clock(),
            secrets=self._secrets,
        )


def read_bearer(token: str, *, now: float, secrets: Mapping[str, str]) -> Caller:
    """Return the caller that a bearer token speaks for.

    Args:
        token: With its prefix.
        now: Unix time in seconds.
        secrets: Secret keys by access key; with the caller's among them the signature is checked.

    Raises:
        TokenError: The token is malformed, for another service, out of its time, or forged.
    """
    query = _query_of(token)
    fields = _fields(query)
    if fields.get("Action") != "CallWithBearerToken":
        raise TokenError("its Action is not CallWithBearerToken")
    if fields.get("X-Amz-Algorithm") != SIGV4:
        raise TokenError(f"its X-Amz-Algorithm is not {SIGV4}")
    if fields.get("X-Amz-SignedHeaders") != "host":
        raise TokenError("its X-Amz-SignedHeaders is not host")
    scope = _scope(fields.get("X-Amz-Credential", ""))
    date = fields.get("X-Amz-Date", "")
    signed_at = _time_of(date, scope)
    expires_at = signed_at + _expires(fields.get("X-Amz-Expires", ""))
    _check_time(now, signed_at, expires_at)
    secret = secrets.get(scope.access_key)
    if secret is not None:
        canonical = _canonical("POST", "/", _signed_query(query), _HOST_LINE, "host", _EMPTY_SHA256)
        _check_signature(secret, scope, date, canonical, fields.get("X-Amz-Signature", ""))
    return Caller(scope.access_key, scope.region, date, expires_at, secret is not None)


def read_sigv4(
    *,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    secrets: Mapping[str, str],
) -> Caller:
    """Return the caller that a SigV4 `Authorization` header speaks for.

    Args:
        method: HTTP method.
        path: Path as it was sent, percent-encoded.
        query: Query string as it was sent.
        headers: Request headers by lower-case name.
        body: The whole body.
        now: Unix time in seconds.
        secrets: Secret keys by access key; with the caller's among them the signature is checked.

    Raises:
        TokenError: The signature is malformed, for another service, too old, or forged.
    """
    parts = _authorization(headers.get("authorization", ""))
    scope = _scope(parts.get("Credential", ""))
    date = headers.get("x-amz-date", "")
    signed_at = _time_of(date, scope)
    expires_at = signed_at + SIGNATURE_LIFE_S
    _check_time(now, signed_at, expires_at)
    names = parts.get("SignedHeaders", "").split(";")
    if "host" not in names or any(name not in headers for name in names):
        raise TokenError("its SignedHeaders are not all there, or leave out host")
    secret = secrets.get(scope.access_key)
    if secret is not None:
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
        payload = headers.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
        canonical = _canonical(
            method, quote(unquote(path), safe="/~"), _sorted(query), lines, ";".join(names), payload
        )
        _check_signature(secret, scope, date, canonical, parts.get("Signature", ""))
    return Caller(scope.access_key, scope.region, date, expires_at, secret is not None)


def _query_of(token: str) -> str:
    if not token.startswith(PREFIX):
        raise TokenError(f"it does not start with {PREFIX}")
    try:
        url = base64.b64decode(token.removeprefix(PREFIX), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise TokenError("it is not base64 of an ASCII text") from None
    target, mark, query = url.partition("?")
    if not mark or target != _HOST_AND_PATH:
        raise TokenError(f"it is not for {_HOST_AND_PATH}")
    return query


def _fields(query: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in query.split("&")]
    fields = {name: unquote(value) for name, _, value in pairs}
    if len(fields) != len(pairs):
        raise TokenError("it names a parameter twice")
    return fields


def _authorization(header: str) -> dict[str, str]:
    kind, _, rest = header.partition(" ")
    if kind != SIGV4:
        raise TokenError(f"it is not {SIGV4}")
    pairs = (part.strip().partition("=") for part in rest.split(","))
    return {name: value for name, _, value in pairs}


def _scope(credential: str) -> _Scope:
    parts = credential.split("/")
    if len(parts) != 5:
        raise TokenError("its credential scope has not five parts")
    access_key, date, region, service, end = parts
    if not _ACCESS_KEY.fullmatch(access_key):
        raise TokenError("its access key has not the form of one")
    if not _REGION.fullmatch(region):
        raise TokenError(f"its region is none: {region!r}")
    if (service, end) != ("sagemaker", "aws4_request"):
        raise TokenError("its credential scope is not sagemaker/aws4_request")
    return _Scope(access_key, date, region)


def _time_of(date: str, scope: _Scope) -> float:
    try:
        signed_at = datetime.strptime(date, _DATE).replace(tzinfo=UTC)
    except ValueError:
        raise TokenError("its X-Amz-Date is not yyyymmddThhmmssZ") from None
    if not date.startswith(f"{scope.date}T"):
        raise TokenError("its X-Amz-Date is not of the day in its credential scope")
    return signed_at.timestamp()


def _expires(value: str) -> int:
    # isdecimal alone would let through other scripts' digits
    if not (value.isascii() and value.isdecimal()) or not 0 < int(value) <= MAX_EXPIRES_S:
        raise TokenError(f"its X-Amz-Expires is not a number of seconds up to {MAX_EXPIRES_S}")
    return int(value)


def _check_time(now: float, signed_at: float, expires_at: float) -> None:
    if signed_at > now + CLOCK_SKEW_S:
        raise TokenError("it is dated in the future; is a clock wrong?")
    _check_expiry(now, expires_at)


def _check_expiry(now: float, expires_at: float) -> None:
    if now >= expires_at:
        raise TokenError(f"it expired {now - expires_at:.0f} s ago")


def _signed_query(query: str) -> str:
    unsigned = ("X-Amz-Signature=", "Version=")  # Version is appended after signing
    return "&".join(sorted(part for part in query.split("&") if not part.startswith(unsigned)))


def _sorted(query: str) -> str:
    return "&".join(sorted(query.split("&"))) if query else ""


def _canonical(
    method: str, path: str, query: str, header_lines: str, header_names: str, payload_hash: str
) -> str:
    return "\n".join((method, path, query, header_lines, header_names, payload_hash))


def _check_signature(secret: str, scope: _Scope, date: str, canonical: str, signature: str) -> None:
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((SIGV4, date, scope.text, digest))
    key = f"AWS4{secret}".encode()
    for part in scope.text.split("/"):
        key = _mac(key, part)
    if not hmac.compare_digest(_mac(key, text).hex().encode(), signature.encode()):
        raise TokenError("its signature does not match")


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
