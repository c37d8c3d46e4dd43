"""What a probe rollout that sampled nothing tells of the way from the agent to the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome

_NETWORKING = (
    "Every model call of the agent comes in from where the agent runs: (1) an AgentCore runtime must be "
    "in VPC mode, in a VPC that routes to this host; (2) this host's security group must let in TCP on "
    "the gateway's port from the runtime's subnets; (3) pin that port (gateway_port), since a free one "
    "differs in every run. A laptop has no address that a runtime could dial."
)


class Probe(Protocol):
    """What is known of a rollout; as `rollouts.Played`."""

    @property
    def trajectory(self) -> Trajectory:
        """Its record."""
        ...

    @property
    def detail(self) -> str:
        """What went wrong, for people."""
        ...

    @property
    def is_answered(self) -> bool:
        """Whether the agent answered."""
        ...

    @property
    def sampling_requests(self) -> int:
        """Requests for a sample that were known to be its own."""
        ...

    @property
    def reports(self) -> int:
        """Reports of its end."""
        ...


def unsampled(probe: Probe, refused: Mapping[int | None, int], gateway_url: str) -> str:
    """Return what to look at, for a probe that sampled nothing.

    Args:
        probe: The rollout.
        refused: Requests that reached the gateway meanwhile and belong to no rollout, by their status.
        gateway_url: Where the agent was told that the gateway is.
    """
    outcome = probe.trajectory.outcome
    detail = f" ({probe.detail})" if probe.detail else ""
    base = f"the probe rollout ended by {outcome.value} and sampled nothing{detail}: "
    if probe.sampling_requests:
        return (
            f"{base}the agent's {probe.sampling_requests} requests reached the gateway and were refused or "
            "failed; look at the sampler, and at the gateway's log"
        )
    if refused:
        told = ", ".join(f"{count} with {status}" for status, count in refused.items())
        return (
            f"{base}requests arrived at the gateway and were refused ({told}): the network is not what is "
            "wrong. 401 says that a request had not the rollout's own secret, `_config.api_key`, as bearer "
            "or x-api-key; 404 that it went to another path than those below `_config.base_url`"
        )
    if probe.reports:
        return (
            f"{base}the agent reached the gateway and reported, yet made no model call; does it read this "
            "payload?"
        )
    if not probe.is_answered and outcome is Outcome.INFRASTRUCTURE_ERROR:
        return f"{base}the agent itself could not be invoked"
    if outcome is Outcome.AGENT_ERROR:
        return (
            f"{base}the agent itself failed, and no request of it arrived at the gateway: look at the agent's "
            f"log first. Only if that tells of a connection that failed, look at the way from there to the "
            f"gateway, which it was told is at {gateway_url}"
        )
    return (
        f"{base}no request of the agent arrived at the gateway, which it was told is at {gateway_url}. "
        f"{_NETWORKING}"
    )
