"""What a training run is told: one record, read from YAML, with every key's default and limits.

`config.example.yaml` beside this file shows them all; `python -m rft_agent_sdk.training.config` writes it
anew from the record. Nothing here reads a dataset, opens a connection or looks at the environment.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training import config_yaml
from rft_agent_sdk.training.advantages import DEFAULT_EPS, AdvantageMethod
from rft_agent_sdk.training.config_forms import (
    FORMS,
    Bucket,
    Group,
    Model,
    Package,
    Region,
    Role,
    Runtime,
    Url,
)
from rft_agent_sdk.training.engines.base import AdamParams
from rft_agent_sdk.training.health import FINDINGS

EXAMPLE = Path(__file__).with_name("config.example.yaml")

SECTIONS = {
    "engine": "Model",
    "agent_runtime_arn": "Agent",
    "lora_rank": "LoRA",
    "dtype": "Local engine",
    "dataset_path": "Dataset",
    "batch_size": "Training",
    "beta1": "Optimizer",
    "max_rollout_time": "Rollouts",
    "eval_dataset_path": "Evaluation",
    "gateway_host": "Gateway",
    "save_every": "Checkpoints",
    "run_dir": "Logging",
}
"""Heading of each part of the example, by the first key under it."""

_SESSION_KEYS = ("role_arn", "base_model_arn", "s3_output_path", "model_package_group_arn")
_LOCAL_KEYS = (
    "dtype",
    "device",
    "threads",
    "kl_coef",
    "kl_kind",
    "warmup_steps",
    "micro_batch_tokens",
    "packed",
    "gradient_checkpointing",
    "max_sampled_rows",
    "kv_cache_tokens",
)
"""Keys that a training session knows nothing of."""
_Count = Annotated[int, Field(ge=1)]
_CountOrAll = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Findings = Annotated[tuple[str, ...], BeforeValidator(lambda value: _findings(value))]
_Beta = Annotated[float, Field(ge=0, le=0.999999)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would play, before anything is played."""

    prompts: int
    steps_per_epoch: int
    steps: int
    rollouts: int
    """Training rollouts, without retries and refilled groups."""
    evaluations: int
    eval_rollouts: int
    """Rollouts of all evaluations together."""
    start_s: float
    """Seconds it takes to merely start them all at the invocation limit; 0 for an agent by URL."""


class Config(BaseModel):
    """A training run. Keys are flat; a key that is not here is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    engine: Literal["sagemaker", "local"] = "sagemaker"
    """What owns the weights: a SageMaker Training Session, or this machine."""
    region: Region = "us-east-1"
    """AWS region of the training session."""
    role_arn: Role = ""
    """SageMaker execution role, such as arn:aws:iam::123456789012:role/Training. Required by the engine
    sagemaker."""
    base_model_arn: Model = ""
    """Base model to fine-tune, such as
    arn:aws:sagemaker:us-east-1:aws:hub-content/SageMakerPublicHub/Model/NAME; the agent gets it as model_id.
    Required by the engine sagemaker."""
    s3_output_path: Bucket = ""
    """S3 prefix of checkpoints, such as s3://bucket/prefix. Required by the engine sagemaker."""
    model_package_group_arn: Group = ""
    """Model package group that takes saved states and weights, such as
    arn:aws:sagemaker:us-east-1:123456789012:model-package-group/NAME. Required by the engine sagemaker."""
    resume_from_model_package: Package = ""
    """Model package whose adapter and optimizer to start from; empty starts from the base model."""
    base_model: str = ""
    """Folder or name of the model to fine-tune here. Required by the engine local."""

    agent_runtime_arn: Runtime = ""
    """AgentCore runtime of the agent, such as
    arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/ID. Either this or agent_url is required."""
    agent_url: Url = ""
    """Address of an agent that is served elsewhere, such as http://127.0.0.1:8080, in place of a runtime."""

    lora_rank: _CountOrAll = 32
    """Rank of the adapter; 0 trains all weights, which the engine local alone can."""
    lora_alpha: _Count = 64
    """Scale of the adapter; its effect grows with lora_alpha / lora_rank."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the model computes in; the optimizer keeps float32 in any case."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    """Where the model is: cpu, mps, cuda, cuda:1, or auto for the first accelerator that is there."""
    threads: _CountOrAll = 0
    """Threads that torch computes with on the CPU; 0 leaves that to torch."""
    kl_coef: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Factor of the divergence from base_model, added to the loss of each trained token; 0 computes none."""
    kl_kind: Literal["exact", "k3"] = "exact"
    """How that divergence is told: over the whole vocabulary, or estimated from the sampled token."""
    warmup_steps: _CountOrAll = 0
    """Steps over which the learning rate rises to learning_rate."""
    micro_batch_tokens: _Count = 8192
    """Tokens of one forward pass in training, the padding included; more passes need less memory."""
    packed: bool = False
    """Whether sequences share a row, one after the other, in place of padding them to one length."""
    gradient_checkpointing: bool = False
    """Whether to compute activations twice rather than keep them."""
    max_sampled_rows: _Count = 128
    """Turns sampled at one time."""
    kv_cache_tokens: _Count = 524_288
    """Tokens whose keys and values are kept for turns under way, and as many again between turns."""

    dataset_path: str = ""
    """Training rows: JSONL, JSON, CSV or Parquet with a column payload or prompt. Required."""
    max_prompts: _CountOrAll = 0
    """Rows to use, from the first; 0 uses all."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Shuffles the rows, anew for each epoch, and seeds every sampled turn, so that a resumed run goes on
    as an uninterrupted one would. SGLang honours seeds with --enable-deterministic-inference only."""

    batch_size: _Count = 32
    """Prompts of one step."""
    responses_per_prompt: Annotated[int, Field(ge=2)] = 4
    """Rollouts of one prompt: the group whose rewards are compared."""
    epochs: _Count = 1
    """Times that every row is played."""
    learning_rate: Annotated[float, Field(gt=0, le=0.01)] = 1e-5
    """Learning rate of AdamW, constant."""
    max_context_tokens: Annotated[int, Field(ge=1)] = 32_768
    """Tokens of one rollout's conversation; the gateway ends a rollout that would need more."""
    max_new_tokens: Annotated[int, Field(ge=1, le=131_072)] = 8192
    """Tokens of one reply, reasoning included; the engine sagemaker samples no fewer than 512."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """Sampling temperature of training rollouts; without chance all rollouts of a group would be alike."""
    loss: Literal["ppo", "importance_sampling", "cispo"] = "ppo"
    """Surrogate loss."""
    clip_low: _Share = 0.8
    """Lower bound of the probability ratio, not the distance from 1."""
    clip_high: Annotated[float, Field(ge=1, le=10)] = 1.2
    """Upper bound of the probability ratio, not the distance from 1."""
    advantage: AdvantageMethod = "grpo"
    """How a reward is compared with its group: centred and divided by the group's deviation, centred alone,
    against the mean of the others, or as the first but turn by turn."""
    advantage_eps: Annotated[float, Field(gt=0, le=1)] = DEFAULT_EPS
    """Added to the group's deviation before dividing by it."""
    refill_flat_groups: bool = False
    """Whether a group with equal rewards, which teaches nothing, is replaced by the next rows' groups."""
    kl_stop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Mean KL of a step, in nats, past which the run stops with a checkpoint; 0 never stops it."""
    stop_on: _Findings = ()
    """Health findings that stop the run with a checkpoint, such as [infrastructure, tools_never_run]; each of
    them is logged in any case. They are: turns_cut_off, no_answer, infrastructure, tools_never_run,
    unread_calls_rise, reward_without_solving."""

    beta1: _Beta = 0.9
    """Decay of AdamW's first moment."""
    beta2: _Beta = 0.95
    """Decay of AdamW's second moment."""
    eps: Annotated[float, Field(ge=1e-16, le=0.01)] = 1e-8
    """Added to AdamW's denominator."""
    weight_decay: _Share = 0.0
    """Weight decay of AdamW."""
    grad_clip_norm: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Norm that the gradient is clipped to."""

    max_rollout_time: _Positive = 1800.0
    """Seconds a rollout may take."""
    acr_tps_limit: _Positive = 5.0
    """Invocations of the AgentCore runtime a second; the account's limit is 25 unless raised."""
    max_concurrent_rollouts: _Count = 128
    """Rollouts under way at once."""
    rollout_retries: Annotated[int, Field(ge=0)] = 1
    """Fresh tries of a rollout that failed for no fault of the policy."""
    failed_rollout: Literal["drop", "zero"] = "drop"
    """What becomes of one that failed to the last: left out of its group, or trained as reward 0."""
    failure_rate_limit: _Share = 0.2
    """Share of a step's rollouts that may fail before the run stops; 1 never stops it."""

    eval_dataset_path: str = ""
    """Rows to evaluate on; empty evaluates nothing."""
    eval_every: _CountOrAll = 10
    """Steps between evaluations; 0 evaluates at the end only, where there is always one."""
    eval_max_prompts: _CountOrAll = 0
    """Rows to evaluate on, from the first; 0 uses all."""
    eval_temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature of evaluations."""
    success_threshold: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Reward from which a rollout counts as solved, where the agent does not say itself."""

    gateway_host: str = ""
    """Address that the gateway binds; empty for the primary private address, or loopback with an agent_url
    on this machine."""
    gateway_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of the gateway; 0 lets the system choose. Pin it to open one port in a security group."""
    history_mode: Literal["tree", "linear"] = "tree"
    """How conversations are recorded; linear keeps an append-only rollout in one record."""
    chat_template_kwargs: dict[str, Any] = {}
    """Passed to the chat template, such as {enable_thinking: false}."""

    save_every: Annotated[int, Field(ge=-1)] = -1
    """Steps between checkpoints; -1 saves at the end only, where there is always one."""
    save_weights_at_end: bool = False
    """Whether to publish a model package ready for inference, too."""
    train_op_timeout: _Positive = 600.0
    """Seconds to wait for each operation of the engine."""

    run_dir: str = ""
    """Folder of the run: config, metrics, rollouts, checkpoints; empty makes one under runs/."""
    rollout_log_path: str = ""
    """JSONL of each rollout's diagnostics; empty for rollouts.jsonl in the run's folder."""
    wandb_project: str = ""
    """Project at Weights & Biases; empty for none."""
    wandb_run_name: str = ""
    """Name of the run there; empty for the training session's."""
    mlflow_uri: str = ""
    """MLflow server, such as http://127.0.0.1:5000; empty for a SQLite file in the run's folder where MLflow
    is installed, none for no MLflow at all."""

    @pydantic.model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := list(_conflicts(self.model_dump())):
            raise ValueError("; ".join(problems))
        return self

    @property
    def adam(self) -> AdamParams:
        """The optimizer's parameters, every one of them set."""
        return AdamParams(
            learning_rate=self.learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            grad_clip_norm=self.grad_clip_norm,
        )

    def plan(self, rows: int, eval_rows: int = 0) -> Plan:
        """Return what a run over so many rows would play.

        The last batch of an epoch may be a smaller one, so that every row is played once an epoch.

        Args:
            rows: Rows of the dataset, before `max_prompts`.
            eval_rows: Rows of the evaluation's dataset, before `eval_max_prompts`.
        """
        prompts = min(rows, self.max_prompts or rows)
        per_epoch = math.ceil(prompts / self.batch_size)
        steps = per_epoch * self.epochs
        rollouts = prompts * self.epochs * self.responses_per_prompt
        evaluations = (math.ceil(steps / self.eval_every) if self.eval_every else 1) if steps else 0
        eval_prompts = min(eval_rows, self.eval_max_prompts or eval_rows)
        eval_rollouts = evaluations * eval_prompts
        start_s = (rollouts + eval_rollouts) / self.acr_tps_limit if self.agent_runtime_arn else 0.0
        return Plan(
            prompts=prompts,
            steps_per_epoch=per_epoch,
            steps=steps,
            rollouts=rollouts,
            evaluations=evaluations if eval_prompts else 0,
            eval_rollouts=eval_rollouts,
            start_s=start_s,
        )


def load_config(path: str | Path, overrides: Mapping[str, object] | None = None) -> Config:
    """Read a run's config from YAML.

    Args:
        path: The file: one mapping of keys, see `config.example.yaml`.
        overrides: Keys that win over the file's.

    Raises:
        UsageError: The file cannot be read, or keys are missing, unknown or wrong; all of them are named
            at once, each with what was wanted and what came.
    """
    return checked({**config_yaml.read_mapping(path), **(overrides or {})}, f"config {str(path)!r}")


def checked(values: Mapping[str, object], name: str) -> Config:
    """Return the config that some values make.

    Args:
        values: By key.
        name: What the values are called in an error.

    Raises:
        UsageError: Keys are missing, unknown or wrong; all of them are named at once, each with what was wanted
            and what came.
    """
    try:
        return Config.model_validate(values)
    except pydantic.ValidationError as error:
        wrong = [entry for entry in error.errors(include_url=False) if entry["loc"]]
    problems = [_problem(entry) for entry in wrong]
    problems += _conflicts(values, {entry["loc"][0] for entry in wrong})
    listed = "\n".join(f"  {problem}" for problem in problems)
    raise UsageError(f"{name} needs {len(problems)} corrections:\n{listed}")


def read_override(text: str) -> tuple[str, object]:
    """Read `key=value`, the value as YAML, as `load_config` takes it.

    Raises:
        UsageError: It is not of that form.
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UsageError(f"a config override must be key=value, got {text!r}")
    key = key.strip()
    if not value.strip():
        raise UsageError(
            f"a config override must have a value, got {text!r}: for an empty text write {key}='\"\"'"
        )
    return key, config_yaml.parse(value, f"the value of {key!r}")


def example() -> str:
    """Return the text of `config.example.yaml`."""
    return config_yaml.describe(Config, SECTIONS)


def _conflicts(
    values: Mapping[str, Any], wrong: Container[int | str] = frozenset()
) -> Iterator[str]:
    """Yield what is wrong with keys together.

    Args:
        values: They may be unchecked, and may lack keys.
        wrong: Keys that were told to be wrong by themselves; nothing further follows from their values.
    """

    def value(key: str) -> Any:
        return values.get(key, Config.model_fields[key].default)

    yield from _missing(value, wrong)
    for keys, text in _contradictions(value):
        if not any(key in wrong for key in keys):
            yield text


def _missing(value: Callable[[str], Any], wrong: Container[int | str]) -> Iterator[str]:
    required = _SESSION_KEYS if value("engine") == "sagemaker" else ("base_model",)
    wanted = (*(() if "engine" in wrong else required), "dataset_path")
    missing = [key for key in wanted if key not in wrong and not value(key)]
    agents = ("agent_runtime_arn", "agent_url")
    if not any(key in wrong or value(key) for key in agents):
        missing.append("agent_runtime_arn (or agent_url)")
    if missing:
        yield f"missing, and required: {', '.join(missing)}"


def _contradictions(value: Callable[[str], Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong, and the keys it follows from. A value of a wrong type must pass through here."""
    if value("agent_runtime_arn") and value("agent_url"):
        yield (
            ("agent_runtime_arn", "agent_url"),
            "agent_runtime_arn and agent_url: wanted exactly one of the two, got both",
        )
    if value("engine") == "sagemaker":
        yield from _beyond_a_session(value)
    if value("save_every") == 0:
        yield ("save_every",), "save_every: wanted -1 (only at the end) or at least 1, got 0"
    for key in ("base_model_arn", "model_package_group_arn", "resume_from_model_package"):
        region = _region_of(value(key))
        if region and region != value("region"):
            told = f"{key}: wanted one in the region {value('region')!r}, got one in {region!r}"
            yield (key, "region"), told
    new, context = value("max_new_tokens"), value("max_context_tokens")
    if not isinstance(new, int) or not isinstance(context, int):
        return
    if new >= context:
        told = f"max_new_tokens: wanted less than max_context_tokens ({context}), got {new}"
        yield ("max_new_tokens", "max_context_tokens"), told
    if value("engine") == "sagemaker" and new < 512:
        told = (
            f"max_new_tokens: wanted at least 512, the least a training session samples, got {new}"
        )
        yield ("max_new_tokens", "engine"), told


def _beyond_a_session(
    value: Callable[[str], Any],
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what a training session cannot do."""
    if value("lora_rank") == 0:
        yield (
            ("lora_rank", "engine"),
            "lora_rank: wanted at least 1, a training session trains an adapter, got 0",
        )
    for key in _LOCAL_KEYS:
        default = Config.model_fields[key].default
        if value(key) != default:
            told = f"{key}: wanted {default!r}, the engine sagemaker has no such setting, got {value(key)!r}"
            yield (key, "engine"), told


def _findings(value: object) -> tuple[str, ...]:
    """Return the names that YAML, or a record made of it, lists.

    Raises:
        ValueError: It is no list, or not of findings.
    """
    known = ", ".join(FINDINGS)
    if not isinstance(value, list | tuple):
        raise ValueError(f"stop_on: wanted a list of health findings ({known}), got {value!r}")
    if unknown := [name for name in value if name not in FINDINGS]:
        raise ValueError(f"stop_on: wanted health findings ({known}), got {unknown!r}")
    return tuple(dict.fromkeys(value))


def _region_of(arn: object) -> str:
    """Return an ARN's region; empty where there is none to tell."""
    parts = arn.split(":") if isinstance(arn, str) else []
    return parts[3] if len(parts) > 5 else ""


def _problem(entry: Any) -> str:
    """Return one of pydantic's findings as `key: what was wanted, what came`."""
    key = ".".join(map(str, entry["loc"]))
    if entry["type"] == "value_error":
        return str(entry["ctx"]["error"])
    if entry["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Config.model_fields, 1)
        return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if entry["input"] is None:
        default = Config.model_fields[key].default if key in Config.model_fields else None
        return f"{key}: wanted a value, got none: leave the key out for its default, {default!r}"
    wanted = entry["msg"].removeprefix("Input should ").removeprefix("be ")
    if entry["type"] == "string_pattern_mismatch":
        wanted = FORMS.get(key, wanted)
    return f"{key}: wanted {wanted}, got {entry['input']!r}"


if __name__ == "__main__":
    EXAMPLE.write_text(example(), "utf-8")
