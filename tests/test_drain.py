"""SIGTERM sent to a server of one's own: what runs ends and reports, nothing new is taken up."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import requests

from tests.servers import ScriptedServer, completion, managed_payload
from tests.test_shutdown import FLOOR, ROOT, STOPPED, answers, ends, free_port, wait_until

PROGRAM = """
import sys, time
from rft_agent_sdk import Rollout, rft_handler, serve


@rft_handler
def entrypoint(rollout: Rollout):
    messages = [{"role": "user", "content": "hello"}]
    rollout.openai().chat.completions.create(model="x", messages=messages)
    time.sleep(float(rollout.prompt))
    return 0.75


serve(entrypoint, port=int(sys.argv[1]))
"""


@pytest.fixture
def job_runtime(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with ScriptedServer(lambda seen, count: completion() if "chat" in seen.path else {}) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


@contextmanager
def served(drain_s):
    port = free_port()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RFT_DRAIN_SECONDS": str(drain_s)}
    program = [sys.executable, "-c", PROGRAM, str(port)]
    with subprocess.Popen(program, env=environ, cwd=ROOT) as child:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url))
            yield SimpleNamespace(child=child, url=url)
        finally:
            child.kill()


class Rollouts:
    """Rollouts asked for on threads of their own."""

    def __init__(self, at, server, count, *, play_s, prefer=""):
        self.answers: list[requests.Response] = []

        def ask(number):
            body = managed_payload(server.url, f"r{number}", str(play_s))
            headers = {"Prefer": prefer} if prefer else {}
            self.answers.append(
                requests.post(at.url + "/rollout", json=body, headers=headers, timeout=30)
            )

        self._threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: len(server.samples) == count)

    def join(self):
        for thread in self._threads:
            thread.join(20)


@pytest.mark.slow
def test_what_is_in_flight_ends_by_itself_and_nothing_new_begins(job_runtime):
    with served(drain_s=30) as at:
        rollouts = Rollouts(at, job_runtime, 3, play_s=1)
        at.child.send_signal(signal.SIGTERM)
        wait_until(lambda: requests.get(at.url + "/health", timeout=5).status_code == 503)
        health = requests.get(at.url + "/health", timeout=5).json()
        late = requests.post(
            at.url + "/rollout", json=managed_payload(job_runtime.url, "late"), timeout=5
        )
        rollouts.join()
        assert ends(at.child) in STOPPED
    assert (health["status"], health["rollouts"]) == ("draining", 3)
    assert late.status_code == 503
    assert late.headers["retry-after"] == "1"
    assert "draining" in late.json()["error"]
    assert [answer.json()["reward"] for answer in rollouts.answers] == [0.75] * 3
    assert job_runtime.rewards == [[0.75]] * 3
    assert {seen.trajectory for seen in job_runtime.samples} == {"r0", "r1", "r2"}


@pytest.mark.slow
def test_what_plays_on_past_the_deadline_is_cancelled_and_reports(job_runtime):
    with served(drain_s=1) as at:
        began = time.monotonic()
        rollouts = Rollouts(at, job_runtime, 3, play_s=60)
        at.child.send_signal(signal.SIGTERM)
        rollouts.join()
        assert ends(at.child) in STOPPED
        assert time.monotonic() - began > 1
    assert job_runtime.rewards == [[FLOOR]] * 3
    assert {answer.json()["_rft"]["outcome"] for answer in rollouts.answers} == {"cancelled"}


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_patience(job_runtime, second):
    with served(drain_s=300) as at:
        rollouts = Rollouts(at, job_runtime, 2, play_s=60)
        at.child.send_signal(signal.SIGTERM)
        wait_until(lambda: requests.get(at.url + "/health", timeout=5).status_code == 503)
        at.child.send_signal(second)
        rollouts.join()
        assert ends(at.child) in STOPPED
    assert job_runtime.rewards == [[FLOOR]] * 2


@pytest.mark.slow
def test_a_rollout_nobody_waits_for_ends_and_reports_as_well(job_runtime):
    with served(drain_s=30) as at:
        rollouts = Rollouts(at, job_runtime, 2, play_s=1, prefer="respond-async")
        rollouts.join()
        at.child.send_signal(signal.SIGTERM)
        assert ends(at.child) in STOPPED
    assert [answer.status_code for answer in rollouts.answers] == [202] * 2
    assert job_runtime.rewards == [[0.75]] * 2


@pytest.mark.slow
def test_a_caller_who_never_ends_its_request_does_not_hold_the_server(job_runtime):
    import socket

    with served(drain_s=0) as at:
        port = int(at.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"POST /rollout HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
            time.sleep(0.2)
            at.child.send_signal(signal.SIGTERM)
            assert ends(at.child, 9) in STOPPED
