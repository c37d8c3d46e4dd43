"""Families whose turns are reasoning between two tags, then text with calls in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rft_agent_sdk.gateway.parse.base import IllFormed, Reading, Tools
from rft_agent_sdk.types import Message, ToolCall


class CallSyntax(Protocol):
    """How a family writes calls."""

    @property
    def opening(self) -> re.Pattern[str]:
        """Where a call may begin."""
        ...

    @property
    def before(self) -> str:
        """What separates text from a first call."""
        ...

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the calls that begin at an opening, and the position after them.

        Raises:
            IllFormed: They cannot be read.
        """
        ...

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        ...


@dataclass(frozen=True, slots=True)
class Tags:
    """The two marks around reasoning, and how a policy writes them."""

    opening: str
    closing: str
    opened: str
    """The opening mark with the white space after it."""
    closed: str
    """The closing mark with the white space around it."""


THINK = Tags("<think>", "</think>", "<think>\n", "\n</think>\n\n")


@dataclass(frozen=True, slots=True)
class TaggedFamily:
    """Reasoning first, then text, then calls."""

    name: str
    tags: Tags
    calls: CallSyntax
    marks: frozenset[str]
    closers: Mapping[str, frozenset[str]]
    call_closer: str | None = None
    """What ends a turn with calls, where it differs from what ends one with text."""

    @property
    def stops(self) -> frozenset[str]:
        """The closers: sampling stops at each of them."""
        return frozenset(self.closers).union(*self.closers.values())

    def read(self, text: str, tools: Tools, *, prefill: str = "", is_cut: bool = False) -> Reading:
        """Take a turn's text apart."""
        text = self._without_closer(text)
        reasoning, text, is_open = self._split(text, prefill)
        pieces: list[str] = []
        calls: list[ToolCall] = []
        is_ill_formed = False
        position = 0
        while match := self.calls.opening.search(text, position):
            start, said = position, text[position : match.start()]
            try:
                found, position = self.calls.read(text, match, tools)
            except IllFormed as failure:
                is_open |= failure.is_open
                is_ill_formed |= not failure.is_open
                found, position = [], max(failure.end, match.end())
            position = max(position, match.start() + 1)  # an opening may be empty, and be no call
            calls += found
            pieces.append(said if found else text[start:position])
        if not calls:
            return Reading(text, reasoning, (), is_ill_formed, is_open)
        pieces.append(text[position:])
        said = "".join(piece for piece in pieces if piece.strip()).strip()
        return Reading(said, reasoning, tuple(calls), is_ill_formed, is_open)

    def write(self, message: Message, *, prefill: str = "") -> str:
        """Return the text that a policy samples to say `message`."""
        text = message.text
        if self.is_prefilled(prefill):
            text = f"{message.reasoning or ''}{self.tags.closed}{text}"
        elif message.reasoning is not None:
            text = f"{self.tags.opened}{message.reasoning}{self.tags.closed}{text}"
        if not message.tool_calls:
            return text
        separator = self.calls.before if message.text else ""
        return f"{text}{separator}{self.calls.write(message.tool_calls)}"

    def closer(self, message: Message) -> str | None:
        """Return the string that ends such a turn, where the family fixes it."""
        return self.call_closer if message.tool_calls else None

    def mend(self, text: str, *, prefill: str = "") -> str | None:
        """Return what closes reasoning that was left open."""
        _, _, is_open = self._split(self._without_closer(text), prefill)
        return self.tags.closed if is_open else ""

    def is_thinking(self, template: str) -> bool:
        """Return whether a template's text shows how reasoning is written."""
        return self.tags.closing in template

    def without_reasoning(self, text: str) -> str:
        """Return a rendered conversation without its turns' reasoning, empty or not."""
        opening, closing = re.escape(self.tags.opening), re.escape(self.tags.closing)
        return re.sub(rf"{opening}.*?{closing}\s*", "", text, flags=re.DOTALL)

    def _split(self, text: str, prefill: str) -> tuple[str | None, str, bool]:
        """Return reasoning, what follows it, and whether the reasoning never ended."""
        opening = self.tags.opening
        start = len(text) - len(text.lstrip())
        is_repeated = text.startswith(opening, start)
        if is_repeated:
            start += len(opening)
        elif self.is_prefilled(prefill):
            start = 0
        else:
            return None, text, False
        reasoning, closing, rest = text[start:].partition(self.tags.closing)
        return reasoning.strip("\n"), rest.lstrip("\n"), not closing

    def is_prefilled(self, prefill: str) -> bool:
        """Return whether the prompt has already opened the turn's reasoning."""
        return prefill.rfind(self.tags.opening) > prefill.rfind(self.tags.closing)

    def _without_closer(self, text: str) -> str:
        ending = next((closer for closer in sorted(self.stops) if text.endswith(closer)), "")
        return text.removesuffix(ending)
