"""Real vocabularies, where a package that carries one is installed; nothing is downloaded."""

import base64
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rft_agent_sdk.gateway.conformance import conform
from rft_agent_sdk.gateway.render import load_renderer
from tests.gateway.templates import CHATML, source

_FOUND = find_spec("dashscope")
_FOLDERS = list(_FOUND.submodule_search_locations or ()) if _FOUND else []
RANKS = next((Path(folder) / "resources" / "qwen.tiktoken" for folder in _FOLDERS), None)
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the Qwen models, from ranks of merged bytes."""
    alphabet = _alphabet()
    lines = path.read_bytes().splitlines()
    ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in lines)}

    def spelled(word: bytes) -> str:
        return "".join(alphabet[byte] for byte in word)

    merges = []
    for word, rank in ranks.items():
        found = []
        for cut in range(1, len(word)):
            left, right = ranks.get(word[:cut]), ranks.get(word[cut:])
            if left is not None and right is not None:
                found.append((rank, left, right, word[:cut], word[cut:]))
        merges += sorted(found)
    merges.sort()
    vocabulary = {spelled(word): rank for word, rank in ranks.items()}
    made = Tokenizer(models.BPE(vocabulary, [(spelled(a), spelled(b)) for *_, a, b in merges]))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    marks = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *CHATML)
    made.add_special_tokens([AddedToken(token, normalized=False) for token in marks])
    return made


def _alphabet() -> dict[int, str]:
    """The printable stand-in of each byte, as byte-level tokenizers have it."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return {byte: chr(byte if byte in kept else next(spare)) for byte in range(256)}


@pytest.mark.slow
@pytest.mark.skipif(
    RANKS is None or not RANKS.is_file(), reason="no package with Qwen's vocabulary is installed"
)
def test_templates_conform_with_a_real_vocabulary():
    assert RANKS is not None
    made = qwen_tokenizer(RANKS)
    assert made.token_to_id("<|im_start|>") == 151644
    for name in ("qwen3", "qwen3.5-think", "qwen3.6", "qwen3-coder"):
        report = conform(load_renderer(tokenizer=made, template=source(name)))
        assert report.passed, report
