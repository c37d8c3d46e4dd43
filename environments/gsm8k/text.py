"""Every word the policy reads. Nothing here takes the answer, so no text can tell it."""

from __future__ import annotations

from fractions import Fraction

from environments.gsm8k.numbers import shown
from rft_agent_sdk.types import ToolSpec

CALLS = 12
"""Tool calls of a play; the last one ends it."""
CALCULATOR, SUBMIT = "calculator", "submit_answer"
EXPRESSION, ANSWER = "expression", "answer"

SYSTEM_PROMPT = f"""You solve word problems of grade-school mathematics. Work a problem out step by step, with the tool {CALCULATOR} for every calculation.

When you know the number that is asked for, give it with the tool {SUBMIT}: the number alone. It can be given once, and ends the problem. You have {CALLS} calls of tools in all."""

TOOLS = (
    ToolSpec(
        name=CALCULATOR,
        description="Work out an arithmetic expression exactly.",
        parameters={
            "type": "object",
            "properties": {
                EXPRESSION: {
                    "type": "string",
                    "description": "Numbers, + - * / ** and brackets, such as (48 + 24) / 2.",
                }
            },
            "required": [EXPRESSION],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name=SUBMIT,
        description="Give the answer of the problem. It can be given once.",
        parameters={
            "type": "object",
            "properties": {
                ANSWER: {"type": "string", "description": "The number alone, such as 36 or 2.50."}
            },
            "required": [ANSWER],
            "additionalProperties": False,
        },
    ),
)

OVER = "The problem is over."
_SHOWN = 40  # characters of a bad argument that are quoted back


def calculated(expression: str, value: Fraction, calls_left: int) -> str:
    """Return the answer to a calculation."""
    return f"{expression.strip()} = {shown(value)}" + _end(calls_left)


def not_calculated(reason: str, calls_left: int) -> str:
    """Return the answer to an expression that cannot be worked out."""
    return f"Not calculated: {reason}." + _end(calls_left)


def submitted(answer: Fraction) -> str:
    """Return the answer to an answer: whether it is right is not told."""
    return f"Your answer is {shown(answer)}. {OVER}"


def malformed(name: str, given: object, calls_left: int) -> str:
    """Return the answer to a call whose arguments are not the tool's."""
    argument = EXPRESSION if name == CALCULATOR else ANSWER
    wanted = "an arithmetic expression" if name == CALCULATOR else "a number and nothing else"
    return f"{name} takes one argument, {argument!r}: {wanted}; got {_quoted(given)}." + _end(
        calls_left
    )


def unknown_tool(name: str, calls_left: int) -> str:
    """Return the answer to a call of another tool."""
    return f"There is no tool {_quoted(name)}; there are {CALCULATOR} and {SUBMIT}." + _end(
        calls_left
    )


def already_over() -> str:
    """Return the answer to a call after the end."""
    return f"{OVER} This call changed nothing."


def retry_prompt(prompt: str) -> str:
    """Return the user message of a second conversation, after a first one without a call."""
    return f"{prompt}\n\nAnswer with a call of the tool {CALCULATOR} or {SUBMIT} and nothing else."


def _end(calls_left: int) -> str:
    return "" if calls_left else f"\nNo calls are left. {OVER}"


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
