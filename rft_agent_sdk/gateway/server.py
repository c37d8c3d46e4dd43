"""Serving a gateway: on a thread beside a trainer or a test, or as the process's one task."""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import socket
from collections.abc import Callable
from types import TracebackType

import uvicorn

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.app import create_app
from rft_agent_sdk.gateway.core import Gateway
from rft_agent_sdk.server_thread import ServerThread, SettlingServer

logger = logging.getLogger(__name__)

_BACKLOG = 2048


class GatewayServer:
    """Serves one gateway: `with GatewayServer(gateway) as server: ... server.url ...`."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        url_host: str | None = None,
        allow_remote: bool = False,
        grace_s: int = 2,
    ) -> None:
        """Describe the server; nothing is bound yet.

        Args:
            gateway: What is served.
            host: Address to bind.
            port: Port to bind; 0 takes a free one.
            url_host: Host in `url`, where agents reach this machine by another name than `host`.
            allow_remote: Serve other machines too. There is no TLS here: secrets and everything said
                would cross the network in the clear, so keep it inside a network you trust.
            grace_s: Seconds that requests in flight get at `stop`.

        Raises:
            UsageError: `host` is not a loopback address and `allow_remote` is false.
        """
        if not allow_remote and not _is_loopback(host):
            raise UsageError(
                f"binding to {host!r} would serve other machines without TLS: bind to 127.0.0.1, or "
                "say allow_remote=True (--allow-remote) if the network is trusted"
            )
        self.gateway = gateway
        self._host = host
        self._port = port
        self._url_host = url_host or host
        self._grace_s = grace_s
        self._thread: ServerThread | None = None
        self._bound_port: int | None = None

    @property
    def url(self) -> str:
        """Base URL, without `/v1` and without a slash at the end; there once it is bound."""
        if self._bound_port is None:
            raise UsageError("the gateway server has no URL before start()")
        host = f"[{self._url_host}]" if ":" in self._url_host else self._url_host
        return f"http://{host}:{self._bound_port}"

    def start(self) -> GatewayServer:
        """Serve on a thread of its own; return once connections are taken."""
        if self._thread is not None:
            raise UsageError("the gateway server is running already")
        listener = self._bind()
        try:
            self._thread = ServerThread(self._config(), listener, "rft-gateway")
        except RuntimeError:
            self._bound_port = None
            raise
        logger.debug("url=<%s> | gateway serving", self.url)
        return self

    def stop(self) -> None:
        """Stop taking requests, let those in flight end within the grace, and wait for the thread."""
        thread, self._thread, self._bound_port = self._thread, None, None
        if thread is not None:
            thread.stop()

    def serve_forever(self, on_ready: Callable[[str], None] | None = None) -> None:
        """Serve on this thread until SIGINT or SIGTERM, which then takes its usual course.

        Args:
            on_ready: Told the URL once it is bound.

        Raises:
            KeyboardInterrupt: SIGINT came; the server has stopped clean.
        """
        listener = self._bind()
        try:
            if on_ready is not None:
                on_ready(self.url)
            SettlingServer(self._config()).run([listener])
        finally:
            self._bound_port = None
            listener.close()

    def __enter__(self) -> GatewayServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        self._bound_port = listener.getsockname()[1]
        return listener

    def _config(self) -> uvicorn.Config:
        # h11 and asyncio's own loop would cost two thirds of the speed; they are the fallback.
        is_fast = importlib.util.find_spec("httptools") is not None
        return uvicorn.Config(
            create_app(self.gateway),
            http="httptools" if is_fast else "h11",
            loop="auto",
            ws="none",
            proxy_headers=False,  # nobody here asks who the client is
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,  # clients pool connections for longer than uvicorn's 5 s
            timeout_graceful_shutdown=self._grace_s,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
