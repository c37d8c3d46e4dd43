"""Checks of a tokenizer and template: what survives from turn to turn, and in which way it is extended.

Pure: a renderer in, records out; the command line prints them.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.render import ParseStatus, Renderer
from rft_agent_sdk.types import FinishReason, Message, ToolCall, ToolSpec

Mode = Literal["bridge", "heal", "branch"]
"""How the prompt of a next turn is made: a library's bridge, verified healing, or a new branch."""

_IDENTITY = "parse after render"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a renderer."""

    renderer: str
    mode: Mode
    """What a turn with a tool call is followed up with."""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def is_usable(self) -> bool:
        """Whether it can be sampled by: prompts can be extended, or branches at least read as written."""
        return self.mode != "branch" or any(
            check.passed for check in self.checks if check.name == _IDENTITY
        )


TOOL = ToolSpec(
    "look_up",
    "Looks a word up in the dictionary.",
    {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word."}},
        "required": ["word"],
    },
)
_UNICODE = "na\u00efve \u4f60\u597d \U0001f469\u200d\U0001f52c e\u0301 \u202ertl"
_START = (Message("system", "Be brief."), Message("user", "What does crane mean?"))
_THOUGHT = "It is a bird, and a machine."


def _call(arguments: str, call_id: str = "call_1") -> ToolCall:
    return ToolCall(TOOL.name, arguments, call_id)


_CALL = _call('{"word": "crane"}')
_RESULT = Message("tool", "A bird.", tool_call_id="call_1")
_QUESTION = Message("user", "And slate?")


def conform(renderer: Renderer) -> Report:
    """Run every check."""
    checks = [run(renderer) for run in (*_EXTENSIONS, _literal_content, _identity, _tools)]
    mode: Mode = renderer.mode if checks[0].passed else "branch"
    return Report(renderer.name, mode, tuple(checks))


@dataclass(frozen=True, slots=True)
class _Extension:
    """A check that the served ids stay in front when a conversation goes on."""

    name: str
    turn: Message
    new: tuple[Message, ...]
    finish_reason: FinishReason = "stop"
    keeps: float = 1.0
    """How much of the turn is sampled before it breaks off."""
    rounds: int = 1

    def __call__(self, renderer: Renderer) -> Check:
        try:
            return self._run(renderer)
        except UsageError as error:
            return Check(self.name, False, str(error))

    def _run(self, renderer: Renderer) -> Check:
        history = list(_START)
        prompt = renderer.render(history, [TOOL])
        for _ in range(self.rounds):
            sampled = renderer.write(self.turn, prompt=prompt)
            if self.keeps < 1.0:
                sampled = sampled[: int(len(sampled) * self.keeps)]
            parsed = renderer.parse(
                sampled, prompt=prompt, tools=[TOOL], finish_reason=self.finish_reason
            )
            history.append(_with_ids(parsed.message, self.turn))
            added = renderer.extend(
                prompt + sampled,
                history,
                self.new,
                [TOOL],
                sampled=sampled,
                finish_reason=self.finish_reason,
            )
            if added is None:
                return Check(self.name, False, "the next turn begins a branch")
            prompt += sampled + added
            history += self.new
        is_exact = prompt == renderer.render(history, [TOOL])
        return Check(
            self.name, True, "exact" if is_exact else "kept as served; a whole render differs"
        )


def _with_ids(message: Message, turn: Message) -> Message:
    """Return what was read with the ids that a gateway gives to calls."""
    calls = tuple(
        replace(read, id=made.id)
        for read, made in zip(message.tool_calls, turn.tool_calls, strict=False)
    )
    return replace(message, tool_calls=calls)


_SECOND = _call('{"word": "slate"}', "call_2")
_EXTENSIONS: tuple[Callable[[Renderer], Check], ...] = (
    _Extension("tool result", Message("assistant", "", None, (_CALL,)), (_RESULT,), rounds=3),
    _Extension("new user message", Message("assistant", "A bird."), (_QUESTION,), rounds=3),
    _Extension("thinking", Message("assistant", "", _THOUGHT, (_CALL,)), (_RESULT,), rounds=2),
    _Extension(
        "thinking, then a new user message",
        Message("assistant", "A bird.", _THOUGHT),
        (_QUESTION,),
        rounds=2,
    ),
    _Extension(
        "truncation", Message("assistant", "A bird. " * 8), (_QUESTION,), "length", keeps=0.6
    ),
    _Extension(
        "truncation while thinking",
        Message("assistant", "A bird.", _THOUGHT * 8),
        (_QUESTION,),
        "length",
        keeps=0.6,
    ),
    _Extension(
        "parallel calls",
        Message("assistant", "", None, (_CALL, _SECOND)),
        (_RESULT, Message("tool", "A stone.", tool_call_id="call_2")),
    ),
    _Extension(
        "JSON spacing", Message("assistant", "", None, (_call('{"word":"crane"}'),)), (_RESULT,)
    ),
    _Extension(
        "unicode",
        Message(
            "assistant", "", None, (_call(json.dumps({"word": _UNICODE}, ensure_ascii=False)),)
        ),
        (Message("tool", _UNICODE, tool_call_id="call_1"),),
    ),
)


def _literal_content(renderer: Renderer) -> Check:
    """Check that content which spells control tokens adds none, rendered whole and extended."""
    name = "literal special tokens in content"
    turn = Message("assistant", "", None, (_CALL,))
    counts = []
    for said in ("nothing", " ".join(sorted(renderer.control_tokens))):
        history = [Message("system", said), Message("user", said)]
        try:
            prompt = renderer.render(history, [TOOL])
            sampled = renderer.write(turn, prompt=prompt)
            added = renderer.extend(
                prompt + sampled,
                [*history, turn],
                [Message("tool", said, tool_call_id="call_1")],
                [TOOL],
                sampled=sampled,
                finish_reason="stop",
            )
        except UsageError as error:
            return Check(name, False, str(error))
        ids = renderer.control_tokens.values()
        counts.append([sum(map(part.count, ids)) for part in (prompt, added or [])])
    passed = counts[0] == counts[1]
    detail = "encoded as plain text" if passed else "content becomes control tokens"
    return Check(name, passed, detail)


def _identity(renderer: Renderer) -> Check:
    """Check that a written turn reads as what it says."""
    name = _IDENTITY
    turns = [
        Message("assistant", "A bird."),
        Message("assistant", "A bird.", _THOUGHT),
        Message("assistant", "", _THOUGHT, (_CALL,)),
        Message("assistant", "", None, (_CALL, _SECOND)),
        Message("assistant", "I look it up.", None, (_CALL,)),
        Message("assistant", "", None, (_call('{"word": "a \\"b\\" </tool_call> {c}\\n d"}'),)),
        # Composed, since a tokenizer may compose what it encodes.
        Message(
            "assistant",
            f"{unicodedata.normalize('NFC', _UNICODE)} {' '.join(sorted(renderer.control_tokens))}",
        ),
    ]
    try:
        prompt = renderer.render(_START, [TOOL])
        differing = [turn for turn in turns if not _reads_back(renderer, prompt, turn)]
    except UsageError as error:
        return Check(name, False, str(error))
    if not differing:
        return Check(name, True, "the identity")
    return Check(name, False, f"differs for {differing[0]!r}")


def _reads_back(renderer: Renderer, prompt: Sequence[int], turn: Message) -> bool:
    sampled = renderer.write(turn, prompt=prompt)
    parsed = renderer.parse(sampled, prompt=prompt, tools=[TOOL], finish_reason="stop")
    return parsed.status is ParseStatus.OK and _told(parsed.message) == _told(turn)


def _told(message: Message) -> tuple[object, ...]:
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.text, message.reasoning or "", calls


def shows_tools(renderer: Renderer) -> bool:
    """Tell whether a prompt differs by the tools there are.

    Raises:
        UsageError: The template refuses such a conversation.
    """
    return renderer.render(_START, [TOOL]) != renderer.render(_START, [])


def _tools(renderer: Renderer) -> Check:
    """Check that the model is told of its tools."""
    name = "tools in the prompt"
    try:
        passed = shows_tools(renderer)
    except UsageError as error:
        return Check(name, False, str(error))
    return Check(name, passed, "shown" if passed else "left out: the model is never told of them")
