"""An ASGI server on a thread of its own, beside a trainer, a test or a demo."""

from __future__ import annotations

import socket
import threading

import uvicorn


class SettlingServer(uvicorn.Server):
    """A uvicorn server that says when it has started, or failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections."""
        await super().startup(sockets)
        self.is_settled.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        try:
            super().run(sockets)
        finally:
            self.is_settled.set()


class ServerThread:
    """One server and its thread, running from its making to `stop`."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, name: str) -> None:
        """Serve on a bound socket; return once connections are taken.

        Raises:
            RuntimeError: The server did not start; the socket is closed.
        """
        self.server = SettlingServer(config)
        self._thread = threading.Thread(
            target=self.server.run, args=([listener],), name=name, daemon=True
        )
        self._thread.start()
        self.server.is_settled.wait()
        if not self.server.started:
            self.stop()
            listener.close()
            raise RuntimeError("the server did not start; its log says why")

    def stop(self) -> None:
        """Stop taking requests, let those in flight end within the grace, and wait for the thread."""
        self.server.should_exit = True
        self._thread.join()
