"""A handler on one's own infrastructure: what it answers, and that it keeps answering."""

import threading
import time

import pytest
import requests

from rft_agent_sdk import Rollout, UsageError, rft_handler, serve
from rft_agent_sdk.serving import SESSION_HEADER, asgi_app
from tests.servers import serving


def payload(prompt="go"):
    return {"prompt": prompt, "_config": {"base_url": "http://127.0.0.1:9", "api_key": "k"}}


@rft_handler
def echo(rollout: Rollout, context):
    if rollout.prompt == "leave":
        raise SystemExit(1)
    if rollout.prompt == "fail":
        raise RuntimeError("boom")
    return {"reward": 0.5, "prompt": rollout.prompt, "session": context.session_id}


@rft_handler
async def echo_async(rollout: Rollout, context):
    if rollout.prompt == "leave":
        raise SystemExit(1)
    return {"reward": 0.5, "prompt": rollout.prompt, "session": context.session_id}


@pytest.fixture(scope="module")
def url():
    with serving(asgi_app(echo)) as url:
        yield url


@pytest.mark.parametrize("path", ["/rollout", "/invocations"])
def test_a_rollout_is_posted_and_answered_with_its_reward(url, path):
    response = requests.post(
        url + path, json=payload(), headers={SESSION_HEADER: "s" * 33}, timeout=10
    )
    assert response.status_code == 200
    body = response.json()
    assert (body["reward"], body["prompt"], body["session"]) == (0.5, "go", "s" * 33)
    assert body["_rft"]["outcome"] == "no_sampling"


def test_a_session_is_not_needed(url):
    assert requests.post(url + "/rollout", json=payload(), timeout=10).json()["session"] is None


def test_health_is_answered(url):
    response = requests.get(url + "/health", timeout=10)
    assert response.status_code == 200
    assert response.json() == {"status": "healthy", "rollouts": 0, "max_rollouts": 512}


def test_a_ping_is_answered_in_agentcore_s_words(url):
    response = requests.get(url + "/ping", timeout=10)
    assert (response.status_code, response.json()) == (200, {"status": "Healthy"})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"nonsense"])
def test_a_body_that_is_no_json_is_the_callers_error(url, body):
    response = requests.post(url + "/rollout", body, timeout=10)
    assert response.status_code == 400
    assert "not JSON" in response.json()["error"]


@pytest.mark.parametrize("body", ["[]", "7", "null", "{}", '{"prompt": {}}'])
def test_json_that_is_no_rollout_is_answered_with_the_reason(url, body):
    response = requests.post(url + "/rollout", body, timeout=10)
    assert response.status_code == 200
    assert "PayloadError" in response.json()["_rft"]["error"]


def test_a_get_is_not_a_rollout(url):
    assert requests.get(url + "/rollout", timeout=10).status_code == 405


def test_a_function_that_fails_gives_a_floor_and_no_error_page(url):
    response = requests.post(url + "/rollout", json=payload("fail"), timeout=10)
    assert response.status_code == 200
    assert response.json()["reward"] == -1.5


@pytest.mark.parametrize("entrypoint", [echo, echo_async])
def test_a_function_that_exits_takes_nobody_with_it(entrypoint):
    with serving(asgi_app(entrypoint)) as url:
        response = requests.post(url + "/rollout", json=payload("leave"), timeout=10)
        assert response.status_code == 500
        assert "SystemExit" in response.json()["error"]
        assert requests.post(url + "/rollout", json=payload(), timeout=10).json()["reward"] == 0.5


@pytest.mark.parametrize("entrypoint", [echo, echo_async])
async def test_a_function_that_exits_takes_nobody_with_it_on_the_main_thread(entrypoint):
    """`serve` runs its loop on the main thread, where an exit means to end the process."""
    import httpx

    assert threading.current_thread() is threading.main_thread()
    transport = httpx.ASGITransport(app=asgi_app(entrypoint))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        assert (await client.post("/rollout", json=payload("leave"))).status_code == 500
        assert (await client.post("/rollout", json=payload())).json()["reward"] == 0.5


def test_health_is_answered_while_rollouts_play():
    release = threading.Event()
    answers = []

    @rft_handler
    def waits(rollout: Rollout):
        release.wait(10)
        return 1.0

    with serving(asgi_app(waits)) as base:

        def ask():
            answers.append(requests.post(base + "/rollout", json=payload(), timeout=20).json())

        threads = [threading.Thread(target=ask) for _ in range(64)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert requests.get(base + "/health", timeout=5).status_code == 200
        release.set()
        for thread in threads:
            thread.join(20)
    assert [answer["reward"] for answer in answers] == [1.0] * 64


@pytest.mark.parametrize("function", [lambda payload: 1.0, None, 7])
def test_a_function_that_is_not_decorated_is_refused(function):
    with pytest.raises(UsageError, match="@rft_handler"):
        serve(function)
