"""`rft evaluate`: play a dataset with any policy, and tell what is solved."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.asked import BASE, Asked, asked_of, check_states, labelled, states_of
from rft_agent_sdk.errors import RolloutsFailed, UsageError
from rft_agent_sdk.rollout import REASONING_EFFORTS
from rft_agent_sdk.types import SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Gateway, Session
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.dataset import Row
    from rft_agent_sdk.training.engines.base import Engine
    from rft_agent_sdk.training.matrix import Results

Open = Callable[["Config"], Awaitable["Engine"]]


@dataclass(frozen=True, slots=True)
class PolicyHost:
    """A gateway whose sessions are answered by a policy: messages, without tokens."""

    gateway: Gateway
    policy: Any

    @property
    def stray_calls(self) -> Any:
        """What came to the gateway and belongs to no session."""
        return self.gateway.stray_calls

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
    "--dataset",
    "dataset",
    metavar="FILE",
    help="JSONL, JSON, CSV, Parquet.  [default: the config's eval_dataset_path]",
)
@click.option("--agent-url", help="Where the agent serves.  [default: the config's]")
@click.option("--agent-arn", help="ARN of a deployed AgentCore runtime instead.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="[LABEL=]NAME",
    help="A policy of the environment, or openai:URL[#MODEL], a server whose key is in OPENAI_API_KEY. Again "
    "for another beside it: base=..., trained=...",
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
    metavar="T[,T...]",
    help="From 0 to 2. Again, or a list, plays each policy at each of them.  [default: the config's "
    "eval_temperature, or 0]",
)
@click.option(
    "--reasoning-effort",
    type=click.Choice(REASONING_EFFORTS),
    help="Which one the agent runs with. It is recorded with the results and changes nothing: the agent "
    "takes it from REASONING_EFFORT in its own environment, which cannot be set from here.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Of one reply.  [default: the policy's]")
@click.option("--per-task", default=1, show_default=True, type=click.IntRange(1), help="Rollouts.")
@click.option(
    "--max-prompts",
    type=click.IntRange(0),
    help="Of the first rows; 0: all.  [default: the config's]",
)
@click.option(
    "--success-threshold",
    type=float,
    help="Where nothing tells.  [default: the config's, or 1]",
)
@click.option(
    "--rollout-time", type=float, help="Seconds of a rollout.  [default: the config's, or 1800]"
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Rollouts at once.  [default: the config's, or 64]",
)
@click.option("--gateway-host", help="Address to bind.  [default: the config's, or as needed]")
@click.option(
    "--gateway-port", type=click.IntRange(0, 65535), help="0: any.  [default: the config's, or 0]"
)
@click.option(
    "--run-dir",
    metavar="DIR",
    help="Write evaluation.json and rollouts.jsonl there.  [default, for a table: one under runs/]",
)
@click.option("--out", metavar="FILE", help="Write each rollout's diagnostics there, as JSONL.")
def command(
    dataset: str | None,
    policies: tuple[str, ...],
    environment: str,
    config_path: str | None,
    checkpoints: tuple[str, ...],
    max_prompts: int | None,
    run_dir: str | None,
    out: str | None,
    **given: Any,
) -> int:
    """Play every row of a dataset and print what is solved, with its uncertainty.

    The policy is one of an environment, a server, or, with --config, the model that a run trains: as it
    was before training, or from a --checkpoint; whatever is not said then is as the config says. One policy
    at one temperature is told as JSON; several are played in turn over the same rows and told as a table,
    with the JSON in the run's folder.
    """
    from rft_agent_sdk.training.config import load_config
    from rft_agent_sdk.training.dataset import read_rows
    from rft_agent_sdk.training.files import check_writable
    from rft_agent_sdk.training.matrix import Results

    if bool(policies) is (config_path is not None):
        raise UsageError("say who answers: --policy or --config, one of the two")
    if checkpoints and config_path is None:
        raise UsageError("--checkpoint is a state of the model that --config names: give that, too")
    config = None if config_path is None else load_config(config_path)
    asked = asked_of(given, config)
    answers = labelled(policies, environment)
    states = states_of(checkpoints or (BASE,))
    if config is not None:
        check_states(config, states)
        composing.check_engine(config)
        dataset = dataset or config.eval_dataset_path
        max_prompts = config.eval_max_prompts if max_prompts is None else max_prompts
    if not dataset:
        raise UsageError("say what to play: --dataset, or eval_dataset_path in the config")
    rows = read_rows(dataset, max_prompts or 0)
    composing.check_gateway(asked.agent_url, asked.host, asked.port)
    is_matrix = len(asked.temperatures) * len(answers or states) > 1
    if is_matrix and run_dir is None:
        run_dir = f"runs/{datetime.now(UTC).strftime('evaluate-%Y%m%d-%H%M%S')}"
    results = Results(Path(run_dir) if run_dir is not None else None)
    if run_dir is not None:
        check_writable(Path(run_dir, "rollouts.jsonl"), "--run-dir")
    if out is not None:
        check_writable(Path(out), "--out")
    if config is not None:
        work = with_engine(asked, rows, config, states, results)
    else:
        work = _with_policies(asked, rows, answers, results)
    return composing.run(_shown(work, results, is_matrix=is_matrix, out=out))


async def _shown(work: Any, results: Results, *, is_matrix: bool, out: str | None) -> None:
    from rft_agent_sdk.training.matrix import table

    try:
        await work
    finally:
        if is_matrix and results.cells:
            click.echo(table(results.cells))
            click.echo(f"results in {results.folder}", err=True)
        if out is not None and results.lines:
            results.write_rollouts(Path(out))
    if not is_matrix:
        click.echo(json.dumps(results.cells[0].to_json(), indent=2))


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
        for label, named in states.items():
            state = named or config.resume_from_model_package
            if state:  # the optimizer is of no use here, and not every package has one
                await engine.load_state(state, with_optimizer=False)
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
        tps=asked.tps,
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
                try:
                    report, groups = await evaluate(
                        rollouts,
                        [row.payload for row in rows],
                        sampling=replace(sampling, temperature=temperature),
                        per_task=asked.per_task,
                        success_threshold=asked.success_threshold,
                    )
                except RolloutsFailed as error:
                    results.keep(label, temperature, error.groups)
                    raise
                results.add(Cell(label, temperature, asked.reasoning_effort, report), groups)
