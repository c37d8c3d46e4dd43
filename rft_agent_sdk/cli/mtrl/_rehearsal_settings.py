"""What a rehearsal was asked for, and what it settles before anything is started."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.cli.mtrl._rehearsal_job import read_prompts
from rft_agent_sdk.cli.mtrl._rehearsal_policy import default_policy
from rft_agent_sdk.environment import load_environment
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.hyperparameters import Chosen, Rule
    from rft_agent_sdk.mtrl.plan import JobPlan
    from rft_agent_sdk.mtrl.prices import Prices
    from rft_agent_sdk.mtrl.rehearsal import Plan, Terms

PROJECT = Path("agentcore/agentcore.json")
_STEPS, _BATCH, _GROUP, _VALIDATION = 2, 4, 4, 4
_MOST_MADE = 64
"""Rows that the environment is asked for at most; further steps play them again."""
_SPEED = 10.0
_SECRET = re.compile(r"(?<=//)[^/?#]*@|\?[^#]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the verb was asked for."""

    run_dir: Path
    agent: str
    """`FILE.py` or `MODULE:OBJECT`, started here; without meaning where there is a URL."""
    agent_url: str | None = None
    """Of an agent that runs already."""
    gateway_port: int = 0
    dataset: Path | None = None
    """`None` takes tasks of the environment."""
    validation: Path | None = None
    rows: int = 0
    """Of the dataset, from the first; 0 for all."""
    validation_rows: int | None = None
    """The same of validation; 0 for no validation, `None` for a few, or for all of a full rehearsal."""
    environment: str = "wordle"
    policy: str | None = None
    noise: float = 0.3
    seed: int = 0
    steps: int | None = None
    batch: int | None = None
    group: int | None = None
    is_full: bool = False
    """Whether the job is played with its own numbers, at the service's pace."""
    speed: float | None = None
    silence_s: float = 5.0
    """Real seconds for which an agent that has answered may be silent; a full rehearsal waits for the timeout."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    """Of the job, as text."""
    model: str = "openai-reasoning-gpt-oss-20b"
    region: str = "us-west-2"
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """A channel's file and its prompts."""

    path: Path
    prompts: list[str]
    """Those that are played."""
    every: list[str]
    """Those of the whole file, with which the job would be launched."""

    @property
    def rows(self) -> int:
        """How many the file has."""
        return len(self.every)

    @property
    def played(self) -> bytes:
        """The file to upload: with the prompts that are played, and nothing else."""
        if len(self.prompts) == self.rows:
            return self.path.read_bytes()
        lines = (json.dumps({"prompt": prompt}) for prompt in self.prompts)
        return "".join(f"{line}\n" for line in lines).encode()

    @property
    def name(self) -> str:
        """Its name in S3."""
        return self.path.name if len(self.prompts) == self.rows else f"{self.path.stem}.jsonl"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is settled."""

    settings: Settings
    values: Mapping[str, Any]
    """All hyperparameters that the job has."""
    chosen: Chosen
    """Those that a launch settles."""
    rules: Mapping[str, Rule]
    """All there are."""
    policy: str
    plan: Plan
    terms: Terms
    train: Data
    validation: Data | None

    @property
    def policy_shown(self) -> str:
        """The policy's name without what may be a secret in a server's URL: it is printed and kept."""
        return _SECRET.sub("", self.policy)

    @property
    def job_plan(self) -> JobPlan:
        """What the real job would play; of rows that the environment made there are as many as needed."""
        from rft_agent_sdk.mtrl.plan import make_plan

        rows = self.train.rows
        if self.settings.dataset is None:
            rows = self.values["max_steps"] * self.values["global_batch_size"]
        held_out = self.validation.rows if self.validation else 0
        return make_plan(rows, self.values, validation_rows=held_out)


def prepare(settings: Settings) -> Prepared:
    """Settle a rehearsal and read its data; rows that the environment makes are written to the run's folder.

    Raises:
        UsageError: Something in the settings is not there, or no job could be launched with it.
    """
    values, chosen, rules = _hyperparameters(settings)
    policy = settings.policy or default_policy(settings.environment)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    if settings.is_full:
        if settings.dataset is None:
            raise UsageError("a full rehearsal plays the job's own rows: name them with --dataset")
        train = _data(settings, "train", settings.dataset, settings.rows or None, 0)
        plan = _plan(settings, values, _full_sizes(values, train.rows))
    else:
        plan = _plan(settings, values, (_STEPS, _BATCH, _GROUP))
        made = min(plan.steps * plan.batch, _MOST_MADE)
        train = _data(settings, "train", settings.dataset, settings.rows or None, made)
    is_scripted = not policy.startswith("openai:")
    terms = _terms(settings, values, is_scripted=is_scripted)
    return Prepared(
        settings, values, chosen, rules, policy, plan, terms, train, _validation(settings)
    )


def launch_settings(path: Path) -> dict[str, Any]:
    """Return what a launch's YAML file says of a rehearsal, by the names of `Settings`.

    Datasets that are not files here cannot be rehearsed, and are left out: the environment makes rows then.

    Raises:
        UsageError: The file cannot be read, or says what no launch takes.
    """
    from rft_agent_sdk.cli.mtrl._launch_options import read_launch
    from rft_agent_sdk.mtrl.findings import Severity
    from rft_agent_sdk.mtrl.launch_settings import settle

    spec = read_launch(path, {})
    settled = settle(spec)
    for finding in settled.findings:
        if finding.severity is Severity.ERROR:
            raise UsageError(f"{path}: {finding.where}: {finding.message}. {finding.fix}")
    found: dict[str, Any] = {"region": spec.region, "model": spec.model_name}
    for name, place in (("dataset", spec.dataset), ("validation", spec.validation_dataset)):
        found[name] = Path(place) if not place.startswith(("s3://", "arn:")) and place else None
    told = {name: value for name, value in found.items() if value}
    told["hyperparameters"] = {name: str(one) for name, one in settled.chosen.values.items()}
    return told


def deployed_variables(agent: str, project: Path = PROJECT) -> dict[str, str]:
    """Return the variables that a project gives the runtime with this entrypoint; none where it is none of its."""
    try:
        runtimes = json.loads(project.read_text("utf-8"))["runtimes"]
        for runtime in runtimes:
            entrypoint = Path(runtime["codeLocation"]) / runtime["entrypoint"]
            if agent.endswith(".py") and entrypoint.resolve() == Path(agent).resolve():
                return {one["name"]: one["value"] for one in runtime.get("envVars", [])}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return {}


def _full_sizes(values: Mapping[str, Any], rows: int) -> tuple[int, int, int]:
    """Return the job's own steps, batch and group.

    Raises:
        UsageError: The rows do not make one step.
    """
    from rft_agent_sdk.mtrl.plan import make_plan

    plan = make_plan(rows, values)
    if not plan.steps:
        raise UsageError(
            f"{rows} rows do not make one step of {plan.batch_size} prompts: add rows, or take a smaller "
            "global_batch_size"
        )
    return plan.steps, plan.batch_size, plan.group_size


def _plan(settings: Settings, values: Mapping[str, Any], sizes: tuple[int, int, int]) -> Plan:
    """Return how much is played: what was asked for, else steps, batch and group of `sizes`."""
    from rft_agent_sdk.mtrl.rehearsal import Plan

    steps, batch, group = sizes
    return Plan(
        steps=settings.steps or steps,
        batch=settings.batch or batch,
        group=settings.group or group,
        val_every=values["val_every"],
        sampling=SamplingParams(
            values["temperature"], values["sampling_top_p"], values["sampling_max_tokens"]
        ),
        success_threshold=values["success_threshold"],
    )


def _terms(settings: Settings, values: Mapping[str, Any], *, is_scripted: bool) -> Terms:
    from rft_agent_sdk.mtrl.rehearsal import Terms

    return Terms(
        concurrency=values["rollout_max_concurrency"],
        timeout_s=values["rollout_timeout"],
        attempts=values["rollout_max_retries"],
        speed=settings.speed or (_SPEED if is_scripted and not settings.is_full else 1.0),
        silence_s=None if settings.is_full else settings.silence_s,
    )


def _validation(settings: Settings) -> Data | None:
    """Return the validation channel; `None` where there is none, or none is wanted."""
    limit, path = settings.validation_rows, settings.validation
    if limit == 0 or (path is None and settings.dataset is not None):
        return None
    if limit is None and not settings.is_full:
        limit = _VALIDATION
    return _data(settings, "validation", path, limit, _VALIDATION)


def _data(settings: Settings, split: str, path: Path | None, limit: int | None, count: int) -> Data:
    """Return a channel's data: a file's, or tasks of the environment in a file of their own.

    Args:
        settings: What was asked for.
        split: Of the environment's tasks.
        path: The file.
        limit: Most rows that are played; `None` for all.
        count: Tasks of the environment where there is no limit.
    """
    if path is not None:
        prompts = read_prompts(path)
        return Data(path, prompts[:limit], prompts)
    prompts = load_environment(settings.environment).tasks(split, limit or count, settings.seed)
    path = settings.run_dir / f"{split}.jsonl"
    lines = (json.dumps({"prompt": prompt}, ensure_ascii=False) for prompt in prompts)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return Data(path, prompts, prompts)


def _hyperparameters(
    settings: Settings,
) -> tuple[dict[str, Any], Chosen, Mapping[str, Rule]]:
    """Return all hyperparameters that the job has, those that a launch settles, and all there are.

    Raises:
        UsageError: One is unknown, or out of its range.
    """
    from rft_agent_sdk.mtrl.hyperparameters import (
        check,
        choose,
        effective,
        published,
        read_value,
    )

    rules = published(settings.model)
    asked = {name: read_value(name, text, rules) for name, text in settings.hyperparameters.items()}
    for finding in check(asked, rules, "published"):
        raise UsageError(f"{finding.where}: {finding.message}. {finding.fix}")
    chosen = choose(settings.model, asked)
    return effective(chosen, rules), chosen, rules
