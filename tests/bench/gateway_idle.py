"""A server that answers any request with the same turn: what the load generator can do at most."""

import asyncio
import json
import threading
from typing import cast

import uvloop

from tests.bench.gateway_control import obey

_CALL = {"name": "guess_word", "arguments": '{"guess": "crane"}'}
_MESSAGE = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_0", "type": "function", "function": _CALL}],
}
_BODY = json.dumps({"choices": [{"index": 0, "message": _MESSAGE}]}).encode()
_REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


class Idle(asyncio.Protocol):
    """Counts bytes, and answers once a request is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base
        self._missing = 0

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            head, _, rest = data.partition(b"\r\n\r\n")
            self._missing = int(head.rpartition(b"Content-Length: ")[2]) - len(rest)
        if not self._missing:
            self._transport.write(_REPLY)


def main() -> None:
    """Serve until stdin ends."""
    bound = threading.Event()
    ports: list[int] = []

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Idle, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        bound.set()
        await server.serve_forever()

    threading.Thread(target=uvloop.run, args=(serve(),), daemon=True).start()
    bound.wait()
    obey(ports[0], lambda count: [f"key-{number}" for number in range(count)])


if __name__ == "__main__":
    main()
