"""What a run came to: report.json, report.md, a plot, and the lines that end the command."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rft_agent_sdk.cli.learning.comparison import Gain, gain
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

_STAGES = {
    "before": "before any training",
    "after_imitation": "after imitation",
    "after_grpo": "after GRPO",
}
_CELLS = {
    "held_out/serving": "held-out, greedy",
    "held_out/training": "held-out, temperature 1",
    "trained/serving": "trained, greedy",
    "trained/training": "trained, temperature 1",
}
_WIDTH = max(map(len, _CELLS.values()))


def write_report(record: Record) -> str:
    """Write all of it into the run's folder; return the text that ends the command."""
    found = report_of(record)
    (record.folder / "report.json").write_text(json.dumps(found, indent=2), "utf-8")
    plot = _plot(record)
    (record.folder / "report.md").write_text(_markdown(found, plot), "utf-8")
    last = found["evaluations"]["after_grpo"]["held_out/serving"]
    name = record.folder
    return (
        f"{_table(found)}\n\n"
        f"report: {name / 'report.md'}; play against it: rft play --against {name}\n"
        f"greedy, {last['tasks']} held-out secrets that were never one in training, seed {record.recipe.seed}; "
        f"95% interval {100 * last['low']:.1f}-{100 * last['high']:.1f}%\n"
        f"held-out solve rate {100 * last['solved']:.1f}%"
    )


def report_of(record: Record) -> JSON:
    """Return the run's numbers as JSON."""
    evaluations = {
        stage: {cell: _cell(one) for cell, one in record.stages[stage]["cells"].items()}
        for stage in _STAGES
    }
    gains = {cell: _gain(record, cell)._asdict() for cell in record.stages["after_grpo"]["cells"]}
    stages = {
        name: {key: value for key, value in stage.items() if key != "cells"}
        for name, stage in record.stages.items()
    }
    return {
        "recipe": record.recipe.to_json(),
        "seconds": sum(stage["seconds"] for stage in stages.values()),
        "stages": stages,
        "evaluations": evaluations,
        "grpo_gains": gains,
    }


def pooled(records: Sequence[Record]) -> str:
    """Return what several runs of one recipe came to: every task of every run counts alike.

    Raises:
        UsageError: A run that is not done, one that is there twice, or recipes that differ in more than their seed.
    """
    for record in records:
        if "after_grpo" not in record.stages:
            raise UsageError(f"the run in {str(record.folder)!r} is not done: go on by --resume")
    seeds = [record.recipe.seed for record in records]
    if len({replace(record.recipe, seed=0) for record in records}) > 1 or len(set(seeds)) < len(
        seeds
    ):
        raise UsageError(
            f"wanted runs of one recipe, each with a seed of its own, got the seeds {seeds} "
            "or recipes that differ in more"
        )

    def shares(cell: str) -> list[str]:
        return [f"{100 * _mean(_by_task(records, stage, cell)):.1f}%" for stage in _STAGES]

    lines = [
        _grid(shares),
        "",
        "What GRPO gained over imitation, the same tasks compared, in points:",
    ]
    for cell, name in _CELLS.items():
        before, after = (
            _by_task(records, stage, cell) for stage in ("after_imitation", "after_grpo")
        )
        lines.append(f"{name:<{_WIDTH}}  {_points(gain(before, after))}")
    tasks = len(_by_task(records, "after_grpo", "held_out/serving"))
    lines += ["", f"seeds {', '.join(map(str, seeds))}: {tasks} held-out tasks in all"]
    return "\n".join(lines)


def _by_task(records: Sequence[Record], stage: str, cell: str) -> list[int | None]:
    return [one for record in records for one in record.stages[stage]["cells"][cell]["by_task"]]


def _mean(values: Sequence[int | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / max(1, len(known))


def _points(found: Gain) -> str:
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _gain(record: Record, cell: str) -> Gain:
    """Return what GRPO gained over imitation, task by task."""
    before, after = (_by_task([record], stage, cell) for stage in ("after_imitation", "after_grpo"))
    return gain(before, after)


def _cell(one: JSON) -> JSON:
    interval = one["pass_at"].get("1") or {"low": 0.0, "high": 1.0}
    return {
        "tasks": one["tasks"],
        "solved": one["solved"] or 0.0,
        "low": interval["low"],
        "high": interval["high"],
        "mean_reward": one["mean_reward"],
        "mean_turns": one["mean_turns"],
        "failed_rollouts": one["failed_rollouts"],
    }


def _table(found: JSON) -> str:
    return _grid(lambda cell: [_share(found["evaluations"][stage][cell]) for stage in _STAGES])


def _grid(told: Callable[[str], Sequence[str]]) -> str:
    """Return a table for a terminal: a row for each kind of evaluation, with what is told of each stage."""
    rows = [("", list(_STAGES.values())), *((name, told(cell)) for cell, name in _CELLS.items())]
    return "\n".join(
        f"{name:<{_WIDTH}}" + "".join(f"  {one:>20}" for one in row) for name, row in rows
    )


def _share(one: JSON) -> str:
    return f"{100 * one['solved']:.1f}% ({100 * one['low']:.0f}-{100 * one['high']:.0f})"


def _markdown(found: JSON, plot: Path | None) -> str:
    recipe, stages = found["recipe"], found["stages"]
    lines = [
        "# A policy that learnt here",
        "",
        f"{stages['init']['parameters'] / 1e6:.2f} million parameters, seed {recipe['seed']}, "
        f"{found['seconds'] / 60:.1f} minutes, environment `{recipe['environment']}`. Held-out secrets are never a "
        "secret in training; shares are solved games with their 95% interval.",
        "",
        "| | " + " | ".join(_STAGES.values()) + " |",
        "| --- |" + " --- |" * len(_STAGES),
    ]
    for cell, name in _CELLS.items():
        told = [_share(found["evaluations"][stage][cell]) for stage in _STAGES]
        lines.append(f"| {name} | " + " | ".join(told) + " |")
    lines += ["", "What GRPO gained over imitation, the same tasks compared, in points:", ""]
    lines += [
        f"- {_CELLS[cell]}: {_points(Gain(**one))}" for cell, one in found["grpo_gains"].items()
    ]
    teacher = stages["teacher"]
    lines += [
        "",
        f"The teacher played {teacher['games']} games and solved {100 * teacher['solved']:.1f}% of them.",
        "",
        "| stage | seconds |",
        "| --- | --- |",
        *(f"| {name} | {stage['seconds']:.0f} |" for name, stage in stages.items()),
    ]
    if plot is not None:
        lines += ["", f"![Curves]({plot.name})"]
    return "\n".join(lines) + "\n"


def _plot(record: Record) -> Path | None:
    """Draw the curves; `None` where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.5), layout="constrained")
    loss, reward, stages = figure.subplots(1, 3)
    imitation = _metrics(record.folder / "imitation" / "metrics.jsonl")
    loss.plot(*_curve(imitation, "train/actor/pg_loss"))
    loss.set(title="imitation", xlabel="step", ylabel="loss of a token, nats")
    grpo = _metrics(record.folder / "grpo" / "metrics.jsonl")
    reward.plot(*_curve(grpo, "sampler/mean_reward"), label="mean reward")
    reward.plot(*_curve(grpo, "sampler/solve_rate"), label="solved")
    reward.set(title="GRPO, sampled", xlabel="step")
    reward.legend()
    for cell, name in _CELLS.items():
        told = [_cell(record.stages[stage]["cells"][cell])["solved"] for stage in _STAGES]
        stages.plot(range(len(_STAGES)), [100 * one for one in told], marker="o", label=name)
    stages.set(title="solved, %", ylim=(0, 100))
    stages.set_xticks(
        range(len(_STAGES)), [name.replace("after ", "") for name in _STAGES.values()]
    )
    stages.legend(fontsize="small")
    path = record.folder / "report.png"
    figure.savefig(path, dpi=120)
    return path


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Return the steps of a curve; a file that is gone or damaged costs the plot its curve, not the run its report."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _curve(metrics: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    found = [one for one in metrics if one.get(name) is not None]
    return [one["step"] for one in found], [one[name] for one in found]
