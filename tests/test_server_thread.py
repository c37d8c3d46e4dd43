"""A server on a thread: stopped in the midst of connections, it ends with none left and without an error."""

import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from rft_agent_sdk.twins.serve import LoopbackServer

ROUNDS, CLIENTS, HELD = 3, 4, 50
SAID = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "a request": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "part of a body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab",
}


async def app(scope, receive, send):
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body"})


def connect_until(stopped: threading.Event, port: int, said: bytes) -> None:
    """Open connections one after another, some of them at any time; each says the same."""
    held: list[socket.socket] = []
    while not stopped.is_set():
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            held[-1].sendall(said)
        if len(held) == HELD:
            while held:
                held.pop().close()
    for one in held:
        one.close()


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_server_stopped_while_clients_connect_leaves_no_connection(said):
    """A transport that is left when the loop closes is an error of its thread, which fails the test."""
    for _ in range(ROUNDS):
        server = LoopbackServer(app)
        server.start()
        stopped = threading.Event()
        port = urlsplit(server.url).port
        clients = [
            threading.Thread(target=connect_until, args=(stopped, port, said))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(0.02)
        server.stop()
        stopped.set()
        for client in clients:
            client.join()
