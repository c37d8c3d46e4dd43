"""Whether a template's renders can be continued from served ids: checked on that very template.

For a shape of conversation, whole renders are compared with what healing would build: the served prompt,
the turn as the template writes it, the rest from a stub. Healing is allowed where they are equal, or differ
in reasoning alone, which templates drop from earlier turns and served ids keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.parse import Family, by_name
from rft_agent_sdk.gateway.render.frame import Framer, Shape
from rft_agent_sdk.types import Message, Role, ToolCall, ToolSpec

_TOOL = ToolSpec(
    "probe_tool",
    "Looks a word up.",
    {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "A word."}},
        "required": ["word"],
    },
)
_THOUGHT = "Weigh it first."


@dataclass(frozen=True, slots=True)
class Situation:
    """A kind of extension, verified as a whole."""

    has_system: bool
    has_tools: bool
    calls: int
    """How many calls the turn makes: 0, 1, or 2 for more."""
    roles: tuple[Role, ...]
    """The roles of the new messages, repetitions left out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check of one situation found."""

    is_sound: bool
    drops_reasoning: bool
    """Whether a whole render leaves out reasoning that the served ids hold."""
    detail: str


Render = Callable[[Sequence[Message], Sequence[ToolSpec]], str]
Encode = Callable[[str], list[int]]


def verify(
    situation: Situation,
    *,
    render: Render,
    encode: Encode,
    prefill_of: Callable[[Sequence[int]], str],
    framer: Framer,
    family: Family,
) -> Verdict:
    """Check one situation on conversations of several lengths.

    Args:
        situation: What to check.
        render: The template's render as text, generation prompt included.
        encode: Rendered text to ids.
        prefill_of: What a prompt has already written of the turn it asks for.
        framer: What healing would build.
        family: How turns are read and written.
    """
    if "tool" in situation.roles and not situation.calls:
        return Verdict(False, False, "a tool result answers no call")
    drops = False
    for rounds in range(3):
        history, turn, new = _conversation(situation, rounds)
        tools = [_TOOL] if situation.has_tools else []
        try:
            shape = Shape.of(turn, new)
            found = shape and framer.rest(shape.stub([message.text for message in new]))
            if not found:
                return Verdict(False, drops, "the end of a turn is not to be found in its render")
            rest = found[1]
            prompt, whole = render(history, tools), render([*history, turn, *new], tools)
        except UsageError as error:
            return Verdict(False, drops, str(error))
        prefill = prefill_of(encode(prompt))
        difference = _difference(prompt, whole, rest, turn, family, prefill)
        if difference:
            return Verdict(False, drops, difference)
        tail = encode(rest)
        if encode(whole)[-len(tail) :] != tail:
            return Verdict(False, drops, "the tokens of the rest depend on what stands before it")
        thinking = replace(turn, reasoning=_THOUGHT)
        drops |= _THOUGHT not in render([*history, thinking, *new], tools)
    return Verdict(True, drops, "reasoning is kept that a whole render drops" if drops else "exact")


def _conversation(
    situation: Situation, rounds: int
) -> tuple[list[Message], Message, list[Message]]:
    """Return a history of some rounds, a turn, and what follows it."""
    history = [Message("system", "Be brief.")] if situation.has_system else []
    history.append(Message("user", "Question 0?"))
    for number in range(rounds):
        turn = _turn(min(situation.calls, 1), f"a{number}")
        roles: tuple[Role, ...] = ("tool",) if turn.tool_calls else ("user",)
        history += [turn, *_following(turn, roles, f"b{number}")]
    turn = _turn(situation.calls, "last")
    return history, turn, _following(turn, situation.roles, "new")


def _turn(calls: int, label: str) -> Message:
    made = tuple(
        ToolCall(_TOOL.name, json.dumps({"word": f"{label} {number}"}), f"rft0id{number:03}")
        for number in range(calls)
    )
    return Message("assistant", "" if calls else f"Answer {label}.", None, made)


def _following(turn: Message, roles: Sequence[Role], label: str) -> list[Message]:
    new: list[Message] = []
    for role in roles:
        if role == "tool":
            new += [
                Message("tool", f"Result {label} {number}.", tool_call_id=call.id)
                for number, call in enumerate(turn.tool_calls)
            ]
        else:
            new.append(Message(role, f"Question {label}?"))
    return new


def _difference(
    prompt: str, whole: str, rest: str, turn: Message, family: Family, prefill: str
) -> str:
    """Return how a whole render differs from prompt, turn and rest; empty if it does not."""
    if not whole.endswith(rest):
        return "what follows a turn depends on the history before it"
    head = whole.removesuffix(rest)
    if head.startswith(prompt):
        reading = family.read(head[len(prompt) :], by_name([_TOOL]), prefill=prefill)
        told = [(call.name, json.loads(call.arguments)) for call in turn.tool_calls]
        read = [(call.name, json.loads(call.arguments)) for call in reading.calls]
        is_same = (reading.text, read) == (turn.text, told) and not reading.is_ill_formed
        return "" if is_same else "a rendered turn does not read as what it says"
    served = prompt + family.write(turn, prefill=prefill)
    if family.without_reasoning(served) == family.without_reasoning(head):
        return ""
    return "a whole render changes what stands before a turn"
