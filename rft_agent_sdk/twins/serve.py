"""Serving an ASGI application on loopback, on a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn

from rft_agent_sdk.errors import UsageError


class ServerThread:
    """One uvicorn server on 127.0.0.1."""

    def __init__(self, app: Any, *, port: int = 0) -> None:
        self._app = app
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
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
        self._url = f"http://127.0.0.1:{listener.getsockname()[1]}"
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
        self._server = server = _Server(config)
        self._thread = threading.Thread(
            target=server.run, args=([listener],), name="rft-twin", daemon=True
        )
        self._thread.start()
        server.is_settled.wait()
        if not server.started:
            self.stop()
            listener.close()
            raise RuntimeError("the server did not start; its log says why")

    def stop(self) -> None:
        """Let requests in flight end within two seconds, and wait for the thread."""
        server, thread = self._server, self._thread
        self._server = self._thread = self._url = None
        if server is not None and thread is not None:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """A uvicorn server that says when it has started, or failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_settled.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self.is_settled.set()
