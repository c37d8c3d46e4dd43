"""From turns to training samples: exactly the sampled tokens, each once."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.graph import Match, MessageGraph
from rft_agent_sdk.gateway.record import build_trajectory, split_rewards
from rft_agent_sdk.gateway.turn_node import TurnNode
from rft_agent_sdk.trajectory import Sample, Trajectory
from rft_agent_sdk.types import Message, Outcome
from tests.gateway.graph_play import GO, START, SYSTEM, TOOLS, Play, called, dropped, result


def record(graph: MessageGraph, **options) -> Trajectory:
    options = {"rollout_id": "r1", "outcome": Outcome.COMPLETED} | options
    return build_trajectory(graph, **options)


def trained(sample: Sample) -> list[tuple[int, float]]:
    rows = zip(sample.token_ids, sample.loss_mask, sample.logprobs, strict=True)
    return [(token, logprob) for token, mask, logprob in rows if mask]


def stripped_thinking(second_logprobs=(-0.5, -0.6), extension: bool | None = None) -> Play:
    """Two turns whose template strips the first one's reasoning: the second extends nothing."""
    play = Play()
    first = called("12", reasoning="10 11")
    play.answer(
        play.graph.match((GO,)),
        first,
        prompt_ids=[1, 2, 3],
        sampled_ids=[10, 11, 12, 99],
        logprobs=[-0.1, -0.2, -0.3, -0.4],
    )
    play.answer(
        play.graph.match((GO, dropped(first), Message("user", "next"))),
        Message("assistant", "30"),
        prompt_ids=[1, 2, 3, 12, 99, 198, 20, 21],
        sampled_ids=[30, 99],
        logprobs=list(second_logprobs),
        extension=extension,
    )
    return play


# --- samples -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [None, False, True])
def test_a_turn_that_extends_nothing_gives_a_second_sample(extension):
    trajectory = record(stripped_thinking(extension=extension).graph, reward=0.7)
    one, two = trajectory.samples
    assert one.token_ids == (1, 2, 3, 10, 11, 12, 99)
    assert one.loss_mask == (0, 0, 0, 1, 1, 1, 1)
    assert one.logprobs == (0.0, 0.0, 0.0, -0.1, -0.2, -0.3, -0.4)
    assert two.token_ids == (1, 2, 3, 12, 99, 198, 20, 21, 30, 99)
    assert two.loss_mask == (0, 0, 0, 0, 0, 0, 0, 0, 1, 1)
    assert trained(two) == [(30, -0.5), (99, -0.6)]
    assert {(sample.rollout_id, sample.reward) for sample in (one, two)} == {("r1", 0.7)}
    assert trajectory.trained_tokens == 6
    assert (one.weight, two.weight) == (4 / 6, 2 / 6)
    assert trajectory.counters["invariant_violations"] == (extension is True)


def test_a_history_kept_linear_gives_one_sample():
    play = Play()
    first = called("12", reasoning="10 11")
    play.answer(play.graph.match((GO,)), first, prompt_ids=[1, 2, 3], sampled_ids=[10, 11, 12, 99])
    match = play.graph.match((GO, dropped(first), Message("user", "next")))
    prompt = [*play.graph.ids(play.graph.turns[0]), 198, 20, 21]
    play.answer(
        match, Message("assistant", "30"), prompt_ids=prompt, sampled_ids=[30, 99], extension=True
    )
    (sample,) = record(play.graph).samples
    assert sample.token_ids == (1, 2, 3, 10, 11, 12, 99, 198, 20, 21, 30, 99)
    assert sample.loss_mask == (0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1)
    assert [(span.turn, span.start, span.end) for span in sample.spans] == [(0, 3, 7), (1, 10, 12)]
    assert sample.messages == (GO, first, Message("user", "next"), Message("assistant", "30"))
    assert sample.weight == 1.0


def test_an_abandoned_answer_is_neither_a_sample_nor_a_turn():
    play = Play()
    for text, token in (("A", 10), ("B", 11)):
        play.answer(
            play.graph.match((GO,)),
            Message("assistant", text),
            prompt_ids=[1, 2],
            sampled_ids=[token, 99],
        )
    match = play.graph.match((GO, Message("assistant", "B"), Message("user", "next")))
    play.answer(
        match,
        Message("assistant", "C"),
        prompt_ids=[1, 2, 11, 99, 198, 5],
        sampled_ids=[12, 99],
    )
    trajectory = record(play.graph, per_turn=[0.25, 0.5])
    (sample,) = trajectory.samples
    assert sample.token_ids == (1, 2, 11, 99, 198, 5, 12, 99)
    assert sample.loss_mask == (0, 0, 1, 1, 0, 0, 1, 1)
    assert (trajectory.turns, trajectory.counters["abandoned"]) == (2, 1)
    assert [span.turn for span in sample.spans] == [0, 1]
    assert trajectory.reward == 0.75


def test_a_whole_reply_echoed_with_both_its_calls_gives_one_sample():
    play = Play()
    reply = called("Two openers.", ("call_a", '{"guess":"CRANE"}'), ("call_b", '{"guess":"SLOTH"}'))
    play.ask(START, reply)
    results = (result("call_a", "XXYXX"), result("call_b", "XXXXX"))
    play.ask((*START, dropped(reply), *results), Message("assistant", "done"))
    (sample,) = record(play.graph).samples
    assert (len(sample.spans), sample.trained_tokens) == (2, 8)


def test_a_turn_that_two_branches_share_trains_in_the_first_only():
    play = Play()
    shared = play.ask(START, called("shared"))
    play.ask((*START, shared.reply, Message("user", "left")), called("one"))
    play.ask((*START, shared.reply, Message("user", "right")), called("two"))
    one, two = record(play.graph).samples
    assert one.token_ids[:7] == two.token_ids[:7]
    assert (one.loss_mask[3:7], two.loss_mask[3:7]) == ((1,) * 4, (0,) * 4)
    assert two.logprobs[3:7] == (0.0,) * 4
    assert [span.turn for span in two.spans] == [0, 2]
    assert (one.weight, two.weight) == (8 / 12, 4 / 12)


def test_a_token_without_a_logprob_does_not_train_nor_weigh():
    trajectory = record(stripped_thinking(second_logprobs=(None, -0.6)).graph)
    one, two = trajectory.samples
    assert trained(two) == [(99, -0.6)]
    assert (one.weight, two.weight) == (4 / 5, 1 / 5)
    assert trajectory.counters["logprobs_missing"] == 1


def test_samples_with_nothing_to_train_still_weigh_one_together():
    play = Play()
    for start in ((GO,), (SYSTEM, GO)):
        play.answer(play.graph.match(start), called("x"), logprobs=None)
    assert [sample.weight for sample in record(play.graph).samples] == [0.5, 0.5]


def test_a_rollout_without_a_turn_has_no_samples():
    trajectory = record(MessageGraph(), outcome=Outcome.NO_SAMPLING)
    assert (trajectory.samples, trajectory.turns, trajectory.reward) == ((), 0, None)


def test_a_sample_is_truncated_when_its_last_turn_is():
    play = Play()
    first = play.answer(play.graph.match(START), called("cut"), finish_reason="length", version=3)
    (sample,) = record(play.graph).samples
    assert (sample.is_truncated, sample.spans[0].finish_reason) == (True, "length")
    play.answer(play.graph.match((*START, first.reply, GO)), called("whole"), version=4)
    trajectory = record(play.graph)
    assert not trajectory.samples[0].is_truncated
    assert trajectory.versions == (3, 4)


# --- rewards -------------------------------------------------------------------------------------


def test_per_turn_rewards_reach_the_spans_of_their_turns():
    trajectory = record(stripped_thinking().graph, per_turn=[0.5, -0.25])
    assert [span.reward for sample in trajectory.samples for span in sample.spans] == [0.5, -0.25]
    assert (trajectory.reward, trajectory.per_turn) == (0.25, (0.5, -0.25))


@pytest.mark.parametrize("rewards", [[], [1.0], [1.0, 2.0, 3.0]])
def test_another_number_of_rewards_than_turns_is_refused_with_both_counts(rewards):
    with pytest.raises(UsageError, match=f"got {len(rewards)} rewards for 2 turns"):
        record(stripped_thinking().graph, per_turn=rewards)


@pytest.mark.parametrize("options", [{"reward": math.nan}, {"per_turn": [0.0, math.inf]}])
def test_a_reward_that_is_not_finite_is_refused(options):
    with pytest.raises(UsageError, match="must be finite"):
        record(stripped_thinking().graph, **options)


def test_a_list_of_rewards_is_one_for_all_or_one_a_turn():
    assert split_rewards([0.5], turns=3) == (0.5, None)
    assert split_rewards([0.5, 0.25], turns=2) == (0.75, (0.5, 0.25))
    assert split_rewards([], turns=2) == (None, None)
    with pytest.raises(UsageError, match="got 2 rewards for 3 turns"):
        split_rewards([0.5, 0.25], turns=3)
    with pytest.raises(UsageError, match="finite"):
        split_rewards([math.nan], turns=1)


# --- any conversation ----------------------------------------------------------------------------

LOGPROBS = st.sampled_from([-0.5, -1.25, 0.0, None, math.nan, math.inf, -math.inf, 1e-7])


@dataclass
class Talk:
    """A client's view of one conversation: its messages, and the turn each reply came from."""

    messages: list[Message] = field(default_factory=list)
    turns: list[TurnNode | None] = field(default_factory=list)

    def say(self, message: Message, turn: TurnNode | None = None) -> None:
        self.messages.append(message)
        self.turns.append(turn)

    def expected(self) -> TurnNode | None:
        """The last turn of the history, before any reply that was edited."""
        return next((turn for turn in reversed(self.turns) if turn), None)

    def copy(self) -> Self:
        return type(self)(list(self.messages), list(self.turns))


class Conversations:
    """Clients that go on, retry, edit and drop what they like, against one graph."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.play = Play()
        self.talks: list[Talk] = []
        self.number = 0

    def name(self, what: str) -> str:
        self.number += 1
        return f"{what} {self.number}"

    def step(self, *, is_alone: bool = True) -> None:
        actions = ["start"] + ["go on", "go on", "retry", "edit", "branch"] * bool(self.talks)
        action = self.data.draw(st.sampled_from(actions), label="action")
        if action == "start":
            talk = Talk([SYSTEM], [None])
            talk.say(Message("user", self.name("task")))
        else:
            known = self.talks[-1:] if action == "go on" else self.talks
            talk = self.data.draw(st.sampled_from(known), label="talk").copy()
        if action == "retry":
            del talk.messages[-1], talk.turns[-1]
        elif action != "start":
            if action == "edit":
                self.edit(talk)
            self.answer_calls(talk)
        self.request(talk, is_alone=is_alone)
        self.talks.append(talk)

    def edit(self, talk: Talk) -> None:
        at = self.data.draw(st.integers(0, len(talk.messages) - 1), label="edited")
        talk.messages[at] = replace(talk.messages[at], text=self.name("edited"))
        # From here on nobody sampled what is there, so nothing can put reasoning back.
        talk.messages[at:] = map(dropped, talk.messages[at:])
        talk.turns[at:] = [None] * (len(talk.turns) - at)

    def answer_calls(self, talk: Talk) -> None:
        calls = list(talk.messages[-1].tool_calls)
        for call in self.data.draw(st.permutations(calls), label="results"):
            talk.say(result(call.id, self.name("result")))
        if not calls:
            talk.say(Message("user", self.name("user")))

    def request(self, talk: Talk, *, is_alone: bool) -> None:
        sent = talk.messages
        if self.data.draw(st.booleans(), label="drops reasoning"):
            sent = [dropped(message) for message in sent]
        if self.data.draw(st.booleans(), label="rewrites ids"):
            sent = [renamed(message) for message in sent]
        match = self.play.graph.match(sent, TOOLS)
        assert match.turn is talk.expected()
        check_history(match, talk)
        kind = self.data.draw(st.sampled_from(["extend", "extend", "render", "break"]))
        prompt = self.play.prompt(match) if kind == "extend" else self.play.ids(5)
        if is_alone and self.data.draw(st.booleans(), label="another request meanwhile"):
            self.step(is_alone=False)
        reply = called(
            self.name("reply"),
            *((self.name("call"), '{"n":1}') for _ in range(self.data.draw(st.integers(0, 2)))),
            reasoning=self.data.draw(st.sampled_from([None, "", "hm"])),
        )
        sampled = self.play.ids(self.data.draw(st.integers(1, 4)))
        count = len(sampled)
        turn = self.play.answer(
            match,
            reply,
            prompt_ids=prompt,
            sampled_ids=sampled,
            logprobs=self.data.draw(st.lists(LOGPROBS, min_size=count, max_size=count)),
            finish_reason=self.data.draw(st.sampled_from(["stop", "length"])),
            extension={"extend": True, "render": None, "break": True}[kind],
        )
        assert turn.extends == (kind == "extend" and match.turn is not None)
        assert turn.is_violation == (kind == "break" and match.turn is not None)
        talk.say(reply, turn)


def renamed(message: Message) -> Message:
    """Return a message with call ids of the client's own making."""
    calls = tuple(replace(call, id=f"my {call.id}") for call in message.tool_calls)
    answered = message.tool_call_id and f"my {message.tool_call_id}"
    return replace(message, tool_calls=calls, tool_call_id=answered)


def check_history(match: Match, talk: Talk) -> None:
    """The history is what was said, with our own replies as served, and results find their calls."""
    assert len(match.history) == len(talk.messages)
    known: set[str] = set()
    for recorded, said, turn in zip(match.history, talk.messages, talk.turns, strict=True):
        assert (recorded.role, recorded.text) == (said.role, said.text)
        assert turn is None or recorded == turn.reply
        assert recorded.tool_call_id is None or recorded.tool_call_id in known
        known |= {call.id for call in recorded.tool_calls}


def check_samples(play: Play, trajectory: Trajectory) -> None:
    turns = play.graph.live_turns()
    trains: Counter[tuple[int, int]] = Counter()
    for sample in trajectory.samples:
        in_spans = set()
        for span in sample.spans:
            prompt, sampled, logprobs = play.served[turns[span.turn].index]
            assert list(sample.token_ids[: span.start]) == prompt
            assert list(sample.token_ids[span.start : span.end]) == sampled
            for offset, logprob in enumerate(logprobs):
                at = span.start + offset
                in_spans.add(at)
                if sample.loss_mask[at]:
                    trains[span.turn, offset] += 1
                    assert sample.logprobs[at] == logprob
        assert sample.spans[-1].end == len(sample.token_ids)
        outside = set(range(len(sample.token_ids))) - in_spans
        assert not any(sample.loss_mask[at] for at in outside)
        masked = [
            lp for lp, mask in zip(sample.logprobs, sample.loss_mask, strict=True) if not mask
        ]
        assert not any(masked)
    valid = {
        (number, offset)
        for number, turn in enumerate(turns)
        for offset, logprob in enumerate(play.served[turn.index][2])
        if logprob is not None and -math.inf < logprob <= 0
    }
    assert trains == Counter(dict.fromkeys(valid, 1))
    assert math.isclose(math.fsum(sample.weight for sample in trajectory.samples), 1.0)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 14))
def test_whatever_clients_do_each_sampled_token_trains_exactly_as_served(data, steps):
    talks = Conversations(data)
    for _ in range(steps):
        talks.step()
    graph = talks.play.graph
    trajectory = record(graph, per_turn=[0.5] * len(graph.live_turns()))
    check_samples(talks.play, trajectory)
    log = json.loads(json.dumps([graph.to_log(turn) for turn in graph.turns], allow_nan=False))
    replayed = MessageGraph.from_log(log)
    assert record(replayed, per_turn=list(trajectory.per_turn or ())) == trajectory
    assert [replayed.to_log(turn) for turn in replayed.turns] == log
    for talk in talks.talks:
        expected = talk.expected()
        match = replayed.match([*talk.messages, Message("user", "more")], TOOLS)
        assert (match.turn and match.turn.index) == (expected and expected.index)
