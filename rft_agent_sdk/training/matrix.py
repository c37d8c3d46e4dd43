"""Evaluations side by side: policies and settings, each over the same rows, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.estimates import Interval
from rft_agent_sdk.training.evaluate import EvalReport
from rft_agent_sdk.training.rollouts import Group
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination, and what came of it."""

    policy: str
    """The policy's label."""
    temperature: float
    reasoning_effort: str | None
    """What was stated, not what was measured: the agent's own environment sets it."""
    report: EvalReport

    def to_json(self) -> JSON:
        """Return the combination and its report as one record."""
        return {
            "policy": self.policy,
            "temperature": self.temperature,
            "reasoning_effort": self.reasoning_effort,
            **self.report.to_json(),
        }


@dataclass(slots=True)
class Results:
    """What was evaluated so far, kept in a run's folder where there is one.

    The folder is written after each combination, so that one that fails does not lose those before it.
    """

    folder: Path | None = None
    cells: list[Cell] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Each rollout's diagnostics as JSON."""

    def __post_init__(self) -> None:
        """Refuse a folder that has results already.

        Raises:
            UsageError: It has.
        """
        if self.folder is not None and (self.folder / "evaluation.json").exists():
            raise UsageError(
                f"{str(self.folder)!r} holds an evaluation: wanted a folder without one, name another"
            )

    def add(self, cell: Cell, groups: Sequence[Group]) -> None:
        """Take what came of a combination."""
        self.cells.append(cell)
        self.keep(cell.policy, cell.temperature, groups)
        if self.folder is not None:
            found = {"results": [one.to_json() for one in self.cells]}
            text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
            (self.folder / "evaluation.json").write_text(text, "utf-8")

    def keep(self, policy: str, temperature: float, groups: Sequence[Group]) -> None:
        """Take rollouts, also those of a combination of which nothing comes since too many failed."""
        told = {"policy": policy, "temperature": temperature}
        self.lines += [
            json.dumps({**told, "task": number, **one.to_json()})
            for number, group in enumerate(groups)
            for one in group.rollouts
        ]
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.write_rollouts(self.folder / "rollouts.jsonl")

    def write_rollouts(self, path: Path) -> None:
        """Write each rollout's diagnostics, one line each."""
        path.write_text("".join(f"{line}\n" for line in self.lines), "utf-8")


def table(cells: Sequence[Cell]) -> str:
    """Return the combinations as lines of text.

    `solved` is pass@1, the mean over tasks of the share of a task's rollouts that solved it, so that it is
    the number its interval belongs to. What has no value is `-`.
    """
    ks = sorted({k for cell in cells for k in cell.report.pass_at} - {1})
    head = ["policy", "temperature", "solved [95 %]", *(f"pass@{k}" for k in ks), "mean reward"]
    rows = [head, *(_row(cell, ks) for cell in cells)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def _row(cell: Cell, ks: Sequence[int]) -> list[str]:
    report = cell.report
    first = report.pass_at.get(1)
    return [
        cell.policy,
        f"{cell.temperature:g}",
        "-" if first is None else f"{_share(first)} [{first.low:.1%}, {first.high:.1%}]",
        *(_share(report.pass_at.get(k)) for k in ks),
        f"{report.mean_reward:.3f}" if report.rollouts else "-",
    ]


def _share(one: Interval | None) -> str:
    return "-" if one is None else f"{one.value:.1%}"
