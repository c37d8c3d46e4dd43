"""What a process has used, as it says itself and as the bench reads it."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and memory of one process, until now."""

    cpu_s: float
    resident_mb: float
    """Memory it holds now."""
    peak_mb: float
    """Most memory it ever held."""

    @classmethod
    def now(cls) -> Self:
        """Return what this process has used. Needs Linux.

        The peak is not `getrusage`'s, which a child takes over from the process that started it.
        """
        status = Path("/proc/self/status").read_text("ascii")
        found = dict(line.split(":", 1) for line in status.splitlines())
        held, most = (int(found[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return cls(time.process_time(), held, most)

    @classmethod
    def load(cls, line: str) -> Self:
        """Return what `dump` wrote."""
        return cls(**json.loads(line))

    def dump(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))
