"""A Job Runtime on loopback whose policy knows the answer: it guesses once, then says it is done."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Seen:
    """What arrived at the server."""

    url: str
    answer: str
    paths: list[str] = field(default_factory=list)

    def is_whole_rollout(self) -> bool:
        """Whether the policy was asked, and the rollout then completed and rewarded."""
        return self.paths[:1] == ["/v1/chat/completions"] and self.paths[-2:] == [
            "/complete-rollout",
            "/update-reward",
        ]


def _message(request: dict[str, Any], answer: str) -> dict[str, Any]:
    if any(message["role"] == "tool" for message in request["messages"]):
        return {"role": "assistant", "content": "Done."}
    name = request["tools"][0]["function"]["name"]
    call = {"name": name, "arguments": json.dumps({"guess": answer})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}],
    }


def _completion(request: dict[str, Any], answer: str) -> tuple[str, bytes]:
    message = _message(request, answer)
    reason = "tool_calls" if "tool_calls" in message else "stop"
    common = {"id": "chatcmpl-1", "created": 0, "model": request["model"]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        body = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(body).encode()
    deltas: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage},
    ]
    events = [{**common, "object": "chat.completion.chunk", **delta} for delta in deltas]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()


def _handler(seen: Seen) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.paths.append(self.path)
            kind, answer = "application/json", b"{}"
            if self.path == "/v1/chat/completions":
                kind, answer = _completion(body, seen.answer)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing: the table is the output."""

    return Handler


@contextmanager
def policy_server(answer: str) -> Iterator[Seen]:
    """Serve for as long as the block runs."""
    seen = Seen("", answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(seen))
    seen.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
