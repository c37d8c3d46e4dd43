"""Cold start: from the start of the process to the first healthy /ping and to the end of a first rollout.

The files are in the page cache on both sides, so this is the interpreter's work, not the disk's.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import time
from typing import NamedTuple

from tests.bench.policy_server import Seen, policy_server
from tests.bench.sides import OURS, PEER, ROOT, Side
from tests.bench.table import Row, progress

RUNS = 5
DEADLINE_S = 60


class Times(NamedTuple):
    ping_s: float
    invocation_s: float


def _environment(side: Side, seen: Seen) -> dict[str, str]:
    """An agent's environment on AgentCore, with documentation keys and the loopback Job Runtime."""
    spec = json.loads((ROOT / "agentcore" / "agentcore.json").read_text(encoding="utf-8"))
    ours = {pair["name"]: pair["value"] for pair in spec["runtimes"][0]["envVars"]}
    return {
        **(ours if side is OURS else {}),
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", ""),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "us-west-2",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_EC2_METADATA_DISABLED": "true",
        "RFT_RUNTIME_ENDPOINT": seen.url,
        "OTEL_PYTHON_DISTRO": "aws_distro",
        "OTEL_PYTHON_CONFIGURATOR": "aws_configurator",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _request(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _await_ping(process: subprocess.Popen[bytes], port: int, began: float) -> None:
    while time.perf_counter() - began < DEADLINE_S:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended with {process.returncode} before its first /ping")
        try:
            if _request(port, "GET", "/ping")[0] == 200:
                return
        except ConnectionError:
            time.sleep(0.005)
    raise RuntimeError(f"no /ping within {DEADLINE_S} s")


def start(side: Side, *, traced: bool) -> Times:
    """Start one side, play one rollout, stop it.

    Raises:
        RuntimeError: It did not start, or the rollout was not sampled, completed and rewarded.
    """
    payload = (ROOT / "payload.json").read_bytes()
    answer = json.loads(json.loads(payload)["prompt"])["answer"]
    port = _free_port()
    command = [str(side.python), "-c", f"import main; main.app.run(port={port})"]
    if traced:
        command.insert(0, str(side.venv / "bin" / "opentelemetry-instrument"))
    with policy_server(answer) as seen:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=side.app, env=_environment(side, seen), stderr=subprocess.DEVNULL
        )
        try:
            _await_ping(process, port, began)
            ping_s = time.perf_counter() - began
            status, body = _request(port, "POST", "/invocations", payload)
            invocation_s = time.perf_counter() - began
        finally:
            process.kill()
            process.wait()
        if status != 200 or json.loads(body)["reward"] < 1 or not seen.is_whole_rollout():
            raise RuntimeError(f"{side.name}: no whole rollout: {status} {body!r} {seen.paths}")
    return Times(ping_s, invocation_s)


def medians(*, traced: bool) -> tuple[Times, Times]:
    """Median times of both sides, which take turns, so that a busy machine slows both."""
    pairs = [(start(OURS, traced=traced), start(PEER, traced=traced)) for _ in range(RUNS)]
    ours, peer = (
        Times(*map(statistics.median, zip(*times, strict=True)))
        for times in zip(*pairs, strict=True)
    )
    return ours, peer


def measure() -> list[Row]:
    """Start both sides with and without bytecode and tracing."""
    for side in (OURS, PEER):
        side.install()
    rows = []
    for compiled in (False, True):
        for side in (OURS, PEER):
            side.compile_bytecode() if compiled else side.drop_bytecode()
        for traced in (False, True):
            how = f"{'with' if compiled else 'no'} .pyc{', traced' if traced else ''}"
            progress(f"cold starts, {how}")
            ours, peer = medians(traced=traced)
            rollout = f"cold start to the end of the first rollout, {how}"
            rows += [
                Row(f"cold start to /ping, {how}", ours.ping_s, peer.ping_s, "s", bar=3),
                Row(rollout, ours.invocation_s, peer.invocation_s, "s", bar=3),
            ]
    return rows
