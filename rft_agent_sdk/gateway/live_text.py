"""The text of a turn that is still being sampled, taken apart as far as it is certain.

`parse` reads whole turns. These readers say, while a turn grows, what the whole reading is going to begin
with: never a word that the rest of the turn could still change. From the first sign of a call on they are
silent, since a call that turns out ill-formed is text and a good one is not.

They read guarded text, in which a mark is a mark and what only spells one is broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Protocol

from rft_agent_sdk.gateway.parse import Family
from rft_agent_sdk.gateway.parse.harmony import (
    CALL,
    CHANNEL,
    END,
    ENDING,
    MESSAGE,
    RECIPIENT,
    RETURN,
    START,
    HarmonyFamily,
)
from rft_agent_sdk.gateway.parse.tagged import TaggedFamily
from rft_agent_sdk.gateway.render.vocabulary import unguard
from rft_agent_sdk.gateway.samplers.base import Delta

Step = Callable[[], bool]
"""Reads on in what is there; false once more is needed."""


class Watch:
    """Words that are looked for in a text of which only the beginning is known."""

    def __init__(self, words: Collection[str]) -> None:
        longest_first = sorted(words, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._beginnings = frozenset(
            word[:size] for word in longest_first for size in range(1, len(word))
        )
        self._longest = max(map(len, self._beginnings), default=0)

    def find(self, text: str) -> re.Match[str] | None:
        """Return the first word in a text."""
        return self._pattern.search(text)

    def clear(self, text: str) -> int:
        """Return how many characters of a text without a word can be part of none, whatever follows."""
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[-size:] in self._beginnings:
                return len(text) - size
        return len(text)


class Reader(Protocol):
    """Reads one turn."""

    def take(self, text: str) -> list[Delta]:
        """Return what is certain once `text` has come, and was not before."""
        ...


class ReaderMaker(Protocol):
    """Makes the readers of one family; holds what they share."""

    def __call__(self, prefill: str) -> Reader:
        """Return a reader of a turn of which the prompt wrote `prefill`."""
        ...


def reader_maker(family: Family) -> ReaderMaker | None:
    """Return what reads growing turns of a family, `None` where only whole turns can be read."""
    if isinstance(family, TaggedFamily):
        return TaggedReaders(family)
    return HarmonyReaders() if isinstance(family, HarmonyFamily) else None


class _Trimmed:
    """Keeps back white space at the end of what is said, as the parser may strip it."""

    def __init__(self, characters: str | None, *, strips_start: bool) -> None:
        self._characters = characters
        self._is_start = strips_start
        self._kept: list[str] = []

    def take(self, text: str) -> str:
        if self._is_start:
            text = text.lstrip(self._characters)
            self._is_start = not text
        body = text.rstrip(self._characters)
        if not body:
            self._kept.append(text)
            return ""
        said = "".join(self._kept) + body
        self._kept = [text[len(body) :]]
        return said


class _Steps:
    """A reader as a machine of steps, each of which takes from `_left`."""

    def __init__(self, first: Step, left: str = "") -> None:
        self._left = left
        self._step = first
        self._found: list[Delta] = []

    def take(self, text: str) -> list[Delta]:
        """Return what is certain once `text` has come, and was not before."""
        self._left += text
        self._found = []
        while self._step():
            pass
        return self._found

    def _go(self, step: Step) -> bool:
        self._step = step
        return True

    def _silent(self) -> bool:
        """Say nothing more: the rest is told from the whole."""
        self._left = ""
        return False

    def _until(self, watch: Watch, say: Callable[[str], None]) -> str | None:
        """Say what comes before a word, and return the word; `None` if there is none yet."""
        match = watch.find(self._left)
        end = match.start() if match else watch.clear(self._left)
        said, self._left = self._left[:end], self._left[match.end() if match else end :]
        if said:
            say(said)
        return match[0] if match else None


class TaggedReaders:
    """Makes readers of turns whose reasoning stands between two tags."""

    def __init__(self, family: TaggedFamily) -> None:
        self.family = family
        tags = family.tags
        self.in_reasoning = Watch({tags.closing, *family.stops})
        self.in_text = Watch({*family.marks, *family.stops} - {tags.opening, tags.closing})

    def __call__(self, prefill: str) -> TaggedReader:
        """Return a reader of one turn."""
        return TaggedReader(self, is_prefilled=self.family.is_prefilled(prefill))


class TaggedReader(_Steps):
    """Reads one turn of a `TaggedFamily`."""

    def __init__(self, shared: TaggedReaders, *, is_prefilled: bool) -> None:
        super().__init__(self._head)
        self._shared = shared
        self._tags = shared.family.tags
        self._is_prefilled = is_prefilled
        self._blank: list[str] = []
        self._reasoning_said = _Trimmed("\n", strips_start=True)
        self._text_said = _Trimmed(None, strips_start=False)

    def _head(self) -> bool:
        """Find out whether the turn begins with reasoning."""
        opening, said = self._tags.opening, self._left.lstrip()
        if said.startswith(opening):
            self._left = said[len(opening) :]
            return self._go(self._reasoning)
        if not said:
            self._blank.append(self._left)
            self._left = ""
        if opening.startswith(said):
            return False
        self._left = "".join(self._blank) + self._left
        return self._go(self._reasoning if self._is_prefilled else self._text_start)

    def _reasoning(self) -> bool:
        word = self._until(self._shared.in_reasoning, self._say_reasoning)
        if word is None:
            return False
        return self._go(self._between if word == self._tags.closing else self._silent)

    def _between(self) -> bool:
        self._left = self._left.lstrip("\n")
        return bool(self._left) and self._go(self._text_start)

    def _text_start(self) -> bool:
        """Begin the text, unless calls further on would strip its beginning, or it is a call."""
        is_doubtful = self._left[0].isspace() or self._shared.family.calls.opening.match(self._left)
        return self._go(self._silent if is_doubtful else self._text)

    def _text(self) -> bool:
        word = self._until(self._shared.in_text, self._say_text)
        return word is not None and self._go(self._silent)

    def _say_reasoning(self, text: str) -> None:
        if said := self._reasoning_said.take(text):
            self._found.append(Delta(reasoning=unguard(said)))

    def _say_text(self, text: str) -> None:
        if said := self._text_said.take(text):
            self._found.append(Delta(text=unguard(said)))


class HarmonyReaders:
    """Makes readers of gpt-oss's turns."""

    def __init__(self) -> None:
        self.in_header = Watch({START, MESSAGE})
        self.in_body = Watch({START, END, CALL, RETURN})
        self.after = Watch({START})

    def __call__(self, prefill: str) -> HarmonyReader:
        """Return a reader of one turn."""
        return HarmonyReader(self, prefill.removeprefix(START))


class HarmonyReader(_Steps):
    """Reads one turn of several messages.

    Text outside the final channel waits for the final channel to begin: reasoning may still follow it, and
    clients want all reasoning before any text.
    """

    def __init__(self, shared: HarmonyReaders, head: str) -> None:
        super().__init__(self._header, head)
        self._shared = shared
        self._heading: list[str] = []
        self._is_reasoning = False
        self._is_final = False
        self._is_body_empty = True
        self._thoughts = 0
        """Bodies of reasoning, empty ones too."""
        self._texts = 0
        """Bodies of text, but for empty ones."""
        self._waiting: list[str] = []

    def _header(self) -> bool:
        word = self._until(self._shared.in_header, self._heading.append)
        if word is None:
            return False
        header = "".join(self._heading)
        self._heading.clear()
        if word == MESSAGE:
            return self._begin(header)
        is_text = ENDING.sub("", header.removeprefix("assistant")).strip()
        return self._go(self._silent if is_text else self._header)

    def _begin(self, header: str) -> bool:
        """Begin the body of a message."""
        recipient, channel = RECIPIENT.search(header), CHANNEL.search(header)
        if recipient and recipient[1] != "assistant":
            return self._go(self._silent)
        self._is_reasoning = bool(channel and channel[1] == "analysis")
        if self._is_reasoning and self._is_final:
            return self._go(self._silent)
        if self._is_reasoning:
            if self._thoughts:
                self._found.append(Delta(reasoning="\n"))
            self._thoughts += 1
        else:
            self._is_final |= bool(channel and channel[1] == "final")
            self._is_body_empty = True
        return self._go(self._body)

    def _body(self) -> bool:
        word = self._until(self._shared.in_body, self._say)
        if word is None:
            return False
        return self._go(self._header if word == START else self._after)

    def _after(self) -> bool:
        """Skip to the next message; anything but blanks before it is flagged by the parser."""
        skipped: list[str] = []
        word = self._until(self._shared.after, skipped.append)
        if "".join(skipped).strip():
            return self._go(self._silent)
        return word is not None and self._go(self._header)

    def _say(self, text: str) -> None:
        text = unguard(text)
        if self._is_reasoning:
            self._found.append(Delta(reasoning=text))
            return
        if self._is_body_empty:
            self._is_body_empty = False
            self._waiting += ["\n"] * bool(self._texts)
            self._texts += 1
        self._waiting.append(text)
        if self._is_final:
            self._found.append(Delta(text="".join(self._waiting)))
            self._waiting.clear()
