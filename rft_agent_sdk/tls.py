"""The one TLS context of this process.

Loading a CA bundle costs tens of milliseconds, which a client per call would pay on every turn.
"""

from __future__ import annotations

import functools
import os
import ssl
import threading

_BUNDLE_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


def ca_bundle() -> str:
    """Return the path of the CA bundle: of the AWS, requests or OpenSSL variable, else certifi's."""
    import certifi

    named = (os.environ.get(name) for name in _BUNDLE_VARIABLES)
    return next((path for path in named if path), None) or certifi.where()


_lock = threading.Lock()


def tls_context() -> ssl.SSLContext:
    """Return the shared client context, made on first use, once however many threads ask."""
    with _lock:
        return _tls_context()


@functools.lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_bundle())
