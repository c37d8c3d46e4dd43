"""A gateway that is killed in mid-rollout and started again: nothing is lost, nothing is doubled."""

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from environments.wordle import environment as wordle
from rft_agent_sdk import Outcome
from rft_agent_sdk.gateway import Gateway, GatewayServer, RemoteGateway
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.trajectory import Trajectory
from tests.gateway.players import GATES, KEY, GatewayProcess, gated, gateway_process

RENDERER = load_renderer()
WORDS = ("wound", "stoic", "mamma", "jolly", "fuzzy")


def play(config: Any, word: str, before_turn: Any = lambda turn, request: None) -> None:
    """Play a game of Wordle with OpenAI's own client, which sends again what was not answered."""
    episode = wordle.start(json.dumps({"prompt": "Play.", "answer": word}))
    messages: list[Any] = [
        {"role": "system", "content": episode.system_prompt},
        {"role": "user", "content": episode.prompt},
    ]
    request: Any = {"model": "m", "tools": [tool.as_openai() for tool in episode.tools]}
    with openai.OpenAI(
        base_url=config["base_url"], api_key=config["api_key"], max_retries=12, timeout=30
    ) as api:
        turn = 0
        while not episode.done:
            before_turn(turn, {**request, "messages": messages})
            reply = api.chat.completions.create(messages=messages, **request).choices[0].message
            messages.append(reply.model_dump(exclude_none=True, exclude={"reasoning_content"}))
            for call in reply.tool_calls or ():
                assert call.type == "function"
                result = episode.call(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
            turn += 1


def undisturbed(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trajectory:
    """The trajectory of the same game at a gateway that nobody kills."""
    folder = tmp_path / f"undisturbed-{word}"
    folder.mkdir()
    monkeypatch.setenv(GATES, str(folder))
    gateway = Gateway(renderer=RENDERER, sampler=ScriptedSampler(gated, RENDERER))
    with GatewayServer(gateway) as server:
        session = gateway.open(task=word)
        play(session.config(server.url), word)
        return session.seal(Outcome.COMPLETED, [1.0])


def trained(trajectory: Trajectory) -> list[Any]:
    return [
        (sample.token_ids, sample.loss_mask, sample.logprobs, sample.spans, sample.weight)
        for sample in trajectory.samples
    ]


def check_same(found: Trajectory, wanted: Trajectory) -> None:
    assert trained(found) == trained(wanted)
    for name in ("turns", "task", "reward", "outcome"):
        assert getattr(found, name) == getattr(wanted, name), name
    for name in ("turns", "healed", "extended", "abandoned", "reasoning_restored"):
        assert found.counters[name] == wanted.counters[name], name


def logged_turns(folder: Path) -> int:
    return sum(log.read_bytes().count(b'{"turn":{') for log in folder.glob("*.jsonl"))


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def send_and_read_nothing(gateway: GatewayProcess, secret: str, request: Any) -> socket.socket:
    """Ask for a turn as a client does whose network fails before the answer."""
    body = json.dumps(request).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.slow
def test_a_rollout_outlives_a_gateway_killed_between_turns_while_sampling_and_before_its_answer_arrives(
    tmp_path, monkeypatch
):
    word = "fuzzy"
    wanted = undisturbed(word, tmp_path, monkeypatch)
    assert wanted.turns >= 4
    gates, logs = tmp_path / "gates", tmp_path / "logs"
    gates.mkdir()
    (gates / "closed-1").touch()
    asked = gates / "asked"
    killers = []

    def kill_while_sampling() -> None:
        until(lambda: asked.read_text().endswith("1\n"))
        gateway.kill()
        (gates / "closed-1").unlink()
        gateway.start()

    def disturb(turn: int, request: Any) -> None:
        if turn == 1:
            killers.append(threading.Thread(target=kill_while_sampling))
            killers[0].start()
        elif turn == 2:
            killers[0].join()
            gateway.restart()
        elif turn == 3:
            with send_and_read_nothing(gateway, session.secret, request):
                until(lambda: logged_turns(logs) == 4)
                gateway.restart()

    with (
        gateway_process("gated", "--log-dir", str(logs), gates=gates) as gateway,
        RemoteGateway(gateway.url, KEY) as far,
    ):
        session = far.open(task=word)
        play(session.config(), word, disturb)
        gateway.restart()
        found = session.seal(Outcome.COMPLETED, [1.0])
        gateway.restart()
        assert session.seal() == found
        assert far.stats()["sessions"] == {"open": 0, "sealed": 1, "dropped": 0}
        session.drop()
        assert list(logs.glob("*.jsonl")) == []
    check_same(found, wanted)
    # Sampled again was the one turn alone that nobody had been told of.
    turns = [str(turn) for turn in range(wanted.turns)]
    assert asked.read_text().split() == [*turns[:2], *turns[1:]]
    assert session.secret not in "".join(path.read_text() for path in gates.iterdir())


@pytest.mark.slow
def test_many_rollouts_outlive_kills_at_any_moment(tmp_path, monkeypatch):
    wanted = {word: undisturbed(word, tmp_path, monkeypatch) for word in WORDS}
    gates, logs = tmp_path / "gates", tmp_path / "logs"
    gates.mkdir()
    with (
        gateway_process("gated", "--log-dir", str(logs), gates=gates) as gateway,
        RemoteGateway(gateway.url, KEY) as far,
    ):
        sessions = {word: far.open(task=word) for word in WORDS}
        players = [
            threading.Thread(target=play, args=(sessions[word].config(), word)) for word in WORDS
        ]
        for player in players:
            player.start()
        for turns in (3, 9, 14):  # of all rollouts together; whatever is on its way then is cut off
            until(lambda turns=turns: logged_turns(logs) >= turns)
            assert any(player.is_alive() for player in players)
            gateway.restart()
        for player in players:
            player.join(120)
            assert not player.is_alive()
        for word in WORDS:
            check_same(sessions[word].seal(Outcome.COMPLETED, [1.0]), wanted[word])


def test_the_log_of_a_session_is_its_owners_alone(tmp_path):
    with gateway_process("marked", "--log-dir", str(tmp_path)) as gateway:
        with RemoteGateway(gateway.url, KEY) as far:
            session = far.open(task="t")
        (log,) = tmp_path.glob("*.jsonl")
        assert log.stat().st_mode & 0o077 == 0
        assert log.stat().st_uid == os.getuid()
        assert session.secret not in log.read_text()
        assert KEY not in log.read_text()
