"""Reads an incoming history along the turns of a session.

How messages are compared:

* Text exactly, white space too: a client that strips a reply has changed what the policy reads.
* Arguments as parsed JSON; what does not parse, as text. `""`, `null` and `{}` are the same.
* Ids of tool calls may be rewritten, as long as a result names the call it answers by the new id.
  What is recorded and returned has the ids that were served.
* Reasoning may be left out, and is then put back from our own record. Other reasoning is an edit.

A history grows by a few messages and comes whole every time, so what was read last is kept: its
repetition is then told by comparing messages, at a fraction of a microsecond each, and only what is
new is read message by message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rft_agent_sdk.gateway.canonical import context_key, reply_key
from rft_agent_sdk.gateway.turn_node import Place, TurnNode
from rft_agent_sdk.types import Message

_REMEMBERED = 4
"""Conversations whose last history is kept as it came: as many agents of one session can take turns
before one of their histories is read from the start again."""


@dataclass(frozen=True, slots=True)
class Head:
    """One way to read the messages so far. There are several where replies are alike."""

    place: Place
    turn: TurnNode | None = None
    """The last turn on the way; `None` before the first."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Recorded ids of calls by the client's own, where it rewrote them."""
    restored: int = 0
    """Turns on the way that came without the reasoning we served."""
    rewritten: int = 0
    """Calls on the way whose id the client rewrote."""

    @property
    def is_after_reply(self) -> bool:
        """Whether the last message read is the reply of `turn`."""
        return self.turn is not None and self.place is self.turn.after

    def onward(self, message: Message) -> Iterator[Head]:
        """Yield the ways to read one message more."""
        if message.role == "assistant":
            for turn in self.place.answers.get(reply_key(message), ()):
                if not message.reasoning or message.reasoning == turn.reply.reasoning:
                    yield self._onto(turn, message)
        children = self.place.children
        child = children.get(context_key(_recorded(message, self.ids))) if children else None
        if child is not None and child.message is not None:
            ids = _renamed(self.ids, message, child.message)
            yield Head(child, self.turn, ids, self.restored, self.rewritten)

    def rest(self, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Place | None]:
        """Return the messages after the last reply as recorded, or as they are to be recorded.

        With them comes the place after the last one, `None` if no request ended there before.
        """
        place: Place | None = self.place
        ids, found = self.ids, []
        for message in messages:
            recorded = _recorded(message, ids)
            place = place.children.get(context_key(recorded)) if place is not None else None
            if place is not None and place.message is not None:
                recorded = place.message
            ids = _renamed(ids, message, recorded)
            found.append(recorded)
        return tuple(found), place

    def _onto(self, turn: TurnNode, message: Message) -> Head:
        is_restored = bool(turn.reply.reasoning) and not message.reasoning
        pairs = zip(message.tool_calls, turn.reply.tool_calls, strict=True)
        return Head(
            turn.after,
            turn,
            _renamed(self.ids, message, turn.reply),
            self.restored + is_restored,
            self.rewritten + sum(sent.id != served.id for sent, served in pairs),
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the first messages of some request were read."""

    sent: tuple[Message, ...]
    """The messages as the client sent them, up to a reply."""
    heads: tuple[Head, ...]
    turn: TurnNode | None = None
    """The turn of that reply; of the one preferred, where several are alike."""
    path: tuple[Message, ...] = ()
    """The conversation up to `turn`, as recorded."""


class HistoryReader:
    """Finds the turn a history goes on from."""

    def __init__(self, root: Place) -> None:
        self._start = _Reading((), (Head(root),))
        self._readings: list[_Reading] = []

    def find(self, sent: tuple[Message, ...], tools: str) -> tuple[Head, tuple[Message, ...]]:
        """Return the head after the deepest reply recognised, and the conversation up to there.

        Where several turns read alike, the one asked with the same tools is preferred, then the one
        whose call ids and reasoning came back as served, then the latest.
        """
        base = self._base(sent)
        heads = self._read(base, sent)
        head = max(heads, key=lambda head: _preference(head, tools))
        path = _path(head.turn, base)
        if head.turn is not None:
            self._remember(base, _Reading(sent[: len(path)], heads, head.turn, path))
        return head, path

    def forget(self) -> None:
        """Drop what was read, since the same messages could now be read in another way."""
        self._readings.clear()

    def _base(self, sent: tuple[Message, ...]) -> _Reading:
        """Return the longest reading that this history begins with."""
        for known in self._readings:
            if sent[: len(known.sent)] == known.sent:
                return known
        return self._start

    def _read(self, base: _Reading, sent: tuple[Message, ...]) -> tuple[Head, ...]:
        """Return the heads after the last message at which one of them stood after a reply."""
        reached = heads = base.heads
        for message in sent[len(base.sent) :]:
            heads = tuple(found for head in heads for found in head.onward(message))
            if not heads:
                break
            if any(head.is_after_reply for head in heads):
                reached = heads
        return reached

    def _remember(self, base: _Reading, reading: _Reading) -> None:
        """Keep a reading, in place of the one it goes on from."""
        kept = [reading, *(known for known in self._readings if known is not base)]
        self._readings = sorted(kept[:_REMEMBERED], key=lambda known: -len(known.sent))


def message_path(turn: TurnNode | None) -> tuple[Message, ...]:
    """Return the conversation up to a turn, its reply included, as recorded."""
    return _path(turn, None)


def _path(turn: TurnNode | None, base: _Reading | None) -> tuple[Message, ...]:
    """Return the conversation up to a turn, going back no further than a reading it stands on."""
    steps = []
    while turn is not None and not (base is not None and turn is base.turn):
        steps.append((*turn.context, turn.reply))
        turn = turn.parent
    start = base.path if base is not None and turn is not None else ()
    return start + tuple(message for step in reversed(steps) for message in step)


def _preference(head: Head, tools: str) -> tuple[bool, bool, int, int, int]:
    turn = head.turn
    if turn is None or not head.is_after_reply:
        return False, False, 0, 0, 0
    return True, turn.tools == tools, -head.rewritten, -head.restored, turn.index


def _recorded(message: Message, ids: Mapping[str, str]) -> Message:
    """Return a message with the recorded id of the call it answers."""
    known = None if message.tool_call_id is None else ids.get(message.tool_call_id)
    return message if known is None else replace(message, tool_call_id=known)


def _renamed(ids: Mapping[str, str], sent: Message, recorded: Message) -> Mapping[str, str]:
    """Return the ids after one message more; the latest call of an id is the one it names."""
    if not sent.tool_calls:
        return ids
    pairs = [(a.id, b.id) for a, b in zip(sent.tool_calls, recorded.tool_calls, strict=True)]
    if all(new == old and new not in ids for new, old in pairs):
        return ids
    return {**ids, **dict(pairs)}
