"""The model on this machine against plain transformers: tokens sampled and trained per second.

Both sides run in one process of the environment that has torch, on one thread, and take turns. Seconds are those of
the processor, so that what else the machine does hardly counts.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.table import Row, progress

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-local" / "bin" / "python"


def measure() -> list[Row]:
    """Measure both sides; nothing where the environment with torch was never made."""
    if not PYTHON.exists():
        progress("the local model is left out: `make test-local` makes the environment it needs")
        return []
    progress("the local model and plain transformers")
    done = subprocess.run(
        [str(PYTHON), "-m", "tests.bench.local_sides"],
        check=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
    )
    return [Row(**row) for row in json.loads(done.stdout)]
