"""A reference policy that reads the problem and nothing else: a baseline for chance."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from environments.gsm8k import text
from rft_agent_sdk.types import Message, ToolCall, ToolSpec

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def random_policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Join two numbers of the problem by a chance operator, and answer what comes out.

    The problem is the seed, so it is always answered alike.
    """
    told = [message.text for message in messages if message.role == "tool"]
    if told and text.OVER in told[-1]:
        return Message(role="assistant", text="I have answered.")
    if told and " = " in told[-1]:
        answer = told[-1].rpartition(" = ")[2]
        return _call(text.SUBMIT, {text.ANSWER: answer}, len(told))
    problem = next((message.text for message in messages if message.role == "user"), "")
    draw = random.Random(problem)  # noqa: S311 - must be reproducible, need not be secret
    numbers = _NUMBER.findall(problem) or ["1"]
    expression = f"{draw.choice(numbers)} {draw.choice('+-*')} {draw.choice(numbers)}"
    return _call(text.CALCULATOR, {text.EXPRESSION: expression}, len(told))


def _call(name: str, arguments: dict[str, str], calls_made: int) -> Message:
    call = ToolCall(name, json.dumps(arguments), id=f"call_{calls_made + 1}")
    return Message(role="assistant", text="", tool_calls=(call,))
