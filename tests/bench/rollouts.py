"""What it takes to play a batch of rollouts at once, beside the agents themselves.

The agent has a process of its own, the loop with its gateway another; the policy is a script, so that
nothing is sampled. There is no other side to compare with: the agent's cost is what the loop's stands beside.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.rollouts_loop import GROUP, Batch
from tests.bench.rollouts_usage import Usage
from tests.bench.sides import ROOT
from tests.bench.table import Row, progress

COUNT = 512
"""Rollouts, all of them at one time."""
PATIENCE_S = 300.0


def measure() -> list[Row]:
    """Play one batch.

    Raises:
        RuntimeError: A process ended early, or a rollout did not end as all do.
    """
    progress(f"rollouts, {COUNT} at once")
    with _agent() as agent:
        url = _hear(agent)
        _loop(url, GROUP)  # the agent imports much of what it needs in its first rollout
        ready = _usage(agent)
        batch = Batch.load(_loop(url, COUNT))
        done = _usage(agent)
    loop_cpu_s = batch.after.cpu_s - batch.before.cpu_s
    progress(
        f"rollouts: {batch.wall_s:.1f} s; before them the loop held {batch.before.resident_mb:.0f} MB, "
        f"the agent {ready.resident_mb:.0f} MB"
    )
    return [
        _row("per second", COUNT / batch.wall_s, "1/s", more=True),
        _row("CPU of a rollout, runner", batch.runner_cpu_s / COUNT * 1e3, "ms"),
        _row("CPU of a rollout, loop with gateway", loop_cpu_s / COUNT * 1e3, "ms"),
        _row("CPU of a rollout, agent", (done.cpu_s - ready.cpu_s) / COUNT * 1e3, "ms"),
        _row("peak memory, loop with gateway", batch.after.peak_mb, "MB"),
        _row("peak memory, agent", done.peak_mb, "MB"),
    ]


def _row(what: str, value: float, unit: str, *, more: bool = False) -> Row:
    return Row(f"rollouts, {COUNT} at once: {what}", value, None, unit, more_is_better=more)


@contextmanager
def _agent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.rollouts_agent"],
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _loop(url: str, count: int) -> str:
    command = [sys.executable, "-m", "tests.bench.rollouts_loop", url, str(count)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the loop ended with {done.returncode}; what it said is above")
    return done.stdout


def _usage(agent: subprocess.Popen[str]) -> Usage:
    assert agent.stdin is not None
    agent.stdin.write("\n")
    agent.stdin.flush()
    return Usage.load(_hear(agent))


def _hear(agent: subprocess.Popen[str]) -> str:
    assert agent.stdout is not None
    line = agent.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"the agent ended with {agent.wait()}")
    return line


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true"}
