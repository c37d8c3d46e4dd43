"""The agent's entrypoint: how it is decorated, whether it starts, and whether it ends every rollout with a reward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.doctor.source import Entrypoint, Source, read_source
from rft_agent_sdk.mtrl.doctor.start import Started, post, started
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.types import JSON

_ORDER = (
    "Write it so, with the entrypoint outermost: @app.entrypoint above @rft_handler(app=app), "
    "and `app.run()` under `if __name__ == '__main__'`."
)
_SLOW = 0.5
"""Share of the time to start from which it is called slow: a runtime has two small cores."""


def decorators(setup: Setup) -> Answer:
    """See that what is registered as the entrypoint is what handles rollouts."""
    findings: list[Finding] = []
    told = []
    for place, source in _sources(setup):
        if isinstance(source, Finding):
            findings.append(source)
            continue
        registered = [one for one in source.entrypoints if one.is_registered]
        if not registered:
            findings.append(
                problem(
                    "nothing is registered with @app.entrypoint: a handler alone starts no server, and every "
                    "invocation times out after 30 s",
                    _ORDER,
                    place,
                )
            )
        for one in registered:
            findings += _misplaced(one, place)
            told.append(f"{place}:{one.line}: {one.name}")
    return findings or f"{', '.join(told)} is registered, and handles rollouts"


def _misplaced(one: Entrypoint, place: str) -> Iterator[Finding]:
    where = f"{place}:{one.line}"
    if one.handler is None:
        yield problem(
            f"{one.name} is the entrypoint but under no @rft_handler: no rollout would be completed or rewarded",
            _ORDER,
            where,
        )
        return
    if not one.is_in_order:
        yield problem(
            f"{one.name} has its handler above @app.entrypoint: what is registered is the bare function, whose "
            "result nobody reports, and rollouts time out",
            _ORDER,
            where,
        )
    if one.handler.startswith("sagemaker."):
        if one.parameters > 1:
            yield problem(
                f"{one.name} takes {one.parameters} parameters; the SDK's own decorator passes the payload alone",
                "Take the payload alone, or use rft_handler of rft_agent_sdk, which passes the context too.",
                where,
            )
        yield warning(
            f"{one.name} is under {one.handler}, which loads credentials for each token and starves their "
            "provider under concurrent rollouts, and whose 700 MB come near the limits of a bundle",
            "Import it from rft_agent_sdk instead; the name stays the same.",
            where,
        )


def error_status(setup: Setup) -> Answer:
    """See that no function returns an error in place of a reward."""
    findings = [
        problem(
            'it returns {"status": "error"} without a reward: one such rollout fails the whole job',
            "Return the environment's score, or else the floor reward.",
            f"{place}:{line}",
        )
        for place, source in _sources(setup)
        if isinstance(source, Source)
        for line in source.error_lines
    ]
    return findings or "none"


def server_starts(setup: Setup) -> Answer:
    """Start the agent as the runtime does, and see that it answers pings in time and takes an invocation."""
    findings: list[Finding] = []
    told = []
    for runtime in setup.runtimes():
        path, place = _file_of(setup, runtime)
        if not path.is_file():
            raise Skipped(f"there is no {place}", "See the check agentcore-project.")
        variables = setup.variables(runtime).items()
        odd = {name for name, value in variables if not name.isidentifier() or "\0" in value}
        environ = {**setup.environ, **{name: value for name, value in variables if name not in odd}}
        with started(path, environ=environ, within_s=setup.start_s) as start:
            found = _judged(start, place, setup.start_s)
            if start.url and not found:
                found = [*_invoked(start.url, place), *_slowness(start, place, setup.start_s)]
        findings += found
        told.append(
            f"{place} answers its first ping after {start.took_s:.1f} s, and an invocation with a reward"
        )
    return findings or "; ".join(told)


def _judged(start: Started, place: str, within_s: float) -> list[Finding]:
    tail = f"; it ended with:\n{start.log.strip()}" if start.log.strip() else ""
    if start.url is None and start.code is None:
        return [
            problem(
                f"no answer to GET /ping within {within_s:g} s, so every invocation would time out{tail}",
                "See that the file ends with app.run() under `if __name__ == '__main__'`, and import what is heavy "
                "only when a rollout needs it.",
                place,
            )
        ]
    if start.url is None:
        return [
            problem(
                f"it ended with exit code {start.code} and served nothing, so every invocation would time out{tail}",
                "End the file with app.run() under `if __name__ == '__main__'`."
                if start.code == 0
                else "Make it run here first: rft serve. What it imports must stand in the pyproject.toml beside it.",
                place,
            )
        ]
    status = (start.ping or {}).get("status")
    if status not in ("Healthy", "HealthyBusy", "healthy"):
        return [
            problem(
                f"GET /ping answers {start.ping!r}; wanted a status Healthy or HealthyBusy",
                "Leave /ping to BedrockAgentCoreApp.",
                place,
            )
        ]
    return []


def _slowness(start: Started, place: str, within_s: float) -> list[Finding]:
    if start.took_s > _SLOW * within_s:
        return [
            warning(
                f"the first ping was answered only after {start.took_s:.1f} s; a runtime, which is slower than most "
                f"machines, gives it {within_s:g} s",
                "Import what is heavy inside the function, and look at the time with python -X importtime.",
                place,
            )
        ]
    return []


def _invoked(url: str, place: str) -> list[Finding]:
    """Send a payload that names no job: a handler answers with its floor, and asks nobody."""
    try:
        status, body, text = post(url, {}, timeout_s=30)
    except OSError as error:
        return [
            problem(
                f"POST /invocations got no answer: {type(error).__name__}",
                "Do nothing before the payload is read; a handler answers one that it cannot read at once.",
                place,
            )
        ]
    if status != 200:
        return [
            problem(
                f"POST /invocations answers {status} to a payload it cannot read: {text!r}; wanted 200 and a reward",
                _ORDER,
                place,
            )
        ]
    reward = (body or {}).get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        return [
            problem(
                f"POST /invocations answers without a reward: {text!r}; a rollout without one fails the whole job",
                _ORDER,
                place,
            )
        ]
    return []


def entrypoint_options(setup: Setup) -> Mapping[str, object]:
    """Return the constant arguments of the handler; none where there is no readable entrypoint."""
    found: dict[str, object] = {}
    try:
        for _, source in _sources(setup):
            if isinstance(source, Source):
                for one in source.entrypoints:
                    found |= one.handler_options
    except Skipped:
        return {}
    return found


CHECKS = (
    Check(
        "decorators", "@app.entrypoint is outermost, over @rft_handler", decorators, ("project",)
    ),
    Check(
        "error-status",
        "No function returns an error in place of a reward",
        error_status,
        ("project",),
    ),
    Check(
        "server-starts",
        "Started as the runtime starts it, the agent answers /ping within 30 s, and an invocation with a reward",
        server_starts,
        ("project",),
    ),
)


def _file_of(setup: Setup, runtime: JSON) -> tuple[Path, str]:
    """Return a runtime's entrypoint, and its name for messages."""
    entrypoint = str(runtime.get("entrypoint", "main.py")).partition(":")[0]
    place = (Path(str(runtime.get("codeLocation", ""))) / entrypoint).as_posix()
    return setup.root / place, place


def _sources(setup: Setup) -> Iterator[tuple[str, Source | Finding]]:
    """Yield each runtime's entrypoint, read; or a finding in its place."""
    for runtime in setup.runtimes():
        path, place = _file_of(setup, runtime)
        if path.suffix != ".py":
            raise Skipped(f"{place} is no Python", "Look at it yourself.")
        try:
            yield place, read_source(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Skipped(f"there is no {place}", "See the check agentcore-project.") from None
        except (OSError, ValueError, SyntaxError) as error:
            where = f"{place}:{error.lineno}" if isinstance(error, SyntaxError) else place
            yield (
                place,
                problem(f"it cannot be read: {error}", "Make it run here first: rft serve.", where),
            )
