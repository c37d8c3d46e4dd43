"""Where metrics go: the console, a JSONL file, and MLflow or Weights & Biases where they are installed.

A tracker that fails is logged and left alone: no run ends, or waits, because its curves cannot be drawn.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import logging
import math
import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.files import naming
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_SHOWN = {
    "sampler/mean_reward": "mean_reward",
    "sampler/solve_rate": "solve_rate",
    "sampler/num_datums": "num_datums",
    "sampler/failed_rollouts": "failed_rollouts",
    "training/total_tokens": "tokens",
    "training/trainable_token_positions": "trained_tokens",
    "train/actor/pg_loss": "pg_loss",
    "time/rollout": "rollout",
    "time/train": "train",
    "eval/accuracy": "accuracy",
}
"""Metrics of the console's line, and what they are called there."""
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""MLflow's own settings, where the environment has none: theirs wait for minutes on a server that is away."""


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
            f"{word} {_written(metrics[name])}" for name, word in _SHOWN.items() if name in metrics
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
        with naming(self._path):
            self._file = self._path.open("ab")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the line; see `Tracker`. What is not finite is null: JSON has no word for it."""
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self.write({"step": step, **finite})

    def write(self, value: JSON) -> None:
        """Append any record that has a `step`."""
        line = json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with naming(self._path):
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with naming(self._path):
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
            Exception: Whatever MLflow raises where the server is away.
        """
        mlflow = _installed("mlflow", "mlflow-skinny")
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        if run_id is not None:
            self._client.get_run(run_id)
        else:
            found = self._client.get_experiment_by_name(experiment)
            known = (
                found.experiment_id if found else self._client.create_experiment(name=experiment)
            )
            run_id = self._client.create_run(known, run_name=run_name).info.run_id
            for key, given in (config or {}).items():
                self._client.log_param(run_id, key, str(given)[:500])
        self.run_id = str(run_id)

    def rename(self, name: str) -> None:
        """Call the run something else."""
        self._client.set_tag(self.run_id, "mlflow.runName", name)

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

    def rename(self, name: str) -> None:
        """Call the run something else."""
        self._run.name = name

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the numbers; see `Tracker`."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class BackgroundTracker:
    """Passes on to another tracker, on a thread of its own: whatever that waits for, a run does not."""

    def __init__(self, tracker: Tracker, *, capacity: int = 1000, close_s: float = 30.0) -> None:
        """Start the thread.

        Args:
            tracker: Used on that thread alone from now on.
            capacity: Steps that may wait; further ones are dropped, and said to be.
            close_s: Longest wait for what is left at the end, in seconds.
        """
        self.tracker = tracker
        self._close_s = close_s
        self._dropped = 0
        self._work: queue.Queue[Callable[[Tracker], object] | None] = queue.Queue(capacity)
        name = f"rft-{type(tracker).__name__}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Leave numbers to the thread; see `Tracker`."""
        kept = dict(metrics)
        self._leave(lambda tracker: tracker.log(step, kept))

    def rename(self, name: str) -> None:
        """Call the run something else, where the tracker can."""
        if hasattr(self.tracker, "rename"):
            self._leave(lambda tracker: tracker.rename(name))  # type: ignore[attr-defined]

    def close(self) -> None:
        """Wait for what is left, within the limit, and close the tracker."""
        until = time.monotonic() + self._close_s
        with contextlib.suppress(queue.Full):
            self._work.put(None, timeout=self._close_s)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive() or self._dropped:
            logger.warning(
                "tracker=<%s>, waiting=<%s>, dropped=<%s> | steps are missing there; metrics.jsonl has all",
                *(type(self.tracker).__name__, self._work.qsize(), self._dropped),
            )

    def _leave(self, work: Callable[[Tracker], object]) -> None:
        try:
            self._work.put_nowait(work)
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _guarded(self.tracker, work)
        _guarded(self.tracker, lambda tracker: tracker.close())


class Trackers:
    """Several as one. The failure of one is logged, and neither the others nor the run notice."""

    def __init__(
        self, trackers: Sequence[Tracker], *, known: Mapping[str, str] | None = None
    ) -> None:
        """Pass on to all of `trackers`, in order.

        Args:
            trackers: Used from now on.
            known: Earlier ids of the run, kept for trackers that are not among these today.
        """
        self._trackers = tuple(trackers)
        self._known = dict(known or {})

    @property
    def run_ids(self) -> dict[str, str]:
        """The ids under which trackers know the run, by tracker."""
        inner = (getattr(one, "tracker", one) for one in self._trackers)
        found = ((type(one).__name__, getattr(one, "run_id", None)) for one in inner)
        return self._known | {name: run_id for name, run_id in found if isinstance(run_id, str)}

    def rename(self, name: str) -> None:
        """Call the run something else, for those that know it by a name."""
        for tracker in self._trackers:
            if isinstance(tracker, BackgroundTracker):
                tracker.rename(name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell all; see `Tracker`."""
        for tracker in self._trackers:
            _guarded(tracker, lambda one: one.log(step, metrics))

    def close(self) -> None:
        """Close all."""
        for tracker in self._trackers:
            _guarded(tracker, lambda one: one.close())


def _guarded(tracker: Tracker, call: Callable[[Tracker], object]) -> None:
    try:
        call(tracker)
    except Exception as error:
        name = type(tracker).__name__
        logger.warning("tracker=<%s> | failed: %s: %.300s", name, type(error).__name__, error)
        logger.debug("tracker=<%s> | failed so", name, exc_info=True)


def keep_until(path: Path, step: int) -> None:
    """Remove the lines of a JSONL file that tell of a later step than this, or were cut off."""
    if not path.is_file():
        return
    draft = path.with_suffix(".tmp")
    with naming(draft):
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if _is_until(line, step)]
        if len(kept) < len(lines):
            draft.write_bytes(b"".join(kept))
            draft.replace(path)


def _written(value: float) -> str:
    """Return a number as people read it: whole ones, such as tokens, with every digit."""
    return f"{value:.0f}" if math.isfinite(value) and value == int(value) else f"{value:.4g}"


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
