"""A line at the foot of the terminal: which stage, how far, how long it will take."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping

_WIDTH = 30
_EVERY_S = 10.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """The progress of one stage, on standard error: a bar in a terminal, now and then a line elsewhere.

    Takes the metrics of steps, too, as a tracker does.
    """

    def __init__(
        self, name: str, total: int, *, done: int = 0, shown: Mapping[str, str] | None = None
    ) -> None:
        """Begin.

        Args:
            name: Of the stage.
            total: Steps of it.
            done: Steps that were done before.
            shown: Metrics that are told, and what they are called.
        """
        self._name = name
        self._total = max(1, total)
        self._first = self._done = done
        self._shown = shown or {}
        self._told = ""
        self._started = time.monotonic()
        self._last = 0.0
        self._is_terminal = sys.stderr.isatty()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the numbers of a step."""
        told = [f"{word} {metrics[key]:.3g}" for key, word in self._shown.items() if key in metrics]
        self._told = "  ".join(told) or self._told
        self.at(step)

    def at(self, done: int) -> None:
        """Tell that so much is done."""
        self._done = done
        now = time.monotonic()
        is_last = done >= self._total
        if not is_last and now - self._last < (0.2 if self._is_terminal else _EVERY_S):
            return
        self._last = now
        self._write(now - self._started)

    def close(self) -> None:
        """End the line."""
        if self._is_terminal:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _write(self, passed_s: float) -> None:
        share = min(1.0, self._done / self._total)
        fresh = self._done - self._first
        left = passed_s / fresh * (self._total - self._done) if fresh > 0 else 0.0
        bar = "█" * round(share * _WIDTH)
        text = (
            f"{self._name:<12} {bar:·<{_WIDTH}} {self._done}/{self._total}  "
            f"{_said(passed_s)} left {_said(left)}  {self._told}"
        )
        start, end = ("\r\033[K", "") if self._is_terminal else ("", "\n")
        sys.stderr.write(f"{start}{text}{end}")
        sys.stderr.flush()


def _said(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
