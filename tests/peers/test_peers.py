"""Both ways across with agentcore-rl-toolkit: its trainer with our agent, our trainer with its agent."""

import asyncio
import json

import pytest

from environments.wordle.dataset import make_rows
from rft_agent_sdk.gateway import Gateway, GatewayServer, ScriptedSampler
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.training.agents import AgentCoreAgent, HttpAgent
from rft_agent_sdk.training.rollouts import Rollouts, RolloutSettings
from rft_agent_sdk.types import Message, Outcome, SamplingParams, ToolCall
from tests.peers.runtime import ARN, PEER, our_agent, runtime, their_agent, train

pytestmark = pytest.mark.peers

ROW = make_rows("train", 1)[0]
ANSWER = json.loads(ROW["prompt"])["answer"]
WORDS = ["slate", ANSWER]
PAYLOADS = [
    ROW,  # the column of a dataset, a task string
    {
        "prompt": "Find the hidden word.",
        "answer": ANSWER,
    },  # fields of their own, as that toolkit has it
]
SAMPLING = SamplingParams(temperature=1.0, max_tokens=512)


@pytest.fixture(scope="module", autouse=True)
def peer_is_there():
    assert PEER.exists(), f"no {PEER}: run `make test-peers`, which makes it"


@pytest.fixture(scope="module")
def math_agent():
    with their_agent() as url:
        yield url


def solver(messages, tools):
    """Multiply with the tool, then tell what it said."""
    if messages[-1].role == "tool":
        return Message("assistant", f"That makes\n#### {messages[-1].text}")
    assert [tool.name for tool in tools] == ["multiply"]
    return Message("assistant", "", None, (ToolCall("multiply", '{"a": 12, "b": 7}', "call_1"),))


def play(agent_of, payload):
    """Play one rollout by our trainer's runner; return it and what is left open at the gateway."""
    renderer = load_renderer()
    gateway = Gateway(renderer=renderer, sampler=ScriptedSampler(solver, renderer))

    async def work(url):
        settings = RolloutSettings(url, deadline_s=60, retries=0)
        async with Rollouts(gateway, agent_of(), settings) as rollouts:
            return await rollouts.run_rollout(payload, SAMPLING)

    with GatewayServer(gateway) as server:
        played = asyncio.run(work(server.url))
    return played, gateway.stats()["sessions"]["open"]


@pytest.mark.parametrize("mode", ["tree", "linear"])
def test_their_trainer_plays_our_entrypoint_at_their_gateway(mode):
    with our_agent() as agent, runtime(agent) as (seen, url):
        arguments = [mode, ARN, json.dumps(WORDS), json.dumps(PAYLOADS)]
        found = [json.loads(line) for line in train(arguments, url)]
    assert len(found) == len(PAYLOADS)
    for one in found:
        assert one["result"]["_rft"]["outcome"] == "completed", one
        assert one["result"]["_rft"]["components"]["solved"] == 1
        assert one["reward"] == one["result"]["reward"] > 0
        assert len(one["sampled"]) == len(WORDS)
        trained = [token for record in one["records"] for token in record["trained"]]
        assert trained == [token for turn in one["sampled"] for token in turn]
        assert {record["reward"] for record in one["records"]} == {one["reward"]}
    assert len(set(seen.invoked)) == len(PAYLOADS)
    assert seen.stopped == seen.invoked


@pytest.mark.parametrize(("answer", "reward"), [("84", 1.0), ("85", 0.0)])
def test_their_math_agent_plays_at_our_gateway(math_agent, answer, reward):
    payload = {"prompt": "What is 12 times 7?", "answer": answer}
    played, still_open = play(lambda: HttpAgent(math_agent), payload)
    assert_solved(played, reward)
    assert still_open == 0


def test_their_math_agent_plays_at_our_gateway_behind_a_runtime(math_agent, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    payload = {"prompt": "What is 12 times 7?", "answer": "84"}
    with runtime(math_agent) as (seen, url):
        played, still_open = play(lambda: AgentCoreAgent(ARN, endpoint_url=url), payload)
    assert_solved(played, 1.0)
    assert still_open == 0
    assert seen.stopped == seen.invoked == [played.session_id]


def assert_solved(played, reward):
    """The rollout trains on both turns, in one sample, with the agent's reward."""
    trajectory = played.trajectory
    assert (trajectory.outcome, played.reward) == (Outcome.COMPLETED, reward)
    assert played.trains
    assert trajectory.turns == 2
    (sample,) = trajectory.samples
    renderer = load_renderer()
    said = renderer.write(Message("assistant", "That makes\n#### 84"), prompt=sample.token_ids)
    pairs = zip(sample.token_ids, sample.loss_mask, strict=True)
    assert [token for token, on in pairs if on][-len(said) :] == said
