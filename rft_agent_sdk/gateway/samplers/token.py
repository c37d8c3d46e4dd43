"""Sampling at the level of tokens: prompt ids in; sampled ids, logprobs and policy version out.

What a backend answers is checked here, once, before anybody records it: a `Sampled` has one
logprob for each id, and each is a number that can be trained on, or `None`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.types import Message, SamplingParams, ToolSpec

SampleEnd = Literal["stop", "length"]
Version = int | str

_NO_LOGPROB = -9999.0
"""vLLM's stand-in for minus infinity and for "unknown", JSON having neither; no real logprob of a
sampled token comes near it."""

_MAX_ID = 2**32
"""Ids are kept in 32 bits; no vocabulary comes near."""


class SampleFault(Refusal, ValueError):
    """502: a sampler's answer contradicts itself or the request, so none of it may be recorded.

    Sampling again could hide a broken backend, so nobody retries it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(502, message)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One turn to sample."""

    prompt: Sequence[int]
    """Token ids; the sampler sees exactly these."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """`None` means neutral, never a model author's own default: temperature 1, the whole vocabulary."""
    stop_ids: frozenset[int] = frozenset()
    """Ids at which the turn ends; the one sampled is part of the turn."""
    seed: int | None = None
    """The same one, with all else the same, gives the same turn, where the backend takes seeds."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further sampling parameters by their OpenAI or vLLM names, such as `top_k` and `min_p`."""
    messages: Sequence[Message] = ()
    """What the prompt was rendered from, for samplers that are functions of messages."""
    tools: Sequence[ToolSpec] = ()
    affinity: str = ""
    """Requests with the same one prefer the same replica, whose prefix cache knows them."""


@dataclass(frozen=True, slots=True)
class SampledPiece:
    """The next ids of a turn, while it is sampled."""

    ids: list[int]
    logprobs: list[float | None]
    """As in `Sampled`, shape like `ids`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sampled turn."""

    ids: list[int]
    """Never empty; after `stop`, the last is the token that ended the turn, where the backend keeps it."""
    logprobs: list[float | None]
    """Nats, finite and at most 0, shape like `ids`; `None` where the backend gave nothing usable."""
    finish_reason: SampleEnd
    version: Version
    """The policy version that sampled it."""


class Sampler(ABC):
    """Samples turns of a policy. One event loop at a time, unless a class says otherwise."""

    min_new_tokens: int = 1
    """The backend never plans for fewer new tokens than this: the context must have room for them."""
    missing_logprobs: int = 0
    """Tokens sampled so far that came without a usable logprob."""

    @property
    @abstractmethod
    def version(self) -> Version:
        """The policy version that a call made now samples."""

    @abstractmethod
    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one turn.

        Raises:
            Refusal: The request cannot be honoured, or the backend failed.
            SampleFault: The backend's answer is unusable.
        """

    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampledPiece | Sampled, None]:
        """Yield the turn in pieces, whose ids make it up, then whole; the default has one piece."""
        whole = await self.sample(request)
        yield SampledPiece(whole.ids, whole.logprobs)
        yield whole

    async def aclose(self) -> None:  # noqa: B027 - some samplers hold nothing
        """Give back connections and threads; a later call takes new ones."""

    def _checked(self, ids: object, logprobs: object) -> SampledPiece:
        """Return what a backend sent as a piece of a turn, its missing logprobs counted.

        Args:
            ids: Token ids.
            logprobs: One for each id; `None` if the backend sent none at all.

        Raises:
            SampleFault: The ids are no ids, or the logprobs do not belong to them.
        """
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < _MAX_ID for i in ids):
            raise SampleFault(f"wanted sampled token ids, got {_short(ids)}")
        if logprobs is None:
            logprobs = [None] * len(ids)
        if not isinstance(logprobs, list) or len(logprobs) != len(ids):
            raise SampleFault(
                f"wanted one logprob for each sampled token, got {_length(logprobs)} for {len(ids)}"
                f" ids: ids {_short(ids)}, logprobs {_short(logprobs)}"
            )
        found = [
            value if type(value) is float and _NO_LOGPROB < value <= 0.0 else _usable(value)
            for value in logprobs
        ]
        self.missing_logprobs += found.count(None)
        return SampledPiece(ids, found)


def cut(sampled: Sampled, limit: int | None) -> Sampled:
    """Return a turn of at most `limit` tokens, ended by `length` if there were more."""
    if limit is None or len(sampled.ids) <= limit:
        return sampled
    return replace(
        sampled,
        ids=sampled.ids[:limit],
        logprobs=sampled.logprobs[:limit],
        finish_reason="length",
    )


def too_long(prompt: int, room: int, limit: int) -> Refusal:
    """Return the refusal of a prompt that leaves no room to answer; lengths in tokens."""
    return Refusal(
        400,
        f"the prompt has {prompt} tokens, which leaves no room for {room} more in a context of {limit}",
        param="messages",
        code="context_length_exceeded",
    )


def _usable(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SampleFault(f"wanted a number or null as a logprob, got {_short(value)}")
    return float(value) if _NO_LOGPROB < value <= 0 else None  # not so for NaN and infinities


def _length(value: object) -> object:
    return len(value) if isinstance(value, list) else f"a {type(value).__name__}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def turn_seed(
    seed: int | None, prompt: Sequence[int], request: str, asked_before: int
) -> int | None:
    """Return the seed of one turn of a seeded session, in 31 bits.

    It depends on nothing but the prompt, the request it came in and how often that was answered before,
    so that a session gives the same turns in whatever order those of others come, and a request that
    asks for another answer gets one.
    """
    if seed is None:
        return None
    said = repr((seed, request, asked_before, len(prompt), list(prompt[-64:])))
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=4).digest(), "big") >> 1
