"""Encoding by words is the tokenizer's own encoding, to the id, or is not used."""

import json
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rft_agent_sdk.gateway.render import words
from rft_agent_sdk.gateway.render.vocabulary import FastCoder
from rft_agent_sdk.gateway.render.words import Words

SOURCE = json.loads(
    resources.files("rft_agent_sdk.gateway.data").joinpath("tokenizer.json").read_text("utf-8")
)
LLAMA_3 = next(pattern for pattern in words._IN_ASCII if "{1,3}" in pattern)
QWEN_3_5 = next(pattern for pattern in words._IN_ASCII if r"\p{M}" in pattern)
MARKS = [token["content"] for token in SOURCE["added_tokens"]]
PIECES = st.sampled_from([*MARKS, "<|im", "'s", "'LL", "12345", "\r\n", "  ", "\n\n", "word", "<t"])


def tokenizer(**changes: Any) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(SOURCE | changes))


def splitting(pattern: str) -> dict[str, Any]:
    split, bytewise = SOURCE["pre_tokenizer"]["pretokenizers"]
    split = split | {"pattern": {"Regex": pattern}}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytewise]}}


OURS = tokenizer()
KNOWN = {
    "qwen 3": OURS,
    "llama 3": tokenizer(**splitting(LLAMA_3)),
    "qwen 3.5": tokenizer(**splitting(QWEN_3_5)),
    "with a normalizer": tokenizer(normalizer={"type": "NFC"}),
}


@pytest.mark.parametrize("name", KNOWN)
@given(parts=st.lists(st.characters(max_codepoint=127) | PIECES, max_size=40))
def test_ascii_text_has_the_ids_that_the_tokenizer_gives_it(name, parts):
    text = "".join(parts)
    found = Words.of(KNOWN[name])
    assert found is not None
    for _ in range(2):  # the second time every word is known
        assert found.encode(text) == KNOWN[name].encode(text, add_special_tokens=False).ids


@given(st.text(max_size=40))
def test_any_text_has_the_ids_that_the_tokenizer_gives_it(text):
    assert FastCoder(OURS).encode(text) == OURS.encode(text, add_special_tokens=False).ids


def test_words_past_those_remembered_are_met_anew(monkeypatch):
    monkeypatch.setattr(words, "_REMEMBERED", 3)
    found = Words.of(OURS)
    assert found is not None
    text = "one two three four five six seven one two"
    assert found.encode(text) == OURS.encode(text, add_special_tokens=False).ids
    assert len(found._known) <= 3


@pytest.mark.parametrize(
    "changes",
    [
        splitting(r"\s+|\S+"),
        {
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        },
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Lowercase"}},
        {"model": SOURCE["model"] | {"dropout": 0.5}},
        {"added_tokens": [token | {"lstrip": True} for token in SOURCE["added_tokens"]]},
    ],
)
def test_a_tokenizer_that_does_more_is_left_to_itself(changes):
    assert Words.of(tokenizer(**changes)) is None
