"""What jobs that run still need of what is to be removed, whoever they belong to.

A job that is in scope is stopped first. One that is not is nobody's here to stop: what it calls, writes or reads is
left as long as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rft_agent_sdk.mtrl.job import Job
from rft_agent_sdk.mtrl.leftovers import Leftover, is_within, split_uri

_AGENTS = ("runtime", "endpoint", "function")


def block_what_runs(found: Sequence[Leftover], running: Iterable[Job]) -> list[Leftover]:
    """Return leftovers, those that a running job needs marked as blocked.

    Args:
        found: What was found.
        running: Jobs that have not ended and that are not among `found`.
    """
    jobs = list(running)
    marked = [_blocked(one, jobs) for one in found]
    why = next((one.blocked for one in marked if one.blocked and one.kind in _AGENTS), "")
    # A stack takes along what it made, and what that is nobody has listed.
    return [replace(one, blocked=why) if one.kind == "stack" and why else one for one in marked]


def _blocked(one: Leftover, jobs: Sequence[Job]) -> Leftover:
    for job in jobs:
        if how := _how(one, job):
            return replace(one, blocked=f"job {job.name} runs and {how} it")
    return one


def _how(one: Leftover, job: Job) -> str:
    """Say how a job uses something; nothing where it does not."""
    agent = job.agent.name if job.agent else ""
    groups = {arn.rpartition("/")[2] for arn in job.package_groups}
    match one.kind:
        case "runtime" | "function":
            return "calls" if one.id == agent else ""
        case "endpoint":
            return "calls" if one.id.partition("/")[0] == agent else ""
        case "mlflow-app":
            return "logs to" if one.id == job.mlflow_app else ""
        case "package-group":
            return "writes to" if one.id in groups else ""
        case "package":
            return "writes beside" if one.name.partition("/")[0] in groups else ""
        case "s3" | "dataset":
            return _how_folder(one, job)
    return ""


def _how_folder(one: Leftover, job: Job) -> str:
    bucket, key = split_uri(one.id)
    if job.output_uri is not None:
        place, folder = split_uri(job.output_uri)
        # A whole bucket is above everything in it.
        is_near = not folder or is_within(key, folder) or is_within(folder, key)
        if place == bucket and is_near:
            return "writes under"
    for uri in job.dataset_uris:
        place, _, start = uri.removeprefix("s3://").partition("/")
        # A job reads whatever begins with what it is told.
        if place == bucket and any(name.startswith(start) for name in one.keys):
            return "reads"
    return ""
