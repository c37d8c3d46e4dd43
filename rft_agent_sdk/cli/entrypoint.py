"""The deployed entrypoint, served here as a process of its own: an agent by a URL, as any other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rft_agent_sdk.cli.inputs import ENTRYPOINT
from rft_agent_sdk.errors import RftError, UsageError

_SERVER = "rft_agent_sdk.cli.leash"
_START_S = 90.0


@contextmanager
def served(settings: Mapping[str, str], entrypoint: str = ENTRYPOINT) -> Iterator[str]:
    """Serve the entrypoint on loopback, by these environment variables and no AWS ones else; yield its URL.

    Raises:
        UsageError: There is no such file.
        RftError: It did not start.
    """
    if not Path(entrypoint).is_file():
        raise UsageError(f"there is no entrypoint {entrypoint!r}: run from the project's root")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", _SERVER, str(Path(entrypoint).parent), str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            command,
            env={**kept, "AWS_EC2_METADATA_DISABLED": "true", **settings},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_up(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Any) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    log.seek(0)
    raise RftError(f"the entrypoint did not start:\n{log.read().decode('utf-8', 'replace')}")
