"""What runs a rehearsed job once the local AWS has taken it: the stand-in trainer, where the real one would be."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON, SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.cli.mtrl._rehearsal_agent import Door
    from rft_agent_sdk.gateway import Gateway, Policy
    from rft_agent_sdk.mtrl.rehearsal import Attempt, Phase, Plan, Rehearsed, Rollout, Terms
    from rft_agent_sdk.training.tracking import Tracker
    from rft_agent_sdk.twins.cloud import JobRecord

Say = Callable[[str], object]
_STOP_LOOK_S = 0.2
_AS_FAST_AS_ASKED = 10_000.0
_SLACK_S = 60.0
_FAILURES_SAID = 5
_METERS = ("prefill_tokens", "sample_tokens", "train_tokens")


@dataclass
class RehearsalRunner:
    """Runs a job at the local AWS; see `twins.cloud.JobRunner`."""

    gateway: Gateway
    policy: Policy | Any
    door: Door
    s3: Any
    """Client of the local AWS, where the job's data is."""
    plan: Plan
    terms: Terms
    tracker: Tracker
    say: Say
    endpoint: str | None = None
    """The Job Runtime's URL, told in each payload; `None` leaves it out, as the service may."""
    rehearsed: Rehearsed | None = None
    """What came of it."""
    error: BaseException | None = None
    """What stopped the rehearsal itself."""

    def __call__(self, job: JobRecord) -> None:
        """Run the job to its end."""
        from rft_agent_sdk.twins.cloud import StopRequested

        try:
            self._run(job)
        except StopRequested:
            raise
        except BaseException as error:
            self.error = error
            raise

    def _run(self, job: JobRecord) -> None:
        from rft_agent_sdk.mtrl.rehearsal import Status

        job.move("Downloading")
        channels = {
            channel["ChannelName"]: _download(
                self.s3, channel["DataSource"]["S3DataSource"]["S3Uri"]
            )
            for channel in job.document["InputDataConfig"]
        }
        job.move("Training")
        rehearsed = self.rehearsed = asyncio.run(
            self._play(job, channels["train"], channels.get("validation", ()))
        )
        if rehearsed.failure_reason is not None:
            job.fail(rehearsed.failure_reason.value)
        elif rehearsed.status is Status.STOPPED:
            job.sleep(0)  # raises what says so
        else:
            job.move("Uploading")
            job.complete(job.publish("output"))

    async def _play(
        self, job: JobRecord, train: Sequence[str], validation: Sequence[str]
    ) -> Rehearsed:
        from rft_agent_sdk.cli.mtrl._rehearsal_agent import CloudAgent
        from rft_agent_sdk.cli.mtrl._rehearsal_runtime import GatewayRuntime
        from rft_agent_sdk.mtrl.rehearsal import payload
        from rft_agent_sdk.mtrl.rehearsal_trainer import StandInTrainer
        from rft_agent_sdk.training.agents import AgentCoreAgent

        def make_payload(prompt: str, rollout_id: str, sampling: SamplingParams) -> JSON:
            return payload(prompt, job.arn, rollout_id, sampling, endpoint=self.endpoint)

        config = job.document["AgentConfig"]["BedrockAgentCoreConfig"]
        longest_s = self.terms.real(self.terms.timeout_s) + _SLACK_S
        client = AgentCoreAgent(
            config["AgentRuntimeArn"],
            qualifier=config["Qualifier"],
            tps=_AS_FAST_AS_ASKED,
            # A place for each attempt: one that was given up may hold its own for a while.
            concurrency=self.terms.concurrency * 2,
            timeout_s=longest_s,
        )
        runtime = GatewayRuntime(
            self.gateway, self.gateway.register_job(job.arn, policy=self.policy)
        )
        trainer = StandInTrainer(
            CloudAgent(client, self.door, longest_s),
            runtime,
            make_payload,
            terms=self.terms,
            plan=self.plan,
            listener=JobListener(job, self.plan, self.tracker, self.say),
            clock=self.gateway.clock,
        )
        watch = asyncio.create_task(_stop_with(job, trainer.stop))
        try:
            return await trainer.run(train, validation)
        finally:
            watch.cancel()
            await client.aclose()


@dataclass
class JobListener:
    """Puts what happens where the service puts it: DescribeJob, the job's log, MLflow."""

    job: JobRecord
    plan: Plan
    tracker: Tracker
    say: Say
    _failures: int = 0
    _tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_METERS, 0))

    def failed(self, attempt: Attempt, row: int) -> None:
        """Tell of a failed attempt, the first few to people too; see `rehearsal.Listener`."""
        line = f"row {row + 1}, attempt {attempt.number} failed after {attempt.seconds:.1f} s: {attempt.failure}"
        self.job.log(f"{attempt.rollout_id}: {line}")
        self._failures += 1
        if self._failures <= _FAILURES_SAID:
            more = (
                "; more of the like are in the report" if self._failures == _FAILURES_SAID else ""
            )
            self.say(line + more)

    def ended(self, rollout: Rollout, done: int, total: int) -> None:
        """Count a rollout; see `rehearsal.Listener`."""
        from rft_agent_sdk.mtrl.rehearsal import Kind
        from rft_agent_sdk.twins.cloud import StopRequested

        seen = rollout.last.seen
        self._tokens["prefill_tokens"] += seen.prompt_tokens
        self._tokens["sample_tokens"] += seen.completion_tokens
        if rollout.kind is Kind.TRAIN:
            self._tokens["train_tokens"] += seen.prompt_tokens + seen.completion_tokens
        with suppress(StopRequested):  # the trainer is told by itself
            self.job.progress(
                current_step=max(rollout.step, 1),
                max_steps=self.plan.steps,
                batch_size=self.plan.batch,
                rollouts_completed=done,
                rollouts_total=total,
                **self._tokens,
            )

    def phase(self, phase: Phase) -> None:
        """Log a phase's numbers; see `rehearsal.Listener`."""
        from rft_agent_sdk.mtrl.rehearsal import Kind
        from rft_agent_sdk.mtrl.rehearsal_metrics import step_metrics

        metrics = step_metrics(phase, self.plan.success_threshold)
        self.tracker.log(phase.step, metrics)
        self.job.metrics(phase.step, metrics)
        if phase.kind is Kind.TRAIN:
            name = f"step {phase.step}/{self.plan.steps}"
            mean, std = metrics["rollout/reward/mean"], metrics["analysis/mean_group_reward_spread"]
            told = f"reward {mean:+.3f}, in groups std {std:.3f}"
            self.job.publish("checkpoint")
        else:
            name = f"validation after step {phase.step}"
            mean, solved = metrics["val/reward/mean"], metrics["val/reward/pass_at_1"]
            told = f"reward {mean:+.3f}, solved {solved:.0%}"
        line = f"{name}: {len(phase.rollouts)} rollouts in {phase.seconds:.1f} s, {told}"
        self.job.log(line)
        self.say(line)


async def _stop_with(job: JobRecord, stop: Callable[[], None]) -> None:
    while not job.is_stopping:  # noqa: ASYNC110 - set on another thread
        await asyncio.sleep(_STOP_LOOK_S)
    stop()


def _download(client: Any, uri: str) -> list[str]:
    """Return the prompts of a channel: of every object below its URI, as the service reads them."""
    from rft_agent_sdk.mtrl.aws import told

    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    prompts: list[str] = []
    with tempfile.TemporaryDirectory() as folder, told(f"{uri} cannot be read"):
        for entry in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
            path = Path(folder) / Path(entry["Key"]).name
            path.write_bytes(client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
            prompts += read_prompts(path)
    return prompts


def read_prompts(path: Path) -> list[str]:
    """Return what the service sends of a dataset: the column `prompt`, else the first one, to the character.

    Raises:
        UsageError: The file cannot be read, has no rows, or a row's cell is no text.
    """
    from rft_agent_sdk.training.dataset import read_records

    prompts = []
    for source, record in read_records(path):
        column = "prompt" if "prompt" in record else next(iter(record), "")
        cell = record.get(column)
        if not isinstance(cell, str):
            raise UsageError(
                f"{source}: the service sends the column {column!r} as it is, and wants text in it; got "
                f"{json.dumps(cell, default=str)[:80]}. Put an object there as its JSON text"
            )
        prompts.append(cell)
    if not prompts:
        raise UsageError(f"dataset {str(path)!r} holds no rows")
    return prompts
