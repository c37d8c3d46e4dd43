"""How the bench starts a server, has it open sessions, and reads its CPU time: lines on stdin and stdout.

Only the standard library is imported here, since the peer's environment has nothing of ours.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_FIRST = -15
"""How nice the measured processes are to others."""


def obey(port: int, open_sessions: Callable[[int], list[str]]) -> None:
    """Do what the bench says until it closes our stdin; run by the server, which serves on a thread.

    Args:
        port: Where it serves, on 127.0.0.1.
        open_sessions: Forgets the sessions there are, opens so many, and returns their keys.
    """
    _say(port)
    for line in sys.stdin:
        command = json.loads(line)
        if command == "cpu":
            _say(time.process_time())
        else:
            _say(open_sessions(int(command)))


@contextmanager
def ahead(core: int | None) -> Iterator[None]:
    """Keep this process on one core, before whatever else runs there, as far as that is allowed."""
    allowed = os.sched_getaffinity(0) if core is not None else set()
    before = settle(core)
    try:
        yield
    finally:
        if core is not None:
            os.sched_setaffinity(0, allowed)
        _prioritise(before)


def settle(core: int | None) -> int:
    """Put this process on one core, before whatever else runs there; return its priority until now.

    Without that a busy machine favours a server of many threads, which queue for a core many times over.
    """
    if core is not None:
        os.sched_setaffinity(0, {core})
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _prioritise(_FIRST)
    return before


def _prioritise(nice: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        # Linux weighs the processes of a terminal or service against others as a group.
        Path("/proc/self/autogroup").write_text(str(nice))


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


class Served:
    """A server of one side, alone on one core."""

    def __init__(self, name: str, command: Sequence[str], core: int | None) -> None:
        self.name = name
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", ""),
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: settle(core),
        )
        self.port = int(self._hear())

    def open(self, count: int) -> list[str]:
        """Return the keys of so many new sessions; those before are gone."""
        found: list[str] = self._ask(count)
        return found

    def cpu_s(self) -> float:
        """Return the CPU time it has used, seconds."""
        return float(self._ask("cpu"))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the server ended with {self._process.wait()}")
        return json.loads(line)
