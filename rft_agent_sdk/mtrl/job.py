"""A managed job as the service describes it: where it stands, what it used, what it left, and stopping it.

Training jobs and evaluation jobs alike. What the service adds to a job's document, `ServiceOutput`, is read with
care: each part of it appears when the job gets there, if at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.agent_arn import DEFAULT_QUALIFIER, Agent, parse_agent
from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.document import count, json_object, part
from rft_agent_sdk.types import JSON

TRAINING = "AgentRFT"
EVALUATION = "AgentRFTEvaluation"
CATEGORIES = (TRAINING, EVALUATION)
"""Of jobs that play an agent."""
ENDED = frozenset({"Completed", "Failed", "Stopped", "Deleting", "DeleteFailed"})
"""Statuses after which a job never works again; a word that is not here is not taken for an end."""
WORKING = frozenset({"Training", "Evaluating", "Generating", "Executing"})
"""Phases in which steps are made or rollouts played."""
_ARN = re.compile(
    r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:\d{12}:job/(?P<category>[a-zA-Z0-9]+)/(?P<name>[a-zA-Z0-9-]+)"
)


@dataclass(frozen=True, slots=True)
class Transition:
    """A phase that the job is in or was in."""

    phase: str
    """The service's word, such as `Downloading`."""
    started: datetime
    ended: datetime | None
    """`None` while it lasts."""
    message: str
    """What the service says about it; often nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the optimizer is."""

    step: int
    """The step being made, counted from 1 over all epochs."""
    max_steps: int
    epoch: int | None
    """Counted from 1; `None` where the service counts steps only."""
    max_epochs: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One job, at one moment."""

    name: str
    arn: str
    category: str
    """`AgentRFT` or `AgentRFTEvaluation`."""
    status: str
    """The service's word: `InProgress`, `Completed`, `Failed`, ..."""
    phase: str
    """The service's secondary status: `Starting`, `Downloading`, `Training`, ..."""
    created: datetime
    ended: datetime | None
    failure_reason: str
    """Why it failed, in the service's words; empty where it did not."""
    transitions: tuple[Transition, ...] = ()
    document: JSON = field(default_factory=dict)
    """The job's configuration, with what the service added under `ServiceOutput`."""
    role: str = ""
    """ARN of the job's role; empty in a list."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """By key."""

    @property
    def has_ended(self) -> bool:
        """Whether the job never works again."""
        return self.status in ENDED

    @property
    def output(self) -> JSON:
        """What the service added to the document."""
        return part(self.document, "ServiceOutput")

    @property
    def progress(self) -> Progress | None:
        """How far the optimizer is; `None` before the service tells."""
        return _progress(part(self.output, "ProgressInfo"))

    @property
    def rollouts(self) -> tuple[int, int] | None:
        """How many rollouts are played, and of how many; `None` before the service tells."""
        told_ = part(self.output, "RolloutInfo")
        completed, total = count(told_.get("Completed")), count(told_.get("Total"))
        return None if completed is None or not total else (completed, total)

    @property
    def tokens(self) -> Mapping[str, int]:
        """Billable tokens so far, by the service's name of the meter; empty before it tells."""
        usage = part(self.output, "BillableTokenUsage")
        return {name: found for name in usage if (found := count(usage[name])) is not None}

    @property
    def output_package(self) -> str | None:
        """ARN of the model package that the job left; `None` before it did."""
        return self.output.get("OutputModelPackageArn") or None

    @property
    def output_uri(self) -> str | None:
        """S3 URI below which the job writes."""
        return part(self.document, "OutputDataConfig").get("S3OutputPath") or None

    @property
    def dataset_uris(self) -> list[str]:
        """S3 URIs that the job reads its tasks from."""
        return [uri for _, uri in self._channels()]

    @property
    def trained_on(self) -> list[str]:
        """S3 URIs of the tasks that the job trains on."""
        return [uri for name, uri in self._channels() if name == "train"]

    def _channels(self) -> Iterator[tuple[str, str]]:
        channels = self.document.get("InputDataConfig")
        for one in channels if isinstance(channels, list) else ():
            source = part(part(one, "DataSource"), "S3DataSource") if isinstance(one, dict) else {}
            if uri := source.get("S3Uri"):
                yield str(one.get("ChannelName")), str(uri)

    @property
    def package_groups(self) -> list[str]:
        """ARNs of the model package groups that the job writes to."""
        config = part(self.document, "ModelPackageConfig")
        names = ("OutputModelPackageGroupArn", "IntermediateCheckpointModelPackageGroupArn")
        return [str(config[name]) for name in names if config.get(name)]

    @property
    def mlflow(self) -> JSON:
        """Names and ids of the job's MLflow experiment and run."""
        return part(self.output, "MlflowDetails")

    @property
    def mlflow_app(self) -> str | None:
        """ARN of the MLflow app that the job logs to."""
        # Jobs of the two categories have it in different parts of their documents, and the service takes several.
        for place in ("TrainingConfig", "OutputDataConfig", "EvaluationConfig"):
            if arn := part(part(self.document, place), "MlflowConfig").get("MlflowResourceArn"):
                return str(arn)
        return None

    @property
    def agent(self) -> Agent | None:
        """Who plays; `None` where the document does not say."""
        return agent_of(self.document)

    @property
    def hyperparameters(self) -> Mapping[str, str]:
        """Those that were set, as text; the rest are the service's defaults."""
        for place in ("TrainingConfig", "EvaluationConfig"):
            if found := part(part(self.document, place), "HyperParameters"):
                return found
        return {}

    @property
    def base_model(self) -> str:
        """The base model's name in the hub; empty where the document does not say."""
        for place in ("TrainingConfig", "EvaluationConfig"):
            if arn := part(self.document, place).get("BaseModelArn"):
                match = re.search(r"/Model/([^/]+)", str(arn))
                return match[1] if match else str(arn)
        return ""

    def worked_s(self, now: datetime) -> float:
        """Seconds that the job has spent on steps or rollouts, waiting and restarts left out."""
        return sum(
            ((one.ended or self.ended or now) - one.started).total_seconds()
            for one in self.transitions
            if one.phase in WORKING
        )

    def time_left_s(self, now: datetime) -> float | None:
        """Return the seconds to the last step at the pace so far; `None` where that cannot be told.

        Of the step being made nothing is counted as done, so that the answer errs to the long side, by one step
        at most.
        """
        if self.has_ended:
            return None
        done, total = 0, 0
        if self.progress is not None:
            done, total = self.progress.step - 1, self.progress.max_steps
        elif self.category == EVALUATION and self.rollouts is not None:
            done, total = self.rollouts
        worked = self.worked_s(now)
        if done < 1 or worked <= 0:
            return None
        return worked / done * max(total - done, 0)


def describe_job(client: Any, name: str, category: str | None = None) -> Job:
    """Return a job, by its name or ARN.

    Args:
        client: Of `sagemaker`.
        name: The job's.
        category: The job's; `None` looks among training jobs, then among evaluation jobs.

    Raises:
        UsageError: An ARN of no such job.
        CloudError: The service refused, or there is none of that name.
    """
    match = _ARN.fullmatch(name)
    if name.startswith("arn:") and (match is None or match["category"] not in CATEGORIES):
        raise UsageError(
            f"wanted a job's name, or an ARN such as arn:aws:sagemaker:us-west-2:123456789012:job/{TRAINING}/NAME, "
            f"got {name!r}"
        )
    if match is not None:
        return _describe(client, match["name"], match["category"])
    for one in (category,) if category else CATEGORIES:
        try:
            return _describe(client, name, one)
        except CloudError as error:
            if not error.is_missing:
                raise
    raise CloudError(
        f"there is no job named {name!r} in {client.meta.region_name}: see `rft mtrl list`",
        code="ResourceNotFound",
        is_missing=True,
    )


def describe_again(client: Any, job: Job) -> Job:
    """Return the job as it is now.

    Raises:
        CloudError: The service refused.
    """
    return _describe(client, job.name, job.category)


def list_jobs(
    client: Any,
    category: str,
    *,
    name_contains: str = "",
    status: str = "",
    limit: int | None = None,
) -> list[Job]:
    """Return jobs of one category, newest first, without their documents.

    Args:
        client: Of `sagemaker`.
        category: `AgentRFT` or `AgentRFTEvaluation`.
        name_contains: Only those whose name has this in it.
        status: Only those of this status.
        limit: At most so many; `None` for all.

    Raises:
        CloudError: The service refused.
    """
    asked = {"NameContains": name_contains, "StatusEquals": status}
    filters = {key: value for key, value in asked.items() if value}
    found: dict[str, Job] = {}  # pages move while they are read: a job may be on two
    with told(f"{category} jobs cannot be listed"):
        for one in _summaries(
            client,
            JobCategory=category,
            SortBy="CreationTime",
            SortOrder="Descending",
            **filters,
        ):
            if limit is not None and len(found) >= limit:
                break
            found[one["JobArn"]] = Job(
                one["JobName"],
                one["JobArn"],
                one["JobCategory"],
                one["JobStatus"],
                # Named otherwise in a description.
                one["JobSecondaryStatus"],
                one["CreationTime"],
                one.get("EndTime"),
                "",
            )
    return list(found.values())


def stop_job(client: Any, job: Job) -> bool:
    """Ask the service to stop a job; return whether there was anything to stop.

    Raises:
        CloudError: The service refused, and the job has not ended or begun to stop either.
    """
    if job.has_ended or job.status == "Stopping":
        return False
    try:
        with told(f"job {job.name!r} cannot be stopped"):
            client.stop_job(JobName=job.name, JobCategory=job.category)
    except CloudError as error:
        # It may have ended since it was described; whether it has is asked, not read from the text.
        if error.is_transient or error.is_missing:
            raise
        if describe_again(client, job).status not in ENDED | {"Stopping"}:
            raise
        return False
    return True


def agent_of(document: JSON) -> Agent | None:
    """Return who plays, by a job's document; `None` where it does not say."""
    config = part(document, "AgentConfig")
    runtime = part(config, "BedrockAgentCoreConfig")
    arn = runtime.get("AgentRuntimeArn") or part(config, "CustomAgentLambdaConfig").get("LambdaArn")
    try:
        return parse_agent(str(arn), qualifier=str(runtime.get("Qualifier") or DEFAULT_QUALIFIER))
    except UsageError:
        return None


def parse_job(answer: Mapping[str, Any]) -> Job:
    """Return a job from the service's answer to DescribeJob."""
    return Job(
        answer["JobName"],
        answer["JobArn"],
        answer["JobCategory"],
        answer["JobStatus"],
        answer["SecondaryStatus"],
        answer["CreationTime"],
        answer.get("EndTime"),
        answer.get("FailureReason") or "",
        tuple(
            Transition(
                one["Status"], one["StartTime"], one.get("EndTime"), one.get("StatusMessage") or ""
            )
            for one in answer.get("SecondaryStatusTransitions") or ()
        ),
        json_object(answer.get("JobConfigDocument") or ""),
        answer["RoleArn"],
        {one["Key"]: one["Value"] for one in answer.get("Tags") or ()},
    )


def _describe(client: Any, name: str, category: str) -> Job:
    with told(f"job {name!r} cannot be described"):
        answer = client.describe_job(JobName=name, JobCategory=category)
    try:
        return parse_job(answer)
    except KeyError as error:
        # Something between here and the service answered for it, with a page of its own.
        raise CloudError(
            f"job {name!r} cannot be described: no answer of SageMaker's, it lacks {error}",
            is_transient=True,
        ) from error


def _summaries(client: Any, **asked: Any) -> Iterator[Mapping[str, Any]]:
    # botocore has a paginator for some of these lists and not for others; the token is the same everywhere.
    while True:
        page = client.list_jobs(**asked)
        yield from page["JobSummaries"]
        if not page.get("NextToken"):
            return
        asked["NextToken"] = page["NextToken"]


def _progress(info: JSON) -> Progress | None:
    step = count(info.get("CurrentStep"))
    epochs, per_epoch = count(info.get("MaxEpoch")), count(info.get("StepsPerEpoch"))
    limit = count(info.get("MaxSteps"))
    if step is None:
        return None
    if epochs and per_epoch:
        epoch = max(count(info.get("CurrentEpoch")) or 1, 1)
        total = epochs * per_epoch
        return Progress((epoch - 1) * per_epoch + step, min(total, limit or total), epoch, epochs)
    return Progress(step, limit, None, None) if limit else None
