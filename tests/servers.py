"""Real servers on loopback: one that answers by a script and remembers, one for any ASGI app."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn

JOB_ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/j1"


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def trajectory(self) -> str | None:
        return self.headers.get("x-amzn-sagemaker-trajectory-id")


@dataclass
class Answer:
    """What the server sends back.

    `drop` closes the connection without a word, `cut` after that many bytes of the body; `trickle_s` is
    a pause before each line of it.
    """

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False
    cut: int | None = None
    trickle_s: float = 0.0


def completion(
    text: str = "hi", *, calls: list[tuple[str, str]] | None = None, finish: str | None = None
) -> dict[str, Any]:
    """Return a chat completion with text or tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": args}}
            for i, (name, args) in enumerate(calls)
        ]
    finish = finish or ("tool_calls" if calls else "stop")
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "default",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def as_stream(reply: dict[str, Any]) -> bytes:
    """Return a completion as the server-sent events of a streamed one."""
    choice = reply["choices"][0]
    delta = dict(choice["message"])
    for index, call in enumerate(delta.get("tool_calls", [])):
        call["index"] = index
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "default"}
    events = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**base, "choices": [], "usage": reply["usage"]},
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + (
        b"data: [DONE]\n\n"
    )


class ScriptedServer:
    """Answers each request by a function of it and of how many came before; remembers them all."""

    def __init__(self, script: Callable[[Seen, int], Answer | dict[str, Any]]) -> None:
        self.seen: list[Seen] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {
                    key.lower(): ", ".join(self.headers.get_all(key, [])) for key in self.headers
                }
                with outer._lock:
                    seen = Seen(self.path, headers, body)
                    outer.seen.append(seen)
                    count = len(outer.seen) - 1
                answer = script(seen, count)
                self._send(seen, answer if isinstance(answer, Answer) else Answer(body=answer))

            def _send(self, seen: Seen, answer: Answer) -> None:
                time.sleep(answer.delay_s)
                if answer.drop:
                    self.connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                    self.close_connection = True
                    self.connection.close()
                    return
                kind = "application/json"
                if (
                    answer.status == 200
                    and isinstance(answer.body, dict)
                    and "choices" in answer.body
                    and seen.json.get("stream")
                ):
                    data, kind = as_stream(answer.body), "text/event-stream"
                elif isinstance(answer.body, bytes):
                    data = answer.body
                else:
                    data = json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for key, value in {"content-type": kind, **answer.headers}.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                for line in data[: answer.cut].splitlines(keepends=True):
                    time.sleep(answer.trickle_s)
                    self.wfile.write(line)
                    self.wfile.flush()
                if answer.cut is not None:
                    self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

            def handle(self) -> None:
                with suppress(OSError, ValueError):
                    super().handle()

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512  # with the usual 5, a burst of connections waits for a second

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def to(self, path: str) -> list[Seen]:
        """The requests that went to this path."""
        return [seen for seen in self.seen if seen.path == path]

    @property
    def completions(self) -> list[Seen]:
        return self.to("/complete-rollout")

    @property
    def rewards(self) -> list[list[float]]:
        return [seen.json["Rewards"] for seen in self.to("/update-reward")]

    @property
    def samples(self) -> list[Seen]:
        return self.to("/v1/chat/completions")

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI app on a thread; yields its URL."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)
        server.force_exit = True  # a request still hangs: the test is about that
        thread.join(5)
        sock.close()


def managed_payload(endpoint: str, rollout_id: str = "r1", prompt: str = "go") -> dict[str, Any]:
    """A payload as the service sends it."""
    return {
        "prompt": prompt,
        "metadata": {
            "jobArn": JOB_ARN,
            "rolloutId": rollout_id,
            "endpoint": endpoint,
            "region": "us-west-2",
        },
        "inferenceParams": {"temperature": 1.0, "topP": 1.0, "maxTokens": 256},
    }
