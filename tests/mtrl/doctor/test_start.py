"""Starting an agent, timing its first ping, and leaving nothing behind."""

import os
import socket

from rft_agent_sdk.mtrl.doctor.start import post, started
from tests.mtrl.doctor.world import MAIN


def test_it_is_started_on_loopback_and_another_port_than_it_names(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(MAIN.replace("app.run()", 'app.run(host="0.0.0.0", port=8080)'))
    with started(path, environ=os.environ, within_s=20) as start:
        assert start.url
        assert start.url.startswith("http://127.0.0.1:")
        assert not start.url.endswith(":8080")
        assert start.ping
        assert start.ping["status"] == "Healthy"
        assert 0 < start.took_s < 20
        status, body, _ = post(start.url, {}, timeout_s=10)
        assert status == 200
        assert body
        assert body["reward"] == -1.5
    port = int(start.url.rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_one_that_ends_tells_its_code_and_its_last_words(tmp_path):
    path = tmp_path / "main.py"
    path.write_text("raise RuntimeError('no key')\n")
    with started(path, environ=os.environ, within_s=20) as start:
        assert start.url is None
        assert start.code == 1
        assert "RuntimeError: no key" in start.log


def test_one_that_hangs_is_given_up_and_ended(tmp_path):
    path = tmp_path / "main.py"
    path.write_text("import time\ntime.sleep(60)\n")
    with started(path, environ=os.environ, within_s=0.5) as start:
        assert (start.url, start.code) == (None, None)
        assert start.took_s >= 0.5
