"""Playing an episode with Strands: what counts when the model stops, drifts, or is cut off."""

import json
import threading
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
import openai
import pytest

from rft_agent_sdk import Outcome, Reward, Rollout, TaskError, ToolResult, ToolSpec, play
from rft_agent_sdk.context import rollout_context
from rft_agent_sdk.environment import Environment, Episode
from rft_agent_sdk.errors import EnvironmentFault, RewardError, RolloutOver
from rft_agent_sdk.faults import classify
from rft_agent_sdk.payload import parse_request
from tests.servers import Answer, ScriptedServer, completion

ADD = ToolSpec(
    "add",
    "Add a number to the sum.",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)


@dataclass
class Sum(Episode):
    """Reach 3 by adding; each call counts."""

    system_prompt: str = "You add."
    prompt: str = "Reach 3."
    tools: list = field(default_factory=lambda: [ADD])
    total: int = 0
    calls: list = field(default_factory=list)
    recovered: int = 0
    unknown: list = field(default_factory=list)

    @property
    def done(self):
        return self.total >= 3

    @property
    def acted(self):
        return bool(self.calls)

    def call(self, name, arguments, *, recovered=False):
        if arguments.get("n") == 666:
            raise ZeroDivisionError("the environment broke")
        if name != "add":
            self.unknown.append(name)
            return ToolResult("no such tool", is_error=True)
        if not isinstance(arguments.get("n"), int):
            return ToolResult("n must be an integer", is_error=True)
        self.calls.append(arguments["n"])
        self.recovered += recovered
        self.total += arguments["n"]
        return ToolResult(f"sum={self.total}")

    def reward(self, outcome):
        return Reward(self.total - 0.01 * self.recovered, {"calls": float(len(self.calls))})


class Sums(Environment):
    name = "sums"
    floor = -1.0

    def __init__(self):
        self.episodes = []

    def start(self, task):
        if task == "bad":
            raise TaskError("wanted another task")
        if task == "broken":
            raise KeyError("x")
        self.episodes.append(Sum())
        return self.episodes[-1]


def add(n, text=""):
    return completion(text, calls=[("add", json.dumps({"n": n}))])


def played(replies, *, task="go", budget_s=30, environment=None, **kwargs):
    """Play against a server that answers with these replies in turn, then `Done.`."""
    script = [reply if isinstance(reply, Answer) else Answer(body=reply) for reply in replies]

    def answer(seen, count):
        return script[count] if count < len(script) else completion("Done.")

    environment = environment or Sums()
    with ScriptedServer(answer) as server:
        request = parse_request(
            {"prompt": task, "_config": {"base_url": server.url, "api_key": "k"}}
        )
        rollout = Rollout(request, budget_s=budget_s)
        with rollout_context(rollout):
            reward = play(environment, rollout, **kwargs)
    return reward, rollout, server, environment.episodes[-1]


def test_a_game_is_played_by_tool_calls_and_no_call_is_made_once_it_is_over():
    reward, rollout, server, episode = played([add(1), add(2)])
    assert reward.total == 3
    assert episode.calls == [1, 2]
    assert len(server.samples) == 2
    assert rollout.outcome is Outcome.COMPLETED
    assert rollout.calls.succeeded == 2


def test_parallel_calls_are_played_in_order():
    both = completion("", calls=[("add", '{"n": 1}'), ("add", '{"n": 2}')])
    _, _, server, episode = played([both])
    assert episode.calls == [1, 2]
    assert len(server.samples) == 1


def test_the_conversation_is_one_growing_history():
    _, _, server, _ = played([add(1), add(1), add(1)])
    bodies = [seen.json for seen in server.samples]
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert len(after["messages"]) == len(before["messages"]) + 2


@pytest.mark.parametrize(
    "cut",
    [
        completion("hmm hmm", finish="length"),
        {**completion("", calls=[("add", '{"n')], finish="length")},
    ],
)
def test_a_token_limit_in_mid_game_keeps_what_was_played(cut):
    reward, rollout, _, episode = played([add(1), cut])
    assert reward.total == 1
    assert episode.calls == [1]
    assert rollout.outcome is Outcome.TRUNCATED
    assert rollout.calls.truncated == 1


def test_a_context_overflow_is_a_truncation():
    overflow = Answer(
        400,
        {
            "error": {
                "message": "maximum context length exceeded",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
    )
    reward, rollout, server, _ = played([add(1), overflow])
    assert reward.total == 1
    assert rollout.outcome is Outcome.TRUNCATED
    assert len(server.samples) == 2  # nothing was summarised or dropped for another try


def test_a_call_written_as_text_is_played_and_answered_in_the_same_conversation():
    text = '{"name": "add", "arguments": {"n": 1}}'
    reward, _, server, episode = played([completion(text), add(2)])
    assert episode.calls == [1, 2]
    assert episode.recovered == 1
    assert reward.total == pytest.approx(2.99)
    assert server.samples[1].json["messages"][-1]["role"] == "user"
    assert "sum=1" in json.dumps(server.samples[1].json["messages"][-1])


def test_a_policy_that_never_acts_gets_one_more_conversation():
    _, _, server, episode = played([completion("I shall think."), add(3)])
    assert episode.calls == [3]
    first, second = (seen.json["messages"] for seen in server.samples)
    assert len(second) == len(first) == 2
    assert second[0] == first[0]
    assert second[1] != first[1]


def test_a_policy_that_never_acts_twice_is_done():
    reward, rollout, server, episode = played([])
    assert len(server.samples) == 2
    assert episode.calls == []
    assert reward.total == 0
    assert rollout.outcome is Outcome.COMPLETED


@dataclass
class CreditedSum(Sum):
    """Each call earns a tenth of what it adds."""

    credits: list = field(default_factory=list)

    def call(self, name, arguments, *, recovered=False):
        before = self.total
        result = super().call(name, arguments, recovered=recovered)
        self.credits.append((self.total - before) / 10)
        return result


class CreditedSums(Sums):
    def start(self, task):
        self.episodes.append(CreditedSum())
        return self.episodes[-1]


@pytest.mark.parametrize(
    ("replies", "per_turn"),
    [
        ([add(1), add(2)], (0.1, 2.9)),  # the last turn has the rest
        ([add("x"), add(1), add(2)], (0.0, 0.1, 2.9)),
        ([completion("", calls=[("add", '{"n": 1}')] * 2), add(1)], (0.2, 2.8)),
        ([add(1)], (0.1, 0.9)),  # then it said `Done.`: a turn without a call
        ([completion("Hm."), add(1)], (0.0, 0.1, 0.9)),  # in the second conversation
        ([completion('{"name": "add", "arguments": {"n": 1}}'), add(2)], (0.1, 2.89)),
        ([add(3)], None),  # one turn has the whole reward
    ],
)
def test_what_calls_earned_by_themselves_is_the_reward_of_their_turn(replies, per_turn):
    reward, rollout, _, _ = played(replies, environment=CreditedSums())
    if per_turn is None:
        assert reward.per_turn is None
    else:
        assert reward.per_turn == pytest.approx(per_turn)
        assert sum(reward.per_turn) == pytest.approx(reward.total)
        assert len(reward.per_turn) == rollout.calls.succeeded


def test_credits_for_another_number_of_calls_are_refused():
    class Forgetful(CreditedSums):
        def start(self, task):
            episode = super().start(task)
            episode.credits = [0.5]
            return episode

    with pytest.raises(RewardError, match="one credit for each of the episode's 2 calls, got 3"):
        played([add(1), add(2)], environment=Forgetful())


def test_arguments_that_are_no_json_reach_the_environment_as_a_bad_call():
    _, _, _, episode = played([completion("", calls=[("add", "{oops")]), add(3)])
    assert episode.calls == [3]


def test_half_a_surrogate_pair_in_a_call_is_one_bad_call_and_no_more():
    broken = completion("", calls=[("add", '{"n": "\\ud83d \\u00e9"}')])
    _, _, server, episode = played([broken, add(3)])
    assert episode.calls == [3]
    assert (
        "? \u00e9"
        in server.samples[1].json["messages"][2]["tool_calls"][0]["function"]["arguments"]
    )


def test_an_environment_that_breaks_in_a_tool_ends_the_rollout_as_its_fault():
    with pytest.raises(EnvironmentFault, match="ZeroDivisionError") as caught:
        played([add(666), add(3)])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("part", ["prompt", "tools", "done", "acted", "retry_prompt"])
def test_an_environment_that_breaks_in_any_part_ends_the_rollout_as_its_fault(part):
    def breaks(episode):
        raise ZeroDivisionError("the environment broke")

    class Broken(Sum):
        def __init__(self):
            self.total, self.calls, self.recovered = 0, [], 0

    members = {"system_prompt": "", "prompt": "Reach 3.", "tools": [ADD], part: property(breaks)}
    for name, value in members.items():
        setattr(Broken, name, value)

    class BrokenSums(Sums):
        def start(self, task):
            return Broken()

    with pytest.raises(EnvironmentFault, match="ZeroDivisionError"):
        played([], environment=BrokenSums())


@pytest.mark.parametrize(("task", "error"), [("bad", TaskError), ("broken", EnvironmentFault)])
def test_a_task_that_cannot_start_is_the_environments_fault(task, error):
    with pytest.raises(error) as caught:
        played([], task=task)
    rollout = Rollout(parse_request({"prompt": "x", "_config": {"base_url": "http://127.0.0.1:1"}}))
    assert classify(caught.value, rollout) is Outcome.ENVIRONMENT_ERROR


def test_a_call_of_an_unknown_tool_is_the_episodes_to_answer(caplog):
    unknown = completion("", calls=[("fly", '{"to": "mars"}')])
    _, _, server, episode = played([unknown, add(3)])
    assert episode.unknown == ["fly"]
    assert "no such tool" in json.dumps(server.samples[1].json["messages"][-1])
    assert "ERROR" not in caplog.text


def test_an_endless_episode_is_bounded():
    _, _, server, _ = played([add(0)] * 50, max_turns=5)
    assert len(server.samples) == 5


def test_throttling_is_waited_out_by_the_client_and_not_by_the_agent():
    slow = Answer(429, {"error": {"message": "slow down"}}, headers={"retry-after-ms": "10"})
    _, rollout, _, episode = played([slow, slow, add(3)])
    assert episode.calls == [3]
    assert rollout.calls.throttled == 2


def test_a_reply_that_breaks_off_is_asked_for_again_with_the_same_history():
    broken = Answer(body=add(2), cut=60)
    _, rollout, server, episode = played([add(1), broken, broken, add(2)])
    assert episode.calls == [1, 2]
    assert rollout.calls.succeeded == 2
    asked = [seen.json["messages"] for seen in server.samples]
    assert asked[1] == asked[2] == asked[3]


def test_replies_that_always_break_off_end_the_rollout():
    with pytest.raises((httpx.TransportError, openai.APIError)):
        played([Answer(body=add(2), cut=60)] * 20)


def test_no_call_starts_past_the_deadline():
    with pytest.raises(RolloutOver):
        played([Answer(body=add(1), delay_s=0.6), add(2)], budget_s=0.5)


def test_a_refused_reasoning_effort_is_dropped_for_the_endpoint_and_the_call_repeated(monkeypatch):
    monkeypatch.setenv("REASONING_EFFORT", "low")
    monkeypatch.setenv("REASONING_PROMPT_HINT", "true")
    refusal = {"error": {"message": "unknown field", "param": "reasoning_effort"}}
    _, _, server, episode = played([Answer(400, refusal), add(1), add(2)])
    efforts = [seen.json.get("reasoning_effort") for seen in server.samples]
    assert efforts == ["low", None, None]
    assert episode.calls == [1, 2]
    assert server.samples[0].json["messages"][0]["content"].endswith("Reasoning: low")


@pytest.mark.parametrize("effort", ["", "maximum", "LOW "])
def test_only_known_reasoning_efforts_are_sent(monkeypatch, effort):
    monkeypatch.setenv("REASONING_EFFORT", effort)
    _, _, server, _ = played([add(3)])
    assert server.samples[0].json.get("reasoning_effort") == ("low" if effort == "LOW " else None)


def test_an_unrelated_400_is_not_repeated():
    with pytest.raises(openai.BadRequestError):
        played([Answer(400, {"error": {"message": "no such model"}})])


def test_fifty_rollouts_play_at_once_and_each_keeps_its_own_history():
    """Each conversation is told apart by its key; the server's answers depend on nothing else."""

    def answer(seen, count):
        turn = sum(message["role"] == "assistant" for message in seen.json["messages"])
        return add(1) if turn < 3 else completion("Done.")

    with ScriptedServer(answer) as server:
        results = []

        def one(i):
            config = {"base_url": server.url, "api_key": f"key-{i}"}
            rollout = Rollout(parse_request({"prompt": "go", "_config": config}), budget_s=60)
            with rollout_context(rollout):
                results.append(play(Sums(), rollout).total)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == [3] * 50
    keys = [seen.headers["authorization"] for seen in server.samples]
    assert all(keys.count(f"Bearer key-{i}") == 3 for i in range(50))
