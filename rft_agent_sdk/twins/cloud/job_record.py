"""One job: what it was created with, how far it is, and the handles that a runner moves it by."""

from __future__ import annotations

import copy
import datetime
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rft_agent_sdk.twins.cloud.account import now
from rft_agent_sdk.twins.cloud.logs import Logs
from rft_agent_sdk.twins.cloud.mlflow_store import MlflowRun, MlflowStore
from rft_agent_sdk.twins.cloud.model_packages import ModelPackages
from rft_agent_sdk.twins.cloud.s3 import S3
from rft_agent_sdk.types import JSON

_PROGRESS = {
    "current_step": "CurrentStep",
    "max_steps": "MaxSteps",
    "current_epoch": "CurrentEpoch",
    "max_epoch": "MaxEpoch",
    "steps_per_epoch": "StepsPerEpoch",
    "batch_size": "BatchSize",
}
_ROLLOUTS = {"rollouts_completed": "Completed", "rollouts_total": "Total"}
_TOKENS = {
    "train_tokens": "TrainTokenCount",
    "prefill_tokens": "PrefillTokenCount",
    "sample_tokens": "SampleTokenCount",
}
TERMINAL = frozenset({"Completed", "Failed", "Stopped"})


class StopRequested(Exception):
    """StopJob was called, or the cloud closes: a runner lets this through."""


class JobRunner(Protocol):
    """Drives a job's life, on a thread of the job's own.

    It ends the job by `complete` or `fail`. One that returns without either has failed; one that raises has
    failed with that error; one that lets `StopRequested` through leaves the job stopped.
    """

    def __call__(self, job: JobRecord) -> None:
        """Run the job to its end."""


@dataclass(slots=True)
class Transition:
    """A secondary status and when it held."""

    status: str
    start: datetime.datetime
    message: str = ""
    end: datetime.datetime | None = None

    def as_json(self) -> JSON:
        """Return it as DescribeJob does."""
        item: JSON = {"Status": self.status, "StartTime": self.start}
        if self.end is not None:
            item["EndTime"] = self.end
        if self.message:
            item["StatusMessage"] = self.message
        return item


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What CreateJob was given."""

    name: str
    arn: str
    role_arn: str
    category: str
    schema_version: str
    document: JSON
    """`JobConfigDocument`, parsed."""
    tags: list[JSON] = field(default_factory=list)


class JobRecord:
    """A job. Every method may be called from any thread."""

    def __init__(
        self, request: JobRequest, logs: Logs, packages: ModelPackages, store: MlflowStore, s3: S3
    ) -> None:
        self.request = request
        self._logs = logs
        self._store = store
        self._s3 = s3
        self._run: MlflowRun | None = None
        self._packages = packages
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._status = "InProgress"
        self._failure: str | None = None
        self._output: JSON = {}
        self.created = now()
        self._modified = self.created
        self._ended_at: datetime.datetime | None = None
        self._transitions: list[Transition] = [Transition("Starting", self.created)]

    @property
    def name(self) -> str:
        """Its name."""
        return self.request.name

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.request.arn

    @property
    def category(self) -> str:
        """`AgentRFT` or `AgentRFTEvaluation`."""
        return self.request.category

    @property
    def document(self) -> JSON:
        """A copy of the document it was created with, parsed."""
        return copy.deepcopy(self.request.document)

    @property
    def status(self) -> str:
        """`JobStatus`."""
        with self._lock:
            return self._status

    @property
    def secondary_status(self) -> str:
        """`SecondaryStatus`."""
        with self._lock:
            return self._transitions[-1].status

    @property
    def failure_reason(self) -> str | None:
        """Why it failed; `None` where it did not."""
        with self._lock:
            return self._failure

    @property
    def service_output(self) -> JSON:
        """A copy of `ServiceOutput`, the part of the document that the service adds."""
        with self._lock:
            return copy.deepcopy(self._output)

    @property
    def is_stopping(self) -> bool:
        """Whether it is to stop."""
        return self._stop.is_set()

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def missing_inputs(self) -> list[str]:
        """Return the S3 URIs of its channels under which nothing lies."""
        sources = [channel["DataSource"] for channel in self.request.document["InputDataConfig"]]
        uris = [source["S3DataSource"]["S3Uri"] for source in sources if "S3DataSource" in source]
        return [uri for uri in uris if not self._s3.holds(uri)]

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; return whether it has come."""
        return self._ended.wait(timeout_s)

    def sleep(self, seconds: float) -> None:
        """Wait within a runner.

        Raises:
            StopRequested: The job is to stop; raised at once, not after the wait.
        """
        if self._stop.wait(seconds):
            raise StopRequested

    def move(self, secondary_status: str, message: str = "") -> None:
        """Go on to a secondary status, such as `Training`.

        Raises:
            StopRequested: The job is to stop, or has ended.
        """
        with self._lock:
            self._check_going()
            self._enter(secondary_status, message)

    def progress(self, **counts: int) -> None:
        """Set what DescribeJob shows of the work.

        Args:
            counts: `current_step`, `max_steps`, `current_epoch`, `max_epoch`, `steps_per_epoch`, `batch_size`
                (ProgressInfo); `rollouts_completed`, `rollouts_total` (RolloutInfo); `train_tokens`,
                `prefill_tokens`, `sample_tokens` (BillableTokenUsage). What is left out stays.

        Raises:
            StopRequested: The job is to stop, or has ended.
            TypeError: A count is none of these.
        """
        places = (
            ("ProgressInfo", _PROGRESS),
            ("RolloutInfo", _ROLLOUTS),
            ("BillableTokenUsage", _TOKENS),
        )
        unknown = counts.keys() - {name for _, names in places for name in names}
        if unknown:
            raise TypeError(f"progress() knows no {sorted(unknown)}")
        with self._lock:
            self._check_going()
            for place, names in places:
                found = {names[name]: value for name, value in counts.items() if name in names}
                if found:
                    self._output.setdefault(place, {}).update(found)
            self._modified = now()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log to MLflow, such as `{"rollout/reward/mean": 0.3}`; the first call also sets `MlflowDetails`."""
        with self._lock:
            if self._run is None:
                self._run = self._start_run()
                self._modified = now()
            self._run.log(step, values)

    def _start_run(self) -> MlflowRun:
        config = self._mlflow_config()
        experiment = config.get("MlflowExperimentName", self.name)
        run = self._store.make_run(experiment, config.get("MlflowRunName", self.name))
        self._output["MlflowDetails"] = {
            "ExperimentName": experiment,
            "RunName": run.name,
            "ExperimentId": run.experiment_id,
            "RunId": run.run_id,
        }
        return run

    def _mlflow_config(self) -> JSON:
        parts = self.request.document
        for name in ("OutputDataConfig", "TrainingConfig", "EvaluationConfig"):
            config: JSON | None = parts.get(name, {}).get("MlflowConfig")
            if config is not None:
                return config
        return {}

    def tell(self, name: str, value: JSON) -> None:
        """Set another part of `ServiceOutput`, such as `EvaluationMetrics`."""
        with self._lock:
            self._output[name] = value
            self._modified = now()

    def publish(self, group: Literal["output", "checkpoint"], s3_uri: str | None = None) -> str:
        """Put a model package into one of the document's two groups and return its ARN.

        Args:
            group: The final one goes to `output`, a resumable one to `checkpoint`.
            s3_uri: Where its artefacts lie; `None` is below the job's `S3OutputPath`.

        Raises:
            KeyError: The document names no such group: an evaluation job's does not.
            Refusal: The group does not exist any more.
        """
        config = self.request.document["ModelPackageConfig"]
        keys = {
            "output": "OutputModelPackageGroupArn",
            "checkpoint": "IntermediateCheckpointModelPackageGroupArn",
        }
        base = self.request.document.get("TrainingConfig", {}).get("BaseModelArn", "//")
        root = self.request.document["OutputDataConfig"]["S3OutputPath"].rstrip("/")
        package = self._packages.publish(
            config[keys[group]],
            s3_uri or f"{root}/{self.name}/{group}/",
            is_checkpoint=group == "checkpoint",
            base=base.split("/")[-2],
        )
        return package.arn

    def log(self, message: str, stream: str = "trainer") -> None:
        """Write a line to the job's log."""
        self._logs.add(f"/aws/sagemaker/Job/{self.category}", f"{self.name}/{stream}", message)

    def complete(self, output_package_arn: str | None = None) -> None:
        """End it well.

        Raises:
            StopRequested: The job is to stop, or has ended.
        """
        with self._lock:
            self._check_going()
            if output_package_arn is not None:
                self._output["OutputModelPackageArn"] = output_package_arn
            self._end("Completed")

    def fail(self, reason: str) -> None:
        """End it with a reason; nothing happens where it has ended."""
        with self._lock:
            if not self.is_terminal:
                self._failure = reason[:1024]
                self._end("Failed", reason[:1024])

    def request_stop(self) -> None:
        """Ask its runner to stop, as StopJob does."""
        with self._lock:
            if not self.is_terminal and not self._stop.is_set():
                self._status = "Stopping"
                self._enter("Stopping")
                self._stop.set()

    def stopped(self) -> None:
        """End it as stopped; nothing happens where it has ended."""
        with self._lock:
            if not self.is_terminal:
                self._end("Stopped")

    def describe(self) -> JSON:
        """Return what DescribeJob answers."""
        with self._lock:
            document = self.document
            if self._output:
                document["ServiceOutput"] = self._output
            answer: JSON = {
                **self._named(),
                "RoleArn": self.request.role_arn,
                "JobConfigSchemaVersion": self.request.schema_version,
                "JobConfigDocument": json.dumps(document),
                "SecondaryStatus": self._transitions[-1].status,
                "SecondaryStatusTransitions": [item.as_json() for item in self._transitions[-100:]],
            }
            if self._failure is not None:
                answer["FailureReason"] = self._failure
            if self.request.tags:
                answer["Tags"] = self.request.tags
            return answer

    def summary(self) -> JSON:
        """Return its entry of ListJobs."""
        with self._lock:
            return {**self._named(), "JobSecondaryStatus": self._transitions[-1].status}

    def _named(self) -> JSON:
        named: JSON = {
            "JobName": self.name,
            "JobArn": self.arn,
            "JobCategory": self.category,
            "JobStatus": self._status,
            "CreationTime": self.created,
            "LastModifiedTime": self._modified,
        }
        if self._ended_at is not None:
            named["EndTime"] = self._ended_at
        return named

    def _check_going(self) -> None:
        if self._stop.is_set() or self.is_terminal:
            raise StopRequested

    def _enter(self, status: str, message: str = "") -> None:
        moment = self._modified = now()
        current = self._transitions[-1]
        if current.status == status:
            current.message = message or current.message
            return
        current.end = moment
        self._transitions.append(Transition(status, moment, message))

    def _end(self, status: str, message: str = "") -> None:
        self._status = status
        self._enter(status, message)
        self._ended_at = self._transitions[-1].end = self._modified
        self._ended.set()
