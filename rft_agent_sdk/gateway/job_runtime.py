"""Jobs: the Job Runtime's registry, as a local twin keeps it.

The managed service is told of a job by CreateJob and of its trajectories by its own trainer. Here
`register_job` does the one, and the first call that names a trajectory does the other.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.faults import Fault
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.rollout import GatewayRollout, RolloutState, Terms

JOB_ARN = re.compile(
    r"arn:aws[a-z\-]*:sagemaker:(?P<region>[a-z0-9\-]*):(?P<account>[0-9]{12})"
    r":job/[a-zA-Z0-9_\-]+/[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
)
ID_LIMIT = 256
"""Characters of a job ARN or trajectory id."""


class Trajectory(GatewayRollout):
    """One rollout of a job."""

    @property
    def failure_reason(self) -> str | None:
        """What the managed service would fail the whole job with, were the job to end now."""
        if self.state is RolloutState.FAILED:
            return "The agent signaled that the trajectory failed"
        if not self.turns:
            return "No sampling requests were received for this rollout"
        if self.state is not RolloutState.REWARD_RECEIVED:
            return "The rollout completed but no reward was received in time"
        return None


class Job:
    """One registered job and its trajectories."""

    def __init__(
        self, arn: str, terms: Terms, *, trajectories: Iterable[str] | None = None
    ) -> None:
        parts = JOB_ARN.fullmatch(arn)
        if parts is None or len(arn) > ID_LIMIT:
            raise UsageError(
                "a job ARN is arn:aws:sagemaker:<region>:<account>:job/<category>/<name>, "
                f"got {arn!r}"
            )
        self.arn = arn
        self.region: str = parts["region"]
        self.account: str = parts["account"]
        self.terms = terms
        self._lock = threading.Lock()
        self._is_fixed = trajectories is not None
        self._trajectories = {name: Trajectory(name, terms) for name in trajectories or ()}

    @property
    def trajectories(self) -> Mapping[str, Trajectory]:
        """The trajectories known so far, by id; a copy."""
        with self._lock:
            return dict(self._trajectories)

    @property
    def fault_counts(self) -> Counter[Fault]:
        """How often each fault was laid on a request of this job."""
        total: Counter[Fault] = Counter()
        for trajectory in self.trajectories.values():
            total += trajectory.faults.counts + trajectory.report_faults.counts
        return total

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """Return a trajectory, made on first sight unless the job's set is fixed.

        Raises:
            Refusal: 400, the id has a wrong length; 404, it is not of the fixed set.
        """
        if not 1 <= len(trajectory_id) <= ID_LIMIT:
            raise Refusal(
                400,
                f"TrajectoryId must have 1 to {ID_LIMIT} characters, got {len(trajectory_id)}",
                param="TrajectoryId",
            )
        with self._lock:
            found = self._trajectories.get(trajectory_id)
            if found is None:
                if self._is_fixed:
                    raise Refusal(404, f"Could not find trajectory {trajectory_id!r} in this job")
                found = self._trajectories[trajectory_id] = Trajectory(trajectory_id, self.terms)
            return found
