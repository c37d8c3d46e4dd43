"""`--traces FILE`, for the verbs that play rollouts, here or in a process of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
HELP = "Append OpenTelemetry spans to a file; `rft traces show FILE` renders it."


def trace_to(path: str | None) -> None:
    """Have this process and those it starts write their spans to a file.

    Raises:
        UsageError: It cannot be written.
    """
    if path is None:
        return
    from rft_agent_sdk.tracing import configure

    os.environ["RFT_TRACES"] = str(Path(path).absolute())
    configure()


def _chosen(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    trace_to(value)


def traces(function: F) -> F:
    """Give a command the option; it takes effect by itself."""
    option = click.option(
        "--traces", metavar="FILE", expose_value=False, callback=_chosen, help=HELP
    )
    return option(function)
