"""A dialect: one provider's wire format on one side, our `Message` on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import Delta, PolicyRequest, Reply
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for one turn, read."""

    policy: PolicyRequest
    """What the policy is asked."""
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with an event that holds the usage."""


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What a reply carries besides the turn; the same in every event of a stream."""

    id: str
    model: str
    created: int
    """Unix time in seconds."""


class Dialect(Protocol):
    """One provider's wire format. Stateless, so that one object serves every request."""

    def parse(self, body: JSON) -> ChatRequest:
        """Read a request body.

        Raises:
            Refusal: 400, naming the field that is wrong or cannot be honoured.
        """
        ...

    def reply(self, head: ReplyHead, reply: Reply) -> JSON:
        """Write a whole reply."""
        ...

    def error(self, refusal: Refusal) -> JSON:
        """Write an error, both as a body and as an event of a stream."""
        ...

    def stream_start(self, head: ReplyHead, request: ChatRequest) -> bytes:
        """Write the events that need no word of the reply yet."""
        ...

    def stream_delta(self, head: ReplyHead, request: ChatRequest, delta: Delta) -> bytes:
        """Write one piece."""
        ...

    def stream_end(self, head: ReplyHead, request: ChatRequest, reply: Reply) -> bytes:
        """Write the events that close a stream, the last of all included."""
        ...
