"""What goes wrong with a run while its curves still look well: named findings from a step's rollouts.

Each has a threshold, is logged when it appears, and again only after it was gone. None changes a run,
unless the run was told to end at it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rft_agent_sdk.training.rollouts import Played
from rft_agent_sdk.types import Outcome

logger = logging.getLogger(__name__)

_WINDOW = 10
"""Steps whose mean is compared with that of as many before."""
REMEMBERED = 2 * _WINDOW
"""Steps that findings are made of."""
_INFRASTRUCTURE = (Outcome.INFRASTRUCTURE_ERROR, Outcome.NO_SAMPLING)


@dataclass(frozen=True, slots=True)
class Limit:
    """A finding that one number of one step makes."""

    name: str
    metric: str
    above: float
    advice: str


LIMITS = (
    Limit(
        "turns_cut_off",
        "health/turns_cut_off",
        0.05,
        "turns end at the token cap: raise max_new_tokens, or ask for less reasoning",
    ),
    Limit(
        "no_answer",
        "health/no_answer",
        0.10,
        "rollouts end without one call of the tools they were offered: look at their texts",
    ),
    Limit(
        "infrastructure",
        "health/infrastructure",
        0.01,
        "rollouts fail for no fault of the policy: look at the gateway, the agent and their network",
    ),
    Limit(
        "tools_never_run",
        "health/tools_never_run",
        0.999,
        "tools are offered and not one call was read: the parser may be another model's",
    ),
)

_UNREAD, _UNSOLVED = "unread_calls_rise", "reward_without_solving"
FINDINGS = (*(limit.name for limit in LIMITS), _UNREAD, _UNSOLVED)
"""Every finding's name."""


def health_metrics(played: Sequence[Played]) -> dict[str, float]:
    """Return the shares that findings are made of; empty without rollouts.

    Rollouts whose turns were captured without counters count as healthy.
    """
    if not played:
        return {}
    counters = [one.trajectory.counters for one in played if one.trajectory.turns]
    offered = [one for one in counters if one.get("tools_offered", 0)]
    turns = sum(one.trajectory.turns for one in played)
    written = sum(one.get("tool_calls_written", 0) for one in counters)
    parsed = sum(one.get("tool_calls_parsed", 0) for one in counters)
    silent = sum(not one.get("tool_calls_written", 0) for one in offered)
    failed = sum(one.trajectory.outcome in _INFRASTRUCTURE for one in played)
    return {
        "health/turns_cut_off": _share(sum(one.get("truncated", 0) for one in counters), turns),
        "health/no_answer": _share(silent, len(offered)),
        "health/infrastructure": _share(failed, len(played)),
        "health/tools_never_run": float(bool(offered) and not parsed),
        "health/unread_calls": _share(written - parsed, written),
    }


class Health:
    """Watches a run's metrics, step by step."""

    def __init__(self, tell: Callable[[str, str], None] | None = None) -> None:
        """Watch from now on.

        Args:
            tell: Takes a finding's name and what to do; `None` logs a warning.
        """
        self._tell = tell or _log
        self._history: deque[Mapping[str, float]] = deque(maxlen=REMEMBERED)
        self._present: dict[str, str] = {}

    @property
    def present(self) -> Mapping[str, str]:
        """What the last step's metrics made: by a finding's name, what to do."""
        return self._present

    def watch(self, metrics: Mapping[str, float]) -> frozenset[str]:
        """Take a step's metrics; tell what is new, and return the names of all that is found."""
        self._history.append(metrics)
        found = {
            limit.name: f"{metrics[limit.metric]:.1%}: {limit.advice}"
            for limit in LIMITS
            if metrics.get(limit.metric, 0.0) > limit.above
        }
        if (unread := self._rise("health/unread_calls")) > 0.02:
            found[_UNREAD] = (
                f"by {unread:.1%}: the policy more and more writes calls that nobody can read"
            )
        solved = self._rise("sampler/solve_rate")
        if self._rise("sampler/mean_reward") > 0.1 and solved < 0.01:
            found[_UNSOLVED] = (
                "the reward rises and the solve rate does not: the policy may learn the reward's shape "
                "and not the task"
            )
        for name in sorted(found.keys() - self._present.keys()):
            self._tell(name, found[name])
        self._present = found
        return frozenset(found)

    def recall(self, steps: Iterable[Mapping[str, float | None]]) -> None:
        """Take up the steps of a run that goes on; what they make was told already."""
        tell, self._tell = self._tell, lambda name, text: None
        for step in steps:
            self.watch({name: value for name, value in step.items() if value is not None})
        self._tell = tell

    def _rise(self, name: str) -> float:
        """Return by how much the mean of the window is above that of the one before; 0 until there are two."""
        values = [step[name] for step in self._history if name in step]
        if len(values) < 2 * _WINDOW:
            return 0.0
        return math.fsum(values[_WINDOW:]) / _WINDOW - math.fsum(values[:_WINDOW]) / _WINDOW


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _log(name: str, text: str) -> None:
    logger.warning("finding=<%s> | %s", name, text)
