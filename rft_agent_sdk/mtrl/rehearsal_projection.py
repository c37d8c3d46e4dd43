"""The whole job, projected from the rollouts of a rehearsal: time, tokens and dollars.

What is projected is what a rehearsal measures: turns, tokens and seconds of a rollout as this policy plays it. A
model that is trained plays otherwise, and changes while it is; updates and checkpoints take time that is not in
here. So the time is a lower bound, and the tokens are those of this policy.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rft_agent_sdk.mtrl.plan import JobPlan, hours
from rft_agent_sdk.mtrl.prices import METERS, RUN, Price, Prices
from rft_agent_sdk.mtrl.rehearsal import Kind, Rehearsed, Rollout, Terms


@dataclass(frozen=True, slots=True)
class Measured:
    """A rollout's means, over those that have a reward."""

    rollouts: int
    seconds: float
    turns: float
    prefill: float
    """Tokens read: each turn reads the conversation again."""
    sample: float
    """Tokens generated."""

    @property
    def train(self) -> float:
        """Tokens of the backward pass, in the proportion of the published run."""
        return (self.prefill + self.sample) * RUN.train / (RUN.prefill + RUN.sample)


@dataclass(frozen=True, slots=True)
class Projection:
    """The job with the hyperparameters that it would be launched with."""

    plan: JobPlan
    measured: Measured
    step_s: float
    """Seconds in which a step's rollouts can be played: by the rate of starts, or by the places in flight."""
    seconds: float
    """The same of all rollouts, validations too."""
    tokens: Mapping[str, float]
    """By meter."""
    price: Price
    tokens_usd: float | None
    """`None` where the model's prices are not known."""
    agentcore_usd: float
    model: str

    @property
    def usd(self) -> float | None:
        """All of it."""
        return None if self.tokens_usd is None else self.tokens_usd + self.agentcore_usd

    def lines(self) -> list[str]:
        """Return it line by line, for people."""
        plan = self.plan
        meters = ", ".join(f"{self.tokens[meter] / 1e6:,.1f} M {meter}" for meter in METERS)
        cost = (
            f"tokens at an unknown price for {self.model}, AgentCore about ${self.agentcore_usd:,.0f}"
            if self.usd is None
            else f"about ${self.usd:,.0f} (tokens ${self.tokens_usd:,.0f}, AgentCore ${self.agentcore_usd:,.0f}; "
            f"prices as of {self.price.as_of})"
        )
        return [
            f"{plan.steps} steps x {plan.batch_size} prompts x group of {plan.group_size} = "
            f"{plan.training_rollouts:,} rollouts, and {plan.validation_rollouts:,} of validation",
            f"a step of {plan.rollouts_per_step:,} rollouts: at least {hours(self.step_s)}; all: at least "
            f"{hours(self.seconds)}, training aside",
            f"tokens, as this policy plays: {meters}",
            f"cost: {cost}",
        ]


def measure(rehearsed: Rehearsed) -> Measured | None:
    """Return the means of the rollouts that got a reward; `None` where none did."""
    played = [rollout for rollout in rehearsed.rollouts if rollout.failure is None]
    training = [rollout for rollout in played if rollout.kind is Kind.TRAIN]
    return _measured(training or played)


def project(
    measured: Measured,
    plan: JobPlan,
    terms: Terms,
    *,
    model: str,
    region: str,
    prices: Prices | None = None,
) -> Projection:
    """Project a job.

    Args:
        measured: One rollout.
        plan: What the job plays.
        terms: On what terms; its speed does not matter here.
        model: Name of the base model in the hub.
        region: Where the job runs.
        prices: The table; `None` for the published one.
    """
    prices = prices or Prices({})
    pace_s = max(1 / terms.tps, measured.seconds / terms.concurrency)
    each = {"prefill": measured.prefill, "sample": measured.sample, "train": measured.train}
    trained = plan.training_rollouts
    tokens = {
        meter: each[meter] * (trained if meter == "train" else plan.rollouts) for meter in METERS
    }
    price = prices.of(model, region)
    usd = None
    if price.is_known:
        usd = sum(tokens[meter] * getattr(price, meter) for meter in METERS) / 1e6
    agentcore = prices.agentcore_per_rollout * measured.turns / RUN.turns * plan.rollouts
    return Projection(
        plan,
        measured,
        plan.rollouts_per_step * pace_s,
        plan.rollouts * pace_s,
        tokens,
        price,
        usd,
        agentcore,
        model,
    )


def _measured(rollouts: Sequence[Rollout]) -> Measured | None:
    if not rollouts:
        return None
    seen = [rollout.last.seen for rollout in rollouts]
    return Measured(
        len(rollouts),
        statistics.fmean(rollout.last.seconds for rollout in rollouts),
        statistics.fmean(one.turns for one in seen),
        statistics.fmean(one.prompt_tokens for one in seen),
        statistics.fmean(one.completion_tokens for one in seen),
    )
