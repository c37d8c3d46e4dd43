"""A real small language model is taught to play with a tool: SmolLM2-135M-Instruct, which cannot at first.

Everything goes through what is shipped: the deployed entrypoint plays over the gateway, a teacher's captured games
are imitated by LoRA, and `rft grpo`'s loop goes on by Wordle's own reward. So that it takes minutes, four of a
game's six guesses are played before the policy's first.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from environments.wordle import compact
from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.cli.grpo import train
from rft_agent_sdk.cli.learning import playing
from rft_agent_sdk.cli.policies import find_policy
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.config import Config
from rft_agent_sdk.training.dataset import Row
from rft_agent_sdk.training.datums import build_datums
from rft_agent_sdk.training.engines.base import AdamParams
from rft_agent_sdk.training.imitation import ImitationSettings, datums_of, imitate
from rft_agent_sdk.training.rollouts import Played
from rft_agent_sdk.training.tracking import JsonlTracker, Trackers
from rft_agent_sdk.trajectory import Trajectory, read_jsonl, write_jsonl
from rft_agent_sdk.types import Message, SamplingParams

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".cache" / "smollm2-135m"
"""Made by `make test-smollm`."""
ENVIRONMENT = "environments.wordle:compact"
AGENT = {"RFT_ENVIRONMENT": ENVIRONMENT, "ROLLOUT_BUDGET_SECONDS": "1500"}
"""Settings of the deployed agent; the time is what a busy machine takes."""
PRIOR = (0.0, 0.0, 0.0, 0.0, 1.0)
GAMES, EVALUATED = 48, 12
GRPO_STEPS, STEP_TASKS, GROUP = 2, 3, 4
SAMPLING = SamplingParams(1.0, 1.0, 40)
CONTEXT = 640
"""Room for three calls, of which two may be guesses: what is no word of five letters uses none."""


@dataclass(slots=True)
class Shares:
    """What a policy's turns are."""

    turns: int
    calls: float
    """Share that is a call which can be read."""
    valid: float
    """Share that plays a word of the dictionary by such a call, or recovered from text."""
    reward: float
    """Mean of the games."""


@dataclass(slots=True)
class Report:
    """What was measured."""

    before: Shares | None = None
    imitation: list[float] = field(default_factory=list)
    """Loss of a token, nats, by step."""
    after: Shares | None = None
    grpo: list[dict[str, float]] = field(default_factory=list)
    """The metrics of each step."""
    moved: float = 0.0
    """Norm of what GRPO added to the adapter's second matrices, which begin at 0."""
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    peak_mb: float = 0.0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[stage] = round(time.monotonic() - started, 1)


def tasks(count: int, seed: int) -> list[str]:
    return compact.lessons(count, seed, (), prior_shares=PRIOR)


def config_of(model: Path, folder: Path, url: str, **more: Any) -> Config:
    keys: dict[str, Any] = {
        "engine": "local",
        "base_model": str(model),
        "agent_url": url,
        "lora_rank": 16,
        "lora_alpha": 32,
        "dtype": "bfloat16",
        "device": "cpu",
        "threads": 1,
        "micro_batch_tokens": 512,
        "dataset_path": "tasks.json",
        "seed": 0,
        "max_context_tokens": CONTEXT,
        "max_new_tokens": SAMPLING.max_tokens,
        "max_rollout_time": 1800.0,
        "max_concurrent_rollouts": 32,
        "history_mode": "linear",
        "run_dir": str(folder),
        "mlflow_uri": "none",
    }
    return Config(**(keys | more))


def prove(folder: Path) -> Report:
    """Go through every stage; `folder` takes what each leaves."""
    report = Report()
    folder.mkdir(parents=True, exist_ok=True)
    started = time.process_time()
    with served(AGENT) as url:
        if code := composing.run(_prove(folder, url, report)):
            raise SystemExit(code)  # told to end
    report.cpu_s = round(time.process_time() - started, 1)
    report.peak_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return report


async def _prove(folder: Path, url: str, report: Report) -> None:
    config = config_of(MODEL, folder / "imitation", url)
    with report.timed("before"):
        report.before = shares(await _play(config, 4))
    with report.timed("teacher"):
        games = await taught(config, GAMES)
        write_jsonl(folder / "games.jsonl", games)
    with report.timed("imitation"):
        policy, report.imitation = await _imitate(config, folder)
    config = config_of(policy, folder / "grpo", url)
    with report.timed("after"):
        report.after = shares(await _play(config, EVALUATED))
    with report.timed("grpo"):
        report.grpo, report.moved = await _reinforce(config)


async def _play(config: Config, count: int) -> list[Played]:
    async with playing.playing(config) as at:
        groups = await at.rollouts.run_batch(rows(count, 1), 1, SAMPLING, 7)
    return [one for group in groups for one in group.rollouts]


async def taught(config: Config, count: int) -> list[Trajectory]:
    """Return what the gateway captures of a teacher's games."""
    async with playing.taught(config, find_policy("teacher", ENVIRONMENT)) as rollouts:
        groups = await rollouts.run_batch(rows(count, 2), 1)
    return [one.trajectory for group in groups for one in group.rollouts]


async def _imitate(config: Config, folder: Path) -> tuple[Path, list[float]]:
    run = RunFolder(folder / "imitation")
    settings = ImitationSettings(1.0, 4500, AdamParams(2e-3, beta2=0.98), save_every=1000)
    engine = await composing.open_engine(config)
    try:
        with composing.closing(Trackers([JsonlTracker(run.metrics)])) as trackers:
            datums = datums_of(read_jsonl(folder / "games.jsonl"))
            await imitate(engine, datums, settings, run, trackers)
        policy = await engine.save_weights("imitation")
    finally:
        await engine.stop()
    return Path(policy), [one["train/actor/pg_loss"] for one in metrics(run)]


async def _reinforce(config: Config) -> tuple[list[dict[str, float]], float]:
    keys = {
        "batch_size": STEP_TASKS,
        "responses_per_prompt": GROUP,
        "learning_rate": 3e-4,
        "eval_every": 0,
    }
    chosen = [Row(row) for row in rows(GRPO_STEPS * STEP_TASKS, 3)]
    await train(config.model_copy(update=keys), chosen, [], preflight=False)
    run = RunFolder(config.run_dir)
    checkpoint = run.latest()
    assert checkpoint is not None
    weights = load_file(Path(checkpoint.engine_state, "weights.safetensors"))
    moved = sum(float(one.norm()) ** 2 for name, one in weights.items() if "lora_B" in name)
    return metrics(run), moved**0.5


async def first_pass(config: Config, count: int) -> dict[str, float]:
    """Return what a first pass of training tells of rollouts that were just sampled."""
    async with playing.playing(config) as at:
        groups = await at.rollouts.run_batch(rows(count, 4), 1, SAMPLING, 7)
        kept = [(one.trajectory, 1.0) for group in groups for one in group.rollouts]
        told = await at.engine.forward_backward(build_datums(kept).datums, "ppo")
    return {name: float(value) for name, value in told.items()}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    return [{"prompt": task} for task in tasks(count, seed)]


def shares(played: Sequence[Played]) -> Shares:
    """Return what the turns of some games are."""
    found = [one.trajectory for one in played]
    turns = sum(one.turns for one in found)
    calls = sum(
        bool(message.tool_calls)
        for one in found
        for sample in one.samples
        for message in sample.messages
        if message.role == "assistant"
    )
    words = sum(one.components["guesses"] - one.components["not_in_dictionary"] for one in found)
    reward = sum(one.reward or 0.0 for one in found) / len(found)
    return Shares(turns, calls / turns, words / turns, reward)


def as_chat(message: Message) -> dict[str, Any]:
    """Return a message as a chat template of Hugging Face takes it."""
    calls = [
        {"function": {"name": one.name, "arguments": json.loads(one.arguments)}}
        for one in message.tool_calls
    ]
    return {"role": message.role, "content": message.text, "tool_calls": calls or None}


def metrics(run: RunFolder) -> list[dict[str, float]]:
    return [json.loads(line) for line in run.metrics.read_text("utf-8").splitlines()]


def told(report: Report) -> str:
    """Return a report for people."""
    assert report.before is not None
    assert report.after is not None
    lines = [
        f"seconds {report.seconds}, CPU {report.cpu_s} s, peak {report.peak_mb:.0f} MB",
        f"before {report.before}",
        f"imitation, {len(report.imitation)} steps: {' '.join(f'{one:.2f}' for one in report.imitation)}",
        f"after  {report.after}",
    ]
    names = {
        "sampler/mean_reward": "reward",
        "sampler/flat_groups": "flat",
        "train/sampler/kl": "sampler kl",
        "train/actor/pg_loss": "loss",
        "train/actor/grad_norm": "gradient",
        "time/rollout": "played s",
        "time/train": "trained s",
    }
    for step in report.grpo:
        lines.append("grpo " + ", ".join(f"{word} {step[key]:.3g}" for key, word in names.items()))
    return "\n".join([*lines, f"adapter moved by {report.moved:.3g}"])


if __name__ == "__main__":
    print(told(prove(Path(sys.argv[1]))))
