"""How a policy is taught: every number of a run, and how they follow from the minutes there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from rft_agent_sdk.errors import UsageError

FULL_MINUTES = 30.0
"""What the default numbers were chosen for, on two cores that do nothing else."""
_QUICK: Mapping[str, Any] = {
    "minutes": 1.0,
    "held_out": 12,
    "hidden": 64,
    "layers": 2,
    "inner": 128,
    "games": 32,
    "imitation_passes": 8.0,
    "imitation_tokens": 1024,
    "steps": 2,
    "step_tasks": 4,
    "group": 4,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every number of a run. The same recipe gives the same run."""

    environment: str = "environments.wordle:compact"
    seed: int = 0
    minutes: float = FULL_MINUTES
    """What the numbers below were scaled to."""
    threads: int = 1
    """Of torch, where it trains: the gateway and the agent need the other core."""
    concurrency: int = 64
    """Rollouts at one time."""
    held_out: int = 200
    """Tasks that are never trained on, and as many that are, to evaluate on."""

    hidden: int = 160
    layers: int = 4
    heads: int = 4
    inner: int = 480

    teacher: str = "teacher"
    """The environment's policy that is imitated first."""
    games: int = 8000
    """Games of the teacher that are captured."""
    answer_share: float = 0.5
    """Share of training secrets that are from the list of likely answers."""
    prior_shares: tuple[float, ...] = (0.7, 0.1, 0.1, 0.1)
    """Shares of the teacher's games that begin after 0, 1, 2 ... guesses."""
    imitation_passes: float = 3.0
    """Times that each captured game is trained on; more of them leave GRPO less room."""
    imitation_tokens: int = 2000
    """Tokens of one step of imitation."""
    imitation_rate: float = 2e-3
    """Highest learning rate of imitation; it falls to almost nothing along a cosine."""
    imitation_decay: float = 0.05
    imitation_dtype: str = "bfloat16"

    steps: int = 36
    """Steps of GRPO."""
    step_tasks: int = 16
    """Secrets of one step."""
    group: int = 8
    """Rollouts of each."""
    rate: float = 5e-5
    """Learning rate of GRPO, after its warm-up. Four times as much has wrecked what imitation gave within 30 steps."""
    warmup_steps: int = 10
    kl_coef: float = 0.05
    """Factor of the divergence from what imitation gave, which keeps the words that are no secret here."""
    advantage: str = "grpo"
    """How rollouts are compared; `group_based_per_turn` wants an environment that tells its reward by turn."""
    grpo_answer_share: float = 0.5
    grpo_prior_shares: tuple[float, ...] = (1.0,)
    save_every: int = 10
    """Steps between checkpoints, of imitation ten times as many."""

    @classmethod
    def of(cls, *, quick: bool = False, **given: Any) -> Self:
        """Return a recipe: the defaults, scaled to the minutes, and what was given in their place.

        Raises:
            UsageError: Minutes that are none, or a key that is no number of a recipe.
        """
        given = {name: value for name, value in given.items() if value is not None}
        known = {field.name for field in fields(cls)}
        if unknown := given.keys() - known:
            raise UsageError(f"a recipe has no {sorted(unknown)}: it has {sorted(known)}")
        base = replace(cls(), **_QUICK) if quick else cls()
        minutes = given.get("minutes", base.minutes)
        if not _is_number(minutes) or not minutes > 0:
            raise UsageError(f"minutes must be a number above 0, got {minutes!r}")
        if not quick:
            factor = minutes / FULL_MINUTES
            base = replace(
                base,
                games=max(32, round(base.games * min(1.0, factor))),
                imitation_passes=base.imitation_passes * max(1.0, factor),
                steps=max(1, round(base.steps * factor)),
            )
        recipe = replace(base, **given)
        usual = cls()
        for name in known:
            _check(name, getattr(usual, name), getattr(recipe, name))
        return recipe

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return what `to_json` told."""
        found: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in value.items()
        }
        return cls(**found)


_MAY_BE_ZERO = frozenset({"seed", "warmup_steps", "kl_coef", "imitation_decay"})
_SHARES = frozenset({"answer_share", "grpo_answer_share"})


def _check(name: str, usual: Any, value: Any) -> None:
    """Refuse a value of another kind than the usual one, or out of its range.

    Raises:
        UsageError: It is.
    """
    if isinstance(usual, tuple):
        wanted = "a list of numbers, none below 0, that add up to more than 0"
        fits = isinstance(value, tuple) and all(_is_number(one) and one >= 0 for one in value)
        fits = fits and sum(value) > 0
    elif isinstance(usual, str):
        wanted, fits = "a text", isinstance(value, str) and bool(value)
    elif name in _SHARES:
        wanted, fits = "a number from 0 to 1", _is_number(value) and 0 <= value <= 1
    else:
        kind = "a whole number" if isinstance(usual, int) else "a number"
        wanted = f"{kind} {'of at least 0' if name in _MAY_BE_ZERO else 'above 0'}"
        fits = _is_number(value) and (value > 0 or (value == 0 and name in _MAY_BE_ZERO))
        fits = fits and (isinstance(value, int) or not isinstance(usual, int))
    if not fits:
        raise UsageError(f"{name} must be {wanted}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
