"""A tokenizer, with content kept apart from control tokens in both directions.

A message may spell `<|im_end|>`; encoded as that token it would end its own turn. So control strings in
content are broken with a private character (`guard`), the template passes it through, and `encode` writes
each broken one as plain text. Likewise sampled text that spells a control string in ordinary tokens is
broken before it is parsed, so that it opens and closes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer

from rft_agent_sdk.gateway.render.words import Words

BREAK = "\uf8d6"
"""The private character; stripped from content, so that nothing can forge a mark."""


class Coder(Protocol):
    """Text to ids and back, without anything added."""

    def encode(self, text: str) -> list[int]:
        """Return ids; control strings become control tokens."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Return ids; control strings are text like any other."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, control tokens included."""
        ...


class FastCoder:
    """A Hugging Face `Tokenizer`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words = Words.of(tokenizer)
        self._newline = self._plain("\n")

    def encode(self, text: str) -> list[int]:
        """Return ids; control strings become control tokens."""
        if self._words is not None and text.isascii():
            return self._words.encode(text)
        # Without offsets, which cost as much again.
        encoded = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded[0].ids
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Return ids; control strings are text like any other."""
        ids = self._plain(
            "\n" + text
        )  # so that no space is put before it, as at the start of a text
        size = len(self._newline)
        return ids[size:] if ids[:size] == self._newline else self._plain(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, control tokens included."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _plain(self, text: str) -> list[int]:
        """Encode by the parts of the tokenizer that know nothing of added tokens."""
        normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        pieces = [text] if splitter is None else [p for p, _ in splitter.pre_tokenize_str(text)]
        return [token.id for piece in pieces for token in self._tokenizer.model.tokenize(piece)]


class Vocabulary:
    """A coder and its control tokens."""

    def __init__(
        self, coder: Coder, control: Mapping[str, int], byte_ids: frozenset[int] = frozenset()
    ) -> None:
        self._coder = coder
        self.byte_ids = byte_ids
        """Ids of single bytes, of which a run decodes as a whole: one bad byte makes all of it unreadable."""
        self._ids = control
        self._control_ids = frozenset(control.values())
        longest_first = sorted(control, key=len, reverse=True)
        self._control = _any_of(longest_first)
        self._broken = _any_of(token[:1] + BREAK + token[1:] for token in longest_first)

    @classmethod
    def of(cls, tokenizer: Tokenizer, template: str = "") -> Vocabulary:
        """Return the vocabulary of a Hugging Face tokenizer.

        Its special tokens are control tokens, and so are added ones that the template spells; others
        (such as runs of blanks) are text.
        """
        added = tokenizer.get_added_tokens_decoder().items()
        control = {
            token.content: number
            for number, token in added
            if token.content.strip() and (token.special or token.content in template)
        }
        spelled = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        byte_ids = frozenset(number for number in spelled if number is not None)
        return cls(FastCoder(tokenizer), control, byte_ids)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Every control token and its id."""
        return self._ids

    def id_of(self, token: str) -> int | None:
        """Return the id of a control token, `None` if this vocabulary has none such."""
        return self._ids.get(token)

    def guard(self, text: str) -> str:
        """Return content whose control strings are broken."""
        if BREAK in text:
            text = text.replace(BREAK, "")
        return self._control.sub(_broken, text)

    def guard_all(self, value: Any) -> Any:
        """Return a JSON value with every string in it guarded."""
        if isinstance(value, str):
            return self.guard(value)
        if isinstance(value, dict):
            return {self.guard_all(key): self.guard_all(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.guard_all(item) for item in value]
        return value

    def encode(self, text: str) -> list[int]:
        """Return the ids of rendered text; broken control strings become plain text.

        Half a surrogate pair, which JSON can spell and no tokenizer takes, becomes U+FFFD.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if BREAK not in text:
            return self._coder.encode(text)
        ids: list[int] = []
        position = 0
        for match in self._broken.finditer(text):
            ids += self._coder.encode(text[position : match.start()].replace(BREAK, ""))
            ids += self._encode_plain(match[0].replace(BREAK, ""))
            position = match.end()
        return ids + self._coder.encode(text[position:].replace(BREAK, ""))

    def _encode_plain(self, token: str) -> list[int]:
        ids = self._coder.encode_plain(token)
        if self._control_ids.isdisjoint(ids):
            return ids
        # Merges alone spell this one out: it has to be written in two parts.
        return self._coder.encode_plain(token[:1]) + self._coder.encode_plain(token[1:])

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, control tokens included."""
        return self._coder.decode(ids)

    def decode_guarded(self, ids: Sequence[int], text: str) -> str:
        """Return `text`, which `ids` decode to, with control strings broken that no control token is."""
        spelled = self._control.findall(text)
        tokens = [number for number in ids if number in self._control_ids]
        if [self._ids[token] for token in spelled] == tokens:
            return text
        parts: list[str] = []
        run: list[int] = []
        for number in ids:
            if number in self._control_ids:
                parts += self.guard(self.decode(run)), self.decode([number])
                run = []
            else:
                run.append(number)
        return "".join([*parts, self.guard(self.decode(run))])

    def first_control(self, text: str, position: int) -> str | None:
        """Return the first control string in a text from a position on."""
        match = self._control.search(text, position)
        return match[0] if match else None

    def last_run(self, ids: Sequence[int], inner: frozenset[int], limit: int) -> tuple[int, ...]:
        """Return the ids after the last control token but those of `inner`, at most `limit` of them."""
        start = len(ids)
        stop = max(0, start - limit)
        while start > stop:
            number = ids[start - 1]
            if number in self._control_ids and number not in inner:
                break
            start -= 1
        return tuple(ids[start:])


def unguard(text: str) -> str:
    """Return text without its breaks."""
    return text.replace(BREAK, "") if BREAK in text else text


def _broken(match: re.Match[str]) -> str:
    return match[0][:1] + BREAK + match[0][1:]


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of `tokens`, grouped by first character, which is much the faster."""
    heads: dict[str, list[str]] = {}
    for token in tokens:
        heads.setdefault(token[:1], []).append(re.escape(token[1:]))
    groups = (f"{re.escape(head)}(?:{'|'.join(rests)})" for head, rests in heads.items())
    return re.compile("|".join(groups) or r"(?!)")
