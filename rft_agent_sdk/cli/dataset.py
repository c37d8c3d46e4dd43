"""`rft dataset`: make datasets, and check them before a run does."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.environment import Environment, load_environment
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.training.dataset import Row

_SHOWN = 20
_KINDS = ("jsonl", "json", "csv", "parquet")

_out = click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to.",
)
_kind = click.option(
    "--format", "kind", type=click.Choice(_KINDS), default="jsonl", show_default=True
)


@click.group("dataset", short_help="Make datasets, and check them before a run does.")
def command() -> None:
    """Make and check datasets: rows of one column, prompt, that managed jobs and your own loop both take."""


@command.command("wordle", short_help="Make Wordle rows.")
@click.option(
    "--train", default=640, show_default=True, type=click.IntRange(0), help="Training rows."
)
@click.option(
    "--val", default=128, show_default=True, type=click.IntRange(0), help="Validation rows."
)
@click.option("--seed", default=42, show_default=True)
@click.option(
    "--curriculum",
    metavar="MIN:MAX",
    help="Guesses played beforehand in each training row; validation rows have none.",
)
@_kind
@_out
def wordle(train: int, val: int, seed: int, curriculum: str | None, kind: str, out: Path) -> None:
    """Make Wordle rows, with distinct answers that the two files do not share."""
    make_rows = _module("wordle").make_rows
    guesses = _range(curriculum)
    made = {
        "train": make_rows("train", train, seed, prior_guesses=guesses),
        "val": make_rows("validation", val, seed),
    }
    for name, rows in made.items():
        if rows:
            _write(out / f"{name}.{kind}", rows)


@command.command("gsm8k", short_help="Turn files of GSM8K's form into rows.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="File with the columns question and answer, as GSM8K is published; repeatable.",
)
@_kind
@_out
def gsm8k(sources: tuple[Path, ...], kind: str, out: Path) -> None:
    """Turn files of GSM8K's form into rows: the problem, and the number at the end of its answer.

    Each source becomes a file of the same name in the folder. GSM8K itself is not part of this package.
    """
    from rft_agent_sdk.training.dataset import read_records

    rows_from = _module("gsm8k").rows_from
    names = [source.stem for source in sources]
    if len(set(names)) != len(names):
        raise UsageError(f"sources need distinct names, as each becomes one file, got {names}")
    for source in sources:
        target = out / f"{source.stem}.{kind}"
        if target.exists() and target.samefile(source):
            raise UsageError(
                f"{str(target)!r} is the source itself: give another folder with --out"
            )
        _write(target, rows_from(read_records(source), source.stem))


@command.command("check", short_help="Check one dataset, or two for tasks they share.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--environment", "name", default="wordle", show_default=True, help="Whose tasks they hold."
)
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], name: str) -> None:
    """Check one dataset, or two for tasks that they share. Exit code 1 says that something was found.

    Every row is read as a run reads it, and its task as the environment does. An environment tells by a
    method task_key(task) what makes two tasks the same; without one it is the whole task, in any case.
    """
    if len(files) > 2:
        raise UsageError(f"wanted one file, or two to compare, got {len(files)}")
    environment = load_environment(name)
    checked = [_check(file, environment) for file in files]
    problems = sum(found for _, found in checked)
    if len(files) == 2:
        problems += _compare(checked[0][0], checked[1][0], files, environment)
    if problems:
        context.exit(1)


def _check(path: Path, environment: Environment) -> tuple[list[Row], int]:
    """Tell what is in a file; return the rows that are tasks, and the number of problems."""
    from rft_agent_sdk.training.dataset import Row, scan_rows

    rows: list[Row] = []
    problems: list[str] = []
    for row in scan_rows(path):
        try:
            if not isinstance(row, Row):
                raise UsageError(row.text)
            environment.start(row.task)
            rows.append(row)
        except UsageError as error:
            problems.append(f"{row.source}: {error}")
    columns = Counter("prompt" if row.is_prompt else "payload" for row in rows)
    told = ", ".join(f"{count} with {column}" for column, count in sorted(columns.items()))
    click.echo(f"{path}: {len(rows)} good rows" + (f" ({told})" if told else ""))
    key = _key_of(environment)
    if repeated := len(rows) - len({key(row) for row in rows}):  # nothing wrong, but good to know
        click.echo(f"  note: {repeated} rows repeat the task of an earlier one")
    if not rows and not problems:
        problems.append(f"{path}: no rows")
    _list(problems)
    return rows, len(problems)


def _compare(
    rows: list[Row], others: list[Row], files: tuple[Path, ...], environment: Environment
) -> int:
    """Tell which tasks two files share; return how many rows of the first that are."""
    from rft_agent_sdk.training.dataset import shared_prompts

    shared = shared_prompts(rows, others, key=_key_of(environment))
    click.echo(f"{len(shared)} rows of {files[0]} have a task that {files[1]} has, too")
    _list([f"{row.source} and {other.source}" for row, other in shared])
    return len(shared)


def _key_of(environment: Environment) -> Callable[[Row], Hashable]:
    own: Callable[[str], Hashable] = getattr(environment, "task_key", str.casefold)
    return lambda row: own(row.task)


def _list(lines: list[str]) -> None:
    for line in lines[:_SHOWN]:
        click.echo(f"  {line}")
    if len(lines) > _SHOWN:
        click.echo(f"  and {len(lines) - _SHOWN} more")


def _write(path: Path, payloads: list[dict[str, str]]) -> None:
    from rft_agent_sdk.training.dataset import Row, write_rows

    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, [Row(dict(payload)) for payload in payloads])
    click.echo(f"{path}: {len(payloads)} rows")


def _range(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 0
    low, sign, high = text.partition(":")
    if not sign or not low.isdecimal() or not high.isdecimal():
        raise UsageError(f"--curriculum must be MIN:MAX, such as 0:4, got {text!r}")
    return int(low), int(high)


def _module(environment: str) -> Any:
    """Return the dataset module of a shipped environment, which the package knows by name only here."""
    return importlib.import_module(f"environments.{environment}.dataset")
