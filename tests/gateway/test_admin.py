"""A trainer in another process: the admin routes, and the client that makes them look like a `Gateway`."""

import socket
import threading
import time
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

from rft_agent_sdk import Outcome, SamplingParams, UsageError
from rft_agent_sdk.errors import (
    AccessDeniedError,
    JobRuntimeError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from rft_agent_sdk.gateway import Gateway, GatewayServer, RemoteGateway
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.testing import scripted
from tests.servers import serving

RENDERER = load_renderer()
KEY = "admin-key-of-these-tests"
START = [{"role": "user", "content": "go"}]


def gateway_of(*replies: Any, **options: Any) -> Gateway:
    sampler = ScriptedSampler(scripted(*(replies or ("one", "two"))), RENDERER)
    return Gateway(renderer=RENDERER, sampler=sampler, admin_key=KEY, **options)


@contextmanager
def remote(gateway: Gateway, **options: Any):
    with GatewayServer(gateway) as server, RemoteGateway(server.url, KEY, **options) as found:
        yield found


def ask(config, messages=START) -> str:
    with openai.OpenAI(
        base_url=config["base_url"], api_key=config["api_key"], max_retries=0
    ) as api:
        reply = api.chat.completions.create(model=config["model_id"], messages=messages)
    return reply.choices[0].message.content or ""


def play(config) -> None:
    """Two turns."""
    reply = ask(config)
    ask(
        config, [*START, {"role": "assistant", "content": reply}, {"role": "user", "content": "on"}]
    )


@contextmanager
def knocking(gateway: Gateway):
    """Yields what sends a request with some key and returns the response."""
    with (
        GatewayServer(gateway) as server,
        httpx.Client(base_url=server.url, verify=False) as client,
    ):

        def knock(path: str, body: Any = None, key: str | None = KEY, method: str = "POST") -> Any:
            headers: Any = (
                {} if key is None else {"authorization": f"Bearer {key}".encode("latin-1")}
            )
            return client.request(method, path, json=body, headers=headers)

        yield knock


def test_a_session_elsewhere_is_opened_played_and_sealed_as_one_here():
    gateway, local = gateway_of(), gateway_of()
    sampling = SamplingParams(temperature=1.0, max_tokens=50)
    with remote(gateway) as far, GatewayServer(local) as server:
        made = far.open(task="t", sampling=sampling, max_turns=9, history_mode="linear")
        near = local.open(task="t", sampling=sampling, max_turns=9, history_mode="linear")
        assert made.secret not in repr(made)
        assert made.config().keys() == near.config(server.url).keys()
        play(made.config())
        play(near.config(server.url))
        found, wanted = (one.seal(Outcome.COMPLETED, [0.25, 0.5]) for one in (made, near))
    assert found.rollout_id == made.id
    for name in ("task", "turns", "reward", "per_turn", "outcome", "counters"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.samples[0].token_ids == wanted.samples[0].token_ids
    assert found.samples[0].loss_mask == wanted.samples[0].loss_mask
    assert found.samples[0].spans == wanted.samples[0].spans
    assert found.samples[0].messages == wanted.samples[0].messages


def test_the_answer_of_the_route_itself_is_enough_for_an_agent():
    gateway = gateway_of()
    with GatewayServer(gateway) as server, httpx.Client(verify=False) as client:
        headers = {"authorization": f"Bearer {KEY}"}
        opened = client.post(f"{server.url}/sessions", json={}, headers=headers).json()
        assert opened["config"]["base_url"] == f"{server.url}/v1"
        assert ask(opened["config"]) == "one"
        body = {"secret": opened["secret"], "outcome": "completed", "rewards": [1]}
        sealed = client.post(f"{server.url}/sessions/seal", json=body, headers=headers).json()
    assert (sealed["rollout_id"], sealed["reward"], sealed["turns"]) == (opened["id"], 1.0, 1)


def test_agents_may_reach_the_gateway_by_another_name():
    with remote(gateway_of(), agent_url="https://gateway.example/") as far:
        session = far.open()
        assert session.config()["base_url"] == "https://gateway.example/v1"
        assert session.config(far.url, report=False, deadline_s=9.0) == {
            "base_url": f"{far.url}/v1",
            "api_key": session.secret,
            "model_id": "default",
            "report": False,
            "deadline_s": 9.0,
        }


def test_sealing_again_reads_the_same_and_dropping_again_is_no_error():
    with remote(gateway_of()) as far:
        session = far.open()
        ask(session.config())
        first = session.seal(Outcome.COMPLETED, [1.0])
        assert session.seal(Outcome.TIMEOUT, [0.0]) == first
        session.drop()
        session.drop()
        with pytest.raises(UsageError, match="no session"):
            session.seal()
        with pytest.raises(openai.AuthenticationError):
            ask(session.config())


def test_rewards_that_do_not_fit_end_nothing():
    with remote(gateway_of()) as far:
        session = far.open()
        play(session.config())
        for rewards in ([1.0, 2.0, 3.0], [float("nan")]):
            with pytest.raises(UsageError, match="rewards"):
                session.seal(Outcome.COMPLETED, rewards)
        assert session.seal(Outcome.COMPLETED, [1.0, 2.0]).reward == 3.0


def test_the_session_is_opened_on_the_terms_that_were_asked_for():
    with remote(gateway_of()) as far:
        session = far.open(max_turns=1, sampling=SamplingParams(max_tokens=1))
        reply = ask(session.config())
        with pytest.raises(openai.BadRequestError) as caught:
            ask(session.config(), [*START, {"role": "assistant", "content": reply}, *START])
        assert caught.value.code == "context_length_exceeded"
        trajectory = session.seal(Outcome.COMPLETED, [0.0])
    assert trajectory.outcome is Outcome.TRUNCATED
    assert trajectory.trained_tokens == 1


def test_a_gateways_own_history_mode_holds_where_none_is_asked_for():
    with remote(gateway_of(history_mode="tree")) as far:
        tree, linear = far.open(), far.open(history_mode="linear")
        play(tree.config())
        play(linear.config())
        assert tree.seal().counters["rendered"] == 2
        assert linear.seal().counters["healed"] == 1


def test_an_end_that_the_agent_reports_is_waited_for():
    with remote(gateway_of()) as far:
        session = far.open()
        with pytest.raises(TimeoutError, match=session.id):
            session.result(timeout_s=0.05)
        ask(session.config())

        def report() -> None:
            time.sleep(0.1)
            headers = {"authorization": f"Bearer {session.secret}"}
            with httpx.Client(verify=False, headers=headers) as client:
                client.post(f"{far.url}/complete-rollout", json={})
                client.post(f"{far.url}/update-reward", json={"Rewards": [0.5]})

        thread = threading.Thread(target=report)
        thread.start()
        result = session.result(timeout_s=20)
        thread.join()
        assert (result.state, result.rewards) == ("REWARD_RECEIVED", (0.5,))
        assert [turn.reply.text for turn in result.turns] == ["one"]
        assert session.seal().reward == 0.5


def test_stats_add_up_over_sessions_and_keep_those_that_were_dropped():
    with remote(gateway_of()) as far:
        assert far.stats()["sessions"] == {"open": 0, "sealed": 0, "dropped": 0}
        played = [far.open() for _ in range(3)]
        for session in played:
            play(session.config())
        played[0].seal()
        before = far.stats()
        assert before["sessions"] == {"open": 2, "sealed": 1, "dropped": 0}
        assert (before["counters"]["turns"], before["counters"]["healed"]) == (6, 3)
        played[0].drop()
        after = far.stats()
    assert after["sessions"] == {"open": 2, "sealed": 0, "dropped": 1}
    assert after["counters"] == before["counters"]


def test_several_gateways_add_up_and_know_nothing_of_each_others_sessions():
    with remote(gateway_of()) as first, remote(gateway_of()) as second:
        sessions = [far.open() for far in (first, second)]
        assert sessions[0].config()["base_url"] != sessions[1].config()["base_url"]
        for session in sessions:
            play(session.config())
        with pytest.raises(openai.AuthenticationError):
            ask(sessions[0].config(second.url))
        assert [session.seal().turns for session in sessions] == [2, 2]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/sessions", "POST"),
        ("/sessions/result", "POST"),
        ("/sessions/seal", "POST"),
        ("/sessions/drop", "POST"),
        ("/stats", "GET"),
    ],
)
def test_the_routes_are_the_admin_keys_alone(path, method):
    gateway = gateway_of()
    session = gateway.open()
    body = {"secret": session.secret}
    with knocking(gateway) as knock:
        for key in (None, session.secret, KEY[:-1], KEY + "x", "\u00e9" * 20):
            assert knock(path, body, key, method).status_code == 401
        assert knock(path, body, KEY, "PUT").status_code == 405
    bare = Gateway()
    with knocking(bare) as knock:
        for key in (None, KEY):
            assert knock(path, body, key, method).status_code == 404
    assert gateway.stray_calls == bare.stray_calls == ()


def test_the_admin_key_is_no_agents_key():
    with knocking(gateway_of()) as knock:
        assert knock("/v1/chat/completions", {"model": "m", "messages": START}).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/sessions", {"tusk": "t"}, "tusk"),
        ("/sessions", {"task": 1}, "task"),
        ("/sessions", {"max_turns": 0}, "max_turns"),
        ("/sessions", {"budget": True}, "budget"),
        ("/sessions", {"max_context_tokens": 1.5}, "max_context_tokens"),
        ("/sessions", {"history_mode": "forest"}, "history_mode"),
        ("/sessions", {"history_mode": []}, "history_mode"),
        ("/sessions", {"sampling": {"top_k": 1}}, "sampling"),
        ("/sessions", {"sampling": {"temperature": -1}}, "temperature"),
        ("/sessions/seal", {"secret": "SECRET", "outcome": "won"}, "outcome"),
        ("/sessions/seal", {"secret": "SECRET", "outcome": {}}, "outcome"),
        ("/sessions/seal", {"secret": "SECRET", "rewards": 1}, "rewards"),
        ("/sessions/seal", {"secret": "SECRET", "rewards": ["1"]}, "rewards"),
        ("/sessions/seal", {"rewards": [1]}, "secret"),
        ("/sessions/drop", {"secret": ""}, "secret"),
        ("/sessions/result", {"secret": "SECRET", "timeout_s": -1}, "timeout_s"),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it(path, body, names):
    gateway = gateway_of()
    session = gateway.open()
    if body.get("secret") == "SECRET":
        body = body | {"secret": session.secret}
    with knocking(gateway) as knock:
        response = knock(path, body)
    assert response.status_code == 400
    assert names in response.json()["error"]["message"]
    assert session.secret not in response.text
    assert session.rollout.state == "PENDING"


def test_a_gateway_that_captures_no_tokens_says_so():
    with remote(Gateway(admin_key=KEY)) as far, pytest.raises(UsageError, match="capture tokens"):
        far.open()


@pytest.mark.parametrize(
    "key", ["", "short", "with spaces in between", "schl\u00fcssel-schl\u00fcssel"]
)
def test_an_admin_key_that_is_none_is_refused(key):
    with pytest.raises(UsageError, match="admin key") as caught:
        Gateway(admin_key=key)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key"), [("ftp://x", KEY), ("127.0.0.1:80", KEY), ("http://x", "")]
)
def test_what_is_no_gateways_address_is_refused(url, key):
    with pytest.raises(UsageError):
        RemoteGateway(url, key)


def test_errors_are_typed_and_hold_no_key():
    bare = Gateway()
    with GatewayServer(gateway_of()) as server, GatewayServer(bare) as other:
        kinds: dict[Any, RemoteGateway] = {
            AccessDeniedError: RemoteGateway(server.url, "another-key-of-nobody"),
            NotFoundError: RemoteGateway(other.url, KEY),
            UnreachableError: RemoteGateway(f"http://127.0.0.1:{_free_port()}", KEY, patience_s=0),
        }
        for kind, far in kinds.items():
            with far, pytest.raises(kind) as caught:
                far.open()
            assert isinstance(caught.value, JobRuntimeError)
            assert caught.value.operation == "OpenSession"
            assert KEY not in str(caught.value)
            assert "key-of" not in repr(far)


def test_an_answer_of_something_else_is_an_error_and_no_session():
    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": statuses.pop(0), "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    statuses = [200, 502]
    with serving(app) as url, RemoteGateway(url, KEY) as far:
        with pytest.raises(JobRuntimeError, match="200"):
            far.stats()
        with pytest.raises(ServerError, match="502"):
            far.stats()


def test_a_gateway_that_is_not_up_yet_is_waited_for():
    port = _free_port()
    server = GatewayServer(gateway_of(), port=port)
    starter = threading.Timer(0.5, server.start)
    starter.start()
    with RemoteGateway(f"http://127.0.0.1:{port}", KEY) as far:
        assert ask(far.open().config()) == "one"
    starter.join()
    server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
