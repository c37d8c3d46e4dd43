"""What the samplers of inference engines share: one HTTP call a turn, streamed or whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.backend import Backend, TransientRefusal, events, parsed
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    SampleEnd,
    SampleFault,
    Sampler,
    SampleRequest,
    Version,
    too_long,
)
from rft_agent_sdk.types import JSON

NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""The model's own distribution. Said in every call: an engine fills what is left out from the
model's generation_config.json (Qwen3: temperature 0.6, top_k 20), and training would never know."""


class TurnSoFar:
    """A turn as it comes from an engine."""

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.ids: list[int] = []
        self.logprobs: list[float | None] = []
        self.finish_reason: SampleEnd | None = None
        self.version: Version | None = None

    def add(self, piece: SampledPiece) -> None:
        """Take the next piece."""
        self.ids.extend(piece.ids)
        self.logprobs.extend(piece.logprobs)


class EngineSampler(Sampler):
    """Samples with an engine over HTTP. May be used on several event loops, each with its connections.

    It does not retry, and cancelling a call closes its connection, at which the engines stop sampling.
    """

    _path: str
    _error_status = 502
    """What an error event inside a stream means, where it names no status."""
    _too_long_params: frozenset[str] = frozenset()
    """The parameters that the engine names as wrong when prompt and answer do not fit its context."""

    def __init__(
        self,
        url: str,
        *,
        version: Version | None,
        max_tokens: int,
        max_context_tokens: int | None,
        key_variable: str,
        timeout_s: float,
        connect_timeout_s: float,
        max_connections: int,
    ) -> None:
        self._backend = Backend(
            url.rstrip("/").removesuffix("/v1"),
            key_variable=key_variable,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_connections=max_connections,
        )
        self._version = version
        self._max_tokens = max_tokens
        self._max_context_tokens = max_context_tokens
        self._is_context_asked = max_context_tokens is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._backend.url!r}, version={self.version!r})"

    @property
    def version(self) -> Version:
        """The version given; 0 where none was."""
        return 0 if self._version is None else self._version

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one turn in one answer."""
        async with self._asked(request, stream=False) as response:
            answer = parsed(await response.aread())
        turn = TurnSoFar(request)
        self._read(answer, turn)
        return self._whole(turn)

    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampledPiece | Sampled, None]:
        """Yield the ids as the engine sends them."""
        turn = TurnSoFar(request)
        async with (
            self._asked(request, stream=True) as response,
            aclosing(events(response, error_status=self._error_status)) as found,
        ):
            async for event in found:
                piece = self._read(event, turn)
                if piece.ids:
                    yield piece
        yield self._whole(turn)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._backend.aclose()

    @abstractmethod
    def _body(self, request: SampleRequest, max_tokens: int) -> JSON:
        """Return the engine's request, without `stream`."""

    @abstractmethod
    def _take(self, answer: JSON, turn: TurnSoFar) -> SampledPiece:
        """Return what an answer or event adds to `turn`, and note there how it ends, if it does."""

    @asynccontextmanager
    async def _asked(
        self, request: SampleRequest, *, stream: bool
    ) -> AsyncIterator[httpx.Response]:
        body = self._body(request, await self._room(request)) | {"stream": stream}
        try:
            async with self._backend.post(self._path, body) as response:
                yield response
        except Refusal as refusal:
            if refusal.status == 400 and refusal.param in self._too_long_params:
                refusal.param, refusal.code = "messages", "context_length_exceeded"
            raise

    def _read(self, answer: object, turn: TurnSoFar) -> SampledPiece:
        try:
            if not isinstance(answer, dict):
                raise TypeError(f"wanted an object, got {type(answer).__name__}")
            piece = self._take(answer, turn)
        except SampleFault:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SampleFault(f"the engine's answer cannot be read: {error!r}") from error
        turn.add(piece)
        return piece

    def _whole(self, turn: TurnSoFar) -> Sampled:
        if turn.finish_reason is None:
            raise TransientRefusal(502, "the engine's stream ended before the turn did")
        if not turn.ids:
            raise SampleFault(f"the engine sampled no token, finish {turn.finish_reason!r}")
        version = self.version if turn.version is None else turn.version
        return Sampled(turn.ids, turn.logprobs, turn.finish_reason, version)

    async def _room(self, request: SampleRequest) -> int:
        """Return how many tokens to ask for: what the request wants, cut to what its context holds.

        Engines refuse a prompt and answer that would not fit together, with an error that does not
        say so other than in words; an agent is better served with an answer that is cut short.
        """
        wanted = request.sampling.max_tokens or self._max_tokens
        limit = await self._context()
        if limit is None:
            return wanted
        room = limit - len(request.prompt)
        if room < self.min_new_tokens:
            raise too_long(len(request.prompt), self.min_new_tokens, limit)
        return min(wanted, room)

    async def _context(self) -> int | None:
        if not self._is_context_asked:
            try:
                models = await self._backend.get("/v1/models")
            except TransientRefusal:
                return None  # sampling will fail as well, or succeed and the next call asks again
            except Refusal:
                models = None
            self._max_context_tokens = _limit_in(models)
            self._is_context_asked = True
        return self._max_context_tokens


def _limit_in(models: object) -> int | None:
    """Return `max_model_len` in an engine's list of models: the base model's, adapters having none."""
    cards = models.get("data") if isinstance(models, dict) else None
    if not isinstance(cards, list):
        return None
    found = (card.get("max_model_len") for card in cards if isinstance(card, dict))
    return next((limit for limit in found if isinstance(limit, int)), None)
