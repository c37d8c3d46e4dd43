"""SIGTERM and Ctrl-C, sent to real processes: the rollouts report before the server is gone."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from bedrock_agentcore import BedrockAgentCoreApp

from rft_agent_sdk import Rollout, rft_handler
from rft_agent_sdk.errors import RolloutCancelled
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.shutdown import Running
from tests.servers import ScriptedServer, completion, managed_payload, serving
from tests.test_handler import post

ROOT = Path(__file__).parents[1]
FLOOR = -1.5

PROGRAM = """
import asyncio, json, sys, time
from bedrock_agentcore import BedrockAgentCoreApp
from rft_agent_sdk import Reward, Rollout, rft_handler, serve

server, kind, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = BedrockAgentCoreApp()
options = {} if server != "agentcore" else {"app": app, "background": kind == "background"}


class Episode:
    system_prompt, prompt, tools, done, acted = "", "go", (), False, True

    def reward(self, outcome):
        return Reward(0.25)


def begin(rollout):
    if kind == "episode":
        rollout.attach(Episode())
    messages = [{"role": "user", "content": "hello"}]
    rollout.openai().chat.completions.create(model="x", messages=messages)


def play(rollout: Rollout):
    begin(rollout)
    time.sleep(60)


async def play_async(rollout: Rollout):
    await asyncio.to_thread(begin, rollout)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if kind != "stubborn":
                raise


entrypoint = rft_handler(**options)(play_async if kind in ("async", "stubborn") else play)
if server == "agentcore":
    app.entrypoint(entrypoint)
    app.run(port=port)
elif server == "serve":
    serve(entrypoint, port=port)
else:
    asyncio.run(entrypoint(json.loads(sys.stdin.read())))
"""


@pytest.fixture
def job_runtime(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")

    def answer(seen, count):
        return completion() if "chat" in seen.path else {}

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


def wait_until(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@contextmanager
def process(server, kind, port=0):
    program = [sys.executable, "-c", PROGRAM, server, kind, str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        program,
        env=environ,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def answers(url):
    try:
        return requests.get(url + "/ping", timeout=5).ok
    except requests.ConnectionError:
        return False


@contextmanager
def running(job_runtime, server, kind, rollouts=1):
    """A server process with rollouts in the middle of their play."""
    port = free_port()
    with process(server, kind, port) as child:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url))
        responses: list[Any] = []

        def ask(i):
            responses.append(post(url, managed_payload(job_runtime.url, f"r{i}")))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(rollouts)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(job_runtime.samples) == rollouts)
        yield SimpleNamespace(child=child, url=url, responses=responses)
        for thread in threads:
            thread.join(10)


def ends(child, within_s=10.0):
    started = time.monotonic()
    code = child.wait(within_s + 5)
    assert time.monotonic() - started < within_s
    return code


STOPPED = (0, -signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "kind", "reward"),
    [
        ("agentcore", "sync", FLOOR),
        ("agentcore", "async", FLOOR),
        ("agentcore", "stubborn", FLOOR),
        ("agentcore", "episode", 0.25),
        ("serve", "sync", FLOOR),
        ("serve", "stubborn", FLOOR),
    ],
)
def test_sigterm_makes_rollouts_report_and_answer_before_the_process_ends(
    job_runtime, server, kind, reward
):
    with running(job_runtime, server, kind, rollouts=3) as at:
        at.child.send_signal(signal.SIGTERM)
        assert ends(at.child) in STOPPED
    assert job_runtime.rewards == [[reward]] * 3
    assert len(job_runtime.completions) == 3
    assert {seen.trajectory for seen in job_runtime.completions} == {"r0", "r1", "r2"}
    assert [response.status_code for response in at.responses] == [200] * 3
    assert {response.json()["_rft"]["outcome"] for response in at.responses} == {"cancelled"}


@pytest.mark.slow
def test_sigterm_makes_background_rollouts_report_before_the_process_ends(job_runtime):
    with running(job_runtime, "agentcore", "background", rollouts=2) as at:
        assert [response.json()["status"] for response in at.responses] == ["accepted"] * 2
        at.child.send_signal(signal.SIGTERM)
        assert ends(at.child) in STOPPED
    assert job_runtime.rewards == [[FLOOR]] * 2
    assert len(job_runtime.completions) == 2


@pytest.mark.slow
def test_being_told_twice_changes_nothing(job_runtime):
    with running(job_runtime, "agentcore", "sync") as at:
        for _ in range(3):
            at.child.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert ends(at.child) in STOPPED
    assert job_runtime.rewards == [[FLOOR]]
    assert len(job_runtime.completions) == 1


@pytest.mark.slow
def test_ctrl_c_lets_rollouts_report_as_well(job_runtime):
    with running(job_runtime, "serve", "async") as at:
        at.child.send_signal(signal.SIGINT)
        assert ends(at.child) in (0, 1, -signal.SIGINT)
    assert job_runtime.rewards == [[FLOOR]]
    assert at.responses[0].json()["_rft"]["outcome"] == "cancelled"


@pytest.mark.slow
def test_ctrl_c_in_a_script_reports_before_it_is_a_keyboard_interrupt(job_runtime):
    with process("script", "async") as child:
        assert child.stdin is not None
        child.stdin.write(json.dumps(managed_payload(job_runtime.url)).encode())
        child.stdin.close()
        wait_until(lambda: job_runtime.samples)
        child.send_signal(signal.SIGINT)
        ends(child)
        assert child.stderr is not None
        assert b"KeyboardInterrupt" in child.stderr.read()
    assert job_runtime.rewards == [[FLOOR]]


@pytest.mark.slow
def test_an_idle_server_stops_at_once(job_runtime):
    port = free_port()
    with process("serve", "sync", port) as child:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}"))
        child.send_signal(signal.SIGTERM)
        assert ends(child, 3) in STOPPED


def test_a_server_on_a_thread_cancels_its_rollouts_when_it_is_stopped(job_runtime):
    """Signals are the main thread's; stopping the server in another way must not lose rewards."""

    def plays(rollout: Rollout):
        rollout.openai().chat.completions.create(
            model="x", messages=[{"role": "user", "content": "hello"}]
        )
        time.sleep(5)

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(app=app, background=True)(plays))
    with serving(app) as url:
        post(url, managed_payload(job_runtime.url))
        wait_until(lambda: job_runtime.samples)
    assert job_runtime.rewards == [[FLOOR]]


def test_a_rollout_that_starts_after_the_cancellation_is_cancelled_too():
    running = Running()
    running.cancel("SIGTERM")
    rollout = Rollout(parse_request(managed_payload("http://127.0.0.1:9")))
    with running.holding(rollout):
        with pytest.raises(RolloutCancelled, match="SIGTERM"):
            rollout.check_open()
        assert running.cancel("again") == 1
    assert running.cancel("again") == 0


def test_a_server_that_starts_anew_runs_rollouts_again(job_runtime):
    def takes_a_moment(payload):
        time.sleep(0.2)
        return 1.0

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(app=app)(takes_a_moment))
    for i in range(2):
        with serving(app) as url:
            assert post(url, managed_payload(job_runtime.url, f"r{i}")).json()["reward"] == 1.0
    assert job_runtime.rewards == [[1.0]] * 2


def test_one_rollout_that_cannot_be_told_does_not_keep_the_others_from_it():
    async def started():
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(entrypoint(payload))
        await asyncio.sleep(0.1)
        task.cancel()
        return loop

    told = []
    payload = {"prompt": "go", "_config": {"base_url": "http://127.0.0.1:9", "api_key": "k"}}
    rollouts: list[Rollout] = []

    @rft_handler
    async def entrypoint(rollout: Rollout):
        rollouts.append(rollout)
        await asyncio.sleep(60)

    asyncio.run(started())  # its loop is closed, and the rollout's wake-up with it
    running = Running()
    other = Rollout(parse_request(payload))
    other.when_cancelled(lambda: told.append("other"))
    with running.holding(rollouts[0]), running.holding(other):
        running.cancel("SIGTERM")
    assert told == ["other"]
