"""The words of this project as frozen records: messages, turns, outcomes.

No I/O and no third-party import; every other module may use these.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

JSON = dict[str, Any]
"""A JSON object, as parsed."""

Role = Literal["system", "user", "assistant", "tool"]


class Outcome(enum.StrEnum):
    """Why a rollout ended."""

    COMPLETED = "completed"
    """The policy played to an end of its own: the episode is over, or it stopped acting."""
    TRUNCATED = "truncated"
    """The policy ran into its token limit or its context window."""
    TIMEOUT = "timeout"
    """The rollout's deadline passed while its endpoint was answering."""
    NO_SAMPLING = "no_sampling"
    """Not one sampling request succeeded."""
    AGENT_ERROR = "agent_error"
    """The agent's own code raised, or returned no usable reward."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment raised, or refused the task string."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """The policy endpoint failed, throttled, or refused until there was no time left."""
    CANCELLED = "cancelled"
    """The process or the caller asked the rollout to stop."""

    @property
    def is_policy(self) -> bool:
        """Whether this is the policy's own doing, so that its reward may be trained on."""
        return self in _POLICY_OUTCOMES

    @property
    def is_cut_short(self) -> bool:
        """Whether something other than the policy ended the rollout."""
        return self in _CUT_SHORT


_POLICY_OUTCOMES = frozenset({Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.TIMEOUT})
_CUT_SHORT = frozenset(Outcome) - {Outcome.COMPLETED, Outcome.TRUNCATED}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the policy is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments, an object schema."""

    def as_openai(self) -> JSON:
        """Return the entry of an OpenAI `tools` list."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by the policy."""

    name: str
    arguments: str
    """Raw argument text, as the model wrote it; JSON when well-formed."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, free of any provider's wire format."""

    role: Role
    text: str = ""
    reasoning: str | None = None
    """The model's reasoning, where the wire carried it; `None` when absent, not when empty."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a tool message, the id of the call it answers."""
    is_error: bool = False
    """On a tool message, whether the tool reported an error."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the policy is to be sampled; `None` leaves a value to the endpoint."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Tokens per call, reasoning included."""

    def as_openai(self) -> JSON:
        """Return the chat-completion fields that are set."""
        fields = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
        }
        return {name: value for name, value in fields.items() if value is not None}


FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call or a sum of calls."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call: what was asked, what came."""

    messages: tuple[Message, ...]
    """The history the call was made with."""
    reply: Message
    finish_reason: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
