"""`make bench`: everything side by side in one run, one table on stdout.

Name parts to measure those alone: `python -m tests.bench bundle tokens`.
"""

import sys
from collections.abc import Callable

from tests.bench import (
    bundle_size,
    cold_start,
    gateway_speed,
    local_speed,
    rollouts,
    token_cost,
    wordle_speed,
)
from tests.bench.table import Row, machine, render

PARTS: dict[str, Callable[[], list[Row]]] = {
    "bundle": bundle_size.measure,
    "cold": cold_start.measure,
    "gateway": gateway_speed.measure,
    "local": local_speed.measure,
    "rollouts": rollouts.measure,
    "tokens": token_cost.measure,
    "wordle": wordle_speed.measure,
}


def main(names: list[str]) -> int:
    """Measure the named parts, or all of them."""
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        print(f"bench: no part {unknown}; there are {sorted(PARTS)}", file=sys.stderr)
        return 2
    rows = [row for name in names or PARTS for row in PARTS[name]()]
    print(f"{machine()}\n\n{render(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
