"""Where a run stands, as one small record, and the run's folder.

The weights and the optimizer stay with the engine, which gave a name for them; the record holds that name
and everything else that the next step depends on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.files import check_writable, naming
from rft_agent_sdk.types import JSON

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    """Steps done."""
    engine_state: str
    """What `Engine.load_state` takes."""
    dataset: Mapping[str, Any]
    """Where the dataset's cursor stands, seed included."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Running totals of the metrics."""
    loggers: Mapping[str, str] = field(default_factory=dict)
    """Ids under which trackers know the run."""


class RunFolder:
    """The folder of a run: config.json, metrics.jsonl, rollouts.jsonl, checkpoints/, weights.json."""

    def __init__(self, path: Path | str, *, rollouts: Path | str | None = None) -> None:
        """Name the folder; it is made when something is written.

        Args:
            path: The folder.
            rollouts: The file of rollouts, where it is to be elsewhere.
        """
        self.path = Path(path)
        self._is_elsewhere = rollouts is not None
        self.rollouts = self.path / "rollouts.jsonl" if rollouts is None else Path(rollouts)
        """One line a rollout."""

    @property
    def metrics(self) -> Path:
        """One line a step."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """One JSON file a checkpoint."""
        return self.path / "checkpoints"

    @property
    def is_begun(self) -> bool:
        """Whether a run has written here."""
        has_metrics = self.metrics.exists() and self.metrics.stat().st_size > 0
        return has_metrics or any(self.checkpoints.glob("step-*.json"))

    @property
    def published(self) -> Path:
        """Names the weights that were published at the end."""
        return self.path / "weights.json"

    def check_writable(self) -> None:
        """Make sure that the run can be written down, before anything is paid for.

        Raises:
            UsageError: It cannot; the message names the setting.
        """
        check_writable(self.metrics, "run_dir")
        check_writable(self.rollouts, "rollout_log_path" if self._is_elsewhere else "run_dir")

    def read_config(self) -> dict[str, Any]:
        """Return what the run was told last; empty where that cannot be read."""
        try:
            found = json.loads((self.path / "config.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_config(self, config: Mapping[str, Any], *, old_until: int | None = None) -> None:
        """Write what the run was told.

        Args:
            config: All of it.
            old_until: The step up to which the one written before held, if it is to be kept.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / "config.json"
        if old_until is not None and path.exists():
            path.replace(self.path / f"config-until-step-{old_until:06d}.json")
        _write(path, dict(config))

    def write_published(self, step: int, name: str) -> None:
        """Write the name of weights that are ready for inference."""
        _write(self.published, {"step": step, "weights": name})

    def recent(self, step: int, count: int) -> list[dict[str, Any]]:
        """Return the metrics of the last `count` steps up to a step, in order."""
        if not self.metrics.is_file():
            return []
        with naming(self.metrics):
            lines = self.metrics.read_text("utf-8", "replace").splitlines()
        found = [one for one in map(_record, lines) if 0 < one.get("step", 0) <= step]
        return found[-count:]

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint whole, or not at all; return its file."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        path = self.checkpoints / f"step-{checkpoint.step:06d}.json"
        _write(path, {"format": _FORMAT, **asdict(checkpoint)})
        return path

    def latest(self) -> Checkpoint | None:
        """Return the checkpoint of the latest step; `None` where there is none.

        Raises:
            UsageError: It cannot be read.
        """
        found = sorted(self.checkpoints.glob("step-*.json"), key=_step_of)
        return read_checkpoint(found[-1]) if found else None


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises:
        UsageError: There is none that this version reads.
    """
    try:
        value: JSON = json.loads(Path(path).read_text("utf-8"))
        if value.pop("format") != _FORMAT:
            raise ValueError("another format")
        return Checkpoint(**value)
    except FileNotFoundError:
        raise UsageError(
            f"wanted the record of a checkpoint, got {str(path)!r}, which is not there"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"wanted a checkpoint of format {_FORMAT} in {str(path)!r}, got {type(error).__name__}: "
            f"{error}; remove the file to resume from the one before it"
        ) from error


def _write(path: Path, value: JSON) -> None:
    """Write JSON so that a reader, after a crash too, finds the old file or the new one."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    draft = path.with_suffix(".tmp")
    with naming(draft):
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _step_of(path: Path) -> int:
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdecimal() else -1
