"""Inference engines on loopback: the wire of vLLM and SGLang around a model that says what it is told.

Both sample as the real ones do: up to a stop id, which is part of the ids, or to the token limit; they
know a context length, fill in poor defaults, and drop a request whose client has gone.
"""

import asyncio
import functools
import itertools
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

EOS = 2
JSON = dict[str, Any]
Script = list[tuple[int, float | None]]


def words(*ids: int) -> Script:
    """Return a script that says these ids, the first with logprob -0.5, the next with -1.0, and so on."""
    return [(token, -0.5 * place) for place, token in enumerate(ids, 1)]


@dataclass
class FakeEngine:
    """One engine. `script` is what its model would go on to say, whatever the prompt."""

    script: Script
    context: int | None = 4096
    """`max_model_len`; `None` hides it from `/v1/models`, and nothing is refused."""
    per_event: int = 2
    """Tokens in one event of a stream."""
    answer: Response | None = None
    """Answers sampling instead of the model."""
    spoil: Callable[[JSON], JSON] = lambda body: body
    """Changes each answer and event before it is sent."""
    incremental: bool = False
    """SGLang's --incremental-streaming-output."""
    pause_after: int | None = None
    """Events after which a stream waits for `go`; the whole answer waits for it at 0."""
    go: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    """Set once it was asked to sample."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set once a client hung up on its request."""
    seen: list[JSON] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def sampled(self, stop_ids: set[int], limit: int) -> tuple[Script, str]:
        said: Script = []
        for token, logprob in self.script[:limit]:
            said.append((token, logprob))
            if token in stop_ids | {EOS}:
                return said, "stop"
        return said, "length"

    async def taken(self, request: Request) -> JSON:
        body: JSON = await request.json()
        self.paths.append(self.path)
        self.keys.append(request.headers.get("authorization"))
        self.seen.append(body)
        self.asked.set()
        return body

    async def hold(self, request: Request | None) -> None:
        while not self.go.is_set():
            if request is not None and await request.is_disconnected():
                self.gone.set()
                return
            await asyncio.sleep(0.005)

    async def models(self, request: Request) -> Response:
        self.paths.append("/v1/models")
        adapter = {"id": "adapter", "parent": "base"}
        base = {"id": "base"} | ({} if self.context is None else {"max_model_len": self.context})
        return JSONResponse({"object": "list", "data": [adapter, base]})

    async def streamed(self, events: list[JSON]) -> AsyncIterator[bytes]:
        try:
            for count, event in enumerate(events):
                if self.pause_after == count:
                    await self.hold(None)
                yield b"data: %s\n\n" % json.dumps(self.spoil(event)).encode()
            yield b"data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.gone.set()
            raise

    async def respond(
        self, request: Request, body: JSON, whole: JSON, events: list[JSON]
    ) -> Response:
        if self.answer is not None:
            return self.answer
        if body["stream"]:
            return StreamingResponse(self.streamed(events), media_type="text/event-stream")
        if self.pause_after is not None:
            await self.hold(request)
        return JSONResponse(self.spoil(whole))

    async def generate(self, request: Request) -> Response:
        raise NotImplementedError

    path = ""

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the engine; yields its URL."""
        routes = [
            Route("/v1/models", self.models),
            Route(self.path, self.generate, methods=["POST"]),
        ]
        street, url = _street()
        key = f"e{next(_numbers)}"
        street.engines[key] = Starlette(routes=routes)
        try:
            yield f"{url}/{key}"
        finally:
            self.go.set()
            del street.engines[key]


_numbers = itertools.count()


class _Street:
    """All engines behind one server, each at a path of its own: starting one each takes most of the time."""

    def __init__(self) -> None:
        self.engines: dict[str, Starlette] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        _, key, rest = scope["path"].split("/", 2)
        await self.engines[key](scope | {"path": f"/{rest}"}, receive, send)


@functools.cache
def _street() -> tuple[_Street, str]:
    street = _Street()
    config = uvicorn.Config(street, log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.005)
    return street, f"http://127.0.0.1:{listener.getsockname()[1]}"


def pieces(said: Script, size: int) -> list[Script]:
    return [said[i : i + size] for i in range(0, len(said), size)]


class FakeVLLM(FakeEngine):
    """`POST /v1/completions` of vLLM, ids in and out."""

    path = "/v1/completions"

    async def generate(self, request: Request) -> Response:
        body = await self.taken(request)
        limit = body.get("max_tokens") or 16
        if self.context is not None and len(body["prompt"]) + limit > self.context:
            return too_long_for_vllm(len(body["prompt"]), limit, self.context)
        said, finish = self.sampled(set(body.get("stop_token_ids") or ()), limit)
        whole = self.answer_of(body, said, finish)
        events = [
            self.answer_of(body, part, finish if last else None, first=count == 0)
            for count, (part, last) in enumerate(with_last(pieces(said, self.per_event)))
        ]
        return await self.respond(request, body, whole, events)

    def answer_of(
        self, body: JSON, said: Script, finish: str | None, *, first: bool = True
    ) -> JSON:
        shown = said[:-1] if finish == "stop" else said  # a stop token is not in the text
        choice: JSON = {
            "index": 0,
            "text": "".join(f" w{token}" for token, _ in shown),
            "logprobs": {
                "text_offset": [0] * len(said),
                "token_logprobs": [logprob for _, logprob in said],
                "tokens": [f"token_id:{token}" for token, _ in said],
                "top_logprobs": [{f"token_id:{token}": logprob} for token, logprob in said],
            },
            "finish_reason": finish,
            "stop_reason": said[-1][0] if finish == "stop" and said[-1][0] != EOS else None,
        }
        if body.get("return_token_ids"):
            choice["token_ids"] = [token for token, _ in said]
            if first:
                choice["prompt_token_ids"] = body["prompt"]
        return {"id": "cmpl-1", "object": "text_completion", "model": "base", "choices": [choice]}


def too_long_for_vllm(prompt: int, limit: int, context: int) -> Response:
    error = {
        "message": f"This model's maximum context length is {context} tokens. However, you requested"
        f" {limit} output tokens and your prompt contains {prompt} input tokens.",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
    return JSONResponse({"error": error}, 400)


class FakeSGLang(FakeEngine):
    """`POST /generate` of SGLang, whose events repeat everything unless it is incremental."""

    path = "/generate"

    async def generate(self, request: Request) -> Response:
        body = await self.taken(request)
        params = body["sampling_params"]
        limit = params.get("max_new_tokens", 128)
        said, finish = self.sampled(set(params.get("stop_token_ids") or ()), limit)
        whole = self.answer_of(body, said, len(said), finish)
        events, total = [], 0
        for part, last in with_last(pieces(said, self.per_event)):
            total += len(part)
            shown = part if self.incremental else said[:total]
            events.append(self.answer_of(body, shown, total, finish if last else None))
        return await self.respond(request, body, whole, events)

    def answer_of(self, body: JSON, shown: Script, total: int, finish: str | None) -> JSON:
        end: JSON | None = None
        if finish is not None:
            end = {"type": finish}
            end |= {"matched": shown[-1][0]} if finish == "stop" else {"length": total}
        meta: JSON = {
            "id": "r1",
            "finish_reason": end,
            "prompt_tokens": len(body["input_ids"]),
            "weight_version": "default",
            "completion_tokens": total,
            "cached_tokens": 0,
        }
        if body.get("return_logprob"):
            meta["input_token_logprobs"] = []
            meta["output_token_logprobs"] = [[logprob, token, None] for token, logprob in shown]
            meta["output_token_logprobs_length"] = total
        return {"text": "text", "output_ids": [token for token, _ in shown], "meta_info": meta}


def with_last(parts: list[Script]) -> list[tuple[Script, bool]]:
    """Return each part, and whether it is the last."""
    return [(part, place == len(parts)) for place, part in enumerate(parts, 1)]
