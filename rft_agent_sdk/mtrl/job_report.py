"""A job told to people and to programs: where it stands, how it got there, and what to do where it failed."""

from __future__ import annotations

from datetime import UTC, datetime

from rft_agent_sdk.mtrl.failure import advice
from rft_agent_sdk.mtrl.job import Job, Transition
from rft_agent_sdk.mtrl.wait import duration, progress_text
from rft_agent_sdk.types import JSON

CHECKPOINTS = (
    "what was trained so far stays in the checkpoint group, and the service promotes the last checkpoint to the output "
    "group as far as it can; a new job goes on from a checkpoint"
)


def report_lines(job: Job, now: datetime) -> list[str]:
    """Return all that is known of a job, line by line."""
    found = [f"{job.name}  {job.category}  {job.status}, {job.phase}"]
    took = (job.ended or now) - job.created
    verb = "took" if job.ended else "running for"
    found.append(f"  created {_at(job.created)}, {verb} {duration(took.total_seconds())}")
    if text := progress_text(job, now):
        found.append(f"  {text}")
    if job.tokens:
        counts = ", ".join(f"{count:,} {name}" for name, count in job.tokens.items())
        found.append(f"  tokens: {counts}")
    if job.agent is not None:
        found.append(f"  agent {job.agent.arn}" + _endpoint(job.agent.qualifier))
    if job.base_model:
        found.append(f"  base model {job.base_model}")
    if run := job.mlflow.get("RunName") or job.mlflow.get("RunId"):
        found.append(f"  MLflow run {run!r} of experiment {job.mlflow.get('ExperimentName')!r}")
    if job.output_package:
        found.append(f"  output package {job.output_package}")
    found += [f"  {line}" for line in _phases(job, now)]
    if job.failure_reason:
        found.append(f"  failed: {job.failure_reason}")
    if what := advice(job):
        found.append(f"  what to do: {what.replace('NAME', job.name)}")
    return found


def report_json(job: Job, now: datetime) -> JSON:
    """Return all that is known of a job as one JSON object."""
    progress, rollouts = job.progress, job.rollouts
    return {
        "name": job.name,
        "arn": job.arn,
        "category": job.category,
        "status": job.status,
        "phase": job.phase,
        "created": _iso(job.created),
        "ended": job.ended and _iso(job.ended),
        "progress": progress
        and {
            "step": progress.step,
            "max_steps": progress.max_steps,
            "epoch": progress.epoch,
            "max_epochs": progress.max_epochs,
        },
        "rollouts": rollouts and {"completed": rollouts[0], "total": rollouts[1]},
        "time_left_s": job.time_left_s(now),
        "tokens": dict(job.tokens),
        "transitions": [
            {
                "phase": one.phase,
                "started": _iso(one.started),
                "ended": one.ended and _iso(one.ended),
                "message": one.message,
            }
            for one in job.transitions
        ],
        "failure_reason": job.failure_reason or None,
        "advice": advice(job).replace("NAME", job.name) or None,
        "agent": job.agent and job.agent.arn,
        "qualifier": job.agent and job.agent.qualifier,
        "base_model": job.base_model or None,
        "hyperparameters": dict(job.hyperparameters),
        "output_package": job.output_package,
        "mlflow_app": job.mlflow_app,
        "mlflow": job.mlflow,
    }


def _phases(job: Job, now: datetime) -> list[str]:
    return [
        f"{_at(one.started)}  {one.phase:<12} {_lasted(one, job, now):>9}  {one.message}".rstrip()
        for one in job.transitions
    ]


def _lasted(one: Transition, job: Job, now: datetime) -> str:
    return duration(((one.ended or job.ended or now) - one.started).total_seconds())


def _endpoint(qualifier: str | None) -> str:
    return f", endpoint {qualifier}" if qualifier else ""


def _at(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
