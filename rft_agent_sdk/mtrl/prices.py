"""What a job may cost: one published run's tokens, scaled, at dated list prices that anybody can override.

An estimate and no quotation. A job bills three meters by model: tokens read (prefill), tokens generated
(sample), and tokens of the backward pass (train); AgentCore bills the agent's CPU and memory apart from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.models import find_model
from rft_agent_sdk.mtrl.plan import JobPlan

METERS = ("prefill", "sample", "train")


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One run whose meters were published: Wordle, gpt-oss-20b at low reasoning effort, 100 steps."""

    rollouts: int = 105_486
    prefill: float = 491.6e6
    sample: float = 159.7e6
    train: float = 643.3e6
    agentcore_usd: float = 79.0
    turns: int = 6
    """Most model calls that play a game: it has six guesses."""


RUN = PublishedRun()


@dataclass(frozen=True, slots=True)
class Price:
    """List prices of one model in one region."""

    prefill: float | None = None
    """US dollars per million tokens, as the other two; `None` where nobody told."""
    sample: float | None = None
    train: float | None = None
    as_of: str = ""
    """When, or from which file, they were read."""
    region: str = ""
    """Whose they are, where another region's have to serve."""

    @property
    def is_known(self) -> bool:
        """Whether all three are."""
        return None not in (self.prefill, self.sample, self.train)


LISTED = {
    ("openai-reasoning-gpt-oss-20b", "us-east-1"): Price(0.12, 0.30, 0.36, "2026-06", "us-east-1")
}
"""By model and region; for all others nothing was found published."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The table, and what a file says instead."""

    overrides: Mapping[str, Price]
    """By model; they hold in every region."""
    agentcore_per_rollout: float = RUN.agentcore_usd / RUN.rollouts
    """US dollars of the agent's CPU and memory for a rollout of `RUN.turns` turns."""

    def of(self, model: str, region: str) -> Price:
        """Return a model's prices: the file's, the region's, else those of a region that has some."""
        if model in self.overrides:
            return self.overrides[model]
        if (model, region) in LISTED:
            return LISTED[model, region]
        return next((price for (name, _), price in LISTED.items() if name == model), Price())


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job may use and cost."""

    tokens: Mapping[str, float]
    """By meter."""
    tokens_usd: float | None
    """`None` where the model's prices are not known."""
    agentcore_usd: float
    price: Price
    turns: int
    region: str

    @property
    def usd(self) -> float | None:
        """All of it."""
        return None if self.tokens_usd is None else self.tokens_usd + self.agentcore_usd

    @property
    def told(self) -> str:
        """The figure in a few words, for a question."""
        if self.usd is None:
            return f"an unknown price for its tokens, and about ${self.agentcore_usd:,.0f} of AgentCore"
        return f"about ${self.usd:,.0f}"

    def lines(self) -> list[str]:
        """Return the estimate and what it stands on, line by line, for people."""
        meters = ", ".join(
            f"{self.tokens[meter] / 1e6:,.1f} M {meter} at "
            + ("?" if (price := getattr(self.price, meter)) is None else f"${price:g}")
            for meter in METERS
        )
        tokens = (
            "unknown: no published prices for this model; give them with --prices"
            if self.tokens_usd is None
            else f"${self.tokens_usd:,.0f}"
        )
        lines = [
            f"tokens: {meters} = {tokens}",
            f"AgentCore CPU and memory: ${self.agentcore_usd:,.0f}",
            f"in all: {self.told}",
            f"estimated from one published run ({RUN.rollouts:,} Wordle rollouts of up to {RUN.turns} turns, "
            f"gpt-oss-20b at low effort), scaled to {self.turns} turns; your tokens will differ",
        ]
        if self.price.is_known:
            elsewhere = self.price.region and self.price.region != self.region
            where = f", list prices of {self.price.region}" if elsewhere else ""
            lines.append(f"prices as of {self.price.as_of}{where}, before tax and discounts")
        return lines


def estimate(
    plan: JobPlan, model: str, region: str, *, turns: int = RUN.turns, prices: Prices | None = None
) -> Estimate:
    """Estimate a job's tokens and dollars.

    Every turn reads the history again, so prefill grows with the square of the turns; samples, and the agent's
    time, in proportion to them. The backward pass goes over nearly everything that was read or sampled.

    Args:
        plan: What the job plays.
        model: Name in the hub.
        region: Where the job runs.
        turns: Most model calls of a rollout.
        prices: The table; `None` for the published one.
    """
    prices = prices or Prices({})
    scale, rollouts = turns / RUN.turns, plan.rollouts
    prefill = RUN.prefill / RUN.rollouts * scale**2 * rollouts
    sample = RUN.sample / RUN.rollouts * scale * rollouts
    train = (prefill + sample) * RUN.train / (RUN.prefill + RUN.sample)
    tokens = {"prefill": prefill, "sample": sample, "train": train}
    price = prices.of(model, region)
    usd = (
        sum(tokens[meter] * getattr(price, meter) for meter in METERS) / 1e6
        if price.is_known
        else None
    )
    agentcore = prices.agentcore_per_rollout * scale * rollouts
    return Estimate(tokens, usd, agentcore, price, turns, region)


def unused_prices(prices: Prices, model: str) -> Iterator[Finding]:
    """Yield a warning where a price file says nothing about the one model that a job has.

    Args:
        prices: The table and the file.
        model: Name in the hub; empty where it is not known yet.
    """
    if model and prices.overrides and model not in prices.overrides:
        yield Finding(
            "prices-unused",
            Severity.WARNING,
            "prices",
            f"the file has no prices of {model!r}, but of {', '.join(map(repr, prices.overrides))}",
            "Name the model as the hub does, or by its name at Hugging Face or Bedrock: see `rft mtrl models`.",
        )


def read_prices(values: Mapping[str, Any], source: str) -> Prices:
    """Read a price file's mapping.

    Its keys are names of models, the hub's or another that they go by, each with `prefill`, `sample` and `train` in US dollars per million tokens,
    and `agentcore_per_rollout` in US dollars.

    Args:
        values: What the file holds.
        source: Its name, for errors and for the estimate.

    Raises:
        UsageError: A key or a number in it is none of these.
    """
    prices = Prices({})
    overrides: dict[str, Price] = {}
    for name, entry in values.items():
        if not isinstance(name, str):
            raise UsageError(f"prices {source}: wanted names of models as keys, got {name!r}")
        if name == "agentcore_per_rollout":
            prices = replace(prices, agentcore_per_rollout=_dollars(entry, name, source))
        elif isinstance(entry, Mapping) and set(entry) == set(METERS):
            read = {meter: _dollars(entry[meter], f"{name}.{meter}", source) for meter in METERS}
            listed = find_model(name)
            key = listed.name if listed else name
            if key in overrides:
                raise UsageError(f"prices {source}: {key!r} is there twice, once as {name!r}")
            overrides[key] = Price(read["prefill"], read["sample"], read["train"], source)
        else:
            raise UsageError(
                f"prices {source}: wanted {name!r} to hold {', '.join(METERS)} in US dollars per million "
                f"tokens, got {entry!r}"
            )
    return replace(prices, overrides=overrides)


def _dollars(value: Any, name: str, source: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= 0:
        return float(value)
    raise UsageError(f"prices {source}: wanted US dollars of at least 0 as {name!r}, got {value!r}")
