"""What a launch is told: one record, from YAML or options, with every default and its reason.

Everything that the client of these jobs takes can be said here, and nothing is looked up: what only AWS can
tell is in `launch_lookups`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.agent_arn import DEFAULT_QUALIFIER
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.hyperparameters import SETTLED, Value
from rft_agent_sdk.mtrl.models import read_model
from rft_agent_sdk.mtrl.prices import RUN

_Texts = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


class LaunchSpec(BaseModel):
    """A managed job that is to be launched. Keys are flat; a key that is not here is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    model: str = ""
    """Base model: its name in the hub (`rft mtrl models` lists them) or hub content ARN, or the ARN of a model
    package to go on from. Required."""
    agent: str = ""
    """Who plays: ARN or id of the AgentCore runtime (`rft mtrl runtimes` lists them), or ARN of a Lambda function
    that forwards to an agent elsewhere. Required."""
    qualifier: str = DEFAULT_QUALIFIER
    """Endpoint of the runtime. DEFAULT follows every deployment, and one during a job ends it: an endpoint of
    your own stays on its version."""
    region: str = ""
    """AWS region of the job, which must be the agent's. Empty takes the environment's, else the agent's."""
    role: str = ""
    """ARN of the role that the job runs as. It must trust job.sagemaker.amazonaws.com with sts:AssumeRole and
    sts:TagSession, and hold AmazonSageMakerJobFullAccess. Required."""
    accept_eula: bool = False
    """That you accept the base model's licence. Required: nobody can accept it for you."""

    dataset: str = ""
    """Training rows: a file here, which is uploaded under its content's hash; or an S3 URI or the ARN of a
    dataset, which stay as they are. The service sends the column `prompt` verbatim and nothing else. Required."""
    validation_dataset: str = ""
    """Validation rows, likewise. They are played before the first step, every val_every steps, and at the end."""
    rows: Annotated[int, Field(ge=0)] = 0
    """Training rows of a dataset that cannot be read from here: a dataset ARN, or an S3 prefix of many files."""
    validation_rows: Annotated[int, Field(ge=0)] = 0
    """Validation rows of such a dataset."""

    s3_output: str = ""
    """S3 prefix that the job writes under, in the job's region, such as s3://BUCKET/wordle. Required."""
    s3_data: str = ""
    """S3 prefix that dataset files are uploaded under; empty for the folder rft-datasets of the bucket that
    s3_output names."""
    output_group: str = ""
    """Model package group, name or ARN, that gets the trained model; empty for MODEL-mtrl-mpg, as the client
    calls it."""
    checkpoint_group: str = ""
    """Model package group, name or ARN, that gets the checkpoint of every step: another one than output_group.
    Empty for MODEL-mtrl-checkpoint-mpg."""
    mlflow_app: str = ""
    """ARN of the MLflow app that the job logs to: an mlflow-app, no tracking server. Required: without one the
    client would pick any, or make one."""
    mlflow_experiment: str = ""
    """MLflow experiment; empty leaves it to the service."""
    mlflow_run: str = ""
    """Name of the MLflow run; empty leaves it to the service."""

    security_groups: _Texts = ()
    """Security groups of the job, with outbound TCP 443 and UDP 53, for one that runs in your VPC."""
    subnets: _Texts = ()
    """Private subnets of the job, two or more, beside security_groups."""
    kms_key: str = ""
    """ARN of the key that encrypts what the job writes: symmetric and of a single region."""
    job_name: str = ""
    """Start of the job's name; four random characters and the time are added. Empty for MODEL-mtrl."""
    tags: dict[str, str] = {}
    """Tags of the job, beside the two that the client adds."""
    notify_topic: str = ""
    """ARN of an SNS topic. The client makes an EventBridge rule for it that watches training jobs; a managed job
    is not known to raise their events, so poll with `rft mtrl wait` instead of relying on it."""
    notify_events: _Texts = ()
    """Statuses to notify of: Completed, Failed, Stopped, InProgress; none given are the first three."""
    notify_bus: str = ""
    """ARN of the event bus for that rule; empty for the account's default one."""
    notify_prefix: str = ""
    """Start of the names of the jobs to notify of; empty for all."""

    learning_rate: float | None = None
    """Learning rate; 1e-5 by default, for every model. At higher ones the policy has been seen to write its tool
    calls as text, which leaves nothing to learn from; published recipes go up to 4e-5."""
    sampling_max_tokens: int | None = None
    """Tokens of one reply, reasoning included; 8192 by default for gpt-oss, the most there is, because 4096 often
    cut its reasoning off before the first tool call; 4096 for the others."""
    global_batch_size: int | None = None
    """Prompts of one step; 128 by default, 32 for Nova. There must be at least as many rows."""
    group_size: int | None = None
    """Rollouts of one prompt, whose rewards are compared; 8 by default, 4 for Nova."""
    max_steps: int | None = None
    """Most optimizer steps; 100 by default. Fewer rows or epochs end the job earlier."""
    max_epochs: int | None = None
    """Times that every row is played; 1 by default, so that nothing is spent by accident. 640 rows in batches of
    128 need 20 epochs for 100 steps."""
    val_every: int | None = None
    """Steps between validations; 10 by default, 0 for the first and last one only."""
    rollout_timeout: float | None = None
    """Seconds that the service waits for one rollout; 600 by default. The agent's own budget must be below it: a
    rollout that reports no reward in time fails the whole job."""
    success_threshold: float | None = None
    """Reward from which val/reward/pass_at_1 counts a rollout as solved; 1.0 by default."""
    hyperparameters: dict[str, Any] = {}
    """Any other hyperparameters, by name; those that are not named are left to the service."""
    recipe: dict[str, Any] = {}
    """Recipe to take hyperparameters from, with the sections of a published recipe or plain names; what is said
    in any other way wins. On the command line and in a config it is a YAML file."""
    overrides: dict[str, Any] = {}
    """Hyperparameters as in a recipe, flat or by sections (schedule.epochs); they win over it."""

    agent_budget_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that the agent allows itself for a rollout; by default what the deployed runtime, else
    agentcore/agentcore.json, says as ROLLOUT_BUDGET_SECONDS, else 420."""
    worst_solve: float | None = None
    """Lowest reward of a solved task, to hold against success_threshold; the environment's, where that tells."""
    max_turns: Annotated[int, Field(ge=1)] = RUN.turns
    """Most model calls of a rollout, for the sums only: the agent limits its own turns."""
    turn_tokens: Annotated[int, Field(ge=0)] = 200
    """Tokens that the tools' answers add after each call, for the sums only."""
    prompt_tokens: Annotated[int, Field(ge=0)] = 500
    """Tokens of the system message and the prompt, for the sums only."""
    allow_unlisted_model: bool = False
    """Whether a model or region that the published table lacks is taken with a warning."""
    allow_running: bool = False
    """Whether to launch beside a job that runs already; the default quota is one."""

    @property
    def model_name(self) -> str | None:
        """The base model's name in the hub; `None` where only a model package can tell it."""
        source = read_model(self.model)
        return source.name if source else None

    @property
    def account(self) -> str:
        """The account of the role, which is the job's; empty for no ARN."""
        parts = self.role.split(":")
        return parts[4] if len(parts) > 5 else ""

    @property
    def bucket(self) -> str:
        """The bucket that the job writes to."""
        return self.s3_output.removeprefix("s3://").partition("/")[0]

    @property
    def data_prefix(self) -> str:
        """The S3 prefix of uploaded datasets, without a slash at its end."""
        return (self.s3_data or f"s3://{self.bucket}/rft-datasets").rstrip("/")

    @property
    def asked(self) -> dict[str, Value | None]:
        """The hyperparameters that were said here, by name; those of `recipe` and `overrides` aside."""
        named: dict[str, Value | None] = {name: getattr(self, name) for name in SETTLED}
        return {
            **self.hyperparameters,
            **{name: value for name, value in named.items() if value is not None},
        }

    def with_(self, **values: Any) -> Self:
        """Return a copy that says otherwise."""
        return self.model_validate({**self.model_dump(), **values})


def read_spec(values: Mapping[str, Any], source: str) -> LaunchSpec:
    """Make a launch of keys and values.

    Args:
        values: Of a file and of options, merged.
        source: What to call them in an error.

    Raises:
        UsageError: Keys are unknown or of the wrong type; all of them are named at once.
    """
    spec, wrong = read_what_is_sound(values)
    if not wrong:
        return spec
    listed = "\n".join(f"  {one.where}: {one.message}" for one in wrong)
    raise UsageError(f"{source} needs {len(wrong)} corrections:\n{listed}")


def read_what_is_sound(values: Mapping[str, Any]) -> tuple[LaunchSpec, list[Finding]]:
    """Make a launch of those keys and values that are sound, so that the rest of it can be checked too.

    Args:
        values: Of a file and of options, merged.

    Returns:
        The launch, and what is wrong with the other keys.
    """
    try:
        return LaunchSpec.model_validate(dict(values)), []
    except pydantic.ValidationError as error:
        entries = error.errors(include_url=False)
    wrong = {entry["loc"][0] for entry in entries}
    rest = {key: value for key, value in values.items() if key not in wrong}
    return LaunchSpec.model_validate(rest), [_problem(entry) for entry in entries]


def _problem(entry: Any) -> Finding:
    """Return one of pydantic's findings: where it is, what was wanted and what came."""
    key = ".".join(map(str, entry["loc"]))
    if entry["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, LaunchSpec.model_fields, 1)
        told = "is no key of a launch" + (f"; did you mean {near[0]!r}?" if near else "")
    else:
        wanted = entry["msg"].removeprefix("Input should ").removeprefix("be ")
        told = f"wanted {wanted}, got {entry['input']!r}"
    return Finding("value", Severity.ERROR, key, told, "Correct it.")


def placed(spec: LaunchSpec, environ: Mapping[str, str] = os.environ) -> LaunchSpec:
    """Return a launch with its region told: its own, else the environment's, else the agent's."""
    if spec.region:
        return spec
    named = [environ.get(name, "").strip() for name in ("AWS_REGION", "AWS_DEFAULT_REGION")]
    parts = spec.agent.split(":")
    region = next(filter(None, [*named, parts[3] if len(parts) > 5 else ""]), "")
    return spec.with_(region=region)
