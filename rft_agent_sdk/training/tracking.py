"""Where metrics go: the console, a JSONL file, and MLflow or Weights & Biases where they are installed.

A tracker that fails is logged and left alone: no run ends because its curves could not be drawn.
"""

from __future__ import annotations

import datetime
import importlib
import json
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_SHOWN = (
    "sampler/mean_reward",
    "sampler/solve_rate",
    "sampler/num_datums",
    "sampler/failed_rollouts",
    "train/actor/pg_loss",
    "time/rollout",
    "time/train",
    "eval/accuracy",
)


class Tracker(Protocol):
    """Takes the metrics of each step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take numbers of one step; a step may come more than once, with other names."""
        ...

    def close(self) -> None:
        """Finish; nothing is logged any more."""
        ...


class ConsoleTracker:
    """One line a step, with the few numbers that people watch."""

    def __init__(self, write: Callable[[str], object], total_steps: int | None = None) -> None:
        """Tell lines to a function.

        Args:
            write: Takes a line, without its end.
            total_steps: How many steps there will be.
        """
        self._write = write
        self._total = total_steps
        self._times: list[float] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the line; see `Tracker`."""
        told = [
            f"{name.rpartition('/')[2]} {metrics[name]:.4g}" for name in _SHOWN if name in metrics
        ]
        of = f"/{self._total}" if self._total else ""
        if self._total and "time/step" in metrics:
            self._times = [*self._times[-19:], metrics["time/step"]]
            left_s = statistics.fmean(self._times) * max(0, self._total - step)
            told.append(f"left {datetime.timedelta(seconds=round(left_s))}")
        self._write(f"step {step}{of}  {'  '.join(told)}")

    def close(self) -> None:
        """Do nothing."""


class JsonlTracker:
    """One JSON object a line: the step, and its metrics."""

    def __init__(self, path: Path | str, *, resume_after: int = 0) -> None:
        """Open the file for appending.

        Args:
            path: The file.
            resume_after: Lines of later steps are removed: that run was stopped after it had written
                them, and does those steps again.
        """
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        keep_until(self._path, resume_after)
        self._file = self._path.open("ab")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the line; see `Tracker`. What is not finite is null: JSON has no word for it."""
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self.write({"step": step, **finite})

    def write(self, value: JSON) -> None:
        """Append any record that has a `step`."""
        self._file.write(json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MLflowTracker:
    """Logs to an MLflow server, or a local SQLite file."""

    def __init__(
        self,
        uri: str,
        *,
        experiment: str = "rft",
        run_name: str | None = None,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a run, or go on with one.

        Args:
            uri: The server, or `sqlite:///…`.
            experiment: Name of the experiment.
            run_name: Name of the run.
            run_id: Of the run to go on with; `None` starts one.
            config: Logged as the run's parameters.

        Raises:
            UsageError: MLflow is not installed.
        """
        mlflow = _installed("mlflow", "mlflow-skinny")
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        if run_id is None:
            found = self._client.get_experiment_by_name(experiment)
            known = (
                found.experiment_id if found else self._client.create_experiment(name=experiment)
            )
            run_id = self._client.create_run(known, run_name=run_name).info.run_id
            for name, value in (config or {}).items():
                self._client.log_param(run_id, name, str(value)[:500])
        self.run_id = str(run_id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log each number at the step; see `Tracker`."""
        now_ms = int(time.time() * 1000)
        entities = importlib.import_module("mlflow.entities")
        found = [entities.Metric(name, value, now_ms, step) for name, value in metrics.items()]
        self._client.log_batch(self.run_id, metrics=found)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self.run_id)


class WandbTracker:
    """Logs to Weights & Biases."""

    def __init__(
        self,
        project: str,
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        folder: Path | str | None = None,
    ) -> None:
        """Start a run, or go on with one; the arguments are those of `MLflowTracker`.

        Raises:
            UsageError: wandb is not installed.
        """
        wandb = _installed("wandb", "wandb")
        self._run: Any = wandb.init(
            project=project,
            name=run_name,
            id=run_id,
            resume="allow" if run_id else None,
            config=dict(config or {}),
            dir=None if folder is None else str(folder),
        )
        self.run_id = str(self._run.id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the numbers; see `Tracker`."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class Trackers:
    """Several as one. The failure of one is logged, and neither the others nor the run notice."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        """Pass on to all of `trackers`, in order."""
        self._trackers = tuple(trackers)

    @property
    def run_ids(self) -> dict[str, str]:
        """The ids under which trackers know the run, by tracker."""
        found = ((type(one).__name__, getattr(one, "run_id", None)) for one in self._trackers)
        return {name: run_id for name, run_id in found if isinstance(run_id, str)}

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell all; see `Tracker`."""
        for tracker in self._trackers:
            self._guarded(tracker, lambda one: one.log(step, metrics))

    def close(self) -> None:
        """Close all."""
        for tracker in self._trackers:
            self._guarded(tracker, lambda one: one.close())

    def _guarded(self, tracker: Tracker, call: Callable[[Tracker], None]) -> None:
        try:
            call(tracker)
        except Exception:  # libraries of others, over a network
            logger.warning("tracker=<%s> | failed", type(tracker).__name__, exc_info=True)


def keep_until(path: Path, step: int) -> None:
    """Remove the lines of a JSONL file that tell of a later step than this, or were cut off."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _is_until(line, step)]
    if len(kept) < len(lines):
        draft = path.with_suffix(".tmp")
        draft.write_bytes(b"".join(kept))
        draft.replace(path)


def _is_until(line: bytes, step: int) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n") and isinstance(value, dict) and value.get("step", 0) <= step


def _installed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{module} is not installed: pip install {package}") from error
