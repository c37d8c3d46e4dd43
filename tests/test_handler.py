"""The life of a rollout, on a real AgentCore app, against a real server in the Job Runtime's place."""

import asyncio
import json
import threading
import time
from decimal import Decimal

import numpy as np
import pytest
import requests
from bedrock_agentcore import BedrockAgentCoreApp

from rft_agent_sdk import Reward, Rollout, UsageError, rft_handler, sagemaker_rft_handler
from rft_agent_sdk.context import _current
from tests.servers import Answer, ScriptedServer, completion, managed_payload, serving

FLOOR = -1.5
SESSION = "s" * 33
SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"


def job_runtime(seen, count):
    """Answer everything well."""
    return completion() if seen.path == "/v1/chat/completions" else {}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with ScriptedServer(job_runtime) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


def strict(text: str):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def post(url: str, payload, path: str = "/invocations"):
    headers = {SESSION_HEADER: SESSION, "Content-Type": "application/json"}
    return requests.post(url + path, json.dumps(payload), headers=headers, timeout=20)


def invoke(function, payload, **options):
    """Run a function as an AgentCore entrypoint over HTTP and return its strict-JSON response."""
    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(**options)(function) if options else rft_handler(function))
    with serving(app) as url:
        response = post(url, payload)
    assert response.status_code == 200, response.text
    return strict(response.text)


# ------------------------------------------------------------------ shapes of the function


def one_argument(payload):
    return {"reward": 1.0}


def with_context(payload, context):
    return {"reward": 1.0, "session": context.session_id}


async def async_with_context(payload, context):
    return {"reward": 1.0, "session": context.session_id}


def with_other_default(payload, ctx=None):
    return {"reward": 1.0, "ctx": ctx}


def with_rollout(rollout: Rollout):
    return {"reward": 1.0, "session": rollout.session_id, "prompt": rollout.prompt}


async def async_with_rollout(rollout: "Rollout", context):
    return {"reward": 1.0, "session": context.session_id, "prompt": rollout.prompt}


class Callable:
    async def __call__(self, payload, context):
        return {"reward": 1.0, "session": context.session_id}


@pytest.mark.parametrize(
    ("function", "keys"),
    [
        (one_argument, {}),
        (with_context, {"session": SESSION}),
        (async_with_context, {"session": SESSION}),
        (with_other_default, {"ctx": None}),
        (with_rollout, {"session": SESSION, "prompt": "go"}),
        (async_with_rollout, {"session": SESSION, "prompt": "go"}),
        (Callable(), {"session": SESSION}),
    ],
)
def test_every_shape_of_function_gets_its_arguments_and_reports_once(server, function, keys):
    body = invoke(function, managed_payload(server.url))
    ours = body.pop("_rft")
    assert body == {"reward": 1.0, **keys}
    assert ours["reported"] is True
    assert len(server.completions) == 1
    assert server.completions[0].json.get("Status", "ready") == "ready"
    assert server.rewards == [[1.0]]


def test_the_alias_is_the_same_decorator():
    assert sagemaker_rft_handler is rft_handler


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b: 1, 7, object()])
def test_a_function_that_cannot_take_a_payload_is_refused_at_decoration(function):
    with pytest.raises(UsageError):
        rft_handler(function)


def test_a_streaming_function_is_refused_at_decoration():
    def stream(payload):
        yield 1

    with pytest.raises(UsageError, match="streams"):
        rft_handler(stream)


def test_background_needs_the_app():
    with pytest.raises(UsageError, match="app="):
        rft_handler(background=True)(one_argument)


def test_an_infinite_floor_is_refused():
    with pytest.raises(UsageError, match="finite"):
        rft_handler(floor=float("-inf"))(one_argument)


# ------------------------------------------------------------------ what it returns


def raises(payload):
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "function",
    [
        raises,
        lambda p: {"status": "error", "error": "x"},
        lambda p: None,
        lambda p: "text",
        lambda p: {},
    ],
)
def test_no_usable_reward_ends_with_the_floor_and_is_completed_ready(server, function, caplog):
    body = invoke(function, managed_payload(server.url))
    assert body["reward"] == FLOOR
    assert body.get("status") != "error"
    assert body["_rft"]["outcome"] == "agent_error"
    assert [seen.json.get("Status", "ready") for seen in server.completions] == ["ready"]
    assert server.rewards == [[FLOOR]]
    assert "agent_error" in caplog.text


@pytest.mark.parametrize(
    ("reward", "sent"),
    [
        (0, [0.0]),
        (0.0, [0.0]),
        (-0.5, [-0.5]),
        (True, [1.0]),
        (1, [1.0]),
        (np.float32(0.5), [0.5]),
        (np.array([0.25, 1.0]), [0.25, 1.0]),
        (Decimal("0.25"), [0.25]),
        ([1, 0.5], [1.0, 0.5]),
        (float("nan"), [FLOOR]),
        (float("inf"), [FLOOR]),
        ([0.1, float("nan")], [FLOOR]),
        ("0.5", [FLOOR]),
        ([], [FLOOR]),
        ({"a": 1}, [FLOOR]),
        (Reward(0.75, {"solved": 1.0}), [0.75]),
    ],
)
def test_every_reward_value_is_sent_as_finite_numbers(server, reward, sent):
    body = invoke(lambda p: {"reward": reward, "kept": "yes"}, managed_payload(server.url))
    assert server.rewards == [sent]
    assert body["reward"] == (
        sent if isinstance(reward, list | np.ndarray) and len(sent) > 1 else sent[0]
    )
    assert body["kept"] == "yes"


def test_a_bare_number_is_a_reward(server):
    assert invoke(lambda p: 0.5, managed_payload(server.url))["reward"] == 0.5


def test_the_users_other_values_come_out_as_strict_json(server):
    extra = {
        "reward": 1.0,
        "nan": float("nan"),
        "array": np.arange(2),
        "odd": {1: object},
        "t": (1,),
    }
    body = invoke(lambda p: extra, managed_payload(server.url))
    assert body["nan"] is None
    assert body["array"] == [0, 1]
    assert body["t"] == [1]


# ------------------------------------------------------------------ when it does not return


async def test_a_cancelled_task_reports_the_floor_and_stays_cancelled(server):
    @rft_handler
    async def sleeper(payload):
        await asyncio.sleep(60)

    task = asyncio.create_task(sleeper(managed_payload(server.url)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.completions) == 1
    assert server.rewards == [[FLOOR]]
    assert _current.get() is None


async def test_being_cancelled_again_and_again_does_not_lose_the_report(server):
    @rft_handler
    async def sleeper(payload):
        await asyncio.sleep(60)

    task = asyncio.create_task(sleeper(managed_payload(server.url)))
    await asyncio.sleep(0.05)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.005)
    assert task.cancelled()
    assert server.rewards == [[FLOOR]]


async def test_closing_the_coroutine_reports_before_it_is_gone(server):
    @rft_handler
    async def sleeper(payload):
        await asyncio.sleep(60)

    coroutine = sleeper(managed_payload(server.url))
    coroutine.send(None)
    await asyncio.to_thread(coroutine.close)
    assert server.rewards == [[FLOOR]]


@pytest.mark.parametrize("is_async", [False, True])
def test_system_exit_is_reported_and_propagates_on_the_main_thread(server, is_async):
    def leave(payload):
        raise SystemExit(1)

    async def leave_async(payload):
        raise SystemExit(1)

    entrypoint = rft_handler(leave_async if is_async else leave)
    with pytest.raises(SystemExit):
        asyncio.run(entrypoint(managed_payload(server.url)))
    assert len(server.completions) == 1
    assert server.rewards == [[FLOOR]]
    assert _current.get() is None


@pytest.mark.parametrize("is_async", [False, True])
def test_system_exit_on_a_server_answers_500_and_leaves_the_server_alive(server, is_async):
    def leave(payload):
        if payload["prompt"] == "leave":
            raise SystemExit(1)
        return 1.0

    async def leave_async(payload):
        return leave(payload)

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(leave_async if is_async else leave))
    with serving(app) as url:
        assert post(url, managed_payload(server.url, prompt="leave")).status_code == 500
        assert post(url, managed_payload(server.url, "r2")).json()["reward"] == 1.0
    assert server.rewards == [[FLOOR], [1.0]]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_hangs_is_ended_by_the_deadline(server, is_async):
    release = threading.Event()

    def hang(rollout: Rollout):
        release.wait(20)

    async def hang_async(rollout: Rollout):
        await asyncio.sleep(20)

    started = time.monotonic()
    body = invoke(hang_async if is_async else hang, managed_payload(server.url), budget_s=0.3)
    release.set()
    assert time.monotonic() - started < 10
    assert body["reward"] == FLOOR
    assert body["_rft"]["outcome"] == "timeout"
    assert server.rewards == [[FLOOR]]


# ------------------------------------------------------------------ sampling and reporting


def test_a_rollout_without_sampling_sends_its_first_request_before_completing(server):
    body = invoke(raises, managed_payload(server.url, prompt="Guess the word"))
    assert [seen.path for seen in server.seen] == [
        "/v1/chat/completions",
        "/complete-rollout",
        "/update-reward",
    ]
    sample = server.samples[0]
    assert sample.json == {
        "model": "default",
        "messages": [{"role": "user", "content": "Guess the word"}],
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 256,
    }
    assert sample.trajectory == "r1"
    assert body["_rft"]["rescued"] is True


def test_a_rollout_that_sampled_sends_no_further_request(server):
    def plays(rollout: Rollout):
        reply = rollout.openai().chat.completions.create(
            model="x", messages=[{"role": "user", "content": "hello"}]
        )
        return {"reward": 1.0, "text": reply.choices[0].message.content}

    body = invoke(plays, managed_payload(server.url))
    assert body["text"] == "hi"
    assert len(server.samples) == 1
    assert body["_rft"]["outcome"] == "completed"
    assert body["_rft"]["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}


def test_a_bad_payload_still_completes_the_rollout_it_belongs_to(server):
    payload = {**managed_payload(server.url), "prompt": [{"text": "hi"}]}
    body = invoke(one_argument, payload)
    assert body["reward"] == FLOOR
    assert "prompt must be a string" in body["_rft"]["error"]
    assert server.rewards == [[FLOOR]]


@pytest.mark.parametrize("payload", [{}, [], "text", 7, None, {"prompt": "go"}, {"metadata": 1}])
def test_a_payload_that_names_nobody_is_answered_with_the_reason(payload):
    body = invoke(one_argument, payload)
    assert body["reward"] == FLOOR
    assert body["_rft"]["reported"] is False
    assert "PayloadError" in body["_rft"]["error"]


def test_no_credentials_end_the_rollout_with_the_floor_and_one_line_why(monkeypatch, caplog):
    from rft_agent_sdk import auth

    monkeypatch.setattr(auth, "_COLD_START_S", 0.1)
    with ScriptedServer(job_runtime) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        monkeypatch.setattr(auth, "_sessions", {}, raising=False)

        def plays(rollout: Rollout):
            rollout.openai().chat.completions.create(
                model="x", messages=[{"role": "user", "content": "hello"}]
            )

        body = invoke(plays, managed_payload(server.url))
    assert body["reward"] == FLOOR
    assert body["_rft"]["reported"] is False
    assert server.seen == []
    lines = [record.getMessage() for record in caplog.records if "outcome=" in record.getMessage()]
    assert len(lines) == 1
    assert "no AWS credentials" in lines[0]


def test_an_unlisted_host_in_the_payload_never_sees_a_request(server, monkeypatch):
    monkeypatch.delenv("RFT_ALLOW_ENDPOINT_HOSTS")
    body = invoke(one_argument, managed_payload(server.url))
    assert body["_rft"]["reported"] is False
    assert "RFT_ALLOW_ENDPOINT_HOSTS" in str(body["_rft"])
    assert server.seen == []


def test_a_gateway_rollout_reports_only_when_it_is_asked_to():
    with ScriptedServer(job_runtime) as server:
        config = {"base_url": server.url + "/v1", "model_id": "m", "api_key": "key-1"}
        payload = {"prompt": "go", "_config": config}
        assert invoke(one_argument, payload)["_rft"]["reported"] is False
        assert server.seen == []
        payload["_config"] = {**config, "report": True, "deadline_s": 30}
        assert invoke(one_argument, payload)["_rft"]["reported"] is True
    assert [seen.path for seen in server.seen] == ["/complete-rollout", "/update-reward"]
    assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer key-1"}
    report = server.seen[1].json
    assert report["Rewards"] == [1.0]
    assert report["Outcome"] == "no_sampling"
    assert "JobArn" not in report


def test_a_timeout_while_the_endpoint_throttles_is_the_infrastructures():
    with ScriptedServer(lambda seen, count: Answer(429, {"error": {"message": "slow"}})) as server:

        def plays(rollout: Rollout):
            rollout.openai().chat.completions.create(
                model="x", messages=[{"role": "user", "content": "hello"}]
            )

        config = {"base_url": server.url, "api_key": "k"}
        body = invoke(plays, {"prompt": "go", "_config": config}, budget_s=1.0)
    assert body["_rft"]["outcome"] == "infrastructure_error"
    assert body["_rft"]["calls"]["throttled"] >= 1


# ------------------------------------------------------------------ background and concurrency


def test_a_background_rollout_answers_at_once_and_reports_later(server):
    release = threading.Event()

    def slow(payload):
        release.wait(10)
        return 0.5

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(background=True, app=app)(slow))
    with serving(app) as url:
        body = post(url, managed_payload(server.url)).json()
        assert body == {"status": "accepted", "_rft": {"background": True}}
        assert requests.get(url + "/ping", timeout=5).json()["status"] == "HealthyBusy"
        assert server.rewards == []
        release.set()
        until = time.monotonic() + 10
        while not server.rewards and time.monotonic() < until:
            time.sleep(0.02)
        assert server.rewards == [[0.5]]
        while requests.get(url + "/ping", timeout=5).json()["status"] != "Healthy":
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_background_rollout_whose_result_could_reach_nobody_runs_in_the_foreground():
    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(background=True, app=app)(one_argument))
    payload = {"prompt": "go", "_config": {"base_url": "http://127.0.0.1:9", "api_key": "k"}}
    with serving(app) as url:
        assert post(url, payload).json()["reward"] == 1.0


def test_96_synchronous_rollouts_run_at_once_and_ping_stays_quick(server):
    together = threading.Barrier(96, timeout=30)

    def waits(payload):
        together.wait()
        time.sleep(0.3)
        return 1.0

    app = BedrockAgentCoreApp()
    app.entrypoint(rft_handler(waits))
    answers = []
    with serving(app) as url:

        def one(i):
            answers.append(post(url, managed_payload(server.url, f"r{i}")).json()["reward"])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(95)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        # 95 of 96 are inside and cannot leave: an entrypoint pool of 40 would be full for good.
        assert requests.get(url + "/ping", timeout=5).status_code == 200
        one(95)
        for thread in threads:
            thread.join(30)
    assert answers == [1.0] * 96
    assert sorted(seen.json["TrajectoryId"] for seen in server.to("/update-reward")) == sorted(
        f"r{i}" for i in range(96)
    )
