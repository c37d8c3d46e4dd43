"""Which agent a job began with, and whether it is still the same.

A job calls its agent for hours, and an agent that is redeployed meanwhile ends the job, or trains on two agents
without a word. What is deployed is noted at the start of a job and compared later. Updates that happened before
anybody noted anything are told by the times of the runtime's versions.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.agent_arn import DEFAULT_QUALIFIER, Agent
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.job import Job
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

SETTINGS = ("REASONING_EFFORT", "REASONING_PROMPT_HINT", "RFT_ENVIRONMENT")
"""Of an agent's environment variables those that change how it plays; others may be secrets and are not kept."""


@dataclass(frozen=True, slots=True)
class Lock:
    """What was deployed at one moment."""

    agent: str
    """ARN of the runtime, or of the function that forwards to an agent elsewhere."""
    qualifier: str | None
    """The runtime's endpoint; `None` for a function."""
    version: str
    """The version that the endpoint serves."""
    artifact: str
    """What the version runs: an image's URI, a bundle's place in S3 with its version, or a function's digest."""
    deployed: str
    """When that version was deployed, as ISO 8601 text."""
    taken: str
    """When this was noted, as ISO 8601 text."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those of `SETTINGS` that are set."""

    def to_json(self) -> JSON:
        """Return it as one JSON object."""
        return {
            "agent": self.agent,
            "qualifier": self.qualifier,
            "version": self.version,
            "artifact": self.artifact,
            "deployed": self.deployed,
            "taken": self.taken,
            "settings": dict(self.settings),
        }


def take_lock(clients: Clients, agent: Agent, now: datetime) -> Lock:
    """Return what is deployed now.

    Args:
        clients: Of the agent's region.
        agent: A runtime, or a function.
        now: The time.

    Raises:
        CloudError: The service refused, or there is no such agent.
    """
    taken = now.astimezone(UTC).isoformat(timespec="seconds")
    if agent.qualifier is None:
        with told(f"the function {agent.arn} cannot be described"):
            found = clients("lambda").get_function_configuration(FunctionName=agent.arn)
        variables = found.get("Environment", {}).get("Variables", {})
        return Lock(
            agent.arn,
            None,
            found["Version"],
            found["CodeSha256"],
            found["LastModified"],
            taken,
            _settings(variables),
        )
    control = clients("bedrock-agentcore-control")
    with told(f"the agent {agent.arn} cannot be described"):
        endpoint = control.get_agent_runtime_endpoint(
            agentRuntimeId=agent.name, endpointName=agent.qualifier
        )
        asked = {"agentRuntimeId": agent.name}
        if endpoint.get("liveVersion"):
            asked["agentRuntimeVersion"] = endpoint["liveVersion"]
        runtime = control.get_agent_runtime(**asked)
    return Lock(
        agent.arn,
        agent.qualifier,
        runtime["agentRuntimeVersion"],
        _artifact(runtime.get("agentRuntimeArtifact") or {}),
        _iso(runtime["lastUpdatedAt"]),
        taken,
        _settings(runtime.get("environmentVariables") or {}),
    )


def compare(before: Lock, now: Lock) -> list[str]:
    """Return what differs between two moments, one sentence each; nothing where the agent is the same."""
    return [
        f"{name} was {earlier!r} and is {later!r}"
        for name, earlier, later in (
            ("agent", before.agent, now.agent),
            ("endpoint", before.qualifier, now.qualifier),
            ("version", before.version, now.version),
            ("artifact", before.artifact, now.artifact),
            ("settings", dict(before.settings), dict(now.settings)),
        )
        if earlier != later
    ]


def changes(clients: Clients, job: Job, before: Lock | None, now: datetime) -> list[str]:
    """Return how the agent changed since a job began, one sentence each.

    Of a job that has ended only what happened before its end counts.

    Args:
        clients: Of the job's region.
        job: The job.
        before: What was noted when it began, or soon after; `None` where nothing was.
        now: The time.

    Raises:
        CloudError: The service refused.
    """
    if job.agent is None:
        return []
    found = []
    if before is not None and not job.has_ended:
        found += compare(before, take_lock(clients, job.agent, now))
    # A pinned endpoint serves its version, whatever is deployed beside it; DEFAULT follows the newest.
    if job.agent.qualifier == DEFAULT_QUALIFIER:
        found += [
            f"version {version} was deployed at {_iso(at)}, while the job ran"
            for version, at in _versions(clients, job.agent)
            if job.created < at < (job.ended or now)
        ]
    return found


@dataclass(slots=True)
class LockWatch:
    """Looks after the agent while somebody watches a job: `watch(..., at_each_look=lock_watch)`."""

    clients: Clients
    before: Lock | None
    """See `changes`."""
    tell: Callable[[str], None] = lambda change: None
    """Takes each change as soon as it is seen, once."""
    every_s: float = 60.0
    """Seconds between two looks at the agent; the end of the job is looked at in any case."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    found: list[str] = field(default_factory=list)
    """All changes so far."""
    _looked: float | None = None
    _is_blind: bool = False

    def __call__(self, job: Job) -> None:
        """Look, unless it is too soon; what cannot be read is logged once, and does not end the watch."""
        at = self.clock()
        if self._looked is not None and at - self._looked < self.every_s and not job.has_ended:
            return
        self._looked = at
        try:
            seen = changes(self.clients, job, self.before, self.now())
        except CloudError as error:
            if not self._is_blind:
                logger.warning(
                    "error=<%s> | whether the agent is still the same is not known", error
                )
            self._is_blind = True
            return
        for change in seen:
            if change not in self.found:
                self.found.append(change)
                self.tell(change)


def lock_path(folder: Path, job_name: str) -> Path:
    """Return the file that a job's lock is kept in.

    Args:
        folder: Of all jobs' files, `runs/mtrl` by default on the command line.
        job_name: The job's.
    """
    return folder / job_name / "lock.json"


def write_lock(path: Path, lock: Lock) -> None:
    """Keep a lock in a file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(lock.to_json(), indent=2) + "\n", "utf-8")


def read_lock(path: Path) -> Lock | None:
    """Return the lock kept in a file; `None` where there is no such file.

    Raises:
        UsageError: The file holds something else.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        return Lock(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{str(path)!r}: wanted the lock of a job, got something else ({error}): remove the file"
        ) from error


def _versions(clients: Clients, agent: Agent) -> Iterator[tuple[str, datetime]]:
    control = clients("bedrock-agentcore-control")
    asked = {"agentRuntimeId": agent.name}
    while True:
        with told(f"the versions of {agent.arn} cannot be listed"):
            page = control.list_agent_runtime_versions(**asked)
        for one in page["agentRuntimes"]:
            yield one["agentRuntimeVersion"], one["lastUpdatedAt"]
        if not page.get("nextToken"):
            return
        asked["nextToken"] = page["nextToken"]


def _artifact(artifact: JSON) -> str:
    """Return what a version runs as one text."""
    if uri := artifact.get("containerConfiguration", {}).get("containerUri"):
        return str(uri)
    code: dict[str, Any] = artifact.get("codeConfiguration", {}).get("code", {}).get("s3", {})
    if not code:
        return ""
    version = code.get("versionId")
    return f"s3://{code.get('bucket')}/{code.get('prefix')}" + (f"@{version}" if version else "")


def _settings(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: variables[name] for name in SETTINGS if name in variables}


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
