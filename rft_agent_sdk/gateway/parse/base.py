"""What reading a turn gives, and what a family of turn formats must offer."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rft_agent_sdk.types import Message, ToolCall, ToolSpec

Tools = Mapping[str, ToolSpec]
"""The tools of a turn by name."""


class ParseStatus(enum.StrEnum):
    """How a sampled turn reads."""

    OK = "ok"
    TRUNCATED = "truncated"
    """It broke off at the token limit."""
    ILL_FORMED = "ill_formed"
    """It holds a call that cannot be read, or ends inside reasoning or a call."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A turn's text taken apart."""

    text: str = ""
    """What is said, and every call that cannot be read, as written."""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    is_ill_formed: bool = False
    """Whether something written as a call is closed and still is none."""
    is_open: bool = False
    """Whether reasoning or a call was begun and never ended."""


class IllFormed(Exception):
    """A call begins here and cannot be read; caught inside this package, never seen by a caller of it."""

    def __init__(self, end: int, *, is_open: bool) -> None:
        super().__init__(end)
        self.end = end
        """Where reading goes on; what lies before stays text."""
        self.is_open = is_open


class Family(Protocol):
    """How one family of models writes a turn: reasoning, text, calls."""

    @property
    def name(self) -> str:
        """For reports, and to choose it by."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Control strings that stand inside a turn, as opposed to those that open or end one."""
        ...

    @property
    def closers(self) -> Mapping[str, frozenset[str]]:
        """Strings that end a turn, each with others that a policy may end it with instead."""
        ...

    @property
    def stops(self) -> frozenset[str]:
        """Those of them at which sampling stops."""
        ...

    def read(self, text: str, tools: Tools, *, prefill: str = "", is_cut: bool = False) -> Reading:
        """Take a turn's text apart. Never raises, whatever the text.

        Args:
            text: The sampled text, control strings as text; a closer at its end is ignored.
            tools: By whose schemas arguments without a type of their own are typed.
            prefill: What the prompt had already written of this turn, such as `<think>`.
            is_cut: Whether sampling broke off at the token limit.
        """
        ...

    def write(self, message: Message, *, prefill: str = "") -> str:
        """Return the text that a policy samples to say `message`, its closer left out."""
        ...

    def closer(self, message: Message) -> str | None:
        """Return the string that ends such a turn, `None` where the template alone can tell."""
        ...

    def mend(self, text: str, *, prefill: str = "") -> str | None:
        """Return what must follow a turn that broke off, before its closer; `None` where nothing helps."""
        ...

    def is_thinking(self, template: str) -> bool:
        """Return whether a template's text shows how reasoning is written."""
        ...

    def without_reasoning(self, text: str) -> str:
        """Return a rendered conversation without its turns' reasoning, empty or not."""
        ...
