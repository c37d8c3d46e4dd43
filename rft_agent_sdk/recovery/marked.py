"""Calls that a model family's own marks announce; they count wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rft_agent_sdk.recovery.literals import LiteralReader, Unreadable, skip_space
from rft_agent_sdk.recovery.schema import typed
from rft_agent_sdk.recovery.shapes import Found, calls_in
from rft_agent_sdk.types import ToolSpec

Tools = Mapping[str, ToolSpec]
"""The tools by name."""

REASONING = r"\A\s*+(?:<think>|\[THINK\])|<\|channel\|>analysis<\|message\|>|<\|channel>thought"
_REASONING_END = {
    "<think>": re.compile("</think>"),
    "[THINK]": re.compile(r"\[/THINK\]"),
    "<|channel|>analysis<|message|>": re.compile(r"<\|(?:end|start|call|return)\|>"),
    "<|channel>thought": re.compile(r"<channel\|>"),
}

TAGGED = (
    r"(?:<\|?(?:tool_call|tools?|function_call)\|?>|\[TOOL_CALLS\]|<\|python_tag\|>)\s*+(?=[\[{])"
)
"""Hermes, Qwen 3, SmolLM (tags around JSON), Mistral Nemo (a JSON list), Llama (after its tag)."""

_HARMONY_FILLER = (
    r"(?:\s|<\|(?:constrain|channel|message)\|>|commentary|analysis|json){0,40}+(?=\{)"
)
HEADED = (
    rf"(?<!\w)to=[\w.-]++{_HARMONY_FILLER}"
    r"|\[TOOL_CALLS\]\s*+[\w.-]++(?:\[CALL_ID\]\w++)?(?:\[ARGS\])?\s*+(?=\{)"
    r"|(?<!\w)call:[\w.-]++\s?(?=\{)"
)
"""A name, then its arguments: gpt-oss (harmony, the recipient in either place), Mistral, Gemma 4."""
_HEAD_NAME = re.compile(r"(?:to=|call:|\[TOOL_CALLS\]\s*+)([\w.-]++)")

_KEY = r"""(?:=|\s++name\s*+=)\s*+["']?(\w[\w.-]*+)["']?\s*+>"""
XML = rf"<(?:__)?(?:function|invoke){_KEY}"
"""Qwen 3 Coder and 3.5, Nova's underscored dialect, Llama's JSON inside a function tag."""
_XML_OPEN = re.compile(XML)
_XML_CLOSE = re.compile(r"\s*+</(?:__)?(?:function|invoke)>")
_PARAMETER = re.compile(rf"\s*+<(?:__)?parameter{_KEY}")
# A closing tag closes only where the call goes on or ends, so that one inside a value does not. If the
# next call comes first, the parameter was never closed.
_PARAMETER_END = re.compile(
    r"(?P<close></(?:__)?parameter>)"
    r"(?=\s*+(?:<(?:__)?parameter[=\s]|</(?:__)?(?:function|invoke)>|</tool_call>|\Z))"
    rf"|(?:</(?:__)?(?:function|invoke)>|</?tool_call>)\s*+(?={XML})"
)


def skip_reasoning(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Step over reasoning that came along in the text: what is only thought of is not called."""
    closing = _REASONING_END[text[start:end].strip()].search(text, end)
    return [], closing.end() if closing else len(text)


def read_tagged(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Read the JSON after a tag. The JSON says where it ends, not the next closing tag."""
    value, end = LiteralReader(text).value(end)
    return list(calls_in(value)), end


def read_headed(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Read the arguments after a header that names the tool."""
    name = _HEAD_NAME.match(text, start)
    is_gemma = text.startswith("call:", start)
    arguments, end = LiteralReader(text, words=is_gemma).object(end)
    return [(name[1], arguments)] if name else [], end


def read_xml(text: str, start: int, end: int, tools: Tools) -> tuple[list[Found], int]:
    """Read a function tag and its parameters; a broken one is stepped over as a whole."""
    opening = _XML_OPEN.match(text, start)
    if opening is None:
        raise Unreadable(end)
    if text.startswith("{", skip_space(text, end)):
        arguments, end = LiteralReader(text).object(end)
        return [(opening[1], arguments)], end
    tool = tools.get(bare_name(opening[1], tools))
    arguments = {}
    while parameter := _PARAMETER.match(text, end):
        ending = _PARAMETER_END.search(text, parameter.end())
        if ending is None or not ending["close"]:
            raise Unreadable(ending.end() if ending else len(text))
        value = text[parameter.end() : ending.start()]
        arguments[parameter[1]] = typed(tool, parameter[1], value) if tool else value
        end = ending.end()
    closing = _XML_CLOSE.match(text, end)
    if closing is None and not arguments:
        raise Unreadable(end)
    return [(opening[1], arguments)], closing.end() if closing else end


def bare_name(name: str, tools: Tools) -> str:
    """Return the tool's name without the namespace that harmony puts before it."""
    return name if name in tools else name.removeprefix("functions.")
