"""The message graph of one session: which turn a request continues, and whose tokens are whose.

A pure data structure, without I/O, tokenizer or lock: the session that owns it sees to it that one
thread at a time is inside. Turns form a tree by their messages. Along it, a turn that *extends* its
parent owns only the tokens since the parent's end; any other owns its whole prompt and starts a
branch. So no token is stored twice, and none is ever made up: a branch, joined, is what the sampler
saw.

How an incoming history is compared with what is recorded is told in `history`.
"""

from __future__ import annotations

import enum
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.canonical import context_key, reply_key, tools_key
from rft_agent_sdk.gateway.history import HistoryReader
from rft_agent_sdk.gateway.turn_node import (
    OK,
    Place,
    Rendering,
    TurnNode,
    checked_logprobs,
    from_record,
    to_record,
)
from rft_agent_sdk.types import JSON, FinishReason, Message, ToolSpec, Usage

logger = logging.getLogger(__name__)

_JOINED = 4
"""Turns whose ids are kept joined: the ends of as many conversations that take turns."""

_COUNTERS = (
    "turns",
    "extended",
    "bridged",
    "healed",
    "rendered",
    "reasoning_restored",
    "abandoned",
    "invariant_violations",
    "logprobs_missing",
    "truncated",
    "ill_formed",
    "tools_offered",
    "tool_calls_written",
    "tool_calls_parsed",
    "tokens_sampled",
)


class BranchReason(enum.StrEnum):
    """Why a request is not the next one of its conversation. A report: nothing is decided by it."""

    RETRIED = "retried"
    """The very same messages and tools were answered before."""
    TOOLS_CHANGED = "tools_changed"
    """The conversation goes on with other tools than its last turn had."""
    BRANCHED = "branched"
    """Other messages follow a turn that was continued already, or a new conversation starts."""
    HISTORY_EDITED = "history_edited"
    """It holds an assistant message in place of, or beside, what was served there."""
    HISTORY_COMPACTED = "history_compacted"
    """Replies served further on have moved up: what was before them was dropped or summed up."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where a request stands in the graph."""

    turn: TurnNode | None
    """The deepest turn whose whole conversation the request begins with; `None` for the start."""
    matched: int
    """How many of the request's messages that conversation is."""
    new: tuple[Message, ...]
    """The messages after it; tool results name calls by the ids that were served."""
    history: tuple[Message, ...]
    """The whole request as recorded: our own replies, reasoning put back, then `new`."""
    reason: BranchReason | None
    """Why it is not the next request of its conversation, or `None` when it is."""
    answers: tuple[TurnNode, ...]
    """Earlier answers to the same messages and tools, oldest first; what a retry is looking for."""
    restored: int
    """Turns of the history that came without the reasoning we served."""
    tools: str = field(repr=False)
    """Key of the request's tools."""
    order: int = field(repr=False)
    """Number of this match in the graph."""

    @property
    def request_key(self) -> tuple[object, ...]:
        """What this request has in common with its repetition; hashable, for requests on their way."""
        return self.turn, self.new, self.tools


class MessageGraph:
    """The turns of one session, by conversation."""

    def __init__(self) -> None:
        self.turns: list[TurnNode] = []
        """Every turn, in the order of the commits."""
        self._root = Place()
        self._reader = HistoryReader(self._root)
        self._joined: dict[TurnNode, list[int]] = {}
        self._depths: dict[Hashable, set[int]] = {}
        self._order = 0
        self._tools: tuple[tuple[ToolSpec, ...], str] = ((), "")

    # --- reading -----------------------------------------------------------------------------

    def match(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Match:
        """Find the turn that a request continues. Changes nothing that is recorded."""
        sent, key = tuple(messages), self._tools_key(tuple(tools))
        head, path = self._reader.find(sent, key)
        new, place = head.rest(sent[len(path) :])
        answered = [] if place is None else place.turns()
        answers = tuple(turn for turn in answered if turn.tools == key)
        self._order += 1
        return Match(
            turn=head.turn,
            matched=len(path),
            new=new,
            history=path + new,
            reason=self._reason(head.turn, new, len(path), key, answers, is_known=bool(answered)),
            answers=answers,
            restored=head.restored,
            tools=key,
            order=self._order - 1,
        )

    def ids(self, turn: TurnNode) -> list[int]:
        """Return all token ids up to the end of a turn: its prompt, then what was sampled."""
        return list(self._ids(turn))

    def live_turns(self) -> list[TurnNode]:
        """Return the turns that count: all but abandoned answers, in the order of their commits."""
        abandoned = self.abandoned()
        return [turn for turn in self.turns if turn not in abandoned]

    def abandoned(self) -> set[TurnNode]:
        """Return the answers nobody went on with, where the same request has another answer.

        Among answers to one request (equal messages, tools, and `request`), one without a
        continuation is abandoned if the request was asked again later, or if the client went on
        with another answer only after it had asked for this one. Asked again *after* going on with
        the first answer, a request is no retry but a second try: both answers stay.
        """
        groups: dict[tuple[int, str, str], list[TurnNode]] = defaultdict(list)
        for turn in self.turns:
            groups[id(turn.place), turn.tools, turn.request].append(turn)
        return {
            turn
            for answers in groups.values()
            for turn in answers
            if len(answers) > 1 and _is_abandoned(turn, answers)
        }

    def counters(self) -> dict[str, int]:
        """Return what happened so far, by name; names with a count of zero are there too."""
        counts = Counter(dict.fromkeys([*_COUNTERS, *map(str, BranchReason)], 0))
        for turn in self.turns:
            counts["turns"] += 1
            counts["extended"] += turn.extends
            counts[turn.rendering] += 1
            if turn.reason is not None:
                counts[turn.reason] += 1
            counts["reasoning_restored"] += turn.restored > 0
            counts["invariant_violations"] += turn.is_violation
            counts["logprobs_missing"] += turn.missing_logprobs
            counts["truncated"] += turn.is_truncated
            counts["ill_formed"] += turn.status != OK
            counts["tools_offered"] += turn.tools != ""
            counts["tool_calls_written"] += turn.calls_written
            counts["tool_calls_parsed"] += len(turn.reply.tool_calls)
            counts["tokens_sampled"] += len(turn.sampled_ids)
        counts["abandoned"] = len(self.abandoned())
        return dict(counts)

    # --- writing -----------------------------------------------------------------------------

    def commit(
        self,
        match: Match,
        *,
        prompt_ids: Sequence[int],
        sampled_ids: Sequence[int],
        logprobs: Sequence[float | None] | None,
        reply: Message,
        finish_reason: FinishReason = "stop",
        usage: Usage | None = None,
        version: int | str | None = None,
        status: str = OK,
        extension: bool | None = None,
        rendering: Rendering = "rendered",
        calls_written: int | None = None,
        request: str = "",
        store: Callable[[TurnNode], None] | None = None,
    ) -> TurnNode:
        """Record the answer to a matched request.

        Args:
            match: Where the request stands; other turns may have been committed since.
            prompt_ids: All ids the sampler was given.
            sampled_ids: All ids it returned, the stop token too if it was sampled.
            logprobs: One per sampled id, nats. A token without a finite one ≤ 0 never trains; with
                another number of them than ids, none of the turn's tokens does.
            reply: The reply as it is served, reasoning included.
            finish_reason: `length` where a token limit cut it off.
            usage: Tokens as served to the client; `None` counts the ids.
            version: Policy version that sampled it.
            status: Parse status; anything but `ok` is counted as ill-formed.
            extension: Whether the prompt was built to begin with the ids of `match.turn`. If it then
                does not, that is counted and the turn starts a branch. `None` goes by the ids alone.
            rendering: How the prompt was made.
            calls_written: Tool calls the output attempts; `None` for as many as `reply` has.
            request: Tells apart requests of equal messages and tools that are not each other's
                retries: a nonce for each of several answers somebody asked for on purpose.
            store: Told the turn before the graph has it. What it raises keeps the turn out, so that
                no answer is handed out, or trained, that a restarted gateway would not know.
        """
        prompt = prompt_ids if isinstance(prompt_ids, list) else list(prompt_ids)
        before = self._extended(match.turn, prompt) if extension is not False else None
        is_violation = extension is True and match.turn is not None and before is None
        turn = TurnNode(
            index=len(self.turns),
            parent=match.turn,
            extends=before is not None,
            context=match.new,
            reply=reply,
            prompt_ids=array("I", prompt[len(before or ()) :]),
            sampled_ids=array("I", sampled_ids),
            logprobs=checked_logprobs(logprobs, len(sampled_ids)),
            finish_reason=finish_reason,
            usage=usage or Usage(len(prompt), len(sampled_ids)),
            version=version,
            status=status,
            rendering=rendering,
            tools=match.tools,
            request=request,
            reason=match.reason,
            order=match.order,
            restored=match.restored,
            calls_written=len(reply.tool_calls) if calls_written is None else calls_written,
            is_violation=is_violation,
        )
        if is_violation:
            logger.warning(
                "turn=<%d>, prompt_tokens=<%d> | the prompt does not begin with the tokens of turn "
                "%s, which it was to extend; stored as a branch",
                turn.index,
                len(prompt),
                match.turn and match.turn.index,
            )
        if store is not None:
            store(turn)
        self._add(turn)
        self._join(turn, before)
        return turn

    def release(self) -> None:
        """Drop what is kept for a next turn alone: half of the memory of a session that has ended.

        The one call that may come while another thread is inside: that one loses nothing but time.
        """
        self._joined = {}
        self._reader.forget()

    def to_log(self, turn: TurnNode) -> JSON:
        """Return a turn as one JSON object; all of them, in order, are the whole graph."""
        return to_record(turn)

    @classmethod
    def from_log(cls, records: Iterable[Mapping[str, Any]]) -> MessageGraph:
        """Return the graph whose turns were logged.

        Raises:
            UsageError: A record is damaged, missing or out of order; the message says which.
        """
        graph = cls()
        for record in records:
            try:
                turn = from_record(record, graph.turns)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise UsageError(
                    f"record {len(graph.turns)} of a session log cannot be read: {error!r}"
                ) from error
            graph._add(turn)
        return graph

    # --- inside ------------------------------------------------------------------------------

    def _tools_key(self, tools: tuple[ToolSpec, ...]) -> str:
        """Return the key of the tools; a session sends the same ones every time."""
        if tools != self._tools[0]:
            self._tools = tools, tools_key(tools)
        return self._tools[1]

    def _reason(
        self,
        turn: TurnNode | None,
        new: tuple[Message, ...],
        matched: int,
        tools: str,
        answers: tuple[TurnNode, ...],
        *,
        is_known: bool,
    ) -> BranchReason | None:
        if not self.turns:
            return None
        if answers:
            return BranchReason.RETRIED
        if is_known or (turn is not None and turn.tools != tools):
            return BranchReason.TOOLS_CHANGED
        if turn is not None and not turn.children:
            return None
        depths = {
            matched + number: self._depths.get(reply_key(message), set())
            for number, message in enumerate(new, start=1)
            if message.role == "assistant"
        }
        if not depths:
            return BranchReason.BRANCHED
        if any(
            depth not in known and max(known, default=0) > depth for depth, known in depths.items()
        ):
            return BranchReason.HISTORY_COMPACTED
        return BranchReason.HISTORY_EDITED

    def _extended(self, turn: TurnNode | None, prompt: list[int]) -> list[int] | None:
        """Return the ids of a turn if the prompt begins with them, else `None`."""
        if turn is None:
            return None
        before = self._ids(turn)
        return before if prompt[: len(before)] == before else None

    def _ids(self, turn: TurnNode) -> list[int]:
        """Return the joined ids of a turn; the list is the graph's own."""
        joined = self._joined.get(turn)
        if joined is None:
            joined = []
            for step in token_path(turn):
                joined += step.prompt_ids
                joined += step.sampled_ids
            self._keep(turn, joined)
        return joined

    def _join(self, turn: TurnNode, before: list[int] | None) -> None:
        """Keep the joined ids of a new turn, in the very list of the turn it extends."""
        if before is not None and turn.parent is not None:
            self._joined.pop(turn.parent, None)
        joined = before if before is not None else []
        joined += turn.prompt_ids
        joined += turn.sampled_ids
        self._keep(turn, joined)

    def _keep(self, turn: TurnNode, joined: list[int]) -> None:
        kept = self._joined
        kept[turn] = joined
        if len(kept) > _JOINED:
            del kept[next(iter(kept))]

    def _add(self, turn: TurnNode) -> None:
        """Link a turn into the tree."""
        place = self._root if turn.parent is None else turn.parent.after
        for message in turn.context:
            place = self._go(place, message)
        if place.answers or place.children:
            self._reader.forget()  # what was read through here could be read in another way now
        key = reply_key(turn.reply)
        place.answers.setdefault(key, []).append(turn)
        turn.place = place
        if turn.parent is not None:
            turn.parent.children.append(turn)
        turn.depth = len(turn.context) + 1 + (turn.parent.depth if turn.parent else 0)
        self._depths.setdefault(key, set()).add(turn.depth)
        self._order = max(self._order, turn.order + 1)
        self.turns.append(turn)

    def _go(self, place: Place, message: Message) -> Place:
        key = context_key(message)
        child = place.children.get(key)
        if child is None:
            child = place.children[key] = Place(message)
            if message.role == "assistant":
                self._reader.forget()
        return child


def token_path(turn: TurnNode) -> list[TurnNode]:
    """Return the turns whose tokens, joined, end with a turn's: from the start of its branch on."""
    path = [turn]
    while path[-1].extends and path[-1].parent is not None:
        path.append(path[-1].parent)
    return path[::-1]


def _is_abandoned(turn: TurnNode, answers: list[TurnNode]) -> bool:
    """Return whether, of several answers to one request, this is one that the client never used."""
    if turn.children:
        return False
    if any(other.order > turn.order for other in answers):
        return True
    return any(
        other.children and min(child.order for child in other.children) > turn.order
        for other in answers
    )
