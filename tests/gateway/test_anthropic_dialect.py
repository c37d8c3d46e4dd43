"""What an Anthropic request means, and which field of it cannot be honoured."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.gateway import Refusal, ToolChoice
from rft_agent_sdk.gateway.dialects.anthropic import AnthropicDialect
from rft_agent_sdk.gateway.dialects.anthropic_messages import parse_conversation, write_blocks
from rft_agent_sdk.types import Message, SamplingParams, ToolCall, ToolSpec

DIALECT = AnthropicDialect()
TOOL: dict[str, Any] = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "go"}
BODY: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [USER]}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def read(*messages: Any, system: Any = None) -> tuple[Message, ...]:
    return parse_conversation(system, list(messages))


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_a_system_prompt_is_a_string_or_a_list():
    two = [TEXT | {"cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "y"}]
    assert read(USER, system="x")[0] == Message("system", "x")
    assert read(USER, system=two)[0] == Message("system", "x\ny")
    assert read(USER, {"role": "system", "content": two})[1] == Message("system", "x\ny")
    assert read(USER) == (Message("user", "go"),)


def test_results_come_before_text_whatever_the_order_of_blocks():
    other = RESULT | {"tool_use_id": "c2", "content": [TEXT, TEXT], "is_error": True}
    results = (
        Message("tool", "r", tool_call_id="c1"),
        Message("tool", "x\nx", tool_call_id="c2", is_error=True),
    )
    assert read(said("user", TEXT, RESULT, TEXT, other)) == (*results, Message("user", "x\nx"))
    assert read(said("user", RESULT, other)) == results


def test_results_may_be_empty_and_content_too():
    bare = {"type": "tool_result", "tool_use_id": "c1"}
    assert read(said("user", bare))[0].text == ""
    assert read(said("user", RESULT | {"content": []}))[0].text == ""
    assert read(said("user")) == (Message("user", ""),)
    assert read(said("assistant")) == (Message("assistant", ""),)


def test_an_assistants_blocks_are_one_message():
    thinking = {"type": "thinking", "thinking": "a", "signature": "whatever"}
    again = {"type": "thinking", "thinking": "b"}
    second = USE | {"id": "c2", "input": {"n": 1}}
    assert read(said("assistant", thinking, TEXT, USE, again, TEXT, second)) == (
        Message(
            "assistant", "xx", "ab", (ToolCall("f", "{}", "c1"), ToolCall("f", '{"n":1}', "c2"))
        ),
    )
    assert read({"role": "assistant", "content": "x"}) == (Message("assistant", "x"),)


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(), False),
        ({"type": "any"}, ToolChoice("required"), True),
        ({"type": "tool", "name": "f"}, ToolChoice("required", "f"), True),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_tools_and_the_choice_between_them(choice, wanted, parallel):
    request = DIALECT.parse(BODY | {"tools": [TOOL], "tool_choice": choice}).policy
    assert request.tools == (ToolSpec("f", "d", {"type": "object"}),)
    assert request.tool_choice == wanted
    assert request.parallel_tool_calls is parallel


@pytest.mark.parametrize(
    ("change", "extras"),
    [
        ({"top_k": 3}, {"top_k": 3}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"stop_sequences": []}, {}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            {"chat_template_kwargs": {"enable_thinking": True}},
        ),
        (
            {"thinking": {"type": "disabled"}},
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, {}),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "reply", "schema": {"type": "object"}},
                }
            },
        ),
        ({"metadata": {"user_id": "me"}, "service_tier": "auto", "cache_control": {}}, {}),
        ({"container": None}, {}),
    ],
)
def test_what_only_the_policy_can_judge_goes_by_the_names_it_knows(change, extras):
    assert DIALECT.parse(BODY | change).policy.extras == extras


def test_sampling_parameters_and_the_stream_are_read():
    request = DIALECT.parse(BODY | {"temperature": 0, "top_p": 1, "stream": True})
    assert request.policy.sampling == SamplingParams(0.0, 1.0, 9)
    assert request.stream
    assert not DIALECT.parse(BODY).stream


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "go"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [USER, said("assistant", TEXT)]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [said("user", "x")]}, "messages[0].content[0]"),
        ({"messages": [said("user", {"type": []})]}, "messages[0].content[0].type"),
        ({"messages": [said("user", TEXT, IMAGE)]}, "messages[0].content[1].type"),
        ({"messages": [said("user", {"type": "document"})]}, "messages[0].content[0].type"),
        ({"messages": [said("user", USE)]}, "messages[0].content[0].type"),
        ({"messages": [said("user", {"type": "text"})]}, "messages[0].content[0].text"),
        (
            {"messages": [said("user", {"type": "tool_result"})]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {"messages": [said("user", RESULT | {"is_error": "yes"})]},
            "messages[0].content[0].is_error",
        ),
        (
            {"messages": [said("user", RESULT | {"content": [TEXT, IMAGE]})]},
            "messages[0].content[0].content[1].type",
        ),
        ({"messages": [said("assistant", RESULT), USER]}, "messages[0].content[0].type"),
        (
            {"messages": [said("assistant", {"type": "redacted_thinking", "data": "x"}), USER]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [said("assistant", {"type": "thinking"}), USER]},
            "messages[0].content[0].thinking",
        ),
        (
            {"messages": [said("assistant", USE | {"input": "{}"}), USER]},
            "messages[0].content[0].input",
        ),
        (
            {"messages": [said("assistant", USE | {"id": ""}), USER]},
            "messages[0].content[0].id",
        ),
        ({"system": 3}, "system"),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"model": 3}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": ["END", ""]}, "stop_sequences[1]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {"name": "g"}]}, "tools[1].input_schema"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL | {"input_examples": [{}]}]}, "tools[0].input_examples"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": ["enabled"]}}, "thinking.type"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        ({"thinking": True}, "thinking"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"n": 2}, "n"),
    ],
)
def test_what_cannot_be_honoured_is_a_400_that_names_the_field(change, param):
    with pytest.raises(Refusal) as caught:
        DIALECT.parse(BODY | change)
    assert caught.value.status == 400
    assert caught.value.param == param
    error = caught.value.as_anthropic()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"{param}: ")


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
SOME_TEXT = TEXTS.filter(bool)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
# as arguments are written on this wire; and some that are no object at all
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
) | st.sampled_from(["{oops", "[1]", "3", '"x"', "NaN", '{"a":', "[" * 5000])


@st.composite
def conversations(draw) -> tuple[Message, ...]:
    """What the wire can hold: text of a user beside results is not empty, nor is reasoning."""
    found = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    found.append(Message("user", draw(TEXTS)))
    for turn in range(draw(st.integers(0, 3))):
        calls = tuple(
            ToolCall(draw(SOME_TEXT), draw(ARGUMENTS), f"call_{turn}_{index}")
            for index in range(draw(st.integers(0, 3)))
        )
        reasoning = draw(st.none() | SOME_TEXT)
        found.append(Message("assistant", draw(TEXTS), reasoning, calls))
        for call in calls:
            is_error = draw(st.booleans())
            found.append(Message("tool", draw(TEXTS), tool_call_id=call.id, is_error=is_error))
        if not calls or draw(st.booleans()):
            found.append(Message("user", draw(SOME_TEXT if calls else TEXTS)))
    return tuple(found)


def written(messages: tuple[Message, ...], draw: Any) -> dict[str, Any]:
    """Return a request as a client would write it, with the blocks of a user in any order."""
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": []}
    for message in messages:
        if message.role == "system":
            body["system"] = draw(st.sampled_from([message.text, as_blocks(message.text)]))
        elif message.role == "assistant":
            body["messages"].append({"role": "assistant", "content": write_blocks(message)})
        else:
            add_user(body["messages"], message, draw)
    return body


def add_user(entries: list[dict[str, Any]], message: Message, draw: Any) -> None:
    if not entries or entries[-1]["role"] != "user":
        entries.append({"role": "user", "content": []})
    blocks = entries[-1]["content"]
    content = draw(st.sampled_from([message.text, as_blocks(message.text)]))
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        blocks.append(block | ({"is_error": True} if message.is_error else {}))
    else:
        blocks.insert(draw(st.integers(0, len(blocks))), as_blocks(message.text)[0])


def as_blocks(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@given(messages=conversations(), data=st.data())
def test_reading_what_a_client_writes_gives_the_same_messages(messages, data):
    body = json.loads(json.dumps(written(messages, data.draw)))
    assert DIALECT.parse_count(body).messages == messages
