"""What turns messages into token ids and back: the protocol, and what parsing gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from rft_agent_sdk.gateway.parse import ParseStatus
from rft_agent_sdk.types import FinishReason, Message, ToolSpec

if TYPE_CHECKING:
    from rft_agent_sdk.gateway.render.turns import Turns

ExtensionMode = Literal["bridge", "heal"]
"""How a renderer extends: by a library's own code for the model, or by the rest of the template's render."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """One sampled turn, read."""

    message: Message
    """The reply; calls have the ids that the policy wrote, or none."""
    finish_reason: FinishReason
    """`tool_calls` when calls were read, `length` where it was, else `stop`."""
    status: ParseStatus
    raw_text: str
    """The sampled tokens as text, control tokens included."""


class Renderer(Protocol):
    """Messages to token ids and back, for one tokenizer, template and set of template arguments.

    Content never becomes a control token: what a message says is encoded as plain text, even where it
    spells one. Safe to share between threads.
    """

    name: str
    """For logs and reports."""
    mode: ExtensionMode
    stop_ids: frozenset[int]
    """At which sampling stops; each belongs to the turn it ends."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens and their ids."""
        ...

    @property
    def turns(self) -> Turns | None:
        """How turns are written, `None` where a library knows and only whole ones can be read."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the whole prompt of the next turn.

        Raises:
            UsageError: The template refuses such a conversation.
        """
        ...

    def extend(
        self,
        prefix: Sequence[int],
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        sampled: Sequence[int],
        finish_reason: FinishReason,
    ) -> list[int] | None:
        """Return what must follow `prefix` to make it the prompt of the turn after `new`.

        The work grows with `new` and `sampled`, not with `prefix`.

        Args:
            prefix: The ids of the last turn's prompt, and its sampled ids.
            history: The messages behind `prefix`; the last is the turn that was sampled.
            new: What was said since, none of it by the assistant.
            tools: The tools of the turn.
            sampled: The ids of the last turn, the end of `prefix`.
            finish_reason: Why sampling it ended.

        Returns:
            Ids, or `None` if the prompt cannot be kept: the caller renders anew, as a branch.
        """
        ...

    def parse(
        self,
        sampled: Sequence[int],
        *,
        prompt: Sequence[int],
        tools: Sequence[ToolSpec],
        finish_reason: FinishReason,
    ) -> Parsed:
        """Read a sampled turn. Never raises, whatever was sampled."""
        ...

    def write(self, message: Message, *, prompt: Sequence[int]) -> list[int]:
        """Return the ids that a policy samples after `prompt` to say `message`, its stop token included.

        For scripted policies: a replay of a message, never a record of what a model sampled.
        """
        ...
