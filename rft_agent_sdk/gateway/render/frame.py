"""What a template writes after an assistant's turn, with places for what the next messages say.

The rest of a render, from the end of the assistant's turn on, depends on the messages since, not on the
history before (which `verify` checks). So it is rendered from a stub of a conversation, once for each
shape of new messages, and then filled in. Filling is sound only if the template passes content through
unchanged, stripped, or as JSON; a template that does anything else is rendered each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rft_agent_sdk.types import Message, Role, ToolCall

MARK = "rft0mark"
"""Stands for what the assistant said; letters and digits, so that no template changes it."""
_PLAIN = "rft0text{}x"
_SLOT = re.compile(r"rft0text(\d+)x|rft0id(\d{3})")
_NASTY = (
    "",
    ' \n a "b" \\ \t \u00e9\U0001f600 \n\n',
    "<tool_response>\nx\n</tool_response>",
    "</think>\n[1, 2]",
    '{"k": [1, null]}',
)
"""Contents at which templates have been seen to behave in their own ways."""

Transform = Callable[[str], str]


def _as_is(text: str) -> str:
    return text


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_stripped_json(text: str) -> str:
    return _as_json(text.strip())


TRANSFORMS: tuple[Transform, ...] = (_as_is, str.strip, _as_json, _as_stripped_json)


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the rest of a render, but for what the messages say."""

    calls: tuple[str, ...]
    """The tools called by the assistant's turn."""
    new: tuple[tuple[Role, int], ...]
    """The roles of the new messages; for a tool's, which of the calls it answers."""

    @classmethod
    def of(cls, turn: Message, new: Sequence[Message]) -> Shape | None:
        """Return the shape of `new` after an assistant's turn, `None` if a result answers none of its calls."""
        places = {call.id: number for number, call in enumerate(turn.tool_calls)}
        found: list[tuple[Role, int]] = []
        for message in new:
            place = places.get(message.tool_call_id or "") if message.role == "tool" else 0
            if place is None:
                return None
            found.append((message.role, place))
        return cls(tuple(call.name for call in turn.tool_calls), tuple(found))

    def stub(self, texts: Sequence[str], ids: Sequence[str] = ()) -> list[Message]:
        """Return a conversation of this shape; the new messages say `texts`, the calls have `ids`."""
        ids = ids or [_id(number) for number in range(len(self.calls))]
        arguments = ["{}"] * (len(ids) - 1) + [f'{{"x": "{MARK}"}}']
        calls = tuple(map(ToolCall, self.calls, arguments, ids))
        turn = Message("assistant", "" if calls else MARK, None, calls)
        new = [
            Message(role, text, tool_call_id=ids[place] if role == "tool" else None)
            for (role, place), text in zip(self.new, texts, strict=True)
        ]
        return [Message("user", "."), turn, *new]

    def placeholders(self) -> list[str]:
        """Return a text for each new message that `Frame` can find again."""
        return [_PLAIN.format(number) for number in range(len(self.new))]


@dataclass(frozen=True, slots=True)
class Frame:
    """The rest of a render, the end of the assistant's turn first."""

    closer: str
    """The control string that ends the turn; the rest begins with it."""
    parts: tuple[str | int, ...]
    """Texts; a number n is what new message n says, -n the id of call n - 1."""
    transform: Transform | None
    """How content is written; `None` if only the template knows, and `parts` must not be filled."""

    def fill(self, texts: Sequence[str], ids: Sequence[str]) -> str:
        """Return the rest for given contents and call ids."""
        assert self.transform is not None
        written = [
            part
            if isinstance(part, str)
            else (self.transform(texts[part]) if part >= 0 else ids[-part - 1])
            for part in self.parts
        ]
        return "".join(written)


class Framer:
    """Makes frames for one template."""

    def __init__(
        self,
        render: Callable[[Sequence[Message]], str],
        guard: Callable[[str], str],
        closers: Sequence[str],
    ) -> None:
        """Make framers.

        Args:
            render: The template's render of a stub, without tools.
            guard: What content goes through on its way into a render.
            closers: The control strings that may end a turn.
        """
        self._render = render
        self._guard = guard
        self._closers = re.compile("|".join(map(re.escape, closers)) or r"(?!)")

    def rest(self, stub: Sequence[Message]) -> tuple[str, str] | None:
        """Return the closer and the rest of a stub's render, `None` if the turn's end is not to be found."""
        text = self._render(stub)
        position = text.find(MARK)
        ending = self._closers.search(text, position) if position >= 0 else None
        return (ending[0], text[ending.start() :]) if ending else None

    def frame(self, shape: Shape) -> Frame | None:
        """Return the frame of a shape, `None` if the end of the assistant's turn is not to be found.

        Raises:
            UsageError: The template refuses such a conversation.
        """
        found = self.rest(shape.stub(shape.placeholders()))
        if found is None:
            return None
        closer, text = found
        parts: list[str | int] = []
        position = 0
        for match in _SLOT.finditer(text):
            parts += (
                text[position : match.start()],
                int(match[1]) if match[1] else -1 - int(match[2]),
            )
            position = match.end()
        frame = Frame(closer, (*parts, text[position:]), None)
        return replace(frame, transform=self._transform(shape, frame))

    def _transform(self, shape: Shape, frame: Frame) -> Transform | None:
        """Return how the template writes content, `None` if it is none of the ways known."""
        ids = [_id(number) for number in range(len(shape.calls))]
        candidates = list(TRANSFORMS)
        for nasty in _NASTY:
            found = self.rest(shape.stub([nasty] * len(shape.new)))
            if found is None:
                return None
            texts = [self._guard(nasty)] * len(shape.new)
            candidates = [
                transform
                for transform in candidates
                if replace(frame, transform=transform).fill(texts, ids) == found[1]
            ]
        return candidates[0] if candidates else None


def _id(number: int) -> str:
    """Return the nine characters that stand for a call's id."""
    return f"rft0id{number:03}"
