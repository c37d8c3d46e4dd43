"""Which turn a request continues, what is stored of it, and what counts."""

import json
import math
import time
from dataclasses import replace

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.canonical import canonical_arguments
from rft_agent_sdk.gateway.graph import BranchReason, MessageGraph, token_path
from rft_agent_sdk.types import Message, ToolSpec
from tests.gateway.graph_play import GO, START, SYSTEM, TOOLS, Play, called, dropped, result

FIRST = called("I try.", ("call_1", '{"guess":"CRANE"}'), reasoning="think hard")
SECOND = called("Again.", ("call_2", '{"guess":"SLOTH"}'), reasoning="think more")
HISTORY = (*START, FIRST, result("call_1", "XXYXX"))


def two_turns() -> Play:
    play = Play()
    play.ask(START, FIRST)
    play.ask(HISTORY, SECOND)
    return play


def longer(*tail: Message) -> tuple[Message, ...]:
    return (*HISTORY, SECOND, *tail)


# --- matching ------------------------------------------------------------------------------------


def test_a_first_request_starts_at_the_root():
    match = MessageGraph().match(START, TOOLS)
    assert (match.turn, match.matched, match.reason) == (None, 0, None)
    assert match.new == match.history == START


def test_a_history_that_goes_on_from_a_reply_matches_its_turn():
    play = Play()
    first = play.ask(START, FIRST)
    match = play.graph.match(HISTORY, TOOLS)
    assert (match.turn, match.matched, match.reason) == (first, 3, None)
    assert match.new == (result("call_1", "XXYXX"),)


def test_dropped_reasoning_is_put_back_and_counted():
    play = Play()
    first = play.ask(START, FIRST)
    match = play.graph.match([dropped(message) for message in HISTORY], TOOLS)
    assert (match.turn, match.restored, match.reason) == (first, 1, None)
    assert match.history == HISTORY
    play.answer(match, SECOND)
    assert play.graph.counters()["reasoning_restored"] == 1


@pytest.mark.parametrize("empty", [None, ""])
def test_empty_and_absent_reasoning_are_the_same(empty):
    play = Play()
    first = play.ask(START, replace(FIRST, reasoning=empty))
    for echoed in (None, ""):
        match = play.graph.match((*START, replace(FIRST, reasoning=echoed), GO), TOOLS)
        assert (match.turn, match.restored) == (first, 0)


def test_other_reasoning_is_an_edit():
    play = two_turns()
    edited = [replace(message, reasoning=message.reasoning and "other") for message in longer(GO)]
    match = play.graph.match(edited, TOOLS)
    assert (match.turn, match.reason) == (None, BranchReason.HISTORY_EDITED)
    assert match.history == tuple(edited)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"guess":"CRANE","n":1}', '{ "n": 1.0, "guess": "\\u0043RANE" }'),
        ("", "{}"),
        ("null", ""),
        ('{"a":-0.0,"b":1e3}', '{"b":1000,"a":0}'),
        ("not json", "not json"),
    ],
)
def test_arguments_that_say_the_same_are_the_same(one, other):
    assert canonical_arguments(one) == canonical_arguments(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n":1}', '{"n":true}'),
        ('{"n":1}', '{"n":"1"}'),
        ('{"n":[1,2]}', '{"n":[2,1]}'),
        ("not json", "not  json"),
        ('{"n":NaN}', '{"n":null}'),
        ("[" * 100_000, "{}"),
        ('"x"', "x"),
    ],
)
def test_arguments_that_differ_are_told_apart(one, other):
    assert canonical_arguments(one) != canonical_arguments(other)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "I try. "},
        {"text": ""},
        {"tool_calls": ()},
        {"tool_calls": called("", ("call_1", '{"guess":"CRATE"}')).tool_calls},
        {"tool_calls": called("", ("call_1", '{"guess":"CRANE"}'), name="stop").tool_calls},
    ],
)
def test_a_changed_reply_is_an_edit_however_small(change):
    play = two_turns()
    match = play.graph.match(
        (*START, replace(FIRST, **change), *longer(result("call_2", "GGGGG"))[3:]), TOOLS
    )
    assert (match.turn, match.reason) == (None, BranchReason.HISTORY_EDITED)


def test_a_changed_tool_result_is_not_the_same_history():
    play = two_turns()
    match = play.graph.match((*START, FIRST, result("call_1", "GGGGG"), SECOND, GO), TOOLS)
    assert (match.turn, match.reason) == (play.graph.turns[0], BranchReason.HISTORY_EDITED)
    assert match.new == (result("call_1", "GGGGG"), SECOND, GO)


def test_a_client_may_rewrite_call_ids_and_gets_back_those_that_were_served():
    play = Play()
    reply = called("", ("call_a", "{}"), ("call_b", "{}"))
    turn = play.ask(START, reply)
    rewritten = called("", ("t1", "{}"), ("t2", "{}"))
    match = play.graph.match((*START, rewritten, result("t2", "b"), result("t1", "a")), TOOLS)
    assert match.turn is turn
    assert match.new == (result("call_b", "b"), result("call_a", "a"))
    then = play.answer(match, called("done"))
    again = (*START, reply, result("call_b", "b"), result("call_a", "a"), called("done"), GO)
    assert play.graph.match(again, TOOLS).turn is then


def test_results_given_to_the_other_of_two_equal_calls_are_another_history():
    play = Play()
    turn = play.ask(START, called("", ("call_a", "{}"), ("call_b", "{}")))
    base = (*START, turn.reply)
    play.ask((*base, result("call_a", "1"), result("call_b", "2")), called("done"))
    swapped = (*base, result("call_b", "1"), result("call_a", "2"), called("done"), GO)
    assert play.graph.match(swapped, TOOLS).turn is turn


def test_a_call_id_used_twice_names_the_later_call():
    play = Play()
    play.ask(START, called("one", ("call_1", "{}")))
    history: tuple[Message, ...] = (*START, called("one", ("x", "{}")), result("x", "r1"))
    second = play.ask(history, called("two", ("call_2", "{}")))
    history = (*history, called("two", ("x", "{}")), result("x", "r2"))
    match = play.graph.match(history, TOOLS)
    assert (match.turn, match.new) == (second, (result("call_2", "r2"),))
    assert match.history[3] == result("call_1", "r1")


def test_an_id_the_client_once_gave_to_another_call_can_be_a_served_one_later():
    play = Play()
    play.ask(START, called("one", ("call_1", "{}")))
    history: tuple[Message, ...] = (*START, called("one", ("call_2", "{}")), result("call_2", "r1"))
    second = play.ask(history, called("two", ("call_2", "{}")))
    history = (*history, second.reply, result("call_2", "r2"))
    match = play.graph.match(history, TOOLS)
    assert (match.turn, match.new) == (second, (result("call_2", "r2"),))


def test_a_reply_the_client_made_up_before_it_was_sampled_stays_readable_both_ways():
    play = Play()
    reply = Message("assistant", "A")
    made_up = play.graph.match((*START, reply, GO), TOOLS)
    sampled = play.ask(START, reply)
    assert play.graph.match((*START, reply, SYSTEM), TOOLS).turn is sampled
    then = play.answer(made_up, Message("assistant", "B"))
    assert play.graph.match((*START, reply, GO, then.reply, GO), TOOLS).turn is then
    assert play.graph.match((*START, reply, SYSTEM), TOOLS).turn is sampled


def test_messages_the_client_made_up_are_context_of_the_next_turn():
    play = Play()
    shots = (SYSTEM, GO, Message("assistant", "made up"), Message("user", "now you"))
    turn = play.ask(shots, FIRST)
    assert turn.context == shots
    match = play.graph.match((*shots, FIRST, result("call_1", "x")), TOOLS)
    assert (match.turn, match.matched) == (turn, 5)


def test_of_equal_replies_the_one_whose_ids_come_back_is_meant():
    play = Play()
    one = play.ask(START, called("", ("call_a", "{}")))
    two = play.ask(START, called("", ("call_b", "{}")))
    assert play.graph.match((*START, one.reply, result("call_a", "r")), TOOLS).turn is one
    assert play.graph.match((*START, two.reply, result("call_b", "r")), TOOLS).turn is two


def test_of_equal_replies_the_one_that_reads_on_is_meant():
    play = Play()
    play.ask(START, Message("assistant", "A"))
    then = play.ask((*START, Message("assistant", "A"), GO), Message("assistant", "B"))
    play.ask(START, Message("assistant", "A"))  # now the latest of two that look alike
    history = (*START, Message("assistant", "A"), GO, Message("assistant", "B"), GO)
    assert play.graph.match(history[:4], TOOLS).turn is play.graph.turns[2]
    assert play.graph.match(history, TOOLS).turn is then


def test_of_replies_that_differ_in_reasoning_the_one_that_says_so_is_meant():
    play = Play()
    one = play.ask(START, Message("assistant", "A", "r1"))
    two = play.ask(START, Message("assistant", "A", "r2"))
    assert play.graph.match((*START, one.reply, GO), TOOLS).turn is one
    assert play.graph.match((*START, Message("assistant", "A"), GO), TOOLS).turn is two


# --- reasons -------------------------------------------------------------------------------------


def test_other_tools_are_a_reason_to_branch():
    play = two_turns()
    other = (*TOOLS, ToolSpec("stop", "", {}))
    history = longer(result("call_2", "x"))
    assert play.graph.match(history, other).reason is BranchReason.TOOLS_CHANGED
    assert play.graph.match(START, ()).reason is BranchReason.TOOLS_CHANGED
    assert play.graph.match(history, TOOLS).reason is None


def test_equal_tools_in_another_key_order_are_no_change():
    play = Play()
    play.ask(START, FIRST, tools=[ToolSpec("t", "d", {"type": "object", "required": []})])
    other = [ToolSpec("t", "d", {"required": [], "type": "object"})]
    assert play.graph.match(HISTORY, other).reason is None


def test_other_messages_after_a_continued_turn_are_a_branch():
    play = two_turns()
    match = play.graph.match((*START, FIRST, result("call_1", "other")), TOOLS)
    assert (match.turn, match.reason) == (play.graph.turns[0], BranchReason.BRANCHED)


def test_a_second_conversation_is_a_branch_and_then_goes_on_like_any():
    play = two_turns()
    start = (Message("system", "helper"), GO)
    assert play.graph.match(start, TOOLS).reason is BranchReason.BRANCHED
    helper = play.ask(start, Message("assistant", "yes"))
    match = play.graph.match((*start, helper.reply, GO), TOOLS)
    assert (match.turn, match.reason) == (helper, None)
    assert play.graph.match(longer(result("call_2", "x")), TOOLS).reason is None


@pytest.mark.parametrize(
    "compacted",
    [
        (SYSTEM, Message("user", "go; so far: CRANE XXYXX"), SECOND, result("call_2", "x")),
        (SYSTEM, SECOND, result("call_2", "x")),
    ],
)
def test_a_history_whose_later_replies_moved_up_was_compacted(compacted):
    match = two_turns().graph.match(compacted, TOOLS)
    assert (match.turn, match.reason) == (None, BranchReason.HISTORY_COMPACTED)


def test_the_same_request_again_is_a_retry_that_finds_its_answers():
    play = Play()
    answers = (play.ask(START, FIRST), play.ask(START, SECOND))
    match = play.graph.match(START, TOOLS)
    assert (match.reason, match.answers) == (BranchReason.RETRIED, answers)
    assert play.graph.match(START, ()).answers == ()


def test_requests_on_their_way_are_the_same_only_if_everything_is():
    graph = MessageGraph()
    key = graph.match(START, TOOLS).request_key
    assert graph.match([replace(message) for message in START], TOOLS).request_key == key
    assert graph.match(START, ()).request_key != key
    assert graph.match((SYSTEM, SYSTEM), TOOLS).request_key != key


# --- committing ----------------------------------------------------------------------------------


def test_a_turn_owns_only_the_tokens_since_its_parent():
    play = two_turns()
    first, second = play.graph.turns
    prompt, sampled, _ = play.served[1]
    assert second.extends
    assert prompt == [*first.prompt_ids, *first.sampled_ids, *second.prompt_ids]
    assert play.graph.ids(second) == prompt + sampled
    assert token_path(second) == [first, second]


def test_the_ids_of_a_turn_are_the_same_however_they_were_kept():
    play = two_turns()
    for _ in range(6):  # enough branches to push the first ones out of what is kept joined
        play.ask((*START, FIRST, result("call_1", f"{_}")), Message("assistant", f"{_}"))
    for turn in play.graph.turns:
        prompt, sampled, _ = play.served[turn.index]
        assert play.graph.ids(turn) == prompt + sampled


def test_what_a_caller_does_to_ids_it_got_changes_nothing():
    play = two_turns()
    turn = play.graph.turns[1]
    play.graph.ids(turn).append(7)
    assert play.graph.ids(turn) == play.served[1][0] + play.served[1][1]


def test_a_broken_prefix_is_counted_and_stored_as_a_branch(caplog):
    play = Play()
    first = play.ask(START, FIRST)
    match = play.graph.match(HISTORY, TOOLS)
    wrong = play.graph.ids(first)
    wrong[1] += 1
    turn = play.answer(match, SECOND, prompt_ids=[*wrong, 5], extension=True)
    assert (turn.extends, turn.is_violation, turn.parent) == (False, True, first)
    assert turn.prompt_ids.tolist() == [*wrong, 5]
    assert play.graph.counters()["invariant_violations"] == 1
    assert "does not begin with the tokens of turn 0" in caplog.text
    assert play.graph.match(longer(result("call_2", "x")), TOOLS).turn is turn


def test_a_rendered_prompt_that_happens_to_extend_its_parent_does():
    play = two_turns()
    assert [turn.extends for turn in play.graph.turns] == [False, True]
    match = play.graph.match((*START, FIRST, result("call_1", "other")), TOOLS)
    assert play.answer(match, SECOND, extension=None).extends
    assert not play.answer(match, SECOND, extension=False).extends
    assert play.graph.counters()["invariant_violations"] == 0


def test_a_token_without_a_finite_logprob_up_to_zero_is_missing():
    play = Play()
    bad = [None, math.nan, math.inf, -math.inf, 1e-7, 0.25]
    good = [0.0, -0.0, -1e30, -0.5]
    turn = play.answer(
        play.graph.match(START), FIRST, sampled_ids=list(range(10)), logprobs=bad + good
    )
    assert [math.isnan(lp) for lp in turn.logprobs] == [True] * 6 + [False] * 4
    assert play.graph.counters()["logprobs_missing"] == 6


@pytest.mark.parametrize("logprobs", [None, [], [-0.1], [-0.1] * 5])
def test_logprobs_of_another_length_belong_to_no_token(logprobs):
    play = Play()
    turn = play.answer(play.graph.match(START), FIRST, sampled_ids=[1, 2, 3, 4], logprobs=logprobs)
    assert turn.missing_logprobs == 4


def test_counters_tell_what_happened():
    play = two_turns()
    match = play.graph.match(longer(result("call_2", "x")), TOOLS)
    play.answer(
        match,
        called("cut"),
        finish_reason="length",
        status="ill_formed",
        rendering="bridged",
        calls_written=1,
    )
    play.ask(START, FIRST)
    play.ask(START, FIRST)
    counters = play.graph.counters()
    assert {name: count for name, count in counters.items() if count} == {
        "turns": 5,
        "extended": 2,
        "bridged": 1,
        "rendered": 4,
        "retried": 2,
        "truncated": 1,
        "ill_formed": 1,
        "tools_offered": 5,
        "tool_calls_written": 5,
        "tool_calls_parsed": 4,
        "tokens_sampled": 20,
        "abandoned": 1,
    }


# --- retries -------------------------------------------------------------------------------------


def test_an_answer_replaced_by_a_later_one_is_abandoned():
    play = Play()
    one, two = play.ask(START, FIRST), play.ask(START, SECOND)
    assert play.graph.abandoned() == {one}
    assert play.graph.live_turns() == [two]


def test_an_answer_is_abandoned_once_another_one_is_gone_on_with():
    play = Play()
    one, two = play.ask(START, FIRST), play.ask(START, SECOND)
    play.ask(HISTORY, Message("assistant", "on from the first"))
    assert play.graph.abandoned() == {two}
    assert one in play.graph.live_turns()


def test_two_answers_that_are_both_gone_on_with_both_count():
    play = Play()
    play.ask(START, FIRST)
    play.ask(START, SECOND)
    play.ask(HISTORY, Message("assistant", "one"))
    play.ask((*START, SECOND, result("call_2", "x")), Message("assistant", "two"))
    assert play.graph.abandoned() == set()


def test_a_request_asked_again_after_its_answer_was_used_is_a_second_try():
    play = two_turns()
    again = play.ask(START, Message("assistant", "afresh"))
    assert again in play.graph.live_turns()
    assert play.graph.abandoned() == set()


def test_the_later_request_wins_even_if_it_is_answered_first():
    play = Play()
    early, late = play.graph.match(START, TOOLS), play.graph.match(START, TOOLS)
    kept = play.answer(late, SECOND)
    slow = play.answer(early, FIRST)
    assert play.graph.abandoned() == {slow}
    assert play.graph.live_turns() == [kept]


def test_an_answer_that_comes_after_the_client_went_on_is_abandoned():
    play = Play()
    early, late = play.graph.match(START, TOOLS), play.graph.match(START, TOOLS)
    play.answer(early, FIRST)
    play.ask(HISTORY, SECOND)
    lost = play.answer(late, Message("assistant", "too late"))
    assert play.graph.abandoned() == {lost}


def test_other_new_messages_are_no_retry():
    play = two_turns()
    play.ask((*START, FIRST, result("call_1", "other")), Message("assistant", "else"))
    assert play.graph.abandoned() == set()


def test_several_answers_asked_for_on_purpose_all_count():
    play = Play()
    match = play.graph.match(START, TOOLS)
    play.answer(match, FIRST, request="1")
    play.answer(play.graph.match(START, TOOLS), SECOND, request="2")
    assert len(play.graph.live_turns()) == 2


# --- the log, and the cost -----------------------------------------------------------------------


def test_a_graph_made_from_its_log_goes_on_where_the_other_one_stood():
    play = two_turns()
    play.ask(START, Message("assistant", "afresh \ud800 \u2028"))
    lines = [json.dumps(play.graph.to_log(turn)) for turn in play.graph.turns]
    graph = MessageGraph.from_log(map(json.loads, lines))
    assert [json.dumps(graph.to_log(turn)) for turn in graph.turns] == lines
    assert graph.counters() == play.graph.counters()
    history = [dropped(message) for message in longer(result("call_2", "x"))]
    match, other = graph.match(history, TOOLS), play.graph.match(history, TOOLS)
    assert match.turn is graph.turns[1]
    assert (match.history, match.reason, match.order) == (
        other.history,
        other.reason,
        other.order,
    )
    assert graph.ids(graph.turns[1]) == play.graph.ids(play.graph.turns[1])


@pytest.mark.parametrize(
    "damage",
    [{"turn": 3}, {"parent": 1}, {"parent": -1}, {"sampled_ids": [-1]}, {"reply": None}],
)
def test_a_damaged_log_is_refused_by_the_number_of_the_record(damage):
    play = two_turns()
    records = [play.graph.to_log(turn) for turn in play.graph.turns]
    with pytest.raises(UsageError, match="record 1 of a session log"):
        MessageGraph.from_log([records[0], records[1] | damage])


def test_the_cost_of_a_turn_does_not_grow_with_the_conversation():
    def turn_times() -> list[float]:
        play, times = Play(), []
        history: tuple[Message, ...] = START
        for number in range(120):
            reply = called(f"turn {number}", (f"call_{number}", '{"guess":"CRANE"}'), reasoning="r")
            request = [replace(dropped(message)) for message in history]  # as new as from the wire
            started = time.perf_counter()
            match = play.graph.match(request, TOOLS)
            play.answer(
                match, reply, prompt_ids=play.prompt(match, 100), extension=match.matched > 0
            )
            times.append(time.perf_counter() - started)
            history = (*history, reply, result(f"call_{number}", "XXYXX"))
        assert play.graph.counters()["extended"] == 119
        return times

    runs = [turn_times() for _ in range(3)]
    best = [min(times) for times in zip(*runs, strict=True)]
    # About 2 times here; reading 120 turns message by message would be 30 times.
    assert min(best[110:]) < 10 * min(best[1:11])


def test_a_graph_that_kept_nothing_for_a_next_turn_reads_and_goes_on_the_same():
    kept, released = two_turns(), two_turns()
    released.graph.release()
    going_on = longer(result("call_2", "GGGGG"))
    assert released.graph.ids(released.graph.turns[1]) == kept.graph.ids(kept.graph.turns[1])
    for play in (kept, released):
        play.graph.release()
        match = play.graph.match([dropped(message) for message in going_on], TOOLS)
        assert (match.turn, match.history) == (play.graph.turns[1], going_on)
        play.ask(going_on, called("Done."))
    assert released.graph.counters() == kept.graph.counters()
    assert [turn.extends for turn in released.graph.turns] == [False, True, True]
