"""The tokenizer of gpt-oss as the `openai_harmony` package has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.render.vocabulary import Vocabulary

_TOKENS = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>"),
    *("<|call|>", "<|startoftext|>", "<|endoftext|>"),
)


class HarmonyCoder:
    """A `HarmonyEncoding`."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        """Return ids; control strings become control tokens."""
        return list(self._encoding.encode(text, allowed_special="all"))

    def encode_plain(self, text: str) -> list[int]:
        """Return ids; control strings are text like any other."""
        return list(self._encoding.encode(text, disallowed_special=()))

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, control tokens included."""
        return str(self._encoding.decode(list(ids)))


def harmony_vocabulary(encoding: Any) -> Vocabulary:
    """Return the vocabulary of a harmony encoding.

    Raises:
        UsageError: It is no such encoding.
    """
    if not hasattr(encoding, "stop_tokens_for_assistant_actions"):
        raise UsageError(
            "wanted a tokenizers.Tokenizer, a fast tokenizer of transformers, a path to a tokenizer.json "
            f"or a harmony encoding, got {type(encoding).__name__}"
        )
    coder = HarmonyCoder(encoding)
    control = {}
    for token in _TOKENS:
        ids = coder.encode(token)
        if len(ids) == 1:
            control[token] = ids[0]
    return Vocabulary(coder, control)


def load_encoding() -> Any:
    """Return the encoding of gpt-oss.

    Raises:
        UsageError: The package or its vocabulary file is not here.
    """
    try:
        from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding
    except ImportError as error:
        raise UsageError("wanted the openai_harmony package for gpt-oss, got none") from error
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    except HarmonyError as error:
        raise UsageError(
            "wanted the vocabulary of gpt-oss, got none: let openai_harmony download it, or set "
            f"TIKTOKEN_ENCODINGS_BASE to a folder with o200k_base.tiktoken ({error})"
        ) from error
