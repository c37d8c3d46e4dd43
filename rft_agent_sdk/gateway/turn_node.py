"""One sampled turn with the tokens it owns, and its line in a session's log.

Plain data; `MessageGraph` makes these nodes and links them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rft_agent_sdk.trajectory import message_from_json, message_to_json
from rft_agent_sdk.types import JSON, FinishReason, Message, Usage

Rendering = Literal["bridged", "healed", "rendered"]
"""How a prompt came about: extended by the model's renderer, extended by healing, or rendered whole."""

OK = "ok"
"""Parse status of a well-formed reply; any other is counted as ill-formed."""

MISSING = math.nan
"""Stands for a logprob that is absent, not finite, or above 0: its token never trains."""


@dataclass(slots=True, eq=False)
class Place:
    """A point of the conversation: after one message, on one path from the start."""

    message: Message | None = None
    """The message it stands after, as recorded; `None` at the start, and after a sampled reply."""
    children: dict[Hashable, Place] = field(default_factory=dict)
    """The places after messages that nobody here sampled, by their `context_key`."""
    answers: dict[Hashable, list[TurnNode]] = field(default_factory=dict)
    """The turns sampled here, by their `reply_key`, in the order of their commits."""

    def turns(self) -> list[TurnNode]:
        """Return the turns sampled here, in the order in which they were asked for."""
        found = (turn for turns in self.answers.values() for turn in turns)
        return sorted(found, key=lambda turn: turn.order)


@dataclass(slots=True, eq=False, kw_only=True)
class TurnNode:
    """One sampled assistant turn."""

    index: int
    """Number of its commit in the graph, from 0."""
    parent: TurnNode | None = field(repr=False)
    """The turn before it in the conversation; `None` for a first turn."""
    extends: bool
    """Whether its prompt is the parent's prompt, sampled ids, and then `prompt_ids`. If not, it
    starts a branch of its own and `prompt_ids` is its whole prompt."""
    context: tuple[Message, ...]
    """The messages between the parent's reply and this one; tool results name calls by the ids we served."""
    reply: Message
    """The reply as parsed and served, reasoning included."""
    prompt_ids: array[int] = field(repr=False)
    """Prompt ids since the parent's end, or all of them where it does not extend the parent."""
    sampled_ids: array[int] = field(repr=False)
    logprobs: array[float] = field(repr=False)
    """One per sampled id, nats; NaN where the sampler gave no finite logprob ≤ 0."""
    finish_reason: FinishReason
    usage: Usage
    version: int | str | None
    status: str
    """Parse status: `ok`, or what is wrong with the reply's form."""
    rendering: Rendering
    tools: str
    """Key of the tools it was asked with; empty for none."""
    request: str
    """What the caller tells apart requests by that are equal in messages and tools."""
    reason: str | None
    """Why its request was not the next of its conversation; a `BranchReason`, or `None`."""
    order: int
    """When its request was matched, among all that were."""
    restored: int
    """Earlier turns whose reasoning the client had dropped and that were put back."""
    calls_written: int
    """Tool calls the reply attempts, ill-formed ones too."""
    is_violation: bool
    """Whether it was to extend its parent, and did not."""
    place: Place = field(default_factory=Place, repr=False)
    """The place it answers."""
    after: Place = field(default_factory=Place, repr=False)
    """The place after its reply."""
    depth: int = 0
    """Messages from the start of its conversation up to its reply."""
    children: list[TurnNode] = field(default_factory=list, repr=False)
    """The turns of the conversation that go on from it, extending its tokens or not."""

    @property
    def is_truncated(self) -> bool:
        """Whether the token limit cut it off."""
        return self.finish_reason == "length"

    @property
    def missing_logprobs(self) -> int:
        """How many of its tokens cannot train for want of a logprob."""
        return sum(map(math.isnan, self.logprobs))


def checked_logprobs(logprobs: Sequence[float | None] | None, count: int) -> array[float]:
    """Return one logprob per sampled id, `MISSING` where there is no finite one ≤ 0.

    With another length than `count` none can be told to belong to its token, so all are missing.
    """
    if logprobs is None or len(logprobs) != count:
        return array("d", [MISSING]) * count
    return array(
        "d", [lp if lp is not None and -math.inf < lp <= 0.0 else MISSING for lp in logprobs]
    )


def to_record(turn: TurnNode) -> JSON:
    """Return a turn as one JSON object, from which `from_record` makes it again."""
    return {
        "turn": turn.index,
        "parent": None if turn.parent is None else turn.parent.index,
        "extends": turn.extends,
        "context": [message_to_json(message) for message in turn.context],
        "reply": message_to_json(turn.reply),
        "prompt_ids": turn.prompt_ids.tolist(),
        "sampled_ids": turn.sampled_ids.tolist(),
        "logprobs": [None if math.isnan(lp) else lp for lp in turn.logprobs],
        "finish_reason": turn.finish_reason,
        "usage": [turn.usage.prompt_tokens, turn.usage.completion_tokens],
        "version": turn.version,
        "status": turn.status,
        "rendering": turn.rendering,
        "tools": turn.tools,
        "request": turn.request,
        "reason": turn.reason,
        "order": turn.order,
        "restored": turn.restored,
        "calls_written": turn.calls_written,
        "is_violation": turn.is_violation,
    }


def from_record(record: Mapping[str, Any], turns: Sequence[TurnNode]) -> TurnNode:
    """Return the turn of a record, not yet linked to its places.

    Args:
        record: What `to_record` returned.
        turns: The turns before it, in order.
    """
    if record["turn"] != len(turns):
        raise ValueError(f"turn {len(turns)} was to come, got turn {record['turn']!r}")
    parent, sampled = record["parent"], array("I", record["sampled_ids"])
    if parent is not None and not 0 <= parent < len(turns):
        raise ValueError(f"turn {len(turns)} has parent {parent!r}, which is not before it")
    return TurnNode(
        index=record["turn"],
        parent=None if parent is None else turns[parent],
        extends=record["extends"],
        context=_messages(record["context"]),
        reply=message_from_json(record["reply"]),
        prompt_ids=array("I", record["prompt_ids"]),
        sampled_ids=sampled,
        logprobs=checked_logprobs(record["logprobs"], len(sampled)),
        finish_reason=record["finish_reason"],
        usage=Usage(*record["usage"]),
        version=record["version"],
        status=record["status"],
        rendering=record["rendering"],
        tools=record["tools"],
        request=record["request"],
        reason=record["reason"],
        order=record["order"],
        restored=record["restored"],
        calls_written=record["calls_written"],
        is_violation=record["is_violation"],
    )


def _messages(values: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(map(message_from_json, values))
