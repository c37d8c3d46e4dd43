"""The load generator: clients that keep their connection and play whole sessions over it.

It is written lean, so that the server is what is measured: a request's body is the one before with two
more messages put at its end, and of a reply only the assistant's message is read.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import cast

import orjson

from tests.bench.gateway_play import START, TOOL, results

_RESULTS = [orjson.dumps(text) for text in results(64)]
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
_OPENING = (
    b'{"model":"m","tools":' + orjson.dumps([TOOL]) + b',"messages":' + orjson.dumps(START)[:-1]
)


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._wanted = 0
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Return a client that is connected."""
        _, client = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        if not self._wanted:
            joined = b"".join(self._parts)
            head, mark, _ = joined.partition(b"\r\n\r\n")
            if not mark:
                return
            length = head.lower().rpartition(b"content-length:")[2].partition(b"\r\n")[0]
            self._wanted = len(head) + 4 + int(length)
            self._parts = [joined]
        if sum(map(len, self._parts)) >= self._wanted and self._answer is not None:
            self._answer.set_result(b"".join(self._parts))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server hung up"))

    async def post(self, key: bytes, body: bytes) -> bytes:
        """Return the body of the reply.

        Raises:
            RuntimeError: It is no 200.
        """
        self._parts.clear()
        self._wanted = 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_HEAD % (key, len(body)) + body)
        head, _, answer = (await self._answer).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"wanted a turn, got {head[:60]!r}: {answer[:300]!r}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def play(client: Client, key: str, turns: int, salt: int = 0) -> list[float]:
    """Play one session; return the seconds that each turn took, its reply unread."""
    secret, messages = key.encode(), _OPENING
    times = []
    for turn in range(turns):
        body = messages + b"]}"
        began = time.perf_counter()
        answer = await client.post(secret, body)
        times.append(time.perf_counter() - began)
        message = orjson.loads(answer)["choices"][0]["message"]
        call = message["tool_calls"][0]["id"].encode()
        result = _RESULTS[(salt + turn) % len(_RESULTS)]
        messages += b",%b" % orjson.dumps(message)
        messages += b',{"role":"tool","tool_call_id":"%b","content":%b}' % (call, result)
    return times


async def saturate(port: int, keys: Sequence[str], clients: int, turns: int) -> float:
    """Play a session for each key with so many clients at once; return turns per second."""
    connected = [await Client.connect(port) for _ in range(clients)]
    waiting = iter(enumerate(keys))
    began = time.perf_counter()
    await asyncio.gather(*(_play_all(client, waiting, turns) for client in connected))
    took = time.perf_counter() - began
    for client in connected:
        client.close()
    return len(keys) * turns / took


async def _play_all(client: Client, waiting: Iterator[tuple[int, str]], turns: int) -> None:
    for salt, key in waiting:
        await play(client, key, turns, salt)


async def alone(port: int, keys: Sequence[str], turns: int) -> list[list[float]]:
    """Play a session for each key, one after the other; return the seconds of each one's turns."""
    client = await Client.connect(port)
    times = [await play(client, key, turns, salt) for salt, key in enumerate(keys)]
    client.close()
    return times
