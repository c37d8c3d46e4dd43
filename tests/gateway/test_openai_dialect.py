"""What an OpenAI request means, and which field of it cannot be honoured."""

from typing import Any

import httpx
import pytest

from rft_agent_sdk.gateway import Gateway, Refusal, Session, ToolChoice
from rft_agent_sdk.gateway.dialects.openai import OpenAIDialect
from rft_agent_sdk.gateway.dialects.openai_messages import parse_messages, write_messages
from rft_agent_sdk.types import Message, SamplingParams, ToolCall
from tests.gateway.serve import BODY, GUESS_TOOL, bearer, echo, guess, served

DIALECT = OpenAIDialect()
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def one(**message: Any) -> Message:
    (found,) = parse_messages([message])
    return found


def test_content_blocks_are_flattened_to_the_text_they_hold():
    blocks = [{"type": "text", "text": "bad"}, {"type": "text", "text": "word"}]
    assert one(role="user", content=blocks).text == "bad\nword"
    assert one(role="system", content=blocks).text == "bad\nword"
    assert one(role="tool", content=blocks, tool_call_id="c").text == "bad\nword"
    assert one(role="assistant", content=blocks).text == "badword"


def test_an_assistant_may_lack_content_and_a_tool_result_be_empty():
    assert one(role="assistant", tool_calls=[CALL]) == Message(
        "assistant", tool_calls=(ToolCall("f", "{}", "c1"),)
    )
    assert one(role="assistant", content=None, tool_calls=[]).text == ""
    assert one(role="assistant", refusal="no").text == "no"
    assert one(role="tool", content=None, tool_call_id="c").text == ""
    assert one(role="tool", content=[], tool_call_id="c").text == ""


def test_reasoning_is_read_under_both_its_names_and_absence_is_not_emptiness():
    assert one(role="assistant", content="x", reasoning_content="r").reasoning == "r"
    assert one(role="assistant", content="x", reasoning="r").reasoning == "r"
    assert one(role="assistant", content="x", reasoning_content="").reasoning == ""
    assert one(role="assistant", content="x").reasoning is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("not json", "not json"),
        ("", ""),
        (None, ""),
        ({"a": "ü"}, '{"a": "ü"}'),
    ],
)
def test_argument_text_is_kept_as_it_came(arguments, text):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert one(role="assistant", tool_calls=[call]).tool_calls[0].arguments == text


def test_developer_is_system():
    assert one(role="developer", content="x").role == "system"


def test_reading_what_was_written_gives_the_same_messages():
    messages = (
        Message("system", "s"),
        Message("user", "u"),
        Message("assistant", "t", "r", (ToolCall("f", "{}", "a"), ToolCall("g", "", "b"))),
        Message("tool", "x", tool_call_id="a"),
        Message("assistant", "", tool_calls=(ToolCall("f", "{}", "c"),)),
        Message("assistant", "", ""),
    )
    assert parse_messages(write_messages(messages)) == messages


def test_sampling_parameters_are_read_and_the_newer_limit_wins():
    body = BODY | {"temperature": 0, "top_p": 1, "max_tokens": 5, "max_completion_tokens": 7}
    assert DIALECT.parse(body).policy.sampling == SamplingParams(0.0, 1.0, 7)
    assert DIALECT.parse(BODY | {"temperature": None}).policy.sampling == SamplingParams()


def test_no_tools_are_no_tools():
    assert DIALECT.parse(BODY | {"tools": []}).policy.tools == ()
    assert DIALECT.parse(BODY | {"tools": None, "tool_choice": "auto"}).policy.tools == ()


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (
            {"type": "function", "function": {"name": "guess_word"}},
            ToolChoice("required", "guess_word"),
        ),
    ],
)
def test_tool_choice_is_read(choice, read):
    body = BODY | {"tools": [GUESS_TOOL], "tool_choice": choice}
    assert DIALECT.parse(body).policy.tool_choice == read


USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "go"}, "messages"),
        ({"messages": ["go"]}, "messages[0]"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {}}]},
            "messages[0].function_call",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": 3}, "stream_options"),
        ({"model": 3}, "model"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice.function.name",
        ),
    ],
)
def test_what_cannot_be_honoured_is_a_400_that_names_the_field(change, param):
    with pytest.raises(Refusal) as caught:
        DIALECT.parse(BODY | change)
    assert caught.value.status == 400
    assert caught.value.as_openai()["error"]["param"] == param
    assert caught.value.message.startswith(f"{param}: ")


def asked(policy: Any, **change: Any) -> tuple[httpx.Response, Session]:
    gateway = Gateway()
    session = gateway.open(policy=policy)
    with served(gateway) as http:
        body = BODY | {"tools": [GUESS_TOOL]} | change
        reply = http.post("/v1/chat/completions", json=body, headers=bearer(session.secret))
    return reply, session


@pytest.mark.parametrize(
    ("policy", "change", "param"),
    [
        (echo, {"tool_choice": "required"}, "tool_choice"),
        (guess, {"tool_choice": "none"}, "tool_choice"),
        (echo, {"response_format": {"type": "json_object"}}, "response_format"),
        (echo, {"some_new_field": 1}, "some_new_field"),
    ],
)
def test_a_scripted_policy_refuses_what_it_cannot_be_made_to_do(policy, change, param):
    reply, session = asked(policy, **change)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert not session.turns


def test_hints_that_a_script_has_no_use_for_are_ignored():
    reply, _ = asked(
        guess,
        seed=1,
        stop=["x"],
        user="me",
        tool_choice="required",
        response_format={"type": "text"},
    )
    assert reply.status_code == 200
