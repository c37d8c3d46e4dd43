"""What a job has cost: its billable tokens at list prices, and the agent's share from its measured use.

The service counts tokens and tells no dollars; CloudWatch counts the agent's processor and memory hours. Where the
latter cannot be read, they are estimated, and what the estimate stands on is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.agent_arn import Agent
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.job import Job
from rft_agent_sdk.mtrl.prices import METERS, Price, Prices
from rft_agent_sdk.types import JSON

COUNTERS = {
    "PrefillTokenCount": "prefill",
    "SampleTokenCount": "sample",
    "TrainTokenCount": "train",
    "TrainingTokenCount": "train",
}
"""The service's names of the meters; a training session names the last one otherwise than a job."""
VCPU_HOUR_USD = 0.0895
GB_HOUR_USD = 0.00945
RATES_AS_OF = "2026-06, us-east-1"
"""When and where the two rates of AgentCore Runtime were read."""
_CONCURRENCY = 96
"""Rollouts in flight unless a job says otherwise."""
_AFTER = timedelta(minutes=15)
"""How long a session may live on after its last rollout: AgentCore's own idle limit."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much an agent uses while it plays, for an estimate."""

    vcpus: float = 0.6
    """Processors in use on average. With the memory below it makes the $79 of the one published run (105,486
    rollouts, 12:40 hours, 96 at a time)."""
    memory_gb: float = 1.2
    rollout_s: float | None = None
    """Seconds of a rollout; `None` takes as many as keep the job's concurrency full, which is the most there can be."""


@dataclass(frozen=True, slots=True)
class AgentUse:
    """Processor and memory hours of the agent."""

    vcpu_hours: float
    gb_hours: float
    note: str
    """Where they come from, and what to think of them."""
    is_measured: bool

    @property
    def usd(self) -> float:
        """At list prices."""
        return self.vcpu_hours * VCPU_HOUR_USD + self.gb_hours * GB_HOUR_USD


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job has cost so far."""

    tokens: Mapping[str, int]
    """By meter: `prefill`, `sample`, `train`; those that the service told."""
    price: Price
    agent: AgentUse | None
    """`None` where nothing can be told: another place than AgentCore hosts the agent."""
    unpriced: Mapping[str, int] = field(default_factory=dict)
    """Tokens of meters that nobody here knows, by the service's names of them: in no sum."""

    @property
    def tokens_usd(self) -> float | None:
        """Of the tokens; `None` where a price is not known, or the service has told no tokens yet."""
        if not self.tokens:
            return None
        found = [
            None if (price := getattr(self.price, meter)) is None else count * price / 1e6
            for meter, count in self.tokens.items()
        ]
        return None if None in found else math.fsum(one for one in found if one is not None)

    def to_json(self) -> JSON:
        """Return it as one JSON object."""
        agent = self.agent
        return {
            "tokens": dict(self.tokens),
            "usd_per_million": {meter: getattr(self.price, meter) for meter in METERS},
            "prices_as_of": self.price.as_of or None,
            "tokens_usd": self.tokens_usd,
            "unpriced_tokens": dict(self.unpriced),
            "agent": None
            if agent is None
            else {
                "vcpu_hours": agent.vcpu_hours,
                "gb_hours": agent.gb_hours,
                "usd": agent.usd,
                "is_measured": agent.is_measured,
                "note": agent.note,
            },
        }

    def lines(self) -> list[str]:
        """Return it line by line, for people."""
        found = [
            f"{meter:<8}{count:>16,} tokens  {_usd_of(count, getattr(self.price, meter))}"
            for meter, count in self.tokens.items()
        ]
        rest = [
            f"{count:,} tokens of {name}: a meter without a known price, in no sum"
            for name, count in self.unpriced.items()
        ]
        if not found:
            found = ["the service has told no tokens yet"]
        elif self.tokens_usd is None:
            found.append("no prices are published for this model: give them with --prices FILE")
        else:
            place = f", {self.price.region}" if self.price.region else ""
            found.append(
                f"tokens in all ${self.tokens_usd:,.2f}, at list prices as of {self.price.as_of}{place}"
            )
        found += rest
        if self.agent is None:
            return [*found, "the agent is not hosted on AgentCore: what it costs is told elsewhere"]
        return [
            *found,
            f"agent   {self.agent.vcpu_hours:,.1f} vCPU hours, {self.agent.gb_hours:,.1f} GB hours  "
            f"${self.agent.usd:,.2f}, at list prices as of {RATES_AS_OF}",
            f"        {self.agent.note}",
        ]


def job_cost(clients: Clients, job: Job, prices: Prices, load: Load, now: datetime) -> Cost:
    """Return what a job has cost so far.

    Args:
        clients: Of the job's region.
        job: The job.
        prices: Of tokens.
        load: What an estimate of the agent's use stands on, where it cannot be measured.
        now: The time.

    Raises:
        UsageError: No region can be told.
    """
    agent = job.agent
    return Cost(
        tokens_by_meter(job.tokens),
        prices.of(job.base_model, clients.region),
        None if agent is None or agent.is_lambda else _agent_use(clients, job, agent, load, now),
        {name: count for name, count in job.tokens.items() if name not in COUNTERS},
    )


def tokens_by_meter(counted: Mapping[str, int]) -> dict[str, int]:
    """Return token counts by meter, from the service's names of them, of jobs and sessions alike."""
    found: dict[str, int] = {}
    for name, count in counted.items():
        if (meter := COUNTERS.get(name)) is not None:
            found[meter] = found.get(meter, 0) + count
    return {meter: found[meter] for meter in METERS if meter in found}


def _agent_use(clients: Clients, job: Job, agent: Agent, load: Load, now: datetime) -> AgentUse:
    try:
        vcpu_hours = _measured(clients, agent, "CPUUsed-vCPUHours", job, now)
        gb_hours = _measured(clients, agent, "MemoryUsed-GBHours", job, now)
    except CloudError as error:
        return _estimated(
            job, load, now, f"CloudWatch cannot be read ({error.code or 'no answer'})"
        )
    if vcpu_hours is None or gb_hours is None:
        return _estimated(
            job, load, now, "CloudWatch has no use of the agent yet, which can take an hour"
        )
    return AgentUse(
        vcpu_hours,
        gb_hours,
        "measured by CloudWatch over the job's time, whoever called the agent meanwhile; arrives up to an hour late",
        is_measured=True,
    )


def _measured(clients: Clients, agent: Agent, metric: str, job: Job, now: datetime) -> float | None:
    """Return a metric's sum over the job's time; `None` where there is none."""
    end = min(now, job.ended + _AFTER) if job.ended else now
    # An answer holds 1440 points at most.
    period = max(300, math.ceil((end - job.created).total_seconds() / 1440 / 300) * 300)
    with told(f"the use of {agent.arn} cannot be read"):
        points: list[dict[str, Any]] = clients("cloudwatch").get_metric_statistics(
            Namespace="AWS/Bedrock-AgentCore",
            MetricName=metric,
            Dimensions=[
                {"Name": "Service", "Value": "AgentCore.Runtime"},
                {"Name": "Resource", "Value": agent.arn},
            ],
            StartTime=job.created,
            EndTime=end,
            Period=period,
            Statistics=["Sum"],
        )["Datapoints"]
    return math.fsum(one["Sum"] for one in points) if points else None


def _estimated(job: Job, load: Load, now: datetime, why: str) -> AgentUse:
    concurrency = int(float(job.hyperparameters.get("rollout_max_concurrency", _CONCURRENCY)))
    worked_h = job.worked_s(now) / 3600
    hours = concurrency * worked_h
    stands_on = f"{concurrency} rollouts at a time for {worked_h:.2f} hours, the most there can be"
    if load.rollout_s is not None and job.rollouts is not None:
        hours = job.rollouts[0] * load.rollout_s / 3600
        stands_on = f"{job.rollouts[0]:,} rollouts of {load.rollout_s:g} s"
    return AgentUse(
        hours * load.vcpus,
        hours * load.memory_gb,
        f"estimated: {why}; assumes {stands_on}, {load.vcpus:g} vCPU and {load.memory_gb:g} GB in use",
        is_measured=False,
    )


def _usd_of(count: int, price: float | None) -> str:
    return (
        "at an unknown price"
        if price is None
        else f"at ${price:g} a million  ${count * price / 1e6:,.2f}"
    )
