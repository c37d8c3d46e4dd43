"""The parts of the bench that do not need the registry."""

import asyncio
import json
import urllib.request
from typing import Any

import openai
import pytest
import uvloop

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.serving import asgi_app
from tests.bench import gateway_speed, rollouts_agent, rollouts_loop
from tests.bench.__main__ import main
from tests.bench.gateway_load import alone, saturate
from tests.bench.gateway_ours import SAMPLING, NullSampler
from tests.bench.policy_server import policy_server
from tests.bench.sides import OURS, PEER
from tests.bench.table import Row, render
from tests.servers import Answer, ScriptedServer, serving


@pytest.mark.parametrize(
    ("row", "times"),
    [
        (Row("less is better", 2.0, 6.0, "s"), 3.0),
        (Row("more is better", 6.0, 2.0, "1/s", more_is_better=True), 3.0),
        (Row("worse", 6.0, 3.0, "s"), 0.5),
    ],
)
def test_a_row_says_how_often_ours_is_the_better_one(row, times):
    assert row.times_better == times


def test_the_table_holds_both_sides_and_what_is_asked():
    table = render([Row("size", 99.4, 1709.0, "MB", bar=6)])
    assert table.splitlines()[-1] == "| size | 99.4 | 1,709 | MB | 17.2 | 6 |"


def test_a_row_without_another_side_leaves_its_cells_empty():
    table = render([Row("rollouts", 12.34, None, "1/s", more_is_better=True)])
    assert table.splitlines()[-1] == "| rollouts | 12.3 |  | 1/s |  |  |"


def test_an_unknown_part_is_refused_with_the_known_ones(capsys):
    assert main(["speed"]) == 2
    assert "bundle" in capsys.readouterr().err


def test_both_sides_have_an_agent_and_its_dependencies():
    for side in (OURS, PEER):
        assert (side.source / "main.py").is_file()
        assert any(name.startswith("bedrock-agentcore") for name in side.dependencies)


def test_the_copied_agent_holds_files_and_no_links(tmp_path):
    OURS.copy_source(tmp_path)
    assert (tmp_path / "rft_agent_sdk" / "handler.py").is_file()
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert not list(tmp_path.rglob("__pycache__"))


TOOLS = [{"type": "function", "function": {"name": "guess_word", "parameters": {}}}]


@pytest.mark.parametrize("stream", [False, True])
def test_the_scripted_policy_guesses_the_answer_once(stream):
    with policy_server("stoic") as seen:
        client = openai.OpenAI(base_url=f"{seen.url}/v1", api_key="unused", max_retries=0)
        messages = [{"role": "user", "content": "go"}]
        ask: dict[str, Any] = {"model": "default", "tools": TOOLS, "messages": messages}
        with client:
            if stream:
                with client.chat.completions.create(**ask, stream=True) as events:
                    call = next(iter(events)).choices[0].delta.tool_calls[0]
            else:
                call = client.chat.completions.create(**ask).choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"guess": "stoic"}
        assert not seen.is_whole_rollout()
        for path in ("/complete-rollout", "/update-reward"):
            request = urllib.request.Request(seen.url + path, data=b"{}", method="POST")
            with urllib.request.urlopen(request) as response:
                assert response.status == 200
        assert seen.is_whole_rollout()


@pytest.mark.parametrize("is_alone", [True, False])
def test_the_load_generator_plays_whole_sessions_that_are_captured_in_one_piece(is_alone):
    sampler = NullSampler()
    gateway = Gateway(renderer=load_renderer(), sampler=sampler)
    with GatewayServer(gateway) as server:
        sessions = [gateway.open(sampling=SAMPLING) for _ in range(3)]
        keys, port = [session.secret for session in sessions], int(server.url.rpartition(":")[2])
        if is_alone:
            times = uvloop.run(alone(port, keys, 4))
            assert [len(session) for session in times] == [4, 4, 4]
        else:
            assert uvloop.run(saturate(port, keys, clients=2, turns=4)) > 0
        for session in sessions:
            trajectory = session.seal()
            assert trajectory.turns == 4
            assert trajectory.counters["extended"] == 3
            assert len(trajectory.samples) == 1
            assert trajectory.trained_tokens == 4 * len(sampler.ids)


def test_a_batch_of_rollouts_is_played_to_its_end_and_measured():
    with serving(asgi_app(rollouts_agent.invoke)) as url:
        batch = asyncio.run(rollouts_loop.play(url, 2 * rollouts_loop.GROUP))
    assert rollouts_loop.Batch.load(batch.dump()) == batch
    assert 0 < batch.runner_cpu_s < batch.after.cpu_s - batch.before.cpu_s
    assert 0 < batch.before.resident_mb <= batch.after.peak_mb


def test_rollouts_that_failed_are_not_measured():
    with (
        ScriptedServer(lambda seen, count: Answer(500)) as agent,
        pytest.raises(UsageError, match="sampled nothing"),
    ):
        asyncio.run(rollouts_loop.play(agent.url, rollouts_loop.GROUP))


def test_the_peer_gateway_has_a_server_and_its_dependencies():
    assert (gateway_speed.PEER.source / "server.py").is_file()
    assert "agentcore-rl-toolkit[gateway]==0.2.0" in gateway_speed.PEER.dependencies
