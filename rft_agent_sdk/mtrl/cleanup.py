"""Removes what was listed, kind by kind in a safe order, and nothing that was not listed.

A failure leaves that one thing and goes on with the next; at the end it is told what is left, and why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.job import describe_job, stop_job
from rft_agent_sdk.mtrl.leftovers import KINDS, Inventory, Leftover, split_uri

logger = logging.getLogger(__name__)

_AFTER_JOBS = frozenset(KINDS) - {"job", "session", "log-group"}
"""Kinds that a job may still need while it stops: its agent plays on, and its last checkpoint is promoted then."""
_BATCH = 1000
"""Objects that S3 removes in one call."""


@dataclass(frozen=True, slots=True)
class Left:
    """Something that was to be removed and is still there."""

    what: Leftover
    why: str


@dataclass(slots=True)
class Removal:
    """What was removed, declined and left."""

    removed: list[Leftover] = field(default_factory=list)
    declined: list[Leftover] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what ends slowly: jobs and stacks."""

    timeout_s: float = 900.0
    """Seconds for all jobs together, and for each stack."""
    poll_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def remove(
    clients: Clients,
    inventory: Inventory,
    *,
    confirm: Callable[[str, Sequence[Leftover]], bool],
    patience: Patience | None = None,
    tell: Callable[[Leftover, str], None] = lambda what, outcome: None,
) -> Removal:
    """Remove what an inventory holds and does not keep.

    Args:
        clients: Of the region it was taken in.
        inventory: What was listed.
        confirm: Asked for each kind that there is something of; whether to remove it.
        patience: How long to wait for what ends slowly.
        tell: Takes each thing and what became of it.

    Returns:
        What became of everything.
    """
    found = Removal()
    work = _Removing(clients, patience or Patience())
    kept = (f"job {one.name} runs" for one in inventory.of("job") if one.kept)
    blocked = inventory.jobs_unseen or next(kept, "")
    for kind in KINDS:
        things = [one for one in inventory.removable if one.kind == kind]
        if not things:
            continue
        if blocked and kind in _AFTER_JOBS:
            found.left += [Left(one, blocked) for one in things]
            continue
        found.left += [Left(one, one.blocked) for one in things if one.blocked]
        things = [one for one in things if not one.blocked]
        if not things:
            continue
        if not confirm(kind, things):
            found.declined += things
            if kind == "job":
                blocked = "a job that may use it was not stopped"
            continue
        for one in things:
            try:
                outcome = work.remove(one)
            except CloudError as error:
                outcome = "gone already" if error.is_missing else ""
                if not error.is_missing:
                    found.left.append(Left(one, str(error)))
                    tell(one, f"left: {error}")
                    blocked = blocked or _blocks(one)
            if outcome:
                found.removed.append(one)
                tell(one, outcome)
        if kind == "job" and (running := work.wait_for_jobs(things)):
            blocked = (
                blocked or f"job {', '.join(running)} has not ended yet: repeat this command later"
            )
            found.left += [
                Left(one, "it is still stopping") for one in things if one.name in running
            ]
            # by kind as well: a job and a log group may have one name
            found.removed = [
                one for one in found.removed if one.kind != "job" or one.name not in running
            ]
    return found


def _blocks(one: Leftover) -> str:
    return f"job {one.name} was not stopped" if one.kind == "job" else ""


@dataclass(frozen=True, slots=True)
class _Removing:
    """Removes one thing of any kind."""

    clients: Clients
    patience: Patience

    def remove(self, one: Leftover) -> str:
        """Remove it and return what became of it.

        Raises:
            CloudError: The service refused, or did not do it in time.
        """
        with told(f"{one.name} cannot be removed"):
            match one.kind:
                case "job":
                    return self._stop_job(one)
                case "session":
                    self.clients("sagemaker").stop_training_session(TrainingSessionName=one.id)
                    return "stopping"
                case "stack":
                    return self._delete_stack(one)
                case "s3" | "dataset":
                    return self._delete_objects(one)
                case _:
                    return self._delete(one)

    def wait_for_jobs(self, jobs: Sequence[Leftover]) -> list[str]:
        """Wait until jobs have ended; return the names of those that have not in time."""
        until = self.patience.clock() + self.patience.timeout_s
        running = list(jobs)
        while True:
            running = [one for one in running if not self._has_ended(one)]
            if not running or self.patience.clock() >= until:
                return [one.name for one in running]
            self.patience.sleep(self.patience.poll_s)

    def _stop_job(self, one: Leftover) -> str:
        client = self.clients("sagemaker")
        is_stopped = stop_job(client, describe_job(client, one.id, one.category))
        return "stopping" if is_stopped else "had ended already"

    def _has_ended(self, one: Leftover) -> bool:
        try:
            return describe_job(self.clients("sagemaker"), one.id, one.category).has_ended
        except CloudError as error:
            logger.warning("error=<%s> | whether job %s has ended is not known", error, one.name)
            return error.is_missing

    def _delete(self, one: Leftover) -> str:
        sagemaker, control = self.clients("sagemaker"), self.clients("bedrock-agentcore-control")
        match one.kind:
            case "endpoint":
                runtime, _, name = one.id.partition("/")
                control.delete_agent_runtime_endpoint(agentRuntimeId=runtime, endpointName=name)
            case "runtime":
                control.delete_agent_runtime(agentRuntimeId=one.id)
            case "function":
                self.clients("lambda").delete_function(FunctionName=one.id)
            case "mlflow-app":
                sagemaker.delete_mlflow_app(Arn=one.id)
            case "package":
                sagemaker.delete_model_package(ModelPackageName=one.id)
            case "package-group":
                sagemaker.delete_model_package_group(ModelPackageGroupName=one.id)
            case "log-group":
                self.clients("logs").delete_log_group(logGroupName=one.id)
            case _:
                raise AssertionError(f"{one.kind} is no kind that is removed")
        return "removed"

    def _delete_stack(self, one: Leftover) -> str:
        client = self.clients("cloudformation")
        client.delete_stack(StackName=one.id)
        until = self.patience.clock() + self.patience.timeout_s
        while True:
            # By its id, since a stack that is gone has no name any more.
            found: dict[str, Any] = client.describe_stacks(StackName=one.id)["Stacks"][0]
            status = found["StackStatus"]
            if status == "DELETE_COMPLETE":
                return "removed, with all that it made"
            if status == "DELETE_FAILED":
                reason = found.get("StackStatusReason") or "its events say why"
                raise CloudError(f"{one.name} was not removed: {reason}")
            if self.patience.clock() >= until:
                raise CloudError(
                    f"{one.name} is still {status} after {self.patience.timeout_s:g} s"
                )
            self.patience.sleep(self.patience.poll_s)

    def _delete_objects(self, one: Leftover) -> str:
        bucket = split_uri(one.id)[0]
        failed: list[str] = []
        gone = 0
        for start in range(0, len(one.keys), _BATCH):
            batch = one.keys[start : start + _BATCH]
            asked = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
            what = f"{gone} of {len(one.keys)} objects of {one.name} were removed, the next ones were not"
            with told(what):
                answer = self.clients("s3").delete_objects(Bucket=bucket, Delete=asked)
            refused = [f"{error['Key']}: {error['Code']}" for error in answer.get("Errors") or ()]
            failed += refused
            gone += len(batch) - len(refused)
        if failed:
            raise CloudError(
                f"{len(failed)} of {len(one.keys)} objects of {one.name} were not removed; the first, {failed[0]}"
            )
        return f"removed {len(one.keys)} objects"
