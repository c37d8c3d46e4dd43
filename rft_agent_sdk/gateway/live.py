"""A turn told while it is sampled: ids in, and out of them what the whole reply will surely begin with.

The whole reply is read from the whole turn, as ever. What is told before is a beginning of it, which
`LiveTurn.rest` makes sure of once the whole is there. The work grows with the new ids, not with the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from rft_agent_sdk.gateway.live_text import Watch, reader_maker
from rft_agent_sdk.gateway.render.turns import Turns
from rft_agent_sdk.gateway.render.vocabulary import BREAK, Vocabulary
from rft_agent_sdk.gateway.samplers.base import Delta
from rft_agent_sdk.types import Message

_REPLACEMENT = "\ufffd"
"""What ids decode to whose bytes are no character, or not yet."""
_PATIENCE = 8
"""So many ids are decoded again with each new one to see whether they are text by now; it takes four at
most to write a character. More are tried at doubling sizes."""


class _Format:
    """What the turns of one model have in common."""

    def __init__(self, turns: Turns) -> None:
        self.vocabulary = turns.vocabulary
        self.control = Watch(self.vocabulary.control_tokens)
        self.control_ids = frozenset(self.vocabulary.control_tokens.values())
        self.byte_ids = self.vocabulary.byte_ids
        self.readers = reader_maker(turns.family) if _is_concatenative(self.vocabulary) else None


_formats: WeakKeyDictionary[Turns, _Format] = WeakKeyDictionary()


class LiveTurn:
    """One turn while it is sampled."""

    def __init__(self, form: _Format, prefill: str) -> None:
        """Use `of`."""
        assert form.readers is not None
        self._text = _GuardedText(form)
        self._reader = form.readers(prefill)
        self._reasoning: list[str] = []
        self._said: list[str] = []

    @classmethod
    def of(cls, turns: Turns | None, prompt: Sequence[int]) -> LiveTurn | None:
        """Return what tells a turn that follows `prompt`, `None` where only whole turns can be read."""
        if turns is None:
            return None
        form = _formats.get(turns)
        if form is None:
            form = _formats[turns] = _Format(turns)
        return None if form.readers is None else cls(form, turns.prefill(prompt))

    def take(self, ids: Sequence[int]) -> list[Delta]:
        """Take the next ids, any number of them; return what is certain since they came."""
        found = self._reader.take(self._text.take(ids))
        for delta in found:
            self._reasoning.append(delta.reasoning)
            self._said.append(delta.text)
        return found

    def rest(self, whole: Message) -> tuple[Message, bool]:
        """Return the whole reply less what was told, and whether that was its beginning.

        Of a field whose beginning it was not, nothing is left: what a client was told cannot be unsaid.
        """
        reasoning, text = "".join(self._reasoning), "".join(self._said)
        is_kept = (whole.reasoning or "").startswith(reasoning), whole.text.startswith(text)
        rest = replace(
            whole,
            reasoning=(whole.reasoning or "")[len(reasoning) :] if is_kept[0] else None,
            text=whole.text[len(text) :] if is_kept[1] else "",
        )
        return rest, all(is_kept)


class _GuardedText:
    """Ids to guarded text, as `Vocabulary.decode_guarded` gives it for the whole, as far as it is certain."""

    def __init__(self, form: _Format) -> None:
        self._form = form
        self._vocabulary = form.vocabulary
        self._ids: list[int] = []
        """Not yet decoded, as the next one may belong to the same character."""
        self._try_at = 1
        self._open = ""
        """Decoded; its end may be the beginning of what spells a control token."""
        self._is_lost = False

    def take(self, ids: Sequence[int]) -> str:
        """Take the next ids and return the text that is certain since they came."""
        parts: list[str] = []
        for number in ids:
            if number in self._form.control_ids:
                parts += self._flushed(), self._vocabulary.decode([number])
            else:
                self._ids.append(number)
        parts.append(self._certain())
        # Whether the private character stands or not depends on the rest of the turn.
        return "" if self._is_lost else "".join(parts)

    def _flushed(self) -> str:
        """Return all there is: a control token ends what came before it."""
        text = self._open + self._decoded() if self._ids else self._open
        self._open = ""
        return self._vocabulary.guard(text) if text else ""

    def _certain(self) -> str:
        count = len(self._ids)
        if not count or count < self._try_at or self._may_go_on():
            return ""
        text = self._vocabulary.decode(self._ids)
        if text.endswith(_REPLACEMENT):
            self._try_at = count + 1 if count < _PATIENCE else 2 * count
            return ""
        text = self._open + self._decoded(text)
        end = self._form.control.clear(text)
        self._open = text[end:]
        return self._vocabulary.guard(text[:end])

    def _may_go_on(self) -> bool:
        """Whether a run of bytes may go on: the last id is one, or nothing at all after one."""
        bytes_ = self._form.byte_ids
        last = self._ids[-1]
        return bool(bytes_) and (
            last in bytes_ or (len(self._ids) > 1 and not self._vocabulary.decode([last]))
        )

    def _decoded(self, text: str | None = None) -> str:
        if text is None:
            text = self._vocabulary.decode(self._ids)
        self._ids.clear()
        self._try_at = 1
        self._is_lost |= BREAK in text
        return text


def _is_concatenative(vocabulary: Vocabulary) -> bool:
    """Whether ids decode to the same text piece by piece as together.

    Not so where the decoder drops the space before a text's first word, or puts one between ids.
    """
    controls = [[number] for number in list(vocabulary.control_tokens.values())[:2]]
    pieces = [vocabulary.encode(text) for text in (" a", " b", "c.", "\n", " ", "1")]
    pieces = [*pieces, *controls, *pieces]
    together = [number for piece in pieces for number in piece]
    return vocabulary.decode(together) == "".join(map(vocabulary.decode, pieces))
