"""Whether the rows are tasks, asked of the environment before anything is played."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rft_agent_sdk.environment import Environment, load_environment
from rft_agent_sdk.errors import RftError, UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.cli.mtrl._rehearsal_settings import Data, Prepared
    from rft_agent_sdk.mtrl.findings import Finding

_LONGEST_S = 20.0
_SHOWN = 3
_CUT = 200


def check_rows(prepared: Prepared) -> list[Finding]:
    """Return what is wrong with the rows of files, all of them, also those that are not played.

    An agent need not have an environment. So where not one row of a file is a task, it is the environment that is
    doubted; where some are, the others are.
    """
    settings = prepared.settings
    try:
        environment = load_environment(settings.environment)
    except RftError:
        return []  # told by whatever needs it
    named = ((settings.dataset, prepared.train), (settings.validation, prepared.validation))
    until = time.monotonic() + _LONGEST_S
    return [
        finding
        for path, data in named
        if path is not None and data is not None
        for finding in _checked(data, environment, until)
    ]


def _checked(data: Data, environment: Environment, until: float) -> Iterator[Finding]:
    from rft_agent_sdk.mtrl.findings import Finding, Severity

    bad: list[tuple[int, str]] = []
    asked = 0
    for number, prompt in enumerate(data.every, 1):
        if time.monotonic() > until:
            break
        asked += 1
        if fault := _fault(environment, prompt):
            bad.append((number, fault))
    if not bad:
        return
    listed = "; ".join(f"row {number}: {fault[:_CUT]}" for number, fault in bad[:_SHOWN])
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    name = environment.name
    if len(bad) == asked:
        yield Finding(
            "rows-of-no-task",
            Severity.WARNING,
            str(data.path),
            f"Not one of {asked} rows is a task of environment {name!r}: {listed}{more}.",
            "Name the agent's environment with --environment. If the agent plays no environment, this says nothing.",
        )
        return
    yield Finding(
        "rows-no-task",
        Severity.ERROR,
        f"{data.path}, row {bad[0][0]}",
        f"{len(bad)} of {asked} rows are no task of environment {name!r}, and the others are: {listed}{more}.",
        "Put these rows right, or leave them out; `rft dataset check FILE` lists them all.",
    )


def _fault(environment: Environment, prompt: str) -> str:
    """Return why a prompt is no task; nothing where it is one."""
    try:
        environment.start(prompt)
    except UsageError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the environment's own code
        return f"the environment raised {type(error).__name__}: {error}"
    return ""
