"""Our gateway against agentcore-rl-toolkit's: turns per second, and what a turn costs.

Every server has one core to itself and the load generator another. The machine may be busy with other
work, so all of them run before other processes, as far as that is allowed; the sides take turns within
each round; and every number is a median: of the rounds, or of the turns of all rounds.
"""

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import uvloop

from tests.bench.gateway_control import ROOT, Served, ahead
from tests.bench.gateway_load import alone, saturate
from tests.bench.sides import Side
from tests.bench.table import Row, progress

PEER = Side("gateway-peer", ROOT / "tests" / "bench" / "peers_gateway")
MODES = ("tree", "linear")
"""How the peer keeps a history: rendered anew each time, which is its default, or extended."""
OURS = "ours"

CLIENTS = 16
TURNS = 6
ROUNDS = 7
SESSIONS = 96
"""Played at once by the clients, in each round; of these, a third alone."""
LONG_SESSIONS = 2
"""Sessions of a round that go on to the last of `MARKS`."""
MARKS = (1, 30, 60, 120)
MARGIN = 1.5
"""How much faster than any gateway the load generator has to be alone."""


class Rate(NamedTuple):
    """What a server did under load."""

    turns_per_s: float
    cpu_s: float
    """CPU time of the server, per turn."""


class Idle(NamedTuple):
    """What the load generator does with a server that does nothing."""

    turns_per_s: float
    turn_s: float
    """Of one client alone; what a gateway takes more than this, it adds."""


class Found(NamedTuple):
    """What all rounds found of one side."""

    rates: list[Rate]
    turns: list[float]
    """Seconds of each turn of a short session, nothing else running here."""
    marks: dict[int, list[float]]
    """Seconds of the turns that `MARKS` names."""


def measure() -> list[Row]:
    """Measure both sides in the same rounds.

    Raises:
        RuntimeError: The load generator was what was measured.
    """
    PEER.install()
    found = {name: Found([], [], defaultdict(list)) for name in (OURS, *MODES)}
    core, own = _cores()
    with ahead(own), ExitStack() as stack:
        served = [stack.enter_context(_served(*side, core)) for side in _commands()]
        idle = _idle(core)
        for number in range(ROUNDS + 1):
            progress(f"gateways, round {number} of {ROUNDS}{'' if number else ' (to warm up)'}")
            for server in served:
                _measure_one(server, found[server.name] if number else None)
    best = max(
        statistics.median(rate.turns_per_s for rate in side.rates) for side in found.values()
    )
    progress(f"gateways, the load generator alone: {idle.turns_per_s:,.0f} turns per second")
    if idle.turns_per_s < MARGIN * best:
        raise RuntimeError(
            f"the load generator makes {idle.turns_per_s:.0f} turns/s, a gateway {best:.0f}"
        )
    return [row for mode in MODES for row in _rows(found[OURS], found[mode], idle, mode)]


def _commands() -> Iterator[tuple[str, list[str]]]:
    yield OURS, [sys.executable, "-m", "tests.bench.gateway_ours"]
    for mode in MODES:
        yield mode, [str(PEER.python), str(PEER.app / "server.py"), mode]


def _measure_one(server: Served, found: Found | None) -> None:
    """Measure a server once; what is found is thrown away where there is nowhere to put it."""
    keys = server.open(SESSIONS)
    before = server.cpu_s()
    turns_per_s = uvloop.run(saturate(server.port, keys, CLIENTS, TURNS))
    cpu_s = (server.cpu_s() - before) / (SESSIONS * TURNS)
    short = uvloop.run(alone(server.port, server.open(SESSIONS // 3), TURNS))
    long = uvloop.run(alone(server.port, server.open(LONG_SESSIONS), max(MARKS)))
    if found is None:
        return
    found.rates.append(Rate(turns_per_s, cpu_s))
    found.turns.extend(took for session in short for took in session)
    for mark in MARKS:
        found.marks[mark].extend(session[mark - 1] for session in long)


def _idle(core: int | None) -> Idle:
    """Measure the load generator where the server does nothing."""
    rates, times = [], []
    with _served("idle", [sys.executable, "-m", "tests.bench.gateway_idle"], core) as server:
        for _ in range(ROUNDS):
            rates.append(uvloop.run(saturate(server.port, server.open(SESSIONS), CLIENTS, TURNS)))
            short = uvloop.run(alone(server.port, server.open(SESSIONS // 3), TURNS))
            times += [took for session in short for took in session]
    return Idle(statistics.median(rates), statistics.median(times))


def _rows(ours: Found, theirs: Found, idle: Idle, mode: str) -> list[Row]:
    def row(what: str, a: float, b: float, unit: str, bar: float = 0, *, more: bool = False) -> Row:
        return Row(f"gateway, against {mode}: {what}", a, b, unit, more_is_better=more, bar=bar)

    a, b = (_middle(side.rates) for side in (ours, theirs))
    rows = [
        row(f"turns, {CLIENTS} clients", a.turns_per_s, b.turns_per_s, "1/s", 3, more=True),
        row("CPU of a turn", a.cpu_s * 1e3, b.cpu_s * 1e3, "ms", 3),
    ]
    for what, at in (("median", 0.5), ("99th percentile", 0.99)):
        a_ms, b_ms = ((_quantile(side.turns, at) - idle.turn_s) * 1e3 for side in (ours, theirs))
        rows.append(row(f"added latency, {what}", a_ms, b_ms, "ms", 3))
    for mark in MARKS:
        a_ms, b_ms = (statistics.median(side.marks[mark]) * 1e3 for side in (ours, theirs))
        rows.append(row(f"latency of turn {mark}", a_ms, b_ms, "ms"))
    return rows


def _middle(rates: Sequence[Rate]) -> Rate:
    turns, cpu = zip(*rates, strict=True)
    return Rate(statistics.median(turns), statistics.median(cpu))


def _quantile(values: Sequence[float], at: float) -> float:
    return sorted(values)[min(len(values) - 1, int(at * len(values)))]


@contextmanager
def _served(name: str, command: Sequence[str], core: int | None) -> Iterator[Served]:
    server = Served(name, command, core)
    try:
        yield server
    finally:
        server.stop()


def _cores() -> tuple[int | None, int | None]:
    """Return a core for the servers and one for the load generator, `None` where there are no two."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(allowed) < 2:
        progress("gateways: no two cores to tell apart, so the load generator shares the servers'")
        return None, None
    return allowed[0], allowed[1]
