"""What a check found: one record, shared by every check of a project, a bundle or an account.

A check returns its findings and never raises for a fault it was asked to look for; what they mean for an exit
code is the caller's to decide, as `rft doctor` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    ERROR = "error"
    """It will fail: the deployment, the rollouts, or the job."""
    WARNING = "warning"
    """It may fail, or cost money or time, and somebody should look."""
    NOTE = "note"
    """Worth knowing; nothing needs to be done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check found."""

    id: str
    """The same for the same kind of fault, in kebab case: `placeholder-account`."""
    severity: Severity
    """How much it matters."""
    where: str
    """The file, and the place in it: `agentcore/agentcore.json: runtimes[0].envVars`."""
    message: str
    """What was wanted and what is there."""
    fix: str
    """What to do about it, in one sentence."""


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The severity of the gravest finding; `None` where there are none."""
    order = list(Severity)
    return min((finding.severity for finding in findings), key=order.index, default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or something in it, that findings are about."""

    where: str

    def at(self, name: str) -> Place:
        """Return the place of something named in this one: `file: runtimes[0].envVars`."""
        return Place(f"{self.where}{'.' if ': ' in self.where else ': '}{name}")

    def error(self, id: str, message: str, fix: str) -> Finding:
        """Return a finding here that will fail."""
        return Finding(id, Severity.ERROR, self.where, message, fix)

    def warning(self, id: str, message: str, fix: str) -> Finding:
        """Return a finding here that somebody should look at."""
        return Finding(id, Severity.WARNING, self.where, message, fix)

    def note(self, id: str, message: str, fix: str) -> Finding:
        """Return a finding here that is worth knowing."""
        return Finding(id, Severity.NOTE, self.where, message, fix)
