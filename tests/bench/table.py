"""Rows of the one table, and how it is written."""

import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of both sides, taken in the same run; or of ours, where there is nobody to compare with."""

    what: str
    ours: float
    theirs: float | None
    unit: str
    more_is_better: bool = False
    bar: float = 0.0
    """Times better that is asked for; 0 where nothing is."""

    @property
    def times_better(self) -> float | None:
        """How often ours is the better one: 2.0 is half the time, or twice the speed."""
        if self.theirs is None:
            return None
        return self.ours / self.theirs if self.more_is_better else self.theirs / self.ours

    def __str__(self) -> str:
        bar = f"{self.bar:g}" if self.bar else ""
        theirs = "" if self.theirs is None else number(self.theirs)
        times = "" if self.times_better is None else f"{self.times_better:.1f}"
        cells = (number(self.ours), theirs, self.unit, times, bar)
        return f"| {self.what} | {' | '.join(cells)} |"


def number(value: float) -> str:
    """Write a number with three significant digits, thousands set apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def render(rows: Iterable[Row]) -> str:
    """Return the table as Markdown."""
    head = (
        "| measure | ours | theirs | unit | times better | asked |\n|---|---:|---:|---|---:|---:|"
    )
    return "\n".join([head, *map(str, rows)])


def machine() -> str:
    """Say what the numbers were measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2] for line in info.read_text().splitlines() if "name" in line]
        cpu = names[0].strip() if names else cpu
    return (
        f"CPython {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores ({cpu})"
    )


def progress(text: str) -> None:
    """Say on stderr what is being measured; stdout holds the table alone."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
