"""Dataset rows: from records in GSM8K's own form, or from made problems. No files here."""

from __future__ import annotations

from collections.abc import Iterable

from environments.gsm8k.problems import make_problems
from environments.gsm8k.task import Task, read_task
from rft_agent_sdk.errors import TaskError

COLUMN = "prompt"
"""The one column a row needs: the training service forwards it, and nothing else, to the agent."""


def rows_from(records: Iterable[tuple[str, object]], name: str) -> list[dict[str, str]]:
    """Return rows from records such as `{"question": ..., "answer": "... #### 42"}`.

    Args:
        records: Each with the place where it stands, which an error names.
        name: Begins each row's `id`.

    Raises:
        TaskError: Records that are no problems, all of them named; answers are not told.
    """
    rows, problems = [], []
    for number, (place, record) in enumerate(records):
        try:
            task = read_task(record)
        except TaskError as error:
            problems.append(f"{place}: {error}")
            continue
        rows.append(_row(task, f"{name}_{number:04d}"))
    if problems:
        raise TaskError("\n".join(problems))
    return rows


def made_rows(split: str, count: int, seed: int = 0) -> list[dict[str, str]]:
    """Return rows of made problems, see `make_problems`."""
    records = [
        (f"problem {n}", p.record()) for n, p in enumerate(make_problems(split, count, seed))
    ]
    return rows_from(records, f"made_{split}")


def _row(task: Task, name: str) -> dict[str, str]:
    return {COLUMN: Task(task.prompt, task.answer, task.id or name).dump()}
