"""The checks, in the order in which they are made: what needs nothing first, what costs something last."""

from __future__ import annotations

from rft_agent_sdk.mtrl.doctor.check import Check
from rft_agent_sdk.mtrl.doctor.checks import (
    account,
    agent,
    dataset,
    entrypoint,
    launch,
    machine,
    project,
    rewards,
    roles,
    runtime,
)

GROUPS: dict[str, tuple[Check, ...]] = {
    "machine": machine.CHECKS,
    "project": (*project.CHECKS, *entrypoint.CHECKS),
    "rewards": rewards.CHECKS,
    "dataset": dataset.CHECKS,
    "account": account.CHECKS,
    "roles": roles.CHECKS,
    "runtime": runtime.CHECKS,
    "launch": launch.CHECKS,
    "agent": agent.CHECKS,
}
"""The checks by group. A group may hold the lists of several files."""
