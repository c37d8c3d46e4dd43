"""The server: where it binds, and that nothing of it stays behind."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Gateway, GatewayServer, ScriptedPolicy
from rft_agent_sdk.types import Message
from tests.gateway.serve import BODY, bearer, echo, http_client, served

STREAMED = BODY | {"stream": True}
CHAT = "/v1/chat/completions"


def test_it_serves_on_loopback_on_a_free_port_and_stops_clean():
    before = set(threading.enumerate())
    gateway = Gateway()
    session = gateway.open(policy=echo)
    with GatewayServer(gateway) as server:
        url = server.url
        assert url.startswith("http://127.0.0.1:")
        reply = httpx.post(url + CHAT, json=BODY, headers=bearer(session.secret), trust_env=False)
        assert reply.status_code == 200
    assert set(threading.enumerate()) <= before  # those of other tests may have ended meanwhile
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    with pytest.raises(UsageError, match="before start"):
        _ = server.url


def test_it_can_be_started_again_but_not_twice_at_once():
    server = GatewayServer(Gateway())
    for _ in range(2):
        with server:
            assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200
            with pytest.raises(UsageError, match="running already"):
                server.start()
    server.stop()


def test_a_port_that_is_taken_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            GatewayServer(Gateway(), port=port).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.1", "gateway.example"])
def test_it_refuses_to_serve_other_machines_unless_told_to(host):
    with pytest.raises(UsageError, match="allow_remote"):
        GatewayServer(Gateway(), host=host)


def test_told_to_it_binds_widely_and_names_the_host_agents_use():
    with GatewayServer(
        Gateway(), host="0.0.0.0", allow_remote=True, url_host="127.0.0.1"
    ) as server:
        assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200


def test_a_request_in_flight_is_let_finish_at_the_stop():
    asked = threading.Event()

    async def slow(messages, tools):
        asked.set()
        await asyncio.sleep(0.3)
        return Message("assistant", "done")

    gateway = Gateway()
    session = gateway.open(policy=slow)
    replies: list[int] = []
    server = GatewayServer(gateway).start()
    url = server.url + CHAT

    def send():
        replies.append(
            httpx.post(url, json=BODY, headers=bearer(session.secret), trust_env=False).status_code
        )

    thread = threading.Thread(target=send)
    thread.start()
    assert asked.wait(5)
    server.stop()
    thread.join()
    assert replies == [200]


def test_a_request_that_never_ends_does_not_hold_up_the_stop():
    async def never(messages, tools):
        await asyncio.Event().wait()

    gateway = Gateway()
    session = gateway.open(policy=never)
    with GatewayServer(gateway, grace_s=1) as server, http_client(server.url) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post(CHAT, json=BODY, headers=bearer(session.secret), timeout=0.1)
        with pytest.raises(httpx.ReadTimeout):
            http.post(CHAT, json=STREAMED, headers=bearer(session.secret), timeout=0.1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    assert not session.turns


FOREVER = """
from rft_agent_sdk.gateway import Gateway, GatewayServer
try:
    GatewayServer(Gateway()).serve_forever(lambda url: print(url, flush=True))
except KeyboardInterrupt:
    print("stopped clean")
"""


def test_it_serves_in_the_foreground_until_interrupted():
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", FOREVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (out, err, process.returncode) == ("stopped clean\n", "", 0)


def test_slow_functions_run_side_by_side():
    barrier = threading.Barrier(12)

    def meet(messages, tools):
        barrier.wait(5)  # breaks unless all twelve are inside at one time
        return Message("assistant", "met")

    gateway = Gateway()
    session = gateway.open(policy=ScriptedPolicy(meet))
    with served(gateway) as http:
        statuses: list[int] = []

        def send():
            reply = http.post(CHAT, json=BODY, headers=bearer(session.secret))
            statuses.append(reply.status_code)

        threads = [threading.Thread(target=send) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 12


def test_the_package_itself_does_not_load_the_gateway():
    code = "import sys, rft_agent_sdk; print('uvicorn' in sys.modules, 'rft_agent_sdk.gateway' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
