"""Guesses a second, against a game that rescans its answer list for every guess."""

from tests.bench import wordle_rescan
from tests.bench.table import Row, progress


def measure() -> list[Row]:
    """Play the same games on both."""
    progress("Wordle guesses")
    found = wordle_rescan.measure()
    ours, theirs = found["ours_per_s"], found["rescan_per_s"]
    return [Row("Wordle guesses", ours, theirs, "1/s", more_is_better=True, bar=20)]
