"""Turns told while they are sampled: never otherwise than the whole is read, and as early as can be."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from rft_agent_sdk.gateway.live import LiveTurn
from rft_agent_sdk.gateway.parse import FAMILIES
from rft_agent_sdk.gateway.render import Renderer
from rft_agent_sdk.gateway.render.turns import Turns
from rft_agent_sdk.gateway.render.vocabulary import BREAK, Vocabulary
from rft_agent_sdk.types import Message
from tests.gateway.templates import CHATML, GUESS, TOKENS, call, renderer, tokenizer

GO = Message("user", "go")
MARKS = sorted({mark for tokens in TOKENS.values() for mark in tokens})
CALL = '{"name": "guess_word", "arguments": {"guess": "CRANE"}}'
WRITTEN = [
    *("<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_call>", "</tool_call>"),
    *("<|channel>thought\n", "\n<channel|>", "[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"),
    *("<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|>", "<|return|>"),
    *("<|channel|>commentary<|message|>", "<|start|>assistant", "<|start|>", "<|message|>"),
    *("<|channel|>commentary to=functions.guess_word <|constrain|>json<|message|>", "<|call|>"),
    *("<|im_end|>", "<|eot_id|>", "</s>", "<turn|>", "<|endoftext|>", "<|python_tag|>"),
    *(f"<tool_call>\n{CALL}\n</tool_call>", CALL, f"[TOOL_CALLS][{CALL}]", '[ARGS]{"guess": "X"}'),
    *("<|tool_call>call:guess_word{guess:1}<tool_call|>", "call:guess_word{", "to=functions."),
    *("<tool_call>\n<function=guess_word>\n<parameter=guess>\nX\n</parameter>\n</function>",),
    *(f"</th{BREAK}ink>", f"<tool{BREAK}_call>"),
    *('{"a": 1}', "{", "}", "[", "assistant", "thought", "guess_word"),
]
"""What models write, right and wrong, of every family."""
SAID = st.sampled_from(
    [
        *("Hello", " there", ".", "\n", "\n\n", " ", "  \t", "\u00a0", "\x1c", "é", "你好"),
        *(
            "😀",
            "\u0301",
            "\ufffd",
            "<",
            "<|",
            "<thi",
            "</",
            "[",
            "[TO",
            "<tool",
            "<|im_",
            "\u2028",
        ),
    ]
) | st.text(max_size=8)
PIECES = st.one_of(
    SAID,
    SAID,
    st.sampled_from(WRITTEN),
    st.sampled_from(WRITTEN + MARKS).map(lambda text: (text,)),  # spelled, and no mark
    st.lists(st.integers(0, 3099), min_size=1, max_size=4),  # bytes of no character, and anything
    st.just(BREAK),
)
TURNS = st.lists(PIECES, max_size=14)
HEADS = st.sampled_from(
    ["", "<think>\n", "<think>\n\n</think>\n\n", "[THINK]", "<|channel>thought\n", "assistant"]
)


def ids_of(vocabulary: Vocabulary, pieces) -> list[int]:
    """Pieces as ids: text with its marks, text whose marks are spelled out, or ids."""
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, list):
            ids += piece
        elif isinstance(piece, tuple):
            ids += vocabulary.encode(vocabulary.guard(piece[0]))
        else:
            ids += vocabulary.encode(piece)
    return ids


def turns_of(made: Renderer) -> Turns:
    assert made.turns is not None
    return made.turns


def told(turns: Turns, prompt, chunks) -> tuple[LiveTurn, str, str]:
    """What is told of a turn before its end: reasoning and text."""
    live = LiveTurn.of(turns, prompt)
    assert live is not None
    deltas = [delta for chunk in chunks for delta in live.take(chunk)]
    assert all(delta.call_index is None for delta in deltas)
    assert all(delta.text or delta.reasoning for delta in deltas)
    return live, "".join(d.reasoning for d in deltas), "".join(d.text for d in deltas)


def check_told(turns: Turns, prompt, ids, cuts, reason) -> None:
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    chunks = [ids[start:end] for start, end in pairwise(edges)]
    live, reasoning, text = told(turns, prompt, chunks)
    whole = turns.parse(ids, prompt=prompt, tools=[GUESS], finish_reason=reason).message
    rest, is_whole = live.rest(whole)
    assert is_whole, (reasoning, text, whole)
    assert reasoning + (rest.reasoning or "") == (whole.reasoning or "")
    assert text + rest.text == whole.text
    assert rest.tool_calls == whole.tool_calls


@settings(max_examples=1200)
@given(
    st.sampled_from(sorted(TOKENS)),
    TURNS,
    HEADS,
    st.lists(st.integers(0, 10_000), max_size=40),
    st.sampled_from(["stop", "length"]),
)
def test_what_is_told_is_the_beginning_of_what_is_read(name, pieces, head, cuts, reason):
    made = renderer(name)
    turns = turns_of(made)
    prompt = made.render([GO], []) + turns.vocabulary.encode(head)
    check_told(turns, prompt, ids_of(turns.vocabulary, pieces), cuts, reason)


@settings(max_examples=600)
@given(
    st.sampled_from(sorted(FAMILIES)),
    TURNS,
    HEADS,
    st.lists(st.integers(0, 10_000), max_size=40),
)
def test_so_it_is_where_marks_are_no_tokens_of_their_own(name, pieces, head, cuts):
    turns = Turns(Vocabulary.of(tokenizer("<|im_end|>")), FAMILIES[name])
    ids = ids_of(turns.vocabulary, pieces)
    check_told(turns, turns.vocabulary.encode("<|im_end|>" + head), ids, cuts, "stop")


HEADERS = st.sampled_from(
    [
        *("<|channel|>analysis", "<|channel|>final", "<|channel|>commentary", "", "to=assistant"),
        *("<|channel|>commentary to=functions.guess_word", "to=a<|channel|>analysis", "<|end|>"),
    ]
)
BODIES = st.sampled_from(["Hm. ", "", "\n", "So", " ", "{}", "<|message|>", "<|channel|>", "<|sta"])
ENDS = st.sampled_from(
    ["<|end|>", "<|end|>", "<|return|>", "<|call|>", "", "<|end|> \n", "<|end|>x"]
)
MESSAGES = st.tuples(HEADERS, st.sampled_from(["<|message|>"] * 4 + [" "]), BODIES, BODIES, ENDS)


@settings(max_examples=1200)
@given(
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.sampled_from(
        ["", "<|start|>assistant", "<|start|>assistant<|channel|>analysis<|message|>x"]
    ),
    st.lists(st.integers(0, 10_000), max_size=40),
    st.booleans(),
)
def test_so_it_is_for_several_messages_in_one_turn(messages, head, cuts, is_spelled):
    vocabulary = Vocabulary.of(tokenizer(*([] if is_spelled else TOKENS["gpt-oss"])))
    turns = Turns(vocabulary, FAMILIES["harmony"])
    raw = "<|start|>assistant".join("".join(parts) for parts in messages)
    check_told(turns, vocabulary.encode(head), vocabulary.encode(raw), cuts, "stop")


@settings(max_examples=600)
@given(
    st.lists(st.integers(0, 287), max_size=20),
    st.lists(st.sampled_from(["é", "😀 a", "x<think>", "</think>", "a b"]), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_so_it_is_where_a_bad_byte_spoils_the_good_ones_before_it(ids, texts, cuts):
    turns = Turns(byte_fallback(), FAMILIES["hermes"])
    ids = [*ids_of(turns.vocabulary, texts), *ids]
    check_told(turns, [], ids, cuts, "stop")


def byte_fallback(*, strips: bool = False) -> Vocabulary:
    """A vocabulary in the manner of sentencepiece: a few words, and bytes for all else."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefghijkx.12:\n"]
    model = models.BPE(
        {word: number for number, word in enumerate(words)},
        [],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    made = Tokenizer(model)
    made.normalizer = None
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strips else []))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in CHATML])
    return Vocabulary.of(made)


def test_characters_in_bytes_are_told_once_the_next_word_shows_that_they_are_whole():
    turns = Turns(byte_fallback(), FAMILIES["hermes"])
    ids = turns.vocabulary.encode("a😀b")
    live = LiveTurn.of(turns, [])
    assert live is not None
    assert ["".join(d.text for d in live.take([i])) for i in ids] == ["a", "", "", "", "", "😀b"]


def test_where_a_tokenizer_drops_the_first_space_only_wholes_are_told():
    turns = Turns(byte_fallback(strips=True), FAMILIES["hermes"])
    assert LiveTurn.of(turns, []) is None


@pytest.mark.parametrize("name", sorted(TOKENS))
def test_a_good_turn_is_told_before_its_last_token(name):
    """All of its reasoning and text, whatever the family; its calls wait for the end."""
    made = renderer(name)
    prompt = made.render([GO], [GUESS])
    turns = turns_of(made)
    said = Message("assistant", "I say: é 😀.", "So,\nso.")
    for calls in ((), (call("CRANE"),)):
        if calls and name in ("llama", "gpt-oss"):
            continue  # a call is the whole turn; text before one may be followed by more reasoning
        message = Message("assistant", said.text, said.reasoning, calls)
        ids = made.write(message, prompt=prompt)
        live, reasoning, text = told(turns, prompt, [[number] for number in ids[:-1]])
        assert (reasoning, text) == (said.reasoning, said.text)
        parsed = made.parse(ids, prompt=prompt, tools=[GUESS], finish_reason="stop").message
        rest, is_whole = live.rest(parsed)
        assert is_whole
        assert (rest.reasoning or "", rest.text, len(rest.tool_calls)) == ("", "", len(calls))


@pytest.mark.parametrize(
    ("name", "head", "raw", "reasoning", "text"),
    [
        # All of it but a tail that may be the beginning of something.
        ("qwen3", "", "<think>\nHm, <thi", "Hm, ", ""),
        ("qwen3", "", "<think>\nHm \n\n", "Hm ", ""),
        ("qwen3", "", "A <b> c \n", "", "A <b> c"),
        ("qwen3.5-think", "<think>\n", "x\n</think>\n\nHi", "x", "Hi"),
        ("qwen3.5-think", "<think>\n\n</think>\n\n", "Hello", "", "Hello"),
        ("qwen3", "", "Write <think>a</think> so.", "", "Write <think>a</think> so."),
        # A call drafted in reasoning is none.
        ("qwen3", "", f"<think>\n<tool_call>{CALL}</tool_call> or", f"<tool_call>{CALL}</tool_call> or", ""),
        # Silent from the first sign of a call on.
        ("qwen3", "", f"Hi. \n<tool_call>\n{CALL}\n</tool_call> and", "", "Hi."),
        ("qwen3", "", " Hi", "", ""),
        ("llama", "", '{"answer": 1} is', "", ""),
        ("llama", "", 'It is {"answer": 1}', "", 'It is {"answer": 1}'),
        ("mistral-nemo", "", "Hi[TOOL_CALLS][", "", "Hi"),
        ("gemma4", "", "<|channel>thought\nSo\n<channel|>Hi<|tool_call>", "So", "Hi"),
        ("gpt-oss", "assistant", "<|channel|>analysis<|message|>a b", "a b", ""),
        ("gpt-oss", "assistant", "<|channel|>commentary<|message|>Well", "", ""),
        (
            "gpt-oss",
            "assistant",
            "<|channel|>commentary<|message|>Well<|end|><|start|>assistant<|channel|>analysis<|message|>b"
            "<|end|><|start|>assistant<|channel|>final<|message|>So",
            "b",
            "Well\nSo",
        ),
        ("gpt-oss", "assistant", "No marks at all", "", ""),
    ],
)  # fmt: skip
def test_how_much_is_told_of_a_turn_that_goes_on(name, head, raw, reasoning, text):
    turns = turns_of(renderer(name))
    start = next(iter(turns.family.closers))
    prompt = turns.vocabulary.encode(start + head)
    chunks = [[number] for number in turns.vocabulary.encode(raw)]
    assert told(turns, prompt, chunks)[1:] == (reasoning, text)


def test_a_character_split_over_tokens_is_told_when_it_is_whole():
    turns = turns_of(renderer("qwen3"))
    ids = turns.vocabulary.encode("你")
    assert len(ids) == 3
    live = LiveTurn.of(turns, [])
    assert live is not None
    assert [[delta.text for delta in live.take([i])] for i in ids] == [[], [], ["你"]]


@pytest.mark.parametrize("size", [1, 100])
def test_text_that_spells_a_control_token_is_told_as_text(size):
    turns = turns_of(renderer("qwen3"))
    pieces = ["<think>", ("no </think>",), "</think>", ("Say <|im_end|> or <tool_call>, yes",)]
    ids = ids_of(turns.vocabulary, pieces)
    chunks = [ids[start : start + size] for start in range(0, len(ids), size)]
    assert told(turns, [], chunks)[1:] == ("no </think>", "Say <|im_end|> or <tool_call>, yes")


def test_nothing_is_told_from_the_private_character_on():
    """What it splits is a mark or none, as the rest of the turn has it."""
    vocabulary = Vocabulary.of(tokenizer("<|im_end|>"))
    turns = Turns(vocabulary, FAMILIES["hermes"])
    private = tokenizer("<|im_end|>").encode(BREAK, add_special_tokens=False).ids
    ids = [*vocabulary.encode("<think>a. b </th"), *private, *vocabulary.encode("ink>c")]
    for spelled in ([], [("<|im_end|>",)]):
        more = ids_of(vocabulary, [" d", *spelled])
        check_told(turns, [], ids + more, range(40), "stop")
        assert told(turns, [], [[number] for number in ids + more])[1] == "a. b "


def test_a_reply_that_does_not_begin_as_told_is_reported_and_leaves_nothing_of_that_field():
    turns = turns_of(renderer("qwen3"))
    live, *_ = told(turns, [], [turns.vocabulary.encode("<think>\nyes</think>Hello. ")])
    rest, is_whole = live.rest(Message("assistant", "Good day", "yes, so"))
    assert not is_whole
    assert (rest.reasoning, rest.text) == (", so", "")


@pytest.mark.parametrize(
    "unit",
    [
        *(" and so on", "\n", " \t", "<", "<think>", "</think>", "<tool_call>", "<|start|>", "é"),
        *("<|channel|>final<|message|>x<|end|><|start|>assistant", "\x80"),
    ],
)
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "llama"])
def test_the_cost_of_a_token_does_not_grow_with_the_turn(name, unit):
    turns = turns_of(renderer(name))
    if unit == "\x80":  # half a character, again and again
        ids = turns.vocabulary.encode("你")[:1] * 20_000
    else:
        ids = turns.vocabulary.encode(unit * 20_000)[:20_000]
    live = LiveTurn.of(turns, turns.vocabulary.encode("<|message|>"))
    assert live is not None
    start = time.perf_counter()
    for number in ids:
        live.take([number])
    assert time.perf_counter() - start < 2.0, json.dumps(unit)
