"""The append-only log of one session: what a restarted gateway goes on from.

One JSON line each: how the session was opened, every turn before its last byte is sent, how it ended.
A line is written whole, or not at all, and flushed to the operating system, so a killed gateway loses
nothing it has answered; a line that a crash of the machine cut off is the last one, and was not answered
either.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.refusal import to_json
from rft_agent_sdk.types import JSON

_SUFFIX = ".session.jsonl"
_LOCK = ".lock"


class SessionLog:
    """Writes one session's log."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, folder: Path, session_id: str, opened: JSON) -> SessionLog:
        """Begin a log with how the session was opened.

        Raises:
            UsageError: There is a log of that name.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{session_id}{_SUFFIX}"
        if path.exists():
            raise UsageError(f"session log {str(path)!r} exists: another gateway writes it")
        log = cls(path)
        log.append({"opened": opened})
        return log

    def append(self, record: JSON) -> None:
        """Write one line, whole; what raises an `OSError` leaves nothing of it behind."""
        line = to_json(record) + b"\n"
        # Opened for each line: thousands of sessions would otherwise hold a descriptor each.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _write_whole(descriptor, line)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the log of a session that nobody will go on with."""
        self.path.unlink(missing_ok=True)


def claim(folder: Path) -> int:
    """Make a folder of logs this process's own; return the descriptor that holds it until it is closed.

    Two gateways that take up the same sessions would each write turns that the other does not know.

    Raises:
        UsageError: It cannot be written, or another process's gateway has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(
            f"wanted a folder for session logs that can be written, got {str(folder)!r}: "
            f"{error.strerror}"
        ) from None
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise UsageError(
                f"another gateway writes the session logs in {str(folder)!r}: give each a folder of "
                "its own"
            ) from None
    return descriptor


@dataclass(frozen=True, slots=True)
class Logged:
    """A session as its log tells it."""

    log: SessionLog
    session_id: str
    opened: JSON
    turns: tuple[JSON, ...]
    events: tuple[JSON, ...]
    """Its transitions so far: completed, rewarded, failed."""


def read_logs(folder: Path) -> Iterator[Logged]:
    """Yield the sessions logged in a folder.

    Raises:
        UsageError: A log is damaged before its last line; the message names the file.
    """
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        records = list(_records(path))
        if not records:
            continue  # killed while it was being opened: nobody has its secret
        if "opened" not in records[0]:
            raise UsageError(f"{path}, line 1: wanted how the session was opened")
        turns = tuple(record["turn"] for record in records if "turn" in record)
        events = tuple(record["event"] for record in records if "event" in record)
        session_id = path.name.removesuffix(_SUFFIX)
        yield Logged(SessionLog(path), session_id, records[0]["opened"], turns, events)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = _parsed(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: no JSON ({error})") from None
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: wanted a JSON object, got {line[:60]!r}")
        yield record
    if lines[-1]:
        # Cut off in mid-line. The next line must not continue it.
        os.truncate(path, path.stat().st_size - len(lines[-1]))


def _write_whole(descriptor: int, line: bytes) -> None:
    """Append a line. A full disk takes part of it, which a next line would continue: that is undone."""
    written = 0
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def _parsed(line: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # it takes half a surrogate pair, which a task may hold
