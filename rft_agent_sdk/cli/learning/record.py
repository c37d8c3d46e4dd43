"""The record of a run, in its folder: its recipe, and what each stage that is done came to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.errors import UsageError

_FILE = "learn.json"


class Record:
    """What is known of a run; written whole, or not at all, whenever a stage ends."""

    def __init__(self, folder: Path, recipe: Recipe, stages: dict[str, Any]) -> None:
        self.folder = folder
        self.recipe = recipe
        self.stages = stages

    @classmethod
    def begin(cls, folder: Path, recipe: Recipe) -> Record:
        """Begin a run in a folder that holds none.

        Raises:
            UsageError: It holds one.
        """
        if (folder / _FILE).exists():
            raise UsageError(
                f"{str(folder)!r} holds a run: go on with it by --resume, or name another --run-dir"
            )
        folder.mkdir(parents=True, exist_ok=True)
        record = cls(folder, recipe, {})
        record._write()
        return record

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Return the record of a run.

        Raises:
            UsageError: There is none.
        """
        try:
            found = json.loads((folder / _FILE).read_text("utf-8"))
            return cls(folder, Recipe.from_json(found["recipe"]), dict(found["stages"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"wanted a run of `rft learn` in {str(folder)!r}, got {type(error).__name__}: {error}"
            ) from error

    def finish(self, stage: str, result: Mapping[str, Any]) -> None:
        """Note that a stage is done."""
        self.stages[stage] = dict(result)
        self._write()

    @property
    def policy(self) -> Path:
        """The folder of the policy that the last stage left.

        Raises:
            UsageError: There is none yet.
        """
        left = [str(stage["policy"]) for stage in self.stages.values() if "policy" in stage]
        if not left:
            raise UsageError(f"the run in {str(self.folder)!r} has left no policy yet")
        return self.folder / left[-1]

    def _write(self) -> None:
        value = {"recipe": self.recipe.to_json(), "stages": self.stages}
        draft = self.folder / f".{_FILE}.part"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / _FILE)
