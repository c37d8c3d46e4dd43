"""Rebuilds the small tokenizer, byte for byte: `python -m rft_agent_sdk.gateway.data.build`.

With `--record` the corpus is made anew first; see `record`. The tokenizer depends on `corpus.txt` alone.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

FOLDER = Path(__file__).parent
VOCABULARY_SIZE = 2816
"""Pieces in all: the special tokens, one for each byte, and merges."""
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
"""Added tokens that Qwen 3 does not call special."""
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How text is cut before merging: words with the blank before them, single digits, runs of signs."""


def build(corpus: str) -> str:
    """Return the tokenizer trained on a corpus, as the text of `tokenizer.json`."""
    # One thread: merges of equal count must not depend on which thread counted first.
    os.environ["RAYON_NUM_THREADS"] = "1"
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS) - len(MARKS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([corpus], trainer)
    # At the end, where Qwen 3 has them, so that ids of text are those of the merges.
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in MARKS])
    return f"{tokenizer.to_str(pretty=True)}\n"


def main() -> None:
    """Rebuild the tokenizer in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="make the corpus anew first")
    corpus = FOLDER / "corpus.txt"
    if parser.parse_args().record:
        from rft_agent_sdk.gateway.data.record import record

        corpus.write_text(record(), encoding="utf-8")
    built = build(corpus.read_text(encoding="utf-8"))
    (FOLDER / "tokenizer.json").write_text(built, encoding="utf-8")


if __name__ == "__main__":
    main()
