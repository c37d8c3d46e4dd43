"""ASCII text to ids at a fraction of the tokenizer's time, for tokenizers whose way of splitting is known.

Most of what a byte-level tokenizer does is to split text into words, with a regular expression whose engine
is slow, and to look up words it has met before. Here Python's own engine splits, and a dictionary remembers
the ids that the tokenizer gave each word. Only text whose split is certain to be the same is for it:
ASCII, and a pattern that is known and says the same to both engines there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

_REMEMBERED = 1 << 16
"""Words whose ids are kept; past that all are forgotten, and met anew."""
_LONGEST = 64
"""Characters of a word that is worth keeping."""
_CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\na-zA-Z0-9]?[a-zA-Z]+"
_SIGNS = r" ?[^\sa-zA-Z0-9]+[\r\n]*"
_IN_ASCII = {
    # Qwen up to 3
    rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}": (
        rf"{_CONTRACTED}|{_LETTERS}|[0-9]|{_SIGNS}|{_SPACES}"
    ),
    # Llama 3
    rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}": (
        rf"{_CONTRACTED}|{_LETTERS}|[0-9]{{1,3}}|{_SIGNS}|{_SPACES}"
    ),
    # Qwen from 3.5
    rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}": (
        rf"{_CONTRACTED}|{_LETTERS}|[0-9]|{_SIGNS}|{_SPACES}"
    ),
}
"""How known tokenizers split text, and what that comes to for ASCII, where Python can do it."""
_PROBES = (
    "I'll SAY it's 12345 o'clock,\r\n\r\n  isn't IT?\t\t'VE \n",
    '<tool_response>\n{"a": [1, -2.5e3, null],  "b": "x\\ny"}\n</tool_response>\n\n   \n end ',
    "   leading\n\n\ntrailing   ",
    "".join(map(chr, range(128))) * 2,
)
"""Texts at which two splits are likely to part, if they ever do."""


class Words:
    """Encodes text word by word."""

    def __init__(self, tokenizer: Tokenizer, words: re.Pattern[str]) -> None:
        self._tokenizer = tokenizer
        self._words = words
        added = {token.content: number for number, token in _added(tokenizer).items()}
        self._added: Mapping[str, int] = added
        longest_first = sorted(added, key=len, reverse=True)
        self._marks = re.compile(
            f"({'|'.join(map(re.escape, longest_first))})" if added else "(?!)"
        )
        self._known: dict[str, list[int]] = {}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Words | None:
        """Return the encoder of a tokenizer, `None` where it does anything that is not known here."""
        pattern = _pattern_of(tokenizer)
        if pattern is None:
            return None
        words = cls(tokenizer, pattern)
        for probe in _PROBES:
            if words.encode(probe) != tokenizer.encode(probe, add_special_tokens=False).ids:
                return None
        return words

    def encode(self, text: str) -> list[int]:
        """Return the ids of ASCII text; control strings become control tokens."""
        known, added = self._known, self._added
        ids: list[int] = []
        for number, part in enumerate(self._marks.split(text)):
            if number % 2:
                ids.append(added[part])
                continue
            for word in self._words.findall(part):
                ids += known.get(word) or self._meet(word)
        return ids

    def _meet(self, word: str) -> list[int]:
        pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(word)
        ids = [token.id for piece, _ in pieces for token in self._tokenizer.model.tokenize(piece)]
        if len(word) <= _LONGEST:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[word] = ids
        return ids


def _added(tokenizer: Tokenizer) -> dict[int, Any]:
    found: dict[int, Any] = tokenizer.get_added_tokens_decoder()
    return found


def _pattern_of(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return what splits ASCII text as a tokenizer does, `None` if that cannot be told."""
    normalizer = _state(tokenizer.normalizer)
    if normalizer is not None and normalizer.get("type") != "NFC":  # which leaves ASCII alone
        return None
    is_plain = isinstance(tokenizer.model, BPE) and tokenizer.model.dropout is None
    if not is_plain or any(
        token.lstrip or token.rstrip or token.single_word for token in _added(tokenizer).values()
    ):
        return None
    match _state(tokenizer.pre_tokenizer):
        case {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            known = _IN_ASCII.get(pattern)
            return None if known is None else re.compile(known, re.ASCII)
    return None


def _state(part: Any) -> dict[str, Any] | None:
    if part is None:
        return None
    found: dict[str, Any] = json.loads(part.__getstate__())
    return found
