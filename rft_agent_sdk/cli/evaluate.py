"""`rft evaluate`: play a dataset with any policy, and tell what is solved."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.rollout import REASONING_EFFORTS
from rft_agent_sdk.types import SamplingParams

_LABEL = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
BASE = "base"
"""Names the model before training."""
_SECRET = re.compile(r"(?<=//)[^/?#]*@|\?[^#]*")
"""What may be a secret in a server's URL: labels are printed and kept."""

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Gateway, Session
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.dataset import Row
    from rft_agent_sdk.training.engines.base import Engine
    from rft_agent_sdk.training.matrix import Results

Open = Callable[["Config"], Awaitable["Engine"]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the verb was asked to play, and how."""

    agent_url: str
    agent_arn: str
    temperatures: tuple[float, ...]
    max_tokens: int | None
    reasoning_effort: str | None
    per_task: int
    rollout_s: float
    concurrency: int
    success_threshold: float
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class PolicyHost:
    """A gateway whose sessions are answered by a policy: messages, without tokens."""

    gateway: Gateway
    policy: Any

    def open(
        self,
        *,
        task: str | None = None,
        sampling: SamplingParams | None = None,
        max_context_tokens: int | None = None,
        seed: int | None = None,
    ) -> Session:
        """Open a session; the policy itself knows its context."""
        return self.gateway.open(policy=self.policy, task=task, sampling=sampling)


@click.command("evaluate", short_help="Play a dataset and tell what is solved.")
@click.option(
    "--dataset", "dataset", required=True, metavar="FILE", help="JSONL, JSON, CSV, Parquet."
)
@click.option("--agent-url", default="", help="Where the agent serves.")
@click.option("--agent-arn", default="", help="ARN of a deployed AgentCore runtime instead.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="[LABEL=]NAME",
    help="A policy of the environment, or openai:URL. Again for another beside it: base=..., trained=...",
)
@click.option("--environment", default="wordle", show_default=True, help="Whose policies to use.")
@click.option("--config", "config_path", metavar="FILE", help="A run's config: play its model.")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="[LABEL=]NAME",
    help="A saved state of that model, or a record of one. Again for another beside it; `base`, first, "
    "is the model before training.",
)
@click.option(
    "--temperature",
    "temperatures",
    multiple=True,
    default=("0",),
    show_default=True,
    metavar="T[,T...]",
    help="From 0 to 2. Again, or a list, plays each policy at each of them.",
)
@click.option(
    "--reasoning-effort",
    type=click.Choice(REASONING_EFFORTS),
    help="Which one the agent runs with. It is recorded with the results and changes nothing: the agent "
    "takes it from REASONING_EFFORT in its own environment, which cannot be set from here.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Of one reply.  [default: the policy's]")
@click.option("--per-task", default=1, show_default=True, type=click.IntRange(1), help="Rollouts.")
@click.option("--max-prompts", default=0, show_default=True, type=click.IntRange(0), help="0: all.")
@click.option("--success-threshold", default=1.0, show_default=True, help="Where nothing tells.")
@click.option("--rollout-time", default=1800.0, show_default=True, help="Seconds of a rollout.")
@click.option("--concurrency", default=64, show_default=True, type=click.IntRange(1))
@click.option("--gateway-host", default="", help="Address to bind.  [default: as it is needed]")
@click.option("--gateway-port", default=0, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--run-dir",
    metavar="DIR",
    help="Write evaluation.json and rollouts.jsonl there.  [default, for a table: one under runs/]",
)
@click.option("--out", metavar="FILE", help="Write each rollout's diagnostics there, as JSONL.")
def command(
    dataset: str,
    policies: tuple[str, ...],
    environment: str,
    config_path: str | None,
    checkpoints: tuple[str, ...],
    max_prompts: int,
    run_dir: str | None,
    out: str | None,
    **given: Any,
) -> int:
    """Play every row of a dataset and print what is solved, with its uncertainty.

    The policy is one of an environment, a server, or, with --config, the model that a run trains: as it
    was before training, or from a --checkpoint. One policy at one temperature is told as JSON; several are
    played in turn over the same rows and told as a table, with the JSON in the run's folder.
    """
    from rft_agent_sdk.training.config import load_config
    from rft_agent_sdk.training.dataset import read_rows
    from rft_agent_sdk.training.matrix import Results

    if bool(given["agent_url"]) is bool(given["agent_arn"]):
        raise UsageError("say who plays: --agent-url or --agent-arn, one of the two")
    if bool(policies) is (config_path is not None):
        raise UsageError("say who answers: --policy or --config, one of the two")
    if checkpoints and config_path is None:
        raise UsageError("--checkpoint is a state of the model that --config names: give that, too")
    asked = _asked(given)
    answers = labelled(policies, environment)
    states = states_of(checkpoints or (BASE,))
    rows = read_rows(dataset, max_prompts)
    is_matrix = len(asked.temperatures) * len(answers or states) > 1
    if is_matrix and run_dir is None:
        run_dir = f"runs/{datetime.now(UTC).strftime('evaluate-%Y%m%d-%H%M%S')}"
    results = Results(Path(run_dir) if run_dir is not None else None)
    if config_path is not None:
        work = with_engine(asked, rows, load_config(config_path), states, results)
    else:
        work = _with_policies(asked, rows, answers, results)
    return composing.run(_shown(work, results, is_matrix=is_matrix, out=out))


def _asked(given: Mapping[str, Any]) -> Asked:
    return Asked(
        agent_url=given["agent_url"],
        agent_arn=given["agent_arn"],
        temperatures=_temperatures(given["temperatures"]),
        max_tokens=given["max_tokens"],
        reasoning_effort=given["reasoning_effort"],
        per_task=given["per_task"],
        rollout_s=given["rollout_time"],
        concurrency=given["concurrency"],
        success_threshold=given["success_threshold"],
        host=given["gateway_host"],
        port=given["gateway_port"],
    )


def _temperatures(texts: Iterable[str]) -> tuple[float, ...]:
    """Return the temperatures that options list, each once, in their order.

    Raises:
        UsageError: One is no number from 0 to 2.
    """
    found = []
    for text in (part for one in texts for part in one.split(",")):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 2:  # not a number compares as neither
            raise UsageError(f"--temperature: wanted numbers from 0 to 2, got {text!r}")
        found.append(value)
    return tuple(dict.fromkeys(found))


def labelled(names: Iterable[str], environment: str) -> dict[str, Any]:
    """Return policies by their labels; one without a label is labelled by its name.

    Raises:
        UsageError: There is no such policy, or two have one label.
    """
    found: dict[str, Any] = {}
    for given in names:
        match = _LABEL.fullmatch(given)
        label, name = match.groups() if match else (_SECRET.sub("", given), given)
        if label in found:
            raise UsageError(
                f"--policy: wanted a label of its own for each, got {label!r} twice: give LABEL=NAME"
            )
        found[label] = find_policy(name, environment)
    return found


async def _shown(work: Any, results: Results, *, is_matrix: bool, out: str | None) -> None:
    from rft_agent_sdk.training.matrix import table

    try:
        await work
    finally:
        if is_matrix and results.cells:
            click.echo(table(results.cells))
            click.echo(f"results in {results.folder}", err=True)
    if not is_matrix:
        click.echo(json.dumps(results.cells[0].to_json(), indent=2))
    if out is not None:
        results.write_rollouts(Path(out))


async def _with_policies(
    asked: Asked, rows: list[Row], policies: Mapping[str, Any], results: Results
) -> None:
    from rft_agent_sdk.gateway import Gateway

    for label, policy in policies.items():
        gateway = Gateway()
        await _play(asked, rows, gateway, PolicyHost(gateway, policy), label, results)


async def with_engine(
    asked: Asked,
    rows: list[Row],
    config: Config,
    states: Mapping[str, str | None],
    results: Results,
    *,
    open_engine: Open = composing.open_engine,
    sampler_of: Callable[[Any, int], Any] | None = None,
) -> None:
    """Play an engine's model in each of its states; the engine is stopped, whatever happens.

    Args:
        asked: What to play.
        rows: The dataset.
        config: The run's whose model it is.
        states: By label, the engine's name of a state; `None` for the weights it starts with.
        results: Takes what comes of it.
        open_engine: Starts the engine.
        sampler_of: See `composing.capture`.
    """
    engine = await open_engine(config)
    try:
        for label, state in states.items():
            if state is not None:
                await engine.load_state(state)
            capture = composing.capture(config, engine, sampler_of)
            capture.bind(await engine.save_weights_and_get_sampling_client(), 0)
            await _play(asked, rows, capture.gateway, capture.gateway, label, results)
    finally:
        await engine.stop()


async def _play(
    asked: Asked, rows: list[Row], gateway: Gateway, host: Any, label: str, results: Results
) -> None:
    """Play one policy at each temperature; what comes of each is added to the results."""
    from rft_agent_sdk.training.evaluate import evaluate
    from rft_agent_sdk.training.matrix import Cell
    from rft_agent_sdk.training.rollouts import Rollouts, RolloutSettings

    agent = composing.agent_of(
        asked.agent_url,
        asked.agent_arn,
        concurrency=asked.concurrency,
        rollout_s=asked.rollout_s,
    )
    with composing.server_for(gateway, asked.agent_url, asked.host, asked.port) as server:
        settings = RolloutSettings(
            server.url, deadline_s=asked.rollout_s, concurrency=asked.concurrency
        )
        async with Rollouts(host, agent, settings) as rollouts:
            sampling = SamplingParams(asked.temperatures[0], None, asked.max_tokens)
            await rollouts.preflight(rows[0].payload, sampling)
            for temperature in asked.temperatures:
                report, groups = await evaluate(
                    rollouts,
                    [row.payload for row in rows],
                    sampling=replace(sampling, temperature=temperature),
                    per_task=asked.per_task,
                    success_threshold=asked.success_threshold,
                )
                results.add(Cell(label, temperature, asked.reasoning_effort, report), groups)


def states_of(checkpoints: Iterable[str]) -> dict[str, str | None]:
    """Return an engine's names of states by their labels; `None` for the model before training.

    Raises:
        UsageError: Two have one label, or the model before training is not the first: no engine goes back to it.
    """
    found: dict[str, str | None] = {}
    for given in checkpoints:
        match = _LABEL.fullmatch(given)
        label, name = match.groups() if match else (given, given)
        if label in found:
            raise UsageError(
                f"--checkpoint: wanted a label of its own for each, got {label!r} twice: give LABEL=NAME"
            )
        if name == BASE and found:
            raise UsageError(f"--checkpoint: wanted {BASE!r} first, got it after {list(found)!r}")
        found[label] = None if name == BASE else _state_of(name)
    return found


def _state_of(checkpoint: str) -> str:
    """Return the engine's name of a state: what a run's record says, or the name itself."""
    from rft_agent_sdk.training.checkpoint import read_checkpoint

    if checkpoint.endswith(".json") and Path(checkpoint).is_file():
        return read_checkpoint(checkpoint).engine_state
    return checkpoint
