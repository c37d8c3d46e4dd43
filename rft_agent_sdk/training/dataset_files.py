"""Dataset files as records: JSON Lines, a JSON array, CSV and Parquet, in and out.

What a record means is told in `dataset`. A record that cannot be read comes out as a `Problem` in its
place, so that a check can tell all of them and a run can stop at the first.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

_BOM = b"\xef\xbb\xbf"
_LONGEST_FIELD = 2**31 - 1
_LINE_BREAKS = re.compile("[\u0085\u2028\u2029\ud800-\udfff]")
"""What other programs take for the end of a line, and half surrogate pairs, which UTF-8 cannot carry."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that cannot be used."""

    source: str
    """File and physical line, or row where the file has no lines."""
    text: str
    """What is wrong. Nothing of the record is quoted: it may hold an answer."""

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


Entry = tuple[str, JSON | Problem]
"""Where a record stands, and the record."""


def read(path: Path) -> Iterator[Entry]:
    """Yield the records of a file, in order.

    Raises:
        UsageError: The file cannot be read at all, or has a name of no known kind.
    """
    reader = _kind(path)[0]
    try:
        yield from reader(path)
    except OSError as error:
        raise UsageError(f"dataset {str(path)!r} cannot be read: {error}") from None


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records to a file, whole or not at all.

    CSV and Parquet take one set of columns, of text; the other two any JSON.

    Raises:
        UsageError: The name is of no known kind, or a text cannot be written as UTF-8.
    """
    writer = _kind(path)[1]
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        writer(part, records)
        part.replace(path)
    except UnicodeEncodeError:
        raise UsageError(
            f"{path.name}: a text holds half a surrogate pair, which only .jsonl and .json can carry"
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _kind(path: Path) -> tuple[_Reader, _Writer]:
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise UsageError(
            f"dataset {str(path)!r} must be named {', '.join(sorted(_KINDS))}, got {path.suffix!r}"
        )
    return kind


def _read_lines(path: Path) -> Iterator[Entry]:
    with path.open("rb") as lines:  # bytes end a line at "\n" alone
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.strip():
                source = f"{path} line {number}"
                yield source, _record(line.rstrip(b"\r\n"), source)


def _record(text: bytes, source: str) -> JSON | Problem:
    value = _parse(text, source)
    if isinstance(value, dict | Problem):
        return value
    return Problem(source, f"a row must be an object, got {_named(value)}")


def _parse(text: bytes, source: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return Problem(source, f"not UTF-8: {error.reason} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        within = "" if error.lineno == 1 else f"line {error.lineno}, "
        return Problem(source, f"not JSON: {error.msg} at {within}column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Problem(source, f"not JSON: {error}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _read_array(path: Path) -> Iterator[Entry]:
    value = _parse(path.read_bytes().removeprefix(_BOM), str(path))
    if isinstance(value, Problem):
        raise UsageError(f"{value}; a file with one row a line is named .jsonl")
    if not isinstance(value, list):
        raise UsageError(f"{path} must hold one array of rows, got {_named(value)}")
    for number, record in enumerate(value, start=1):
        source = f"{path} row {number}"
        if isinstance(record, dict):
            yield source, record
        else:
            yield source, Problem(source, f"a row must be an object, got {_named(record)}")


def _read_csv(path: Path) -> Iterator[Entry]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))  # one for the whole process
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        line = 1
        try:
            header = next(rows, [])
            if not header or len(set(header)) != len(header):
                raise UsageError(f"{path} line 1: wanted distinct column names, got {header!r}")
            line = rows.line_num + 1
            for row in rows:
                source = f"{path} line {line}"
                line = rows.line_num + 1
                if len(row) == len(header):
                    yield source, dict(zip(header, row, strict=True))
                elif row:
                    wanted = f"wanted {len(header)} columns, got {len(row)}"
                    yield source, Problem(source, wanted)
        except csv.Error as error:
            raise UsageError(f"{path} line {line}: not CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: not UTF-8 after line {line - 1}: {error.reason}") from None


def _read_parquet(path: Path) -> Iterator[Entry]:
    arrow, parquet = _arrow()
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path} row {number}", record
    except arrow.ArrowException as error:
        raise UsageError(f"{path} is no Parquet file, after row {number}: {error}") from None


def _write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(f"{_dump(record)}\n" for record in records)
    path.write_text(text, "utf-8", newline="\n")


def _write_array(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    text = ",\n".join(map(_dump, records))
    path.write_text(f"[\n{text}\n]\n", "utf-8", newline="\n")


def _dump(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return _LINE_BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _write_csv(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        # every value in quotes: a lone carriage return would end a row otherwise
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(list(records[0]) if records else ["prompt"])
        writer.writerows(list(record.values()) for record in records)


def _write_parquet(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    arrow, parquet = _arrow()
    names = list(records[0]) if records else ["prompt"]
    columns = {
        name: arrow.array([record[name] for record in records], arrow.string()) for name in names
    }
    parquet.write_table(arrow.table(columns), path)


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise UsageError(
            "Parquet files need pyarrow, which is not installed: pip install 'rft-agent-sdk[train]', "
            "or use .jsonl"
        ) from error


def _named(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


_Reader = Callable[[Path], Iterator[Entry]]
_Writer = Callable[[Path, Sequence[Mapping[str, Any]]], None]
_KINDS: Mapping[str, tuple[_Reader, _Writer]] = {
    ".csv": (_read_csv, _write_csv),
    ".json": (_read_array, _write_array),
    ".jsonl": (_read_lines, _write_lines),
    ".ndjson": (_read_lines, _write_lines),
    ".parquet": (_read_parquet, _write_parquet),
}
