"""What a check is, and the words of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rft_agent_sdk.errors import RftError
from rft_agent_sdk.mtrl.findings import Finding, Severity

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.doctor.setup import Setup

Answer = str | Finding | Sequence[Finding]
"""What was found where all is well, as text; or what is not well."""


class Skipped(RftError):
    """Raised inside a check that cannot be made: why, and in `how` what makes it possible."""

    def __init__(self, why: str, how: str) -> None:
        super().__init__(why)
        self.how = how


class DoesNotApply(RftError):
    """Raised inside a check of something that this launch does not have; that is well."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to see to before a launch."""

    id: str
    """In kebab case; for `--only` and `--skip`."""
    title: str
    """What holds where all is well."""
    run: Callable[[Setup], Answer]
    """Returns what it found; may raise `Skipped` or `DoesNotApply`."""
    needs: tuple[str, ...] = ()
    """Names of `needs.NEEDS` that it cannot be made without."""
    matters: bool = True
    """Whether a launch is not known to be safe while it was not made."""


class Result(StrEnum):
    """How a check came out, worst first."""

    PROBLEM = "problem"
    """A launch would fail, or train on nothing."""
    WARNING = "warning"
    """A launch may fail or waste money; somebody should look."""
    SKIPPED = "skipped"
    """It was not made."""
    OK = "ok"
    """All is well, as far as it looked."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that was made, or skipped."""

    check: Check
    group: str
    """Name of the file of checks it stands in."""
    result: Result
    found: str
    """What was found, or why it was skipped."""
    fix: str = ""
    """What to do; empty where there is nothing to do."""
    findings: tuple[Finding, ...] = ()
    """Everything that is not well, the worst first; `found` and `fix` are the first one's."""
    took_s: float = 0.0


def problem(message: str, fix: str, where: str = "") -> Finding:
    """Return a finding that speaks against a launch; it gets its check's id."""
    return Finding("", Severity.ERROR, where, message, fix)


def warning(message: str, fix: str, where: str = "") -> Finding:
    """Return a finding that somebody should look at; it gets its check's id."""
    return Finding("", Severity.WARNING, where, message, fix)
