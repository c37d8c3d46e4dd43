"""`rft evaluate`: play a dataset with any policy, and tell what is solved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Gateway, Session
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.dataset import Row
    from rft_agent_sdk.training.evaluate import EvalReport
    from rft_agent_sdk.training.rollouts import Group


@dataclass(frozen=True, slots=True)
class Asked:
    """What the verb was asked to play, and how."""

    agent_url: str
    agent_arn: str
    sampling: SamplingParams
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
    ) -> Session:
        """Open a session; the policy itself knows its context."""
        return self.gateway.open(policy=self.policy, task=task, sampling=sampling)


@click.command("evaluate", short_help="Play a dataset and tell what is solved.")
@click.option(
    "--dataset", "dataset", required=True, metavar="FILE", help="JSONL, JSON, CSV, Parquet."
)
@click.option("--agent-url", default="", help="Where the agent serves.")
@click.option("--agent-arn", default="", help="ARN of a deployed AgentCore runtime instead.")
@click.option("--policy", help="A policy of the environment, or openai:URL.")
@click.option("--environment", default="wordle", show_default=True, help="Whose policies to use.")
@click.option("--config", "config_path", metavar="FILE", help="A run's config: play its model.")
@click.option(
    "--checkpoint", metavar="NAME", help="A saved state of that model, or a record of one."
)
@click.option("--temperature", default=0.0, show_default=True, type=click.FloatRange(0, 2))
@click.option("--max-tokens", type=click.IntRange(1), help="Of one reply.  [default: the policy's]")
@click.option("--per-task", default=1, show_default=True, type=click.IntRange(1), help="Rollouts.")
@click.option("--max-prompts", default=0, show_default=True, type=click.IntRange(0), help="0: all.")
@click.option("--success-threshold", default=1.0, show_default=True, help="Where nothing tells.")
@click.option("--rollout-time", default=1800.0, show_default=True, help="Seconds of a rollout.")
@click.option("--concurrency", default=64, show_default=True, type=click.IntRange(1))
@click.option("--gateway-host", default="", help="Address to bind.  [default: as it is needed]")
@click.option("--gateway-port", default=0, show_default=True, type=click.IntRange(0, 65535))
@click.option("--out", metavar="FILE", help="Write each rollout's diagnostics there, as JSONL.")
def command(
    dataset: str,
    policy: str | None,
    environment: str,
    config_path: str | None,
    checkpoint: str | None,
    temperature: float,
    max_tokens: int | None,
    max_prompts: int,
    out: str | None,
    **given: Any,
) -> int:
    """Play every row of a dataset and print, as JSON, what is solved, with its uncertainty.

    The policy is one of an environment, a server, or, with --config, the model that a run trains: as it
    was before training, or from a --checkpoint.
    """
    from rft_agent_sdk.training.config import load_config
    from rft_agent_sdk.training.dataset import read_rows

    if bool(given["agent_url"]) is bool(given["agent_arn"]):
        raise UsageError("say who plays: --agent-url or --agent-arn, one of the two")
    if (policy is None) is (config_path is None):
        raise UsageError("say who answers: --policy or --config, one of the two")
    asked = Asked(
        agent_url=given["agent_url"],
        agent_arn=given["agent_arn"],
        sampling=SamplingParams(temperature, None, max_tokens),
        per_task=given["per_task"],
        rollout_s=given["rollout_time"],
        concurrency=given["concurrency"],
        success_threshold=given["success_threshold"],
        host=given["gateway_host"],
        port=given["gateway_port"],
    )
    rows = read_rows(dataset, max_prompts)
    if policy is not None:
        answers = find_policy(policy, environment)
        return composing.run(_shown(_with_policy(asked, rows, answers), out))
    if config_path is None:  # told apart above
        raise UsageError("--config is missing")
    config = load_config(config_path)
    return composing.run(_shown(_with_engine(asked, rows, config, checkpoint), out))


async def _shown(work: Any, out: str | None) -> None:
    report, groups = await work
    click.echo(json.dumps(report.to_json(), indent=2))
    if out is not None:
        lines = [
            json.dumps({"task": number, **one.to_json()})
            for number, group in enumerate(groups)
            for one in group.rollouts
        ]
        Path(out).write_text("".join(f"{line}\n" for line in lines), "utf-8")  # noqa: ASYNC240 - all is over


async def _with_policy(
    asked: Asked, rows: list[Row], policy: Any
) -> tuple[EvalReport, list[Group]]:
    from rft_agent_sdk.gateway import Gateway

    gateway = Gateway()
    return await _played(asked, rows, gateway, PolicyHost(gateway, policy))


async def _with_engine(
    asked: Asked, rows: list[Row], config: Config, checkpoint: str | None
) -> tuple[EvalReport, list[Group]]:
    engine = await composing.open_engine(config)
    try:
        if checkpoint is not None:
            await engine.load_state(_state_of(checkpoint))
        capture = composing.capture(config, engine)
        capture.bind(await engine.save_weights_and_get_sampling_client(), 0)
        return await _played(asked, rows, capture.gateway, capture.gateway)
    finally:
        await engine.stop()


async def _played(
    asked: Asked, rows: list[Row], gateway: Gateway, host: Any
) -> tuple[EvalReport, list[Group]]:
    from rft_agent_sdk.training.evaluate import evaluate
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
            await rollouts.preflight(rows[0].payload, asked.sampling)
            return await evaluate(
                rollouts,
                [row.payload for row in rows],
                sampling=asked.sampling,
                per_task=asked.per_task,
                success_threshold=asked.success_threshold,
            )


def _state_of(checkpoint: str) -> str:
    """Return the engine's name of a state: what a run's record says, or the name itself."""
    from rft_agent_sdk.training.checkpoint import read_checkpoint

    if checkpoint.endswith(".json") and Path(checkpoint).is_file():
        return read_checkpoint(checkpoint).engine_state
    return checkpoint
