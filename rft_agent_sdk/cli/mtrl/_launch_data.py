"""Datasets of a launch, read as a run reads them: rows counted, faults named by line, splits compared."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.environment import Environment
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.findings import Finding
    from rft_agent_sdk.mtrl.launch_data import LaunchData
    from rft_agent_sdk.training.dataset import Row

_SHOWN = 20
_BOM = b"\xef\xbb\xbf"


def read_data(
    name: str, given: str, prefix: str, environment: Environment | None
) -> tuple[LaunchData | None, list[Row]]:
    """Return a dataset of a launch, and its rows where it is a file here.

    Args:
        name: The launch's key for it.
        given: A path, an S3 URI or an ARN; empty for none.
        prefix: Where a file is uploaded under.
        environment: Whose tasks they should be; `None` takes any string.
    """
    from rft_agent_sdk.mtrl.launch_data import LaunchData, upload_uri

    if not given:
        return None, []
    if given.startswith(("s3://", "arn:")):
        return LaunchData(given, given), []
    path = Path(given)
    rows, findings = _read(name, path, given, environment)
    uri = upload_uri(prefix, _digest(path), path.name) if path.is_file() else given
    return LaunchData(given, uri, len(rows), path, tuple(findings)), rows


def look_into(
    name: str, data: LaunchData, s3: Any, environment: Environment | None
) -> tuple[LaunchData, list[Row]]:
    """Return a dataset with what is in it, where that is one file in S3 that can be looked into.

    Args:
        name: The launch's key for it.
        data: The dataset.
        s3: The client.
        environment: Whose tasks they should be.

    Raises:
        CloudError: S3 refused.
    """
    from rft_agent_sdk.mtrl.launch_data import download

    if data.path is not None or not data.uri.startswith("s3://"):
        return data, []
    with tempfile.TemporaryDirectory(prefix="rft-launch-") as folder:
        path = download(s3, data.uri, Path(folder))
        if path is None:
            return data, []
        rows, findings = _read(name, path, data.uri, environment)
    return replace(data, rows=len(rows), findings=tuple(findings)), rows


def compare(rows: list[Row], held_out: list[Row], environment: Environment | None) -> list[Finding]:
    """Return what is wrong with two splits together: tasks that both have, or that one has twice."""
    from rft_agent_sdk.mtrl.launch_checks import warning
    from rft_agent_sdk.training.dataset import shared_prompts

    own = getattr(environment, "task_key", str.casefold)
    shared = shared_prompts(held_out, rows, key=lambda row: own(row.task))
    if not shared:
        return []
    places = ", ".join(f"{row.source} and {other.source}" for row, other in shared[:3])
    return [
        warning(
            "splits-overlap",
            "validation_dataset",
            f"{len(shared)} of its tasks are trained on, too: {places}{', ...' if shared[3:] else ''}",
            "Hold them out: a solve rate on what was trained on measures memory.",
        )
    ]


def _read(
    name: str, path: Path, shown: str, environment: Environment | None
) -> tuple[list[Row], list[Finding]]:
    """Return the rows of a file that a managed job can play, and a finding for each of the others.

    `shown` is what the file is called, which for a copy is not its path.
    """
    from rft_agent_sdk.mtrl.launch_checks import error, warning

    if not path.is_file():
        return [], [error("dataset", name, f"there is no file {shown!r}", "Name one.")]
    rows: list[Row] = []
    faults: list[tuple[str, str]] = []
    try:
        for source, row in _scan(path):
            place = source.replace(str(path), shown, 1)
            fault = row if isinstance(row, str) else _fault(row, environment)
            if isinstance(row, str) or fault:
                faults.append((place, fault))
            else:
                rows.append(replace(row, source=place))
    except UsageError as refused:
        faults.append((shown, str(refused).replace(str(path), shown)))
    findings = [
        error("dataset-row", place, fault, "Correct the row.") for place, fault in faults[:_SHOWN]
    ]
    if len(faults) > _SHOWN:
        told = f"{len(faults) - _SHOWN} more rows are none, too"
        findings.append(error("dataset-row", shown, told, "See `rft dataset check`."))
    if not rows and not faults:
        findings.append(error("dataset-row", shown, "it holds no rows", "Write some."))
    with path.open("rb") as file:
        if file.read(len(_BOM)) == _BOM:
            told = (
                "it begins with a byte order mark, which may become part of the first row or column"
            )
            findings.append(warning("dataset-bom", shown, told, "Save it as plain UTF-8."))
    return rows, findings


def _scan(path: Path) -> Iterator[tuple[str, Row | str]]:
    """Yield where each record stands, and its row, or in its place what is wrong with it."""
    from rft_agent_sdk.training.dataset import PROMPT, Row
    from rft_agent_sdk.training.dataset_files import Problem, read

    for source, record in read(path):
        if isinstance(record, Problem):
            yield source, record.text
        elif PROMPT not in record:
            first = next(iter(record), None)
            yield (
                source,
                f"it has no column {PROMPT!r}: the service would send its first one, {first!r}",
            )
        elif not isinstance(record[PROMPT], str) or not record[PROMPT]:
            kind = type(record[PROMPT]).__name__
            yield (
                source,
                f"wanted {PROMPT!r} to be a string that is not empty, got a {kind}: the service sends it as it is",
            )
        else:
            yield source, Row({PROMPT: record[PROMPT]}, source)


def _fault(row: Row, environment: Environment | None) -> str:
    """Return what an environment has against a row's task; nothing where it takes it."""
    if environment is None:
        return ""
    try:
        environment.start(row.task)
    except UsageError as refused:
        return str(refused)
    except Exception as error:  # noqa: BLE001 - the environment's own code
        return (
            f"the environment failed on it: {type(error).__name__}"  # its text may hold the answer
        )
    return ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
