"""Sampled turns taken apart: reasoning first, then text and tool calls, with a status.

A family is how a group of models writes turns; which one a model uses is told from its chat template.
Reading never raises: what cannot be read as a call is flagged and stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rft_agent_sdk.errors import ChatTemplateError
from rft_agent_sdk.gateway.parse.base import Family, ParseStatus, Reading, Tools
from rft_agent_sdk.gateway.parse.gemma import GemmaCalls
from rft_agent_sdk.gateway.parse.harmony import HarmonyFamily
from rft_agent_sdk.gateway.parse.hermes import HermesCalls
from rft_agent_sdk.gateway.parse.llama import LlamaCalls
from rft_agent_sdk.gateway.parse.mistral import MistralCalls
from rft_agent_sdk.gateway.parse.tagged import THINK, TaggedFamily, Tags
from rft_agent_sdk.gateway.parse.xml import XmlCalls
from rft_agent_sdk.types import FinishReason, ToolSpec

__all__ = [
    "FAMILIES",
    "Family",
    "ParseStatus",
    "Reading",
    "Tools",
    "by_name",
    "family_of",
    "status_of",
]

_CHATML_CLOSERS = {"<|im_end|>": frozenset({"<|endoftext|>"})}
_CHATML_MARKS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})
_MISTRAL_TAGS = Tags("[THINK]", "[/THINK]", "[THINK]", "[/THINK]")
_MISTRAL_MARKS = frozenset({"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"})
_MISTRAL_CLOSERS = {"</s>": frozenset[str]()}


def _mistral(name: str, calls: MistralCalls) -> TaggedFamily:
    return TaggedFamily(name, _MISTRAL_TAGS, calls, _MISTRAL_MARKS, _MISTRAL_CLOSERS)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        TaggedFamily("hermes", THINK, HermesCalls(), _CHATML_MARKS, _CHATML_CLOSERS),
        TaggedFamily("xml", THINK, XmlCalls(), _CHATML_MARKS, _CHATML_CLOSERS),
        HarmonyFamily(),
        TaggedFamily(
            "gemma",
            Tags("<|channel>thought", "<channel|>", "<|channel>thought\n", "\n<channel|>"),
            GemmaCalls(),
            frozenset({"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'}),
            {"<turn|>": frozenset(), "<|tool_response>": frozenset()},
            call_closer="<|tool_response>",
        ),
        TaggedFamily(
            "llama",
            THINK,
            LlamaCalls(),
            frozenset({"<think>", "</think>", "<|python_tag|>"}),
            {"<|eot_id|>": frozenset({"<|eom_id|>", "<|end_of_text|>"})},
        ),
        _mistral("mistral-list", MistralCalls("list")),
        _mistral("mistral-id", MistralCalls("id")),
        _mistral("mistral-args", MistralCalls("args")),
    )
}
"""Every family by its name."""

_SIGNS: tuple[tuple[str, str], ...] = (
    ("harmony", r"<\|channel\|>(?s:.)*<\|message\|>"),
    ("gemma", r"<\|tool_call>(?s:.)*<tool_call\|>"),
    ("mistral-id", r"\[CALL_ID\]"),
    ("mistral-args", r"\[ARGS\]"),
    ("mistral-list", r"\[TOOL_CALLS\]"),
    (
        "",
        r"<arg_key>|<minimax:tool_call>|<\|tool_calls_section_begin\|>|<\uff5ctool\u2581calls\u2581begin\uff5c>",
    ),
    ("xml", r"<function=(?s:.)*<parameter="),
    ("hermes", r"<tool_call>"),
    ("llama", r"<\|python_tag\|>|<\|eot_id\|>"),
    ("hermes", r"<\|im_start\|>"),
)
"""What in a template's text tells its family, the first that is found; the empty name is none of ours."""


def family_of(template: str) -> Family:
    """Return the family whose turns a chat template renders.

    Raises:
        ChatTemplateError: None that can be parsed here.
    """
    for name, sign in _SIGNS:
        if re.search(sign, template):
            if name:
                return FAMILIES[name]
            break
    raise ChatTemplateError(
        "wanted a chat template whose tool calls can be parsed, got one that shows none of the known "
        f"formats; if its models write one of them all the same, name it: {', '.join(FAMILIES)}"
    )


def by_name(tools: Sequence[ToolSpec]) -> Tools:
    """Return tools by their names."""
    return {tool.name: tool for tool in tools}


def status_of(reading: Reading, finish_reason: FinishReason) -> ParseStatus:
    """Return how a turn reads, given why sampling it ended."""
    if reading.is_ill_formed or (reading.is_open and finish_reason != "length"):
        return ParseStatus.ILL_FORMED
    return ParseStatus.TRUNCATED if finish_reason == "length" else ParseStatus.OK
