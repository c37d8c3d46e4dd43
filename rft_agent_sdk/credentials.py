"""AWS credentials, loaded once for the whole process, and the token that is signed with them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

import botocore.session

logger = logging.getLogger(__name__)

TOKEN_PREFIX = "sagemaker-api-key-"  # noqa: S105 - the public prefix, not a token
MAX_LIFETIME_S = 43200
"""Longest validity the service grants a token."""
_REREAD_S = 1.0
_HOST = "sagemaker.amazonaws.com"


class FrozenCredentials(Protocol):
    """One consistent set of keys."""

    @property
    def access_key(self) -> str: ...  # noqa: D102
    @property
    def secret_key(self) -> str: ...  # noqa: D102
    @property
    def token(self) -> str | None: ...  # noqa: D102


class Credentials(Protocol):
    """What botocore calls credentials; the refreshable ones also have `refresh_needed(refresh_in)`."""

    def get_frozen_credentials(self) -> FrozenCredentials: ...  # noqa: D102


CredentialSource = Callable[[], Credentials | None]
"""Loads credentials, or returns `None` when none are to be had yet; it may block."""


def sign_token(
    credentials: FrozenCredentials, region: str, *, at: float, expires_s: int = MAX_LIFETIME_S
) -> str:
    """Return the bearer token for one region, signed at `at` (seconds since the epoch).

    Signed here and not by botocore, whose signer reads the system clock itself.

    Source: AWS Signature Version 4, query-string authentication. `Version` is appended unsigned.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    scope = f"{stamp[:8]}/{region}/sagemaker/aws4_request"
    query = {
        "Action": "CallWithBearerToken",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        query["X-Amz-Security-Token"] = credentials.token
    pairs = [f"{name}={quote(value, safe='-_.~')}" for name, value in query.items()]
    no_body = hashlib.sha256(b"").hexdigest()
    canonical = f"POST\n/\n{'&'.join(sorted(pairs))}\nhost:{_HOST}\n\nhost\n{no_body}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode(), "sha256")
    text = f"{_HOST}/?{'&'.join(pairs)}&X-Amz-Signature={signature.hex()}&Version=1"
    return TOKEN_PREFIX + base64.b64encode(text.encode()).decode()


def _botocore_credentials() -> Credentials | None:
    found: Credentials | None = botocore.session.Session().get_credentials()
    return found


class SharedCredentials:
    """The credentials of this process: one botocore session, loaded by one thread at a time.

    A session per token would starve a container's credential provider under concurrent rollouts.
    """

    def __init__(
        self,
        load: CredentialSource = _botocore_credentials,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._reread_at = -math.inf
        self._is_rejected = False

    def __call__(self) -> Credentials | None:
        """Return the credentials, loading them if there are none or the service rejected them."""
        with self._lock:
            if self._credentials is None:
                self._credentials = self._load()
            elif self._is_rejected and not 0 <= self._clock() - self._reread_at < _REREAD_S:
                self._reread()
            return self._credentials

    def reject(self) -> None:
        """Have them read anew at the next call, at most once a second; never blocks."""
        self._is_rejected = True

    def _reread(self) -> None:
        """Replace the credentials; where that fails, the old ones may still be the right ones."""
        self._is_rejected, self._reread_at = False, self._clock()
        try:
            self._credentials = self._load() or self._credentials
        except Exception as error:  # noqa: BLE001 - providers are plug-ins and raise anything
            logger.warning("error=<%s> | AWS credentials not read anew", type(error).__name__)


_shared_credentials = SharedCredentials()


def shared_credentials() -> SharedCredentials:
    """Return this process's credential source."""
    return _shared_credentials
