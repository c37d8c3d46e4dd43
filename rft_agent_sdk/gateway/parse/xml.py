"""Calls as function and parameter tags: Qwen 3 Coder, 3.5, 3.6 and 3.8. Values are typed by the schema."""

from __future__ import annotations

import json
import re

from rft_agent_sdk.gateway.parse.arguments import read_object, to_json
from rft_agent_sdk.gateway.parse.base import Tools
from rft_agent_sdk.gateway.parse.hermes import CLOSING, OPENING, ill_formed
from rft_agent_sdk.recovery.schema import properties, typed
from rft_agent_sdk.types import ToolCall, ToolSpec

_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>")
_FUNCTION_END = re.compile(rf"\s*</function>\s*{CLOSING}")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
# A closing tag closes only where the call goes on or ends, so that one inside a value does not.
_PARAMETER_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_NEXT_CALL = re.compile(rf"</function>\s*{CLOSING}\s*(?:{OPENING}|\Z)")
_INNER = re.compile(r"\n<parameter=([^>\n]+)>\n")


class XmlCalls:
    """`<tool_call>`, one function with its parameters, `</tool_call>`."""

    opening = re.compile(re.escape(OPENING))
    before = "\n\n"

    def read(self, text: str, match: re.Match[str], tools: Tools) -> tuple[list[ToolCall], int]:
        """Return the one call of a pair of tags, and the position after it."""
        function = _FUNCTION.match(text, match.end())
        if function is None:
            raise ill_formed(text, match, CLOSING)
        tool = tools.get(function[1]) or ToolSpec(function[1], "", {})
        arguments = {}
        position = function.end()
        while parameter := _PARAMETER.match(text, position):
            ending = _PARAMETER_END.search(text, parameter.end())
            value = text[parameter.end() : ending.start()] if ending else ""
            if ending is None or _is_unclosed(value, parameter[1], tool):
                raise ill_formed(text, match, CLOSING)
            arguments[parameter[1]] = typed(tool, parameter[1], value)
            position = ending.end()
        closing = _FUNCTION_END.match(text, position)
        if closing is None:
            raise ill_formed(text, match, CLOSING)
        return [ToolCall(tool.name, to_json(arguments))], closing.end()

    def write(self, calls: tuple[ToolCall, ...]) -> str:
        """Return calls as a policy samples them."""
        return "\n".join(map(_written, calls))


def _is_unclosed(value: str, name: str, tool: ToolSpec) -> bool:
    """Whether a value runs on into the next call or parameter, so that its own end is missing."""
    known = properties(tool)
    return bool(_NEXT_CALL.search(value)) or any(
        other != name and other in known for other in _INNER.findall(value)
    )


def _written(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n</parameter>\n"
        for name, value in read_object(call.arguments).items()
    )
    return f"{OPENING}\n<function={call.name}>\n{parameters}</function>\n{CLOSING}"
