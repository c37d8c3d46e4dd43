"""`rft demo`: the whole path on this machine, with nothing but loopback.

The entrypoint that `agentcore deploy` ships runs as a process of its own and plays over HTTP against
the gateway, which stands in for the Job Runtime and verifies every token.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rft_agent_sdk.cli.boards import components, tiles
from rft_agent_sdk.cli.entrypoint import served
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
        with served(_settings(environment, server.url, keys), entrypoint) as url:
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


def _settings(environment: str, endpoint: str, keys: FakeCredentials) -> dict[str, str]:
    """Return the entrypoint's environment, with the documentation's AWS keys."""
    return {
        "RFT_RUNTIME_ENDPOINT": endpoint,
        "RFT_ENVIRONMENT": environment,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
    }


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
