"""Serving a twin on loopback, on a thread of its own."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.server_thread import ServerThread


class LoopbackServer:
    """An ASGI application on 127.0.0.1."""

    def __init__(self, app: Any, *, port: int = 0) -> None:
        self._app = app
        self._port = port
        self._thread: ServerThread | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """Base URL without a slash at the end; there once it is started."""
        if self._url is None:
            raise UsageError("the server has no URL before start()")
        return self._url

    def start(self) -> None:
        """Bind, serve, and return once connections are taken."""
        if self._thread is not None:
            raise UsageError("the server is running already")
        listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        config = uvicorn.Config(
            self._app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=75,  # clients pool connections for longer than uvicorn's 5 s
            timeout_graceful_shutdown=2,
        )
        self._thread = ServerThread(config, listener, "rft-twin")
        self._url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def stop(self) -> None:
        """Let requests in flight end within two seconds, and wait for the thread."""
        thread, self._thread, self._url = self._thread, None, None
        if thread is not None:
            thread.stop()
