"""An agent that takes its rollouts from a queue: a real SQS client against an endpoint on loopback."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from rft_agent_sdk import Rollout, UsageError, rft_handler
from rft_agent_sdk.mtrl import forwarder
from rft_agent_sdk.mtrl.queue_worker import MAX_RECEIVES, QueueWorker
from tests.mtrl.sqs import Queue
from tests.servers import Answer, ScriptedServer, completion, managed_payload
from tests.test_shutdown import ROOT


@pytest.fixture
def queue(monkeypatch):
    with Queue() as queue:
        for name, value in queue.environment().items():
            monkeypatch.setenv(name, value)
        yield queue


def accept(seen, count):
    return completion() if "chat" in seen.path else {}


@pytest.fixture
def job_runtime(queue, monkeypatch):
    with ScriptedServer(accept) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


class Agent:
    """A handler that counts what it plays."""

    def __init__(self, *, play_s=0.0):
        self.played: Counter[str] = Counter()
        self.most = self._now = 0
        self._lock = threading.Lock()

        @rft_handler
        def entrypoint(rollout: Rollout):
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
                self.played[rollout.request.rollout_id] += 1
            rollout.openai().chat.completions.create(
                model="x", messages=[{"role": "user", "content": "hello"}]
            )
            time.sleep(play_s)
            with self._lock:
                self._now -= 1
            if rollout.prompt == "leave":
                raise SystemExit(1)
            return 0.5

        self.entrypoint = entrypoint


def wait_until(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


@contextmanager
def working(agent, queue, **options):
    """A worker on a thread of its own; drained at the end."""
    worker = QueueWorker(agent.entrypoint, queue.url, poll_s=1, **options)
    thread = threading.Thread(target=asyncio.run, args=(worker.run(),))
    thread.start()
    try:
        yield worker
    finally:
        worker.admission.drain()
        thread.join(20)
        assert not thread.is_alive()


def test_what_the_forwarder_queued_is_played_reported_and_deleted(queue, job_runtime):
    agent = Agent()
    with working(agent, queue):
        for number in range(5):
            assert forwarder.handler(managed_payload(job_runtime.url, f"r{number}")) == {}
        wait_until(lambda: len(queue.deleted) == 5)
    assert job_runtime.rewards == [[0.5]] * 5
    assert agent.played == {f"r{number}": 1 for number in range(5)}
    assert queue.messages == []


def test_no_more_is_taken_than_may_be_played(queue, job_runtime):
    agent = Agent(play_s=0.1)
    for number in range(12):
        queue.put(managed_payload(job_runtime.url, f"r{number}"), f"k{number}")
    with working(agent, queue, max_rollouts=3):
        wait_until(lambda: len(queue.deleted) == 12)
    assert agent.most <= 3
    assert set(agent.played.values()) == {1}


def test_a_message_delivered_twice_is_played_once(queue, job_runtime):
    agent = Agent(play_s=0.5)
    for _ in range(3):
        queue.put(managed_payload(job_runtime.url, "r1"), "k1")
    with working(agent, queue, hidden_s=1):
        wait_until(lambda: len(queue.deleted) == 3)
    assert agent.played == {"r1": 1}
    assert job_runtime.rewards == [[0.5]]


def test_a_message_is_kept_from_others_for_as_long_as_it_is_played(queue, job_runtime):
    agent = Agent(play_s=2.5)
    queue.put(managed_payload(job_runtime.url, "r1"))  # without a key it would be played again
    with working(agent, queue, hidden_s=1):
        wait_until(lambda: queue.deleted)
    assert agent.played == {"r1": 1}


def test_a_message_that_was_not_settled_comes_again_and_a_hopeless_one_is_dropped(
    queue, monkeypatch
):
    def refuse_reports(seen, count):
        return completion() if "chat" in seen.path else Answer(403, {"Message": "no"})

    agent = Agent()
    with ScriptedServer(refuse_reports) as nowhere:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", nowhere.host)
        queue.put(managed_payload(nowhere.url, "r1"), "k1")
        with working(agent, queue, hidden_s=1):
            wait_until(lambda: queue.deleted)
    assert agent.played == {"r1": MAX_RECEIVES}


def test_a_function_that_returns_no_object_has_its_message_dropped_in_the_end(queue, job_runtime):
    async def entrypoint(payload):
        return None

    queue.put(managed_payload(job_runtime.url, "r1"), "k1")
    agent = Agent()
    agent.entrypoint = entrypoint
    with working(agent, queue, hidden_s=1):
        wait_until(lambda: queue.deleted)
    assert queue.messages == []


@pytest.mark.parametrize("text", ["no json", "[]", "{}"])
def test_a_message_that_is_no_rollout_stops_nobody(queue, job_runtime, text):
    agent = Agent()
    queue.put(text)
    queue.put(managed_payload(job_runtime.url, "r1"))
    with working(agent, queue):
        wait_until(lambda: queue.deleted == ["m2"])
    assert len(queue.messages) == 1


def test_a_function_that_exits_stops_nobody(queue, job_runtime):
    agent = Agent()
    queue.put(managed_payload(job_runtime.url, "r1", "leave"))
    with working(agent, queue):
        wait_until(lambda: job_runtime.rewards)
        queue.put(managed_payload(job_runtime.url, "r2"))
        wait_until(lambda: queue.deleted == ["m2"])


def test_a_queue_s_moment_of_weakness_is_waited_out(queue, job_runtime):
    queue.refusals["ReceiveMessage"] = [Answer(500, {})] * 6
    queue.put(managed_payload(job_runtime.url, "r1"))
    with working(Agent(), queue):
        wait_until(lambda: queue.deleted, 20)


def test_a_queue_that_may_not_be_read_ends_the_worker(queue):
    queue.refusals["ReceiveMessage"] = [
        Answer(403, {"__type": "com.amazonaws.sqs#AccessDeniedException"})
    ]
    with pytest.raises(UsageError, match="403 AccessDeniedException"):
        asyncio.run(QueueWorker(Agent().entrypoint, queue.url).run())


def test_what_came_too_late_is_given_back_at_once(queue, job_runtime):
    agent = Agent()
    worker = QueueWorker(agent.entrypoint, queue.url, poll_s=5)

    async def run():
        task = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, lambda: "ReceiveMessage" in queue.calls)
        worker.admission.drain()
        queue.put(managed_payload(job_runtime.url, "r1"))
        await task

    asyncio.run(run())
    assert agent.played == {}
    assert queue.messages[0].hidden_until <= time.monotonic()


@pytest.mark.parametrize(
    "bad",
    [{"queue_url": "SageMakerRollouts"}, {"max_rollouts": 0}, {"hidden_s": 0}, {"poll_s": 21}],
)
def test_a_worker_that_cannot_work_is_refused(queue, bad):
    options = {"queue_url": queue.url, **bad}
    with pytest.raises(UsageError, match=r"wanted|queue's URL"):
        QueueWorker(Agent().entrypoint, **options)


def test_without_a_region_it_says_what_to_set(monkeypatch):
    with pytest.raises(UsageError, match="AWS_REGION"):
        QueueWorker(Agent().entrypoint, "https://queue.example/1/x")
    QueueWorker(Agent().entrypoint, "https://sqs.eu-west-1.amazonaws.com/123456789012/x")


APP = """
import time
from rft_agent_sdk import Rollout, rft_handler


@rft_handler
def invoke(rollout: Rollout):
    messages = [{"role": "user", "content": "hello"}]
    rollout.openai().chat.completions.create(model="x", messages=messages)
    time.sleep(float(rollout.prompt))
    return 0.75
"""


@pytest.mark.slow
@pytest.mark.parametrize(("play_s", "reward"), [("2", 0.75), ("60", -1.5)])
def test_the_verb_drains_on_sigterm(queue, job_runtime, tmp_path, play_s, reward):
    (tmp_path / "mine.py").write_text(APP)
    queue.put(managed_payload(job_runtime.url, "r1", play_s))
    program = [sys.executable, "-m", "rft_agent_sdk.cli", "mtrl", "work", "--queue", queue.url]
    options = ["--app", "mine.py:invoke", "--drain", "3"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*program, *options], cwd=tmp_path, env=environ) as process:
        try:
            wait_until(lambda: job_runtime.samples, 30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            process.kill()
    assert job_runtime.rewards == [[reward]]
    assert queue.deleted == ["m1"]
