"""What answers a turn: a `Policy`, at the level of messages.

A token-level sampler (ids in; ids and logprobs out) is a different protocol and would live beside
this one: a gateway that renders would wrap it as a `Policy`, so that the routes need not know.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rft_agent_sdk.gateway.refusal import to_json
from rft_agent_sdk.types import FinishReason, Message, SamplingParams, ToolCall, ToolSpec, Usage

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether, and which, tool the policy must call."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    """With `required`, the one tool to call; `None` for any."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """What a policy is asked, free of any provider's wire format."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    model: str = "default"
    """The model's name as the client wrote it."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further request fields, by their OpenAI names; only ones the policy's `extras` allow."""
    is_resend: bool = False
    """Whether the client says that it sends this again, the reply to it having been lost."""
    nonce: str = ""
    """Tells apart requests that are equal on purpose: each is answered anew."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy answered."""

    message: Message
    finish_reason: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply as it comes; any field may be empty."""

    text: str = ""
    reasoning: str = ""
    call_index: int | None = None
    """Which tool call the next three fields belong to, from 0."""
    call_id: str = ""
    call_name: str = ""
    call_arguments: str = ""


class Policy(ABC):
    """Answers turns."""

    extras: Collection[str] | None = frozenset()
    """Names of further request fields it honours, or may ignore without harm; `None` for all."""

    @abstractmethod
    async def reply(self, request: PolicyRequest) -> Reply:
        """Answer one turn.

        Raises:
            Refusal: The request cannot be honoured, or whatever stands behind the policy failed.
        """

    async def stream(self, request: PolicyRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply in pieces, then whole; the default waits for all of it first."""
        reply = settled(await self.reply(request))
        for delta in deltas_of(reply.message):
            yield delta
        yield reply

    async def count_tokens(self, request: PolicyRequest) -> int:
        """Return how many tokens the request's prompt has; nothing is sampled or remembered.

        The default estimates from the characters: whoever knows the tokenizer counts exactly.
        """
        return estimated_tokens(request.messages, request.tools)

    async def aclose(self) -> None:  # noqa: B027 - most policies hold nothing
        """Give back connections and threads; a later call to `reply` takes new ones."""


def settled(reply: Reply) -> Reply:
    """Return the reply with a distinct id on every tool call and a finish reason that says so.

    An agent matches results to calls by id and goes on only after `tool_calls`, whatever a backend
    wrote. `length` stays: what was cut off must not look finished.
    """
    calls = reply.message.tool_calls
    if not calls:
        return (
            reply if reply.finish_reason != "tool_calls" else replace(reply, finish_reason="stop")
        )
    ids = [call.id for call in calls]
    if not all(ids) or len(set(ids)) < len(ids):
        seen: set[str] = set()
        calls = tuple(_with_id(call, seen) for call in calls)
        reply = replace(reply, message=replace(reply.message, tool_calls=calls))
    return replace(reply, finish_reason="tool_calls") if reply.finish_reason == "stop" else reply


def estimated_tokens(messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> int:
    """Return about how many tokens messages and tools have, where nobody has a tokenizer."""
    characters = sum(map(_characters, messages))
    characters += sum(len(to_json(tool.as_openai())) for tool in tools)
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _characters(message: Message) -> int:
    return (
        len(message.text)
        + len(message.reasoning or "")
        + sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    )


def new_call_id() -> str:
    """Return a fresh tool call id."""
    return f"call_{secrets.token_hex(12)}"


def _with_id(call: ToolCall, seen: set[str]) -> ToolCall:
    if not call.id or call.id in seen:
        call = replace(call, id=new_call_id())
    seen.add(call.id)
    return call


def deltas_of(message: Message) -> list[Delta]:
    """Return a whole message as the pieces of a stream: reasoning, text, then each call in two."""
    found = []
    if message.reasoning:
        found.append(Delta(reasoning=message.reasoning))
    if message.text:
        found.append(Delta(text=message.text))
    for index, call in enumerate(message.tool_calls):
        found.append(Delta(call_index=index, call_id=call.id, call_name=call.name))
        found.append(Delta(call_index=index, call_arguments=call.arguments))
    return found
