"""Starting an agent as the runtime does, `python main.py`, on a free port of loopback, and timing its first ping."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from rft_agent_sdk.types import JSON

_LAUNCH = """\
import runpy, sys
import uvicorn
path, port = sys.argv[1], int(sys.argv[2])
config = uvicorn.Config.__init__
def on_port(self, *args, **options):
    options.update(host="127.0.0.1", port=port)
    config(self, *args, **options)
uvicorn.Config.__init__ = on_port
sys.argv[:] = [path]
sys.path.insert(0, __import__("os").path.dirname(path))
runpy.run_path(path, run_name="__main__")
"""
"""Runs a file as the main program, but for the address: the port it names may be taken, and nobody else
is to reach it."""
_TAIL = 1500


@dataclass(frozen=True, slots=True)
class Started:
    """How a start went."""

    url: str | None
    """Where it answers; `None` where it does not."""
    took_s: float
    """Seconds to the first answered ping, or until it was given up."""
    ping: JSON | None = None
    """What it answered."""
    code: int | None = None
    """Its exit code, where it ended by itself."""
    log: str = ""
    """The end of what it printed."""


@contextmanager
def started(path: Path, *, environ: Mapping[str, str], within_s: float) -> Iterator[Started]:
    """Start the file at `path` and yield how that went; whatever was started is ended after it."""
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, on the project's own file
            [sys.executable, "-c", _LAUNCH, str(path.resolve()), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            cwd=path.parent,
            start_new_session=True,  # so that what it starts itself can be ended with it
        )
        try:
            began = time.monotonic()
            ping = _first_ping(process, f"http://127.0.0.1:{port}/ping", began + within_s)
            took = time.monotonic() - began
            code = process.poll()
            if ping is not None:
                yield Started(f"http://127.0.0.1:{port}", took, ping)
            else:
                log.seek(0)
                text = log.read().decode("utf-8", "replace")[-_TAIL:]
                yield Started(None, took, code=code, log=text)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started, all of one session of their own."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _first_ping(process: subprocess.Popen[bytes], url: str, until: float) -> JSON | None:
    with requests.Session() as session:
        session.trust_env = False  # no proxy to this machine
        while time.monotonic() < until and process.poll() is None:
            try:
                answer = session.get(url, timeout=max(0.1, min(5.0, until - time.monotonic())))
            except requests.RequestException:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                try:
                    body = answer.json()
                except ValueError:
                    body = None
                return body if isinstance(body, dict) else {"status": answer.text[:60]}
            time.sleep(0.05)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def post(url: str, payload: JSON, *, timeout_s: float) -> tuple[int, JSON | None, str]:
    """POST to an agent's `/invocations`; return the status, the answer where it is an object, and its text.

    Raises:
        OSError: It could not be reached, or did not answer in time.
    """
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(
            url.rstrip("/").removesuffix("/invocations") + "/invocations",
            data=json.dumps(payload),
            headers={
                "Content-Type": "application/json",
                "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "rft-doctor-" + "0" * 32,
            },
            timeout=timeout_s,
        )
    try:
        body = answer.json()
    except ValueError:
        body = None
    return answer.status_code, body if isinstance(body, dict) else None, answer.text[:500]
