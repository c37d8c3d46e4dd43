"""Which tasks a run learns from, and which it never sees before it is asked for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.environment import Environment, load_environment
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class Tasks:
    """The split, as task strings."""

    held_out: list[str]
    """To evaluate on; none of their secrets is in any other list."""
    seen: list[str]
    """To evaluate on: as many of those that are trained on, from the same list of secrets."""
    lessons: list[str]
    """What the teacher plays."""
    played: list[str]
    """What GRPO plays, a step's after the other's."""

    def write(self, path: Path) -> None:
        """Write them down."""
        found = {name: getattr(self, name) for name in self.__slots__}
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(found), "utf-8")
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Tasks:
        """Return what `write` wrote."""
        return cls(**json.loads(path.read_text("utf-8")))


def split(recipe: Recipe) -> Tasks:
    """Return the tasks of a run. The held-out ones depend on the seed, too.

    Raises:
        UsageError: A held-out secret among those of training.
    """
    environment = load_environment(recipe.environment)
    held_out = environment.tasks("validation", recipe.held_out, recipe.seed)
    seen = environment.tasks("train", recipe.held_out, recipe.seed)
    lessons = _lessons(
        environment, recipe.games, recipe.seed, held_out, recipe.answer_share, recipe.prior_shares
    )
    count = recipe.steps * recipe.step_tasks
    played = _lessons(
        environment,
        count,
        recipe.seed + 1_000_003,
        held_out,
        recipe.grpo_answer_share,
        recipe.grpo_prior_shares,
    )
    found = Tasks(held_out, seen, lessons, played)
    check_apart(environment, found)
    return found


def check_apart(environment: Environment, tasks: Tasks) -> None:
    """Make sure that no held-out secret is one of training.

    Raises:
        UsageError: One is; it is not told which.
    """
    key = getattr(environment, "task_key", str)
    held_out = {key(task) for task in tasks.held_out}
    trained = {key(task) for task in (*tasks.seen, *tasks.lessons, *tasks.played)}
    if len(held_out) < len(tasks.held_out) or held_out & trained:
        raise UsageError(
            f"the split is unsound: {len(tasks.held_out)} held-out tasks have {len(held_out)} secrets, of which "
            f"{len(held_out & trained)} are trained on"
        )


def rows(tasks: list[str]) -> list[JSON]:
    """Return what an agent is sent for each task."""
    return [{"prompt": task} for task in tasks]


def _lessons(
    environment: Environment,
    count: int,
    seed: int,
    held_out: list[str],
    answer_share: float,
    prior_shares: tuple[float, ...],
) -> list[str]:
    """Return as many tasks as wanted; an environment without lessons of its own repeats its training tasks."""
    make = getattr(environment, "lessons", None)
    if make is None:
        tasks = environment.tasks("train", max(1, len(held_out)), seed)
        return [tasks[number % len(tasks)] for number in range(count)]
    found: list[str] = make(
        count, seed, held_out, answer_share=answer_share, prior_shares=prior_shares
    )
    return found
