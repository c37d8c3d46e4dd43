"""The words: outcomes are sorted into the policy's own doing and the rest; wire forms are exact."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rft_agent_sdk.types import Message, Outcome, SamplingParams, ToolCall, ToolSpec, Turn, Usage


def test_outcomes_have_their_wire_spellings():
    assert [str(outcome) for outcome in Outcome] == [
        "completed",
        "truncated",
        "timeout",
        "no_sampling",
        "agent_error",
        "environment_error",
        "infrastructure_error",
        "cancelled",
    ]
    assert json.dumps(Outcome.NO_SAMPLING) == '"no_sampling"'
    assert Outcome("timeout") is Outcome.TIMEOUT


def test_only_the_policys_own_doing_may_be_trained_on():
    assert {outcome for outcome in Outcome if outcome.is_policy} == {
        Outcome.COMPLETED,
        Outcome.TRUNCATED,
        Outcome.TIMEOUT,
    }


def test_everything_but_the_policys_own_end_is_cut_short():
    assert {outcome for outcome in Outcome if not outcome.is_cut_short} == {
        Outcome.COMPLETED,
        Outcome.TRUNCATED,
    }


def test_a_tool_is_told_in_the_openai_form():
    schema = {"type": "object", "properties": {"guess": {"type": "string"}}}
    told = ToolSpec("guess_word", "Guess.", schema).as_openai()
    assert told == {
        "type": "function",
        "function": {"name": "guess_word", "description": "Guess.", "parameters": schema},
    }
    told["function"]["parameters"]["type"] = "changed"
    assert schema["type"] == "object"


def test_only_set_sampling_values_are_sent_and_zero_is_set():
    assert SamplingParams().as_openai() == {}
    assert SamplingParams(0.0, 1.0, 4096).as_openai() == {
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 4096,
    }


def test_empty_reasoning_is_told_from_none():
    assert Message("assistant", reasoning="") != Message("assistant")
    assert Message("assistant").reasoning is None


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (Message("user", "hi"), "text"),
        (ToolCall("t", "{}"), "arguments"),
        (SamplingParams(), "temperature"),
        (Turn((), Message("assistant")), "finish_reason"),
        (Usage(), "prompt_tokens"),
    ],
)
def test_records_cannot_be_changed(record, name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, "changed")
    hash(record)  # and can be kept in sets
