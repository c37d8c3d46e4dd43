"""What evaluations came to: pass@k and mean reward with their intervals, side by side as a table.

An evaluation job tells aggregates only, no single rewards. So the intervals are made from those: for a rate
Wilson's, for the mean reward the normal one. Both count tasks and not rollouts, since the rollouts of one task are
not independent; with several rollouts of a task they are wider than need be, and never too narrow for that reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.estimates import Interval, normal, wilson
from rft_agent_sdk.mtrl.evaluation import BASE
from rft_agent_sdk.types import JSON

_PASS_AT = re.compile(r"pass_at_(\d+)")
INTERVALS = (
    "95 % intervals over tasks: Wilson's for pass@k, the normal one for the mean reward; both hold for other tasks "
    "of the same kind"
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one evaluation came to."""

    label: str
    """Of the model: `base`, or another."""
    temperature: float
    effort: str
    """Reasoning effort that the deployed agent asked for; `default` where it asks for none."""
    agent_version: str
    """The version of the agent that played."""
    tasks: int | None
    """How many were played; `None` where nothing says."""
    mean_reward: Interval | float | None
    """Without an interval where the service told no deviation."""
    pass_at: Mapping[int, Interval | float]
    """By k."""
    failed_rollouts: int = 0
    """Rollouts that ended without a reward, and are in no number."""
    remarks: tuple[str, ...] = ()
    """What to know before believing the numbers."""

    def to_json(self) -> JSON:
        """Return it as one JSON object; an estimate without an interval has `null` bounds."""

        def told(one: Interval | float) -> JSON:
            if isinstance(one, Interval):
                return {"value": one.value, "low": one.low, "high": one.high}
            return {"value": one, "low": None, "high": None}

        return {
            "model": self.label,
            "temperature": self.temperature,
            "reasoning_effort": self.effort,
            "agent_version": self.agent_version or None,
            "tasks": self.tasks,
            "mean_reward": None if self.mean_reward is None else told(self.mean_reward),
            "pass_at": {str(k): told(one) for k, one in self.pass_at.items()},
            "failed_rollouts": self.failed_rollouts,
            "remarks": list(self.remarks),
        }

    @property
    def setting(self) -> str:
        """Everything but the model, in a few words."""
        return f"{self.effort} effort, temperature {self.temperature:g}"


def result_of(
    metrics: Mapping[str, float],
    *,
    label: str,
    temperature: float,
    effort: str,
    agent_version: str,
    group_size: int,
    rollouts: int | None,
    remarks: Sequence[str] = (),
) -> Result:
    """Return a result, from the metrics of an evaluation job.

    Args:
        metrics: By name, as `read_metrics` or MLflow gives them: `eval/reward/mean`, ...
        label: Of the model.
        temperature: That it was sampled at.
        effort: What the agent that was deployed asked for.
        agent_version: The version of that agent.
        group_size: Rollouts of each task that were asked for.
        rollouts: How many were played, by the job's own count; for where the metrics have no count of tasks.
        remarks: What else to tell.
    """
    # What is no number says nothing, and spoils what is counted with it.
    found = {_short(name): value for name, value in metrics.items() if math.isfinite(value)}
    counted = found.get("num_prompts")
    tasks = round(counted) if counted else rollouts // group_size if rollouts else None
    mean, deviation = found.get("mean"), found.get("std")
    reward: Interval | float | None = mean
    if mean is not None and deviation is not None and tasks:
        reward = normal(mean, deviation, tasks)
    rates = {
        int(match[1]): value
        for name, value in found.items()
        if (match := _PASS_AT.fullmatch(name)) and 0 <= value <= 1
    }
    return Result(
        label,
        temperature,
        effort,
        agent_version,
        tasks or None,
        reward,
        # More rollouts than a task has cannot be drawn from it, whatever the service makes of that.
        {
            k: wilson(value, tasks) if tasks else value
            for k, value in sorted(rates.items())
            if k <= group_size
        },
        round(found.get("failed_rollouts", 0.0)),
        tuple(remarks),
    )


def read_metrics(told: Any) -> dict[str, float]:
    """Return metrics by name from what a job's document has under `ServiceOutput.EvaluationMetrics`.

    Its form is not documented: names with numbers, nested ones, and a list of names and values are read alike.
    """
    return {
        name: number
        for name, value in _leaves(told, "")
        if name and math.isfinite(number := _float(value))
    }


def refuse_mixed_efforts(efforts: Iterable[str], *, is_said: bool) -> None:
    """See that nobody compares different reasoning efforts without saying so.

    Args:
        efforts: Of all results that would stand side by side.
        is_said: Whether somebody said that they shall.

    Raises:
        UsageError: There are several, and nobody said so.
    """
    found = sorted(set(efforts))
    if len(found) > 1 and not is_said:
        raise UsageError(
            f"the results would be of different reasoning efforts ({', '.join(found)}), which the deployed agent sets: "
            "compared as they are, a difference would not be the training's. Say --across-efforts to have them side "
            "by side, or use another --run-dir for each"
        )


def table(results: Sequence[Result]) -> str:
    """Return results as lines of text, those of one setting together; what has no value is `-`."""
    ks = sorted({k for one in results for k in one.pass_at} | {1})
    head = [
        "model",
        "effort",
        "temperature",
        *(f"pass@{k} [95 %]" for k in ks),
        "mean reward [95 %]",
        "tasks",
        "agent",
    ]
    ordered = sorted(results, key=lambda one: (one.effort, one.temperature))
    rows = [head, *(_row(one, ks) for one in ordered)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), row[1].ljust(widths[1]), *map(str.rjust, row[2:], widths[2:])]
        ).rstrip()
        for row in rows
    ]
    remarks = [f"{one.label}, {one.setting}: {text}" for one in ordered for text in one.remarks]
    return "\n".join([*lines, INTERVALS, *remarks])


def gains(results: Sequence[Result]) -> list[str]:
    """Return what each model gained over the base model in the same setting, by pass@1, one line each."""
    base = {(one.effort, one.temperature): one for one in results if one.label == BASE}
    found = []
    for one in results:
        before = base.get((one.effort, one.temperature))
        if one.label == BASE or before is None or 1 not in one.pass_at or 1 not in before.pass_at:
            continue
        gained = value_of(one.pass_at[1]) - value_of(before.pass_at[1])
        found.append(f"{one.label}, {one.setting}: pass@1 {100 * gained:+.1f} points over base")
    return found


def value_of(one: Interval | float) -> float:
    """Return an estimate without its interval."""
    return one.value if isinstance(one, Interval) else one


def _row(one: Result, ks: Sequence[int]) -> list[str]:
    return [
        one.label,
        one.effort,
        f"{one.temperature:g}",
        *(_told(one.pass_at.get(k), "{:.1%}") for k in ks),
        _told(one.mean_reward, "{:.3f}"),
        "-" if one.tasks is None else str(one.tasks),
        f"v{one.agent_version}" if one.agent_version else "-",
    ]


def _told(one: Interval | float | None, form: str) -> str:
    if one is None:
        return "-"
    if not isinstance(one, Interval):
        return form.format(one)
    return f"{form.format(one.value)} [{form.format(one.low)}, {form.format(one.high)}]"


def _short(name: str) -> str:
    """Return a metric's name without the groups before it: `eval/reward/mean` is `mean`, and of no other group."""
    return re.sub(r"^(?:eval/)?(?:reward/)?", "", name)


def _leaves(told: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(told, bool) or told is None:
        return
    if isinstance(told, int | float):
        yield name, told
    elif isinstance(told, Mapping):
        for key, value in told.items():
            yield from _leaves(value, f"{name}/{key}" if name else str(key))
    elif isinstance(told, Sequence) and not isinstance(told, str):
        for one in told:
            if isinstance(one, Mapping):
                yield from _named(one)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _named(one: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the value of an entry of a list that says its own name."""
    name = one.get("MetricName", one.get("Name", one.get("name")))
    value = one.get("Value", one.get("value"))
    if isinstance(name, str) and isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value
