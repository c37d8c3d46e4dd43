"""Datasets: rows in and out of files, and the order in which a run plays them.

A row is what one rollout's agent is sent. It stands in a file in one of two forms: a column `payload`, an
object (or its JSON text) that is sent as it is; or a column `prompt`, one opaque string, as the managed
service takes it, sent as `{"prompt": string}` and never parsed here. `payload` wins where both are.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.training import dataset_files
from rft_agent_sdk.training.dataset_files import Problem
from rft_agent_sdk.types import JSON

PAYLOAD, PROMPT = "payload", "prompt"
RESERVED = "_config"
"""The payload's key that the trainer fills in."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one rollout's agent is sent, but for the trainer's own `_config`."""

    payload: JSON
    source: str = ""
    """Where it was read: the file and its physical line, or row number, from 1."""

    @property
    def is_prompt(self) -> bool:
        """Whether it is one string and nothing else, so that a managed job could take it, too."""
        return set(self.payload) == {PROMPT} and isinstance(self.payload[PROMPT], str)

    @property
    def task(self) -> str:
        """The task string that an agent of this package gives to its environment.

        Raises:
            PayloadError: Such an agent could not read the payload.
        """
        config = {"base_url": "http://127.0.0.1"}  # it is read like the request of a rollout
        return parse_request({**self.payload, RESERVED: config}).task


def read_rows(path: str | Path, max_rows: int = 0) -> list[Row]:
    """Read a dataset by the kind that its name tells: .jsonl, .json, .csv or .parquet.

    Args:
        path: The file.
        max_rows: How many rows to read, from the first; 0 reads all.

    Raises:
        UsageError: The file cannot be read, holds no row, or holds one that is none; its line is named.
    """
    rows: list[Row] = []
    for row in scan_rows(path):
        if isinstance(row, Problem):
            raise UsageError(str(row))
        rows.append(row)
        if len(rows) == max_rows:
            break
    if not rows:
        raise UsageError(f"dataset {str(path)!r} holds no rows")
    return rows


def scan_rows(path: str | Path) -> Iterator[Row | Problem]:
    """Yield the rows of a dataset, and a problem in place of each that is none.

    Raises:
        UsageError: The file cannot be read at all.
    """
    for source, record in dataset_files.read(Path(path)):
        yield record if isinstance(record, Problem) else _row(record, source)


def read_records(path: str | Path) -> list[tuple[str, JSON]]:
    """Read a file of any columns; return where each record stands, and the record.

    Raises:
        UsageError: The file, or a record of it, cannot be read.
    """
    records = []
    for source, record in dataset_files.read(Path(path)):
        if isinstance(record, Problem):
            raise UsageError(str(record))
        records.append((source, record))
    return records


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Write a dataset; reading it gives the same payloads, strings unchanged to the character.

    If every row is a prompt the column is `prompt`, else `payload`: an object in JSON files, its JSON text
    in CSV and Parquet, whose columns would otherwise give every row the keys of all.

    Raises:
        UsageError: The file's name is of no known kind, or a payload is no JSON or not for the file.
    """
    path, kept = Path(path), list(rows)
    records: list[JSON]
    if all(row.is_prompt for row in kept):
        records = [row.payload for row in kept]
    else:
        texts = [_json_text(row) for row in kept]  # refuses what is no JSON, whatever the file
        is_flat = path.suffix.lower() in (".csv", ".parquet")
        records = [
            {PAYLOAD: text if is_flat else row.payload}
            for row, text in zip(kept, texts, strict=True)
        ]
    dataset_files.write(path, records)


def shared_prompts(
    rows: Iterable[Row],
    others: Iterable[Row],
    key: Callable[[Row], Hashable] | None = None,
) -> list[tuple[Row, Row]]:
    """Return the rows of `rows` that `others` has as well, each with the first such row there.

    Args:
        rows: One dataset.
        others: Another one.
        key: What makes two rows the same; `None` for the whole payload, upper and lower case alike.
    """
    key = key or _folded
    places: dict[Hashable, Row] = {}
    for row in others:
        places.setdefault(key(row), row)
    keyed = ((row, key(row)) for row in rows)
    return [(row, places[found]) for row, found in keyed if found in places]


class Epochs(Iterator[list[Row]]):
    """Batches of rows, each epoch in a shuffled order of its own; stops and goes on at any row.

    The order depends on the seed and the number of rows alone. A batch never reaches into the next epoch:
    an epoch's last one may be smaller, so that each row is played once an epoch.
    """

    def __init__(self, rows: Sequence[Row], batch_size: int, epochs: int, seed: int) -> None:
        """Stand before the first row.

        Args:
            rows: The dataset.
            batch_size: Rows of a batch.
            epochs: Times that each row comes.
            seed: Shuffles the rows.

        Raises:
            UsageError: No rows, or a number below 1.
        """
        if not rows or batch_size < 1 or epochs < 1:
            raise UsageError(
                "wanted at least one row, and batch_size and epochs of at least 1, got "
                f"{len(rows)} rows, {batch_size!r} and {epochs!r}"
            )
        self.rows = tuple(rows)
        self.batch_size = batch_size
        self.epochs = epochs
        self.seed = seed
        self.epoch = 0
        """The epoch of the next row, from 0."""
        self.position = 0
        """Rows of this epoch that were given out."""

    def __next__(self) -> list[Row]:
        """Return the next batch."""
        rows = self.take(self.batch_size)
        if not rows:
            raise StopIteration
        return rows

    def take(self, count: int) -> list[Row]:
        """Return the next rows: `count` of them, fewer at the end of an epoch, none after the last."""
        if self.epoch >= self.epochs or count < 1:
            return []
        chosen = _order(len(self.rows), self.seed, self.epoch)[
            self.position : self.position + count
        ]
        self.position += len(chosen)
        if self.position == len(self.rows):
            self.epoch, self.position = self.epoch + 1, 0
        return [self.rows[index] for index in chosen]

    def state(self) -> dict[str, int | str]:
        """Return where it stands, as JSON."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self.position,
            "rows": self._digest,
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], rows: Sequence[Row], batch_size: int, epochs: int
    ) -> Self:
        """Go on where another one stood.

        `batch_size` and `epochs` may differ from before, as rows are counted, not batches.

        Raises:
            UsageError: The rows are not those of the state, or it is none.
        """
        numbers = [state.get(name) for name in ("seed", "epoch", "position")]
        seed, epoch, position = (number if type(number) is int else -1 for number in numbers)
        if type(numbers[0]) is not int or epoch < 0 or not 0 <= position < max(len(rows), 1):
            raise UsageError(f"not the state of a dataset of {len(rows)} rows: {dict(state)!r}")
        made = cls(rows, batch_size, epochs, seed)
        if state.get("rows") != made._digest:
            raise UsageError(
                "the dataset is not the one that the run was playing: its rows, or their order, have "
                "changed. Bring the old file back, or start a new run"
            )
        made.epoch, made.position = epoch, position
        return made

    @functools.cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(json.dumps(row.payload, sort_keys=True).encode() + b"\n")
        return digest.hexdigest()


@functools.lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(f"{seed} {epoch}").shuffle(order)  # noqa: S311 - must be reproducible
    return tuple(order)


def _row(record: Mapping[str, Any], source: str) -> Row | Problem:
    """Tell a record's form."""
    if record.get(PAYLOAD) is not None:
        return _payload_row(record[PAYLOAD], source)
    if PROMPT not in record:
        return Problem(
            source,
            f"a row needs a column {PAYLOAD!r} or {PROMPT!r}, got {sorted(map(str, record))}",
        )
    prompt = record[PROMPT]
    if not isinstance(prompt, str):
        kind = "nothing" if prompt is None else f"a {type(prompt).__name__}"
        return Problem(
            source,
            f"{PROMPT!r} must be a string, got {kind}: write a structured task as its JSON text, or "
            f"name the column {PAYLOAD!r}",
        )
    return Row({PROMPT: prompt}, source)


def _payload_row(value: object, source: str) -> Row | Problem:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return Problem(source, f"{PAYLOAD!r} is a string that is not JSON")
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        return Problem(source, f"{PAYLOAD!r} must be an object, got a {type(value).__name__}")
    if not value:
        return Problem(source, f"{PAYLOAD!r} is empty")
    if RESERVED in value:
        return Problem(source, f"{PAYLOAD!r} must leave {RESERVED!r} to the trainer")
    row = Row(value, source)
    try:
        _json_text(row)
    except UsageError as error:
        return Problem(source, f"{PAYLOAD!r} cannot be sent: {error}")
    return row


def _json_text(row: Row) -> str:
    """Return the payload as JSON; dates, bytes and the like of a Parquet file have no such form."""
    try:
        return json.dumps(row.payload, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a payload must be JSON: {error}") from None


def _folded(row: Row) -> str:
    return json.dumps(row.payload, sort_keys=True, ensure_ascii=False).casefold()
