"""How many rollouts a server of one's own plays, what it says to the rest, and that none is played twice."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from rft_agent_sdk import Rollout, UsageError, rft_handler
from rft_agent_sdk.serving import KEY_HEADER, asgi_app
from tests.servers import Answer, ScriptedServer, completion, managed_payload, serving

LIMIT = 3


class Agent:
    """A handler that plays until it is released, and counts what it played."""

    def __init__(self, failing=()):
        self.release = threading.Event()
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
            self.release.wait(20)
            with self._lock:
                self._now -= 1
            if rollout.prompt == "leave":
                raise SystemExit(1)
            return {"reward": 0.5, "transcript": "long"}

        self.entrypoint = entrypoint


@pytest.fixture
def job_runtime(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with ScriptedServer(lambda seen, count: completion() if "chat" in seen.path else {}) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


@pytest.fixture
def agent():
    agent = Agent()
    yield agent
    agent.release.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as pool:
        yield pool


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def post(url, server, rollout_id, key="", prefer="", prompt="go"):
    headers = {KEY_HEADER: key} if key else {}
    headers |= {"Prefer": prefer} if prefer else {}
    body = managed_payload(server.url, rollout_id, prompt)
    return requests.post(url + "/rollout", json=body, headers=headers, timeout=20)


def test_rollouts_beyond_the_limit_are_told_to_come_again(job_runtime, agent, pool):
    with serving(asgi_app(agent.entrypoint, max_rollouts=LIMIT)) as url:
        taken = [pool.submit(post, url, job_runtime, f"r{i}") for i in range(LIMIT)]
        wait_until(lambda: sum(agent.played.values()) == LIMIT)
        refused = post(url, job_runtime, "late")
        health = requests.get(url + "/health", timeout=5)
        ping = requests.get(url + "/ping", timeout=5)
        agent.release.set()
        assert {task.result().status_code for task in taken} == {200}
        assert requests.get(url + "/health", timeout=5).json()["status"] == "healthy"
        assert post(url, job_runtime, "late").status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert "plays 3 rollouts" in refused.json()["error"]
    assert health.status_code == 200  # 503 would have a busy agent restarted
    assert health.json() == {"status": "busy", "rollouts": 3, "max_rollouts": 3}
    assert ping.json() == {"status": "HealthyBusy"}
    assert agent.most == LIMIT
    assert agent.played["late"] == 1


def test_a_crowd_at_the_door_is_all_played_in_the_end(job_runtime, agent, pool):
    agent.release.set()

    def ask(number):
        while (answer := post(url, job_runtime, f"r{number}")).status_code == 429:
            time.sleep(0.02)
        return answer

    with serving(asgi_app(agent.entrypoint, max_rollouts=LIMIT)) as url:
        answers = list(pool.map(ask, range(24)))
    assert {answer.json()["reward"] for answer in answers} == {0.5}
    assert set(agent.played.values()) == {1}
    assert agent.most <= LIMIT
    assert len(job_runtime.rewards) == 24


def test_a_repeated_request_joins_the_rollout_in_flight(job_runtime, agent, pool):
    with serving(asgi_app(agent.entrypoint, max_rollouts=1)) as url:
        tasks = [pool.submit(post, url, job_runtime, "r1", "k1") for _ in range(4)]
        wait_until(lambda: agent.played["r1"])
        time.sleep(0.2)  # the others are at the door by now, full as it is
        agent.release.set()
        assert [task.result().json()["reward"] for task in tasks] == [0.5] * 4
        again = post(url, job_runtime, "r1", "k1")
    assert again.json()["reward"] == 0.5
    assert again.json()["_rft"]["reported"] is True
    assert agent.played == {"r1": 1}
    assert job_runtime.rewards == [[0.5]]


def test_without_a_key_and_with_another_a_rollout_is_played_anew(job_runtime, agent):
    agent.release.set()
    with serving(asgi_app(agent.entrypoint)) as url:
        for key in ("", "", "k1", "k2"):
            assert post(url, job_runtime, "r1", key).status_code == 200
    assert agent.played == {"r1": 4}


def test_a_rollout_that_was_not_reported_is_played_anew(agent, monkeypatch):
    agent.release.set()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")

    def refuse_reports(seen, count):
        return completion() if "chat" in seen.path else Answer(403, {"Message": "no"})

    with ScriptedServer(refuse_reports) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        with serving(asgi_app(agent.entrypoint)) as url:
            for _ in range(2):
                assert post(url, server, "r1", "k1").json()["_rft"]["reported"] is False
    assert agent.played == {"r1": 2}


@pytest.mark.parametrize(
    "prefer", ["respond-async", "Respond-Async, wait=0", "wait=0,respond-async"]
)
def test_who_prefers_to_go_on_gets_a_202_and_the_rollout_reports(job_runtime, agent, prefer):
    with serving(asgi_app(agent.entrypoint)) as url:
        answer = post(url, job_runtime, "r1", prefer=prefer)
        assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
        assert answer.headers["preference-applied"] == "respond-async"
        assert job_runtime.rewards == []
        agent.release.set()
        wait_until(lambda: job_runtime.rewards)
    assert job_runtime.rewards == [[0.5]]


def test_who_prefers_to_wait_a_while_gets_the_answer_if_it_is_there_by_then(job_runtime, agent):
    with serving(asgi_app(agent.entrypoint)) as url:
        began = time.monotonic()
        assert post(url, job_runtime, "r1", "k", "respond-async, wait=1").status_code == 202
        assert 0.9 < time.monotonic() - began < 3
        agent.release.set()
        assert post(url, job_runtime, "r1", "k", "respond-async, wait=20").json()["reward"] == 0.5
    assert agent.played == {"r1": 1}


def test_a_rollout_whose_result_only_the_answer_carries_is_waited_for(agent):
    agent.release.set()
    config = {"base_url": "http://127.0.0.1:9", "api_key": "k", "deadline_s": 2}
    with serving(asgi_app(agent.entrypoint)) as url:
        bodies: list[dict] = [{"prompt": "go", "_config": config}, {"prompt": {}}, {}]
        for body in bodies:
            answer = requests.post(
                url + "/rollout", json=body, headers={"Prefer": "respond-async"}, timeout=20
            )
            assert answer.status_code == 200
            assert "reward" in answer.json()


def test_a_function_that_exits_gives_its_place_back(job_runtime, agent):
    agent.release.set()
    with serving(asgi_app(agent.entrypoint, max_rollouts=1)) as url:
        for _ in range(3):
            assert post(url, job_runtime, "r1", prompt="leave").status_code == 500
        assert post(url, job_runtime, "r2").status_code == 200
        assert requests.get(url + "/health", timeout=5).json()["rollouts"] == 0


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ({"max_rollouts": 0}, {}),
        ({"max_rollouts": -1}, {}),
        ({"drain_s": -1}, {}),
        ({"drain_s": float("nan")}, {}),
        ({}, {"RFT_MAX_ROLLOUTS": "many"}),
        ({}, {"RFT_MAX_ROLLOUTS": "2.5"}),
        ({}, {"RFT_DRAIN_SECONDS": "inf"}),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_at_the_start(
    agent, monkeypatch, options, variables
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="|".join([*options, *variables])):
        asgi_app(agent.entrypoint, **options)


def test_the_limit_may_come_from_the_environment(agent, monkeypatch):
    monkeypatch.setenv("RFT_MAX_ROLLOUTS", "7")
    with serving(asgi_app(agent.entrypoint)) as url:
        assert requests.get(url + "/health", timeout=5).json()["max_rollouts"] == 7
