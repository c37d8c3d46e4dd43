"""Turns of gpt-oss: several messages, each with a channel and perhaps a recipient in its header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rft_agent_sdk.gateway.parse.arguments import NotJSON, read_value, skip_space
from rft_agent_sdk.gateway.parse.base import Reading, Tools
from rft_agent_sdk.types import Message, ToolCall

START, MESSAGE, END, CALL, RETURN = "<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"
CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
# The recipient stands in the role where a history is rendered, after the channel where it is sampled.
RECIPIENT = re.compile(r"\bto=([^\s<]+)")
ENDING = re.compile(r"<\|(?:end|call|return)\|>")
_ANALYSIS = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>.*?<\|end\|>", re.DOTALL
)


@dataclass(slots=True)
class _Parts:
    reasoning: list[str]
    text: list[str]
    calls: list[ToolCall]
    is_ill_formed: bool = False
    is_open: bool = False


class HarmonyFamily:
    """Reasoning in the analysis channel, text in the others, calls by their recipient."""

    name = "harmony"
    marks = frozenset({"<|channel|>", "<|message|>", "<|constrain|>"})
    closers: Mapping[str, frozenset[str]] = {END: frozenset({RETURN}), CALL: frozenset()}
    stops = frozenset({CALL, RETURN})

    def read(self, text: str, tools: Tools, *, prefill: str = "", is_cut: bool = False) -> Reading:
        """Take a turn's text apart."""
        parts = _Parts([], [], [])
        head = prefill.removeprefix(START)
        written = text.removeprefix(START) if not head else head + text
        segments = written.split(START)
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            self._read_message(segment, parts, tools, is_cut=is_cut and is_last)
        return Reading(
            "\n".join(parts.text),
            "\n".join(parts.reasoning) if parts.reasoning else None,
            tuple(parts.calls),
            parts.is_ill_formed,
            parts.is_open,
        )

    def write(self, message: Message, *, prefill: str = "") -> str:
        """Return the text that a policy samples to say `message`, its last closer left out."""
        parts = []
        if message.reasoning is not None or MESSAGE in prefill:
            parts.append(f"<|channel|>analysis{MESSAGE}{message.reasoning or ''}{END}")
        if message.text or not message.tool_calls:
            channel = "commentary" if message.tool_calls else "final"
            parts.append(f"<|channel|>{channel}{MESSAGE}{message.text}{END}")
        parts += [
            f"<|channel|>commentary to=functions.{call.name} <|constrain|>json{MESSAGE}"
            f"{call.arguments or '{}'}{CALL}"
            for call in message.tool_calls
        ]
        written = f"{START}assistant".join(parts)
        given = prefill.removeprefix(START).removeprefix("assistant")
        return written.removesuffix(END).removesuffix(CALL).removeprefix(given)

    def closer(self, message: Message) -> str | None:
        """Return the string that ends such a turn."""
        return CALL if message.tool_calls else RETURN

    def mend(self, text: str, *, prefill: str = "") -> str | None:
        """Return nothing where a message's body broke off, `None` where its header did."""
        last = (prefill + text).rpartition(START)[2]
        header, message, body = last.partition(MESSAGE)
        return "" if header and message and not ENDING.search(body) else None

    def is_thinking(self, template: str) -> bool:
        """Return whether a template's text shows how reasoning is written: they all do."""
        return True

    def without_reasoning(self, text: str) -> str:
        """Return a rendered conversation without its messages in the analysis channel."""
        return _ANALYSIS.sub("", text)

    def _read_message(self, segment: str, parts: _Parts, tools: Tools, *, is_cut: bool) -> None:
        header, message, rest = segment.partition(MESSAGE)
        if not message:
            self._read_headless(segment, parts, is_cut=is_cut)
            return
        ending = ENDING.search(rest)
        body = rest[: ending.start()] if ending else rest
        recipient = RECIPIENT.search(header)
        channel = CHANNEL.search(header)
        if recipient and recipient[1] != "assistant":
            call = None if is_cut and not ending else _as_call(recipient[1], body, tools)
            if call:
                parts.calls.append(call)
            else:
                parts.is_open |= ending is None
                parts.is_ill_formed |= ending is not None
                # The role was the prompt's; what stays is what the policy wrote.
                parts.text.append(segment.removeprefix("assistant").strip())
        elif channel and channel[1] == "analysis":
            parts.reasoning.append(body)
            parts.is_open |= ending is None
        elif body:
            parts.text.append(body)
        after = rest[ending.end() :].strip() if ending else ""
        if after:
            parts.is_ill_formed = True
            parts.text.append(after)

    def _read_headless(self, segment: str, parts: _Parts, *, is_cut: bool) -> None:
        """Read what never came to a body: nothing, a header cut off, or text without any marks."""
        said = ENDING.sub("", segment.removeprefix("assistant")).strip()
        if not said:
            return
        if "<|channel|>" in said:
            parts.is_open |= is_cut
            parts.is_ill_formed |= not is_cut
        parts.text.append(said)


def _as_call(recipient: str, body: str, tools: Tools) -> ToolCall | None:
    name = recipient if recipient in tools else recipient.removeprefix("functions.")
    if not body.strip():
        return ToolCall(name, "{}")
    try:
        value, end = read_value(body, skip_space(body, 0))
    except NotJSON:
        return None
    is_whole = isinstance(value, dict) and skip_space(body, end) == len(body)
    return ToolCall(name, body.strip()) if is_whole else None
