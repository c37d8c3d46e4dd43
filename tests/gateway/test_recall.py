"""What is remembered of a client's history changes nothing of how it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.gateway.dialects.anthropic_messages import parse_conversation
from rft_agent_sdk.gateway.dialects.openai_messages import parse_messages
from rft_agent_sdk.gateway.dialects.recall import Recall
from rft_agent_sdk.gateway.refusal import Refusal


def user(text):
    return {"role": "user", "content": text}


def calling(arguments):
    function = {"name": "guess_word", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}


ENTRIES = st.sampled_from(
    [
        *(user("a"), user("ab"), user(""), user("é"), user("\ud800")),
        *(calling({"x": 1}), calling({"x": True}), calling({"x": 1.0}), calling('{"x":1}')),
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "b"},
        {"role": "nobody"},
        3,
    ]
)


def read(messages, recall=None):
    try:
        return parse_messages(messages, recall)
    except Refusal as refusal:
        return refusal.param, refusal.message


@given(st.lists(st.lists(ENTRIES, max_size=4), max_size=6), st.data())
def test_any_sequence_of_histories_is_read_as_without_memory(added, data):
    recall = Recall()
    history: list = []
    for more in added:
        history = history[: data.draw(st.integers(0, len(history)))] + more
        assert read(history, recall) == read(history)


def test_what_was_sent_before_is_not_read_again():
    recall = Recall()
    first = parse_messages([user("a"), calling("{}")], recall)
    second = parse_messages([user("a"), calling("{}"), user("b")], recall)
    assert [one is other for one, other in zip(first, second, strict=False)] == [True, True]
    assert len(second) == 3


def test_a_history_that_was_refused_is_read_whole_once_it_is_mended():
    recall = Recall()
    parse_messages([user("a")], recall)
    with pytest.raises(Refusal, match=r"messages\[1\]"):
        parse_messages([user("a"), user(None)], recall)
    assert parse_messages([user("a"), user("b")], recall)[1].text == "b"


def test_one_history_is_read_in_each_dialect_by_its_own_rules():
    recall = Recall()
    for _ in range(2):
        assert parse_messages([user("a")], recall) == parse_conversation(None, [user("a")], recall)
    thought = {"type": "thinking", "thinking": "hm"}
    echoed = [user("a"), {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]}]
    assert parse_conversation(None, echoed, recall)[1].reasoning == "hm"
    with pytest.raises(Refusal, match="only text can be read"):
        parse_messages(echoed, recall)
