"""Files of a run: errors that name the file, and the lock that keeps two runs out of one folder."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rft_agent_sdk.errors import UsageError

logger = logging.getLogger(__name__)

_LOCK = ".lock"


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Give an `OSError` the name of the file: what writing and syncing raise, a full disk say, has none."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def check_writable(path: Path, setting: str) -> None:
    """Make sure that a file can be appended to; it is made where there is none.

    Raises:
        UsageError: It cannot; the message names the setting that names it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise UsageError(
            f"{setting}: wanted a place that can be written, got {str(path)!r}: {error.strerror}"
        ) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder. The system lets go of it when the process ends, however that ends.

    Raises:
        UsageError: Another run holds it, or it cannot be written.
    """
    path = folder / _LOCK
    check_writable(path, "run_dir")
    with path.open("r+b") as file:
        if sys.platform != "win32":
            _lock(file.fileno(), path)
        file.truncate()
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


def _lock(descriptor: int, path: Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = path.read_text("ascii", "replace").strip() or "unknown"
        raise UsageError(
            f"{str(path.parent)!r} belongs to a run that is at work (process {owner}): wait for its end, "
            "or name another run_dir"
        ) from None
    except OSError as error:  # a file system without locks
        logger.warning("folder=<%s> | cannot be locked: %s", path.parent, error.strerror)
