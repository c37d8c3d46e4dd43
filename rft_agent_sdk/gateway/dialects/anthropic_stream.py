"""A streamed reply as Anthropic's events.

A client knows one open block at a time, and blocks come in order. So thinking and text are passed on
as they are sampled, and the calls are written at the end, from the reply as it is stored: no client can
use half a call, and ill-formed arguments or calls that come in turns can then do no harm.
"""

from __future__ import annotations

from typing import Literal

from rft_agent_sdk.gateway.dialects.anthropic_messages import (
    signature,
    write_blocks,
    write_end,
    write_reply,
    write_usage,
)
from rft_agent_sdk.gateway.dialects.base import ReplyHead
from rft_agent_sdk.gateway.refusal import Refusal, to_json
from rft_agent_sdk.gateway.samplers.base import Delta, Reply
from rft_agent_sdk.gateway.sse import event
from rft_agent_sdk.types import JSON, Message, Usage

_Kind = Literal["thinking", "text"]


class AnthropicStream:
    """Writes one reply. What its deltas add up to is the plain reply."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._index = -1
        self._open: _Kind | None = None
        self._thinking: list[str] = []
        """The pieces of the open block of thinking."""
        self._written = {"thinking": 0, "text": 0}
        """Characters, over all blocks of a kind."""

    def start(self) -> bytes:
        """Write `message_start`: the reply as it stands before a word of it is known."""
        nothing: JSON = {"stop_reason": None, "stop_sequence": None}
        message = write_reply(self._head, [], nothing, write_usage(Usage()))
        return _event("message_start", message=message)

    def delta(self, delta: Delta) -> bytes:
        """Write a piece of thinking or text, in a block of its own where it follows the other."""
        return self._piece("thinking", delta.reasoning) + self._piece("text", delta.text)

    def end(self, reply: Reply) -> bytes:
        """Write the rest of the reply, why it ended, its usage, and `message_stop`."""
        why, usage = write_end(reply.finish_reason), write_usage(reply.usage)
        last = _event("message_delta", delta=why, usage=usage) + _event("message_stop")
        return self._rest(reply.message) + last

    def error(self, refusal: Refusal) -> bytes:
        """Write the event that breaks the stream off."""
        return event(refusal.as_anthropic(), "error")

    def _rest(self, message: Message) -> bytes:
        written = self._piece("thinking", (message.reasoning or "")[self._written["thinking"] :])
        written += self._piece("text", message.text[self._written["text"] :])
        written += self._close()
        for block in write_blocks(message):
            if block["type"] == "tool_use":
                written += self._whole(block | {"input": {}}, _input_delta(block["input"]))
            elif self._index < 0:  # not a word was said: the one empty text
                written += self._whole(block, {"type": "text_delta", "text": ""})
        return written

    def _piece(self, kind: _Kind, piece: str) -> bytes:
        if not piece:
            return b""
        written = b""
        if self._open != kind:
            written = self._close() + self._opened(_EMPTY[kind])
            self._open = kind
        self._written[kind] += len(piece)
        if kind == "thinking":
            self._thinking.append(piece)
        return written + self._delta({"type": f"{kind}_delta", kind: piece})

    def _whole(self, block: JSON, delta: JSON) -> bytes:
        return self._opened(block) + self._delta(delta) + self._stopped()

    def _close(self) -> bytes:
        """Close the open block, if there is one; thinking is signed before."""
        kind, self._open = self._open, None
        if kind is None:
            return b""
        signed = b""
        if kind == "thinking":
            mark = signature("".join(self._thinking))
            self._thinking.clear()
            signed = self._delta({"type": "signature_delta", "signature": mark})
        return signed + self._stopped()

    def _opened(self, block: JSON) -> bytes:
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: JSON) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stopped(self) -> bytes:
        return _event("content_block_stop", index=self._index)


_EMPTY: dict[_Kind, JSON] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


def _input_delta(value: JSON) -> JSON:
    # Clients read no JSON at all as {}, which is how Anthropic itself writes it.
    return {"type": "input_json_delta", "partial_json": to_json(value).decode() if value else ""}


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)
