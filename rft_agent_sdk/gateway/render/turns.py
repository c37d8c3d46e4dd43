"""Reading and writing single turns as ids: what every renderer does the same way."""

from __future__ import annotations

from collections.abc import Sequence

from rft_agent_sdk.gateway.parse import Family, ParseStatus, Reading, by_name, status_of
from rft_agent_sdk.gateway.render.base import Parsed
from rft_agent_sdk.gateway.render.vocabulary import BREAK, Vocabulary, unguard
from rft_agent_sdk.gateway.render.wire import guarded
from rft_agent_sdk.types import FinishReason, Message, ToolCall, ToolSpec

_PREFILL_LIMIT = 48
"""How many ids at the end of a prompt may be the beginning of the turn it asks for."""


class Turns:
    """Turns of one family in one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, family: Family) -> None:
        self.family = family
        self.vocabulary = vocabulary
        self._inner = frozenset(
            number for mark in family.marks if (number := vocabulary.id_of(mark)) is not None
        )
        self._prefills: dict[tuple[int, ...], str] = {}

    def prefill(self, prompt: Sequence[int]) -> str:
        """Return what a prompt has already written of the turn it asks for, such as `<think>`."""
        run = self.vocabulary.last_run(prompt, self._inner, _PREFILL_LIMIT)
        if len(run) == _PREFILL_LIMIT:
            return ""  # no control token near: this is content, not the head of a turn
        text = self._prefills.get(run)
        if text is None:
            text = self.vocabulary.decode(run)
            if len(self._prefills) < 256:
                self._prefills[run] = text
        return text

    def parse(
        self,
        sampled: Sequence[int],
        *,
        prompt: Sequence[int],
        tools: Sequence[ToolSpec],
        finish_reason: FinishReason,
    ) -> Parsed:
        """Read a sampled turn."""
        raw = self.vocabulary.decode(sampled)
        reading = self.family.read(
            self.vocabulary.decode_guarded(sampled, raw),
            by_name(tools),
            prefill=self.prefill(prompt),
            is_cut=finish_reason == "length",
        )
        return as_parsed(reading, raw, finish_reason)

    def mend(self, sampled: Sequence[int], prompt: Sequence[int]) -> str | None:
        """Return what must follow a turn that broke off, before its closer."""
        text = self.vocabulary.decode_guarded(sampled, self.vocabulary.decode(sampled))
        return self.family.mend(text, prefill=self.prefill(prompt))

    def write(self, message: Message, prompt: Sequence[int], closer: str | None) -> list[int]:
        """Return the ids of a turn as a policy samples it; `closer` where the family fixes none."""
        ending = self.family.closer(message) or closer or ""
        text = self.family.write(
            guarded(message, self.vocabulary.guard), prefill=self.prefill(prompt)
        )
        return self.vocabulary.encode(text + ending)


def as_parsed(reading: Reading, raw: str, finish_reason: FinishReason) -> Parsed:
    """Return a reading as what a renderer gives."""
    calls = reading.calls
    if BREAK in "".join(f"{call.name}{call.arguments}{call.id}" for call in calls):
        calls = tuple(
            ToolCall(unguard(call.name), unguard(call.arguments), unguard(call.id))
            for call in calls
        )
    reasoning = None if reading.reasoning is None else unguard(reading.reasoning)
    message = Message("assistant", unguard(reading.text), reasoning, calls)
    reason: FinishReason = "tool_calls" if calls else "stop"
    status: ParseStatus = status_of(reading, finish_reason)
    return Parsed(message, "length" if finish_reason == "length" else reason, status, raw)
