"""Estimates and how sure they are: pass@k, and 95 % intervals of a rate and of a mean. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from rft_agent_sdk.errors import UsageError

_Z95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k rollouts, drawn from n of which c solved, has solved.

    `1 - C(n - c, k) / C(n, k)`, the unbiased estimate of arXiv 2107.03374, section 2.1.

    Raises:
        UsageError: Not 0 <= c <= n and 1 <= k <= n.
    """
    _check_counts(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_power_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k rollouts, drawn from n of which c solved, have solved.

    `C(c, k) / C(n, k)`, the unbiased estimate of arXiv 2406.12045, section 4.

    Raises:
        UsageError: As for `pass_at_k`.
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def wilson(mean: float, n: int) -> Interval:
    """Return Wilson's 95 % interval for a mean of `n` independent values in 0..1.

    It is exact in form for zeros and ones. For values between them it is wider than need be, since no
    variance in 0..1 exceeds that of zeros and ones with the same mean; and unlike a bootstrap it does
    not shrink to a point where all tasks came out alike.
    """
    z2 = _Z95 * _Z95
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    # in theory they enclose the mean; rounding may miss it at 0 and 1
    return Interval(mean, min(mean, max(0.0, centre - half)), max(mean, min(1.0, centre + half)))


def normal(mean: float, deviation: float, n: int) -> Interval:
    """Return the normal 95 % interval for a mean of `n` independent values with that standard deviation."""
    half = _Z95 * deviation / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def _check_counts(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise UsageError(f"wanted 0 <= c <= n and 1 <= k <= n, got n={n!r}, c={c!r}, k={k!r}")
