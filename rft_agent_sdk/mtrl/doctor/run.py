"""Going through the checks, and what they add up to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rft_agent_sdk.errors import CloudError, CredentialsError, UsageError
from rft_agent_sdk.mtrl.doctor.check import (
    Answer,
    Check,
    Checked,
    DoesNotApply,
    Result,
    Skipped,
    problem,
    warning,
)
from rft_agent_sdk.mtrl.doctor.checks import GROUPS
from rft_agent_sdk.mtrl.doctor.iam import denied
from rft_agent_sdk.mtrl.doctor.needs import NEEDS
from rft_agent_sdk.mtrl.doctor.setup import CREDENTIALS_HOW, Setup
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_RESULTS = {Severity.ERROR: Result.PROBLEM, Severity.WARNING: Result.WARNING}
_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Report:
    """Every check that was chosen, with its result."""

    checked: tuple[Checked, ...]

    def of(self, result: Result) -> list[Checked]:
        """Return the checks with that result."""
        return [one for one in self.checked if one.result is result]

    @property
    def unknown(self) -> list[Checked]:
        """The skipped checks without which a launch is not known to be safe."""
        return [one for one in self.of(Result.SKIPPED) if one.check.matters]

    @property
    def is_safe(self) -> bool:
        """Whether nothing speaks against a launch, and everything that matters was looked at."""
        return not self.of(Result.PROBLEM) and not self.unknown

    def as_json(self) -> JSON:
        """Return it as plain JSON."""
        return {
            "safe": self.is_safe,
            "counts": {result.value: len(self.of(result)) for result in Result},
            "unknown": [one.check.id for one in self.unknown],
            "checks": [_as_json(one) for one in self.checked],
        }


def choose(only: Iterable[str] = (), skip: Iterable[str] = ()) -> list[tuple[str, Check]]:
    """Return the checks to make, each with its group; `only` and `skip` name checks or groups.

    Raises:
        UsageError: A name that is neither.
    """
    only, skip = set(only), set(skip)
    every = [(group, check) for group, checks in GROUPS.items() for check in checks]
    known = {*GROUPS, *(check.id for _, check in every)}
    if unknown := sorted((only | skip) - known):
        raise UsageError(f"no check or group {unknown[0]!r}: `rft doctor --list` shows their names")
    return [
        (group, check)
        for group, check in every
        if (not only or {group, check.id} & only) and not {group, check.id} & skip
    ]


def examine(
    setup: Setup,
    chosen: Sequence[tuple[str, Check]] | None = None,
    *,
    told: Callable[[Checked], object] = lambda checked: None,
) -> Report:
    """Make the checks, one after another; `told` hears of each as it is made. Never raises for what they find."""
    checked = []
    for group, check in choose() if chosen is None else chosen:
        began = time.monotonic()
        one = replace(_made(group, check, setup), took_s=time.monotonic() - began)
        told(one)
        checked.append(one)
    return Report(tuple(checked))


def _made(group: str, check: Check, setup: Setup) -> Checked:
    try:
        if lacking := list(_lacking(check, setup)):
            why = "; ".join(dict.fromkeys(map(str, lacking)))
            how = " ".join(dict.fromkeys(one.how for one in lacking))
            return Checked(check, group, Result.SKIPPED, why, how)
        answer = check.run(setup)
    except Skipped as skipped:
        return Checked(check, group, Result.SKIPPED, str(skipped), skipped.how)
    except DoesNotApply as error:
        answer = f"does not apply: {error}"
    except CredentialsError as error:
        return Checked(check, group, Result.SKIPPED, str(error), CREDENTIALS_HOW)
    except CloudError as error:
        return _refused(group, check, error)
    except UsageError as error:
        answer = problem(str(error), "Put it right, and run it again.")
    except Exception as error:  # a check of its own must not hide what the others find
        logger.debug("check=<%s> | it failed itself", check.id, exc_info=True)
        answer = Finding(
            "check-failed",
            Severity.ERROR,
            check.id,
            f"the check itself failed: {type(error).__name__}: {error}"[:500],
            f"Leave it out with --skip {check.id}, and see to the thing yourself; "
            "`rft -v doctor` shows where it failed.",
        )
    return _judged(group, check, answer)


def _lacking(check: Check, setup: Setup) -> Iterator[Skipped]:
    """Yield everything that a check needs and that is not there, so that it is told at once."""
    for name in check.needs:
        try:
            NEEDS[name].check(setup)
        except Skipped as skipped:
            yield skipped


def _refused(group: str, check: Check, error: CloudError) -> Checked:
    """Tell of a call that AWS refused: one that the caller may not make leaves the thing unknown."""
    if denied(error):
        fix = "Allow the caller to make this call, or look at it yourself."
        return _judged(group, check, warning(f"it may not be looked at: {error}", fix))
    if error.is_transient or error.code is None:
        how = (
            "See the checks proxies, ca-bundle and aws-region, and the network; then run it again."
        )
        return Checked(check, group, Result.SKIPPED, f"AWS did not answer: {error}", how)
    return _judged(
        group, check, problem(str(error), "Name one that exists, in this account and region.")
    )


def _judged(group: str, check: Check, answer: Answer) -> Checked:
    if isinstance(answer, str):
        return Checked(check, group, Result.OK, answer)
    given = [answer] if isinstance(answer, Finding) else list(answer)
    findings = sorted(
        (replace(one, id=one.id or check.id) for one in given),
        key=lambda one: _ORDER.index(one.severity),
    )
    if not findings:
        return Checked(check, group, Result.OK, "nothing found against it")
    worst = findings[0]
    result = _RESULTS.get(worst.severity, Result.OK)
    fix = "" if result is Result.OK else worst.fix
    return Checked(check, group, result, worst.message, fix, tuple(findings))


def _as_json(one: Checked) -> JSON:
    return {
        "id": one.check.id,
        "group": one.group,
        "title": one.check.title,
        "result": one.result.value,
        "found": one.found,
        "fix": one.fix,
        "took_s": round(one.took_s, 3),
        "findings": [
            {
                "id": finding.id,
                "severity": finding.severity.value,
                "where": finding.where,
                "message": finding.message,
                "fix": finding.fix,
            }
            for finding in one.findings
        ],
    }
