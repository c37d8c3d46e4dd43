"""A dialect: one provider's wire format on one side, our `Message` on the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rft_agent_sdk.gateway.dialects.recall import Recall
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
    """Unguessable and bare; a dialect puts its own prefix before it."""
    model: str
    created: int
    """Unix time in seconds."""


class ReplyStream(Protocol):
    """Writes one streamed reply, piece by piece. Made for it and used once."""

    def start(self) -> bytes:
        """Write the events that need no word of the reply yet."""
        ...

    def delta(self, delta: Delta) -> bytes:
        """Write one piece, or nothing where it has to wait for the end."""
        ...

    def end(self, reply: Reply) -> bytes:
        """Write what is still to come and the events that close the stream, the last included."""
        ...

    def error(self, refusal: Refusal) -> bytes:
        """Write the event that breaks the stream off."""
        ...


class Dialect(Protocol):
    """One provider's wire format. Stateless, so that one object serves every request."""

    bulky: ClassVar[frozenset[str]]
    """Fields of a request body that grow with the conversation, and so are not recorded twice."""
    spelled: ClassVar[Mapping[str, str]]
    """How it spells the `extras` of a `PolicyRequest` that go by another name on its wire."""

    def parse(self, body: JSON, recall: Recall | None = None) -> ChatRequest:
        """Read a request body.

        Args:
            body: The JSON object.
            recall: What the same client sent before, by whose help the rest is read faster.

        Raises:
            Refusal: 400, naming the field that is wrong or cannot be honoured.
        """
        ...

    def reply(self, head: ReplyHead, reply: Reply) -> JSON:
        """Write a whole reply."""
        ...

    def stream(self, head: ReplyHead, request: ChatRequest) -> ReplyStream:
        """Return what writes the reply in pieces."""
        ...
