"""A client, a renderer and a sampler in a few lines each, to fill message graphs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rft_agent_sdk.gateway.graph import Match, MessageGraph
from rft_agent_sdk.gateway.turn_node import TurnNode
from rft_agent_sdk.types import Message, ToolCall, ToolSpec

SYSTEM = Message("system", "SYS")
GO = Message("user", "go")
START = (SYSTEM, GO)
TOOLS = (
    ToolSpec("guess_word", "Submit a guess.", {"type": "object", "properties": {"guess": {}}}),
)


def called(
    text: str = "", *calls: tuple[str, str], reasoning: str | None = None, name: str = "guess_word"
) -> Message:
    """Return a reply whose calls have the given ids and arguments."""
    return Message(
        "assistant",
        text,
        reasoning,
        tuple(ToolCall(name, arguments, id) for id, arguments in calls),
    )


def result(call_id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=call_id)


@dataclass
class Play:
    """One session: a graph, and everything its sampler saw and gave."""

    graph: MessageGraph = field(default_factory=MessageGraph)
    served: dict[int, tuple[list[int], list[int], Sequence[float | None]]] = field(
        default_factory=dict
    )
    """Prompt, sampled ids and logprobs, by the number of the commit."""
    fresh: Any = field(default_factory=lambda: itertools.count(1000))

    def ids(self, count: int) -> list[int]:
        """Return token ids used nowhere else."""
        return [next(self.fresh) for _ in range(count)]

    def prompt(self, match: Match, count: int = 3) -> list[int]:
        """Return the prompt of a renderer that extends whatever turn was matched."""
        before = self.graph.ids(match.turn) if match.turn else []
        return before + self.ids(count)

    def ask(
        self, messages: Sequence[Message], reply: Message, *, tools: Sequence[ToolSpec] = TOOLS
    ) -> TurnNode:
        """Send a request and record its answer, extending where it goes on from a turn."""
        return self.answer(self.graph.match(messages, tools), reply)

    def answer(self, match: Match, reply: Message, **options: Any) -> TurnNode:
        """Record an answer to a request; ids that are not given are made up."""
        prompt = options.pop("prompt_ids", None) or self.prompt(match)
        sampled = options.pop("sampled_ids", None) or self.ids(4)
        logprobs = options.pop("logprobs", [-0.5] * len(sampled))
        turn = self.graph.commit(
            match,
            prompt_ids=prompt,
            sampled_ids=sampled,
            logprobs=logprobs,
            reply=reply,
            **options,
        )
        self.served[turn.index] = list(prompt), list(sampled), logprobs
        return turn


def dropped(message: Message) -> Message:
    """Return a message as most agents echo it: without reasoning, arguments re-spaced."""
    calls = tuple(
        replace(call, arguments=json.dumps(json.loads(call.arguments)))
        for call in message.tool_calls
    )
    return replace(message, reasoning=None, tool_calls=calls)
