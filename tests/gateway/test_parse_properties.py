import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rft_agent_sdk.gateway.parse import FAMILIES, ParseStatus, by_name, status_of
from rft_agent_sdk.types import Message, ToolCall, ToolSpec
from tests.gateway.templates import GUESS, TOKENS, renderer

FRAGMENTS = st.sampled_from(
    [
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=guess_word>"),
        *("</function>", "<parameter=guess>", "</parameter>", "<|im_end|>", "<|channel|>"),
        *("<|message|>", "<|start|>assistant", "<|end|>", "<|call|>", "analysis", "commentary"),
        *(" to=functions.guess_word", "<|constrain|>json", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        *(
            "</s>",
            "[THINK]",
            "[/THINK]",
            "<|tool_call>",
            "<tool_call|>",
            "call:guess_word",
            '<|"|>',
        ),
        *("<|channel>thought", "<channel|>", "<turn|>", "<|python_tag|>", "<|eot_id|>"),
        *(
            '{"name": "guess_word", "arguments": ',
            '{"guess": "crane"}',
            "{",
            "}",
            "[",
            "]",
            '"',
            ",",
        ),
        *("\\", "\n", " ", "null", "-1", "guess_word", "guess:", "parameters"),
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=6), max_size=24).map("".join)
FAMILY = st.sampled_from(sorted(FAMILIES)).map(FAMILIES.__getitem__)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
# Text that a parser may strip or take for a mark is another test's matter.
WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="<>[]|{}\r\x85\x1c\x1d\x1e\u2028\u2029\uf8d6"),
    max_size=30,
).map(str.strip)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(
    FAMILY,
    TEXTS,
    st.booleans(),
    st.sampled_from(["", "<think>\n", "assistant", "<|channel>thought\n"]),
)
def test_reading_never_raises_and_gives_calls_whose_arguments_are_json_objects(
    family, text, is_cut, prefill
):
    reading = family.read(text, by_name([GUESS]), prefill=prefill, is_cut=is_cut)
    assert status_of(reading, "length" if is_cut else "stop") in ParseStatus
    assert all(call.name and isinstance(json.loads(call.arguments), dict) for call in reading.calls)
    "".join(call.arguments for call in reading.calls).encode()
    family.mend(text, prefill=prefill)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(TOKENS)), st.data())
def test_any_ids_are_read_without_an_error(name, data):
    made = renderer(name)
    ids = st.integers(0, 3120) | st.sampled_from(sorted(made.control_tokens.values()))
    sampled = data.draw(st.lists(ids, max_size=40))
    prompt = data.draw(st.lists(ids, max_size=60))
    reason = data.draw(st.sampled_from(["stop", "length", "tool_calls"]))
    parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason=reason)
    assert parsed.message.role == "assistant"
    assert (parsed.finish_reason == "length") == (reason == "length")
    assert (parsed.finish_reason == "tool_calls") <= bool(parsed.message.tool_calls)


def schema_of(arguments: dict) -> dict:
    """A schema under which each value has its own type alone."""
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    kinds |= {list: "array", dict: "object"}
    return {
        "type": "object",
        "properties": {name: {"type": kinds[type(value)]} for name, value in arguments.items()},
    }


@settings(max_examples=250, deadline=None)
@given(
    FAMILY,
    WORDS,
    st.none() | WORDS.filter(bool),
    st.lists(st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=3)), max_size=2),
)
def test_what_is_written_is_read_back(family, text, reasoning, made):
    if family.name == "llama":
        text = "" if made else text
    tools = by_name([ToolSpec(name, "", schema_of(arguments)) for name, arguments in made])
    made = [(name, arguments) for name, arguments in made if _fits(tools[name], arguments)]
    calls = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in made)
    message = Message("assistant", text, reasoning, calls)

    raw = family.write(message) + (family.closer(message) or next(iter(family.closers)))
    reading = family.read(raw, tools)

    assert (reading.text, reading.reasoning) == (text, reasoning)
    assert [(call.name, json.loads(call.arguments)) for call in reading.calls] == made
    assert status_of(reading, "stop") is ParseStatus.OK


def _fits(tool: ToolSpec, arguments: dict) -> bool:
    """Whether the schema is that of these arguments: two calls of one name share the last one's."""
    return tool.parameters == schema_of(arguments)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
@pytest.mark.parametrize(
    "unit",
    [
        "<tool_call>",
        '<tool_call>{"name": "a", "arguments": {"x": "',
        "<tool_call>\n<function=guess_word>\n<parameter=guess>\n",
        "<parameter=guess>\n</parameter>",
        "[TOOL_CALLS]a[ARGS]{",
        '[TOOL_CALLS][{"name": "a"},',
        "<|tool_call>call:a{b:",
        "<|start|>assistant<|channel|>commentary to=a<|message|>{",
        "<think></think>",
        '{"name": "guess_word", "parameters": {',
        "            ",
    ],
)
def test_the_cost_of_hostile_text_grows_with_its_length(family, unit):
    text = unit * (60_000 // len(unit))
    start = time.perf_counter()
    family.read(text, by_name([GUESS]))
    assert time.perf_counter() - start < 2.0
