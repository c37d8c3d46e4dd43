"""`rft demo`: the whole path on this machine, with nothing but loopback.

The entrypoint that `agentcore deploy` ships runs as a process of its own and plays over HTTP against
the gateway, which stands in for the Job Runtime and verifies every token.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.boards import components, tiles
from rft_agent_sdk.cli.inputs import ENTRYPOINT, read_payload, session_id
from rft_agent_sdk.cli.invoke import invoke_url
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.cli.traced import traces
from rft_agent_sdk.environment import load_environment
from rft_agent_sdk.errors import RftError, UsageError
from rft_agent_sdk.payload import RolloutRequest, parse_request
from rft_agent_sdk.testing import FakeCredentials
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rich.console import Console

    from rft_agent_sdk.gateway import Trajectory

_START_S = 60.0


@click.command("demo", short_help="Play payload.json through the deployed code, here.")
@click.option("--payload", "path", default="payload.json", show_default=True)
@click.option("--policy", default="solver", show_default=True, help="solver, random or openai:URL.")
@click.option("--environment", default="wordle", show_default=True)
@click.option("--app", "entrypoint", default=ENTRYPOINT, show_default=True)
@click.option("--runs", default="runs", show_default=True, help="Folder for the run's record.")
@traces
def command(path: str, policy: str, environment: str, entrypoint: str, runs: str) -> None:
    """Play one rollout: the AgentCore entrypoint against the gateway, both on this machine."""
    from rich.console import Console

    from rft_agent_sdk.gateway import Gateway, GatewayServer

    console = Console(highlight=False, soft_wrap=True)
    payload = read_payload(path)
    request = parse_request(payload)
    if request.job is None:
        raise UsageError(f"payload {path!r} names no job: wanted metadata.jobArn and rolloutId")
    keys = FakeCredentials()
    gateway = Gateway(secrets={keys.access_key: keys.secret_key})
    job = gateway.register_job(request.job.job_arn, policy=find_policy(policy, environment))
    with GatewayServer(gateway) as server:
        console.print(f"gateway     {server.url}  (in the Job Runtime's place; knows the job)")
        with _agent(entrypoint, environment, server.url, keys) as url:
            console.print(f"entrypoint  {url}  ({entrypoint}, as deployed)")
            body = invoke_url(url, payload, session_id(None), 600)
        trajectory = job.trajectories[request.job.rollout_id]
        _show(console, request, environment, trajectory, body)
    record = _write(Path(runs), payload, trajectory, body)
    console.print(f"record      {record}")
    ours = body["_rft"]
    if not ours["reported"]:
        raise RftError(f"the reward was not accepted: {ours}")
    if "error" in ours:
        raise RftError(f"the rollout ended by {ours['outcome']}: {ours['error']}")


@contextmanager
def _agent(
    entrypoint: str, environment: str, endpoint: str, keys: FakeCredentials
) -> Iterator[str]:
    """Run the entrypoint as a process with the documentation's AWS keys; yields its URL."""
    if not Path(entrypoint).is_file():
        raise UsageError(f"there is no entrypoint {entrypoint!r}: run from the project's root")
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "RFT_RUNTIME_ENDPOINT": endpoint,
        "RFT_ENVIRONMENT": environment,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "uvicorn", "main:app", "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [*command, "--app-dir", str(Path(entrypoint).parent), "--log-level", "warning"],
            env={**kept, **settings},
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_up(process, port, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Any) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    log.seek(0)
    raise RftError(f"the entrypoint did not start:\n{log.read().decode('utf-8', 'replace')}")


def _show(
    console: Console, request: RolloutRequest, environment: str, trajectory: Trajectory, body: JSON
) -> None:
    """Replay the recorded calls in a fresh episode and print what the policy saw and did."""
    episode = load_environment(environment).start(request.task)
    console.print(f"\n{episode.prompt}\n")
    for turn in trajectory.turns:
        if turn.reply.text and not turn.reply.tool_calls:
            console.print(f"  policy: {turn.reply.text}")
        for call in turn.reply.tool_calls:
            result = episode.call(call.name, json.loads(call.arguments))
            if episode.board:
                console.print(tiles(episode.board[-1]))
            console.print(f"{_indented(result.text)}\n", style="dim")
    ours = body["_rft"]
    made_of = components(ours.get("components", {}))
    console.print(f"reward      {body['reward']:+.3f}{made_of}", style="bold")
    told = ", ".join(f"{reward:+.3f}" for reward in trajectory.rewards) or "none"
    console.print(f"outcome     {ours['outcome']}; {trajectory.state} at the gateway: {told}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _write(runs: Path, payload: JSON, trajectory: Trajectory, body: JSON) -> Path:
    """Write the rollout's record: the request, each turn, each call as it was answered, the end."""
    folder = runs / datetime.now(UTC).strftime("demo-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "payload": payload,
        "response": body,
        "state": trajectory.state.value,
        "rewards": list(trajectory.rewards),
        "turns": [asdict(turn) for turn in trajectory.turns],
        "calls": [asdict(call) for call in trajectory.calls],
    }
    path = folder / "rollout.json"
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False, default=dict) + "\n", "utf-8")
    return path
