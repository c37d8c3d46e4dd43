"""A series of evaluations, one job after the other, kept in a file so that an interrupted one goes on.

An account runs one evaluation at a time unless its quota was raised, so a series takes as long as its jobs do,
and outlives the terminal it was started in. What is asked for, which job plays it and what came of it are written
before and after each step: a series that is started again describes the job it had begun, and goes on from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.evaluation import Evaluated, Setting, setting_of
from rft_agent_sdk.mtrl.evaluation_results import Result, result_of
from rft_agent_sdk.mtrl.job import ENDED
from rft_agent_sdk.types import JSON

_FILE = "series.json"


@dataclass(slots=True)
class Cell:
    """One evaluation of a series: a model, a temperature, the effort of the agent, and what came of it."""

    label: str
    temperature: float
    effort: str
    """Reasoning effort that the deployed agent asks for."""
    package: str | None = None
    """ARN of the model's package; `None` for the base model."""
    job: str | None = None
    """Name of its job, chosen before the job is created; `None` before that."""
    status: str | None = None
    """The job's, when it was last looked at; `None` before it was."""
    failure: str = ""
    lock: JSON | None = None
    """What was deployed when the job began."""
    metrics: dict[str, float] = field(default_factory=dict)
    source: str = ""
    """Where the metrics were read: `ServiceOutput` or `MLflow`."""
    rollouts: int | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def model(self) -> Evaluated:
        """What it evaluates."""
        return Evaluated(self.label, self.package)

    @property
    def is_over(self) -> bool:
        """Whether its job has ended, well or not."""
        return self.status in ENDED

    @property
    def is_done(self) -> bool:
        """Whether its job has completed and its numbers are here."""
        return self.status == "Completed" and bool(self.metrics)

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.label}, {self.effort} effort, temperature {self.temperature:g}"

    def forget_job(self) -> None:
        """Make it as if no job had been created for it."""
        self.job = self.status = self.lock = None
        self.failure = ""
        self.remarks = []


@dataclass(slots=True)
class Series:
    """Evaluations that have all but model, temperature and effort in common."""

    folder: Path
    setting: Setting
    cells: list[Cell] = field(default_factory=list)

    def plan(
        self, models: Iterable[Evaluated], temperatures: Sequence[float], effort: str
    ) -> list[Cell]:
        """Return the cells that are asked for, in order; those that are not there yet are added.

        Cells that nobody asks for any more, and that no job was made for, are dropped.

        Raises:
            UsageError: A label stands for another model already.
        """
        found = []
        for model in models:
            for other in self.cells:
                if other.label == model.label and other.package != model.package:
                    raise UsageError(
                        f"{str(self.folder)!r}: {model.label!r} stands for {other.package or 'the base model'} there, "
                        f"not for {model.package or 'the base model'}: take another label or another folder"
                    )
            for temperature in temperatures:
                wanted = Cell(model.label, float(temperature), effort, model.package)
                found.append(self._own(wanted))
        self.cells = [cell for cell in self.cells if cell.job or cell in found]
        return found

    def _own(self, wanted: Cell) -> Cell:
        """Return the series' cell of that title; the wanted one, now its own, where there was none."""
        for cell in self.cells:
            if cell.title == wanted.title:
                return cell
        self.cells.append(wanted)
        return wanted

    def results(self) -> list[Result]:
        """Return what came of the cells that are done."""
        return [
            result_of(
                cell.metrics,
                label=cell.label,
                temperature=cell.temperature,
                effort=cell.effort,
                agent_version=str((cell.lock or {}).get("version") or ""),
                group_size=self.setting.group_size,
                rollouts=cell.rollouts,
                remarks=cell.remarks,
            )
            for cell in self.cells
            if cell.is_done
        ]

    def save(self) -> None:
        """Write the series down, in one go: whoever is interrupted here leaves the file as it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {
            "setting": self.setting.to_json(),
            "cells": [
                {name: getattr(cell, name) for name in cell.__slots__} for cell in self.cells
            ],
        }
        path = self.folder / _FILE
        new = path.with_suffix(".new")
        new.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", "utf-8")
        os.replace(new, path)  # noqa: PTH105 - Path.replace is the same


def open_series(folder: Path, setting: Setting | None) -> Series:
    """Return the series kept in a folder, or a new one.

    Args:
        folder: Where it is kept, or is to be.
        setting: What was asked for; `None` goes on with what is kept there.

    Raises:
        UsageError: There is none and nothing was asked for; or what was asked for is another series.
    """
    path = folder / _FILE
    try:
        kept: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if setting is None:
            raise UsageError(
                f"{str(folder)!r} holds no series of evaluations to go on with: say what to evaluate"
            ) from None
        return Series(folder, setting)
    except ValueError as error:
        raise UsageError(f"{str(path)!r}: wanted a series of evaluations, got no JSON") from error
    try:
        series = Series(folder, setting_of(kept["setting"]), [Cell(**one) for one in kept["cells"]])
    except (KeyError, TypeError) as error:
        raise UsageError(f"{str(path)!r}: wanted a series of evaluations: {error}") from error
    if setting is not None and (other := _differing(setting, series.setting)):
        raise UsageError(
            f"{str(folder)!r} holds a series with another {', '.join(other)}: its numbers would not be comparable. "
            "Use another --run-dir, or leave these options out to go on with it"
        )
    return series


def _differing(asked: Setting, kept: Setting) -> list[str]:
    """Return what makes two series another one; how long a job may take does not."""
    return [
        name
        for name in asked.__slots__
        if name != "max_runtime_s" and getattr(asked, name) != getattr(kept, name)
    ]
