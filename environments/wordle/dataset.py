"""Dataset rows: made from the answer list, checked, and compared between splits. No files here."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from environments.wordle.game import GUESSES, Game
from environments.wordle.task import Task, parse_task
from environments.wordle.text import DEFAULT_PROMPT
from environments.wordle.words import answer_index, answers
from rft_agent_sdk.errors import TaskError, UsageError

COLUMN = "prompt"
"""The one column a row needs: the training service forwards it, and nothing else, to the agent."""
TRAIN_ROWS = 640
VALIDATION_ROWS = 128

_TRAIN_SHARE = 0.8


def make_rows(
    split: str,
    count: int,
    seed: int = 0,
    *,
    prior_guesses: tuple[int, int] = (0, 0),
    prompt: str = DEFAULT_PROMPT,
) -> list[dict[str, str]]:
    """Return rows with distinct answers; the same arguments give the same rows.

    With one seed the two splits share no answer, whatever the counts: each draws from its own part of
    the shuffled answer list.

    Args:
        split: Which part to draw from: `train` or `validation`.
        count: Number of rows; four fifths of the answer list are for training, the rest for validation.
        seed: Shuffles the list, and draws the prior guesses.
        prior_guesses: Fewest and most guesses played before the policy's first turn, drawn anew for
            each row; a curriculum starts with many and ends with none.
        prompt: The instruction, the same in every row.

    Raises:
        UsageError: More rows than the split has answers, or a range of guesses that no game has.
    """
    fewest, most = prior_guesses
    if not 0 <= fewest <= most < GUESSES:
        raise UsageError(
            f"prior_guesses must be two numbers from 0 to {GUESSES - 1}, the smaller first, "
            f"got {prior_guesses!r}"
        )
    words = _answers_of(split, seed)
    if not 0 <= count <= len(words):
        raise UsageError(f"the {split} split has {len(words)} answers, got count {count!r}")
    draw = random.Random(f"{split} {seed}")  # noqa: S311 - must be reproducible
    rows = []
    for number, answer in enumerate(words[:count]):
        guesses = draw_guesses(answer, draw.randint(fewest, most), draw)
        task = Task(answer, prompt, f"wordle_{split}_{number:04d}", guesses)
        rows.append({COLUMN: task.dump()})
    return rows


def check_rows(rows: Iterable[object]) -> list[str]:
    """Return what is wrong with a dataset, one sentence for each bad row; empty for a good one.

    Rows are named by position, from 0, and by their `id` column where they have one; answers are not
    told, so that the list can go into a log.
    """
    problems = []
    for number, row in enumerate(rows):
        try:
            _task_of(row)
        except TaskError as error:
            name = f" ({row['id']!r})" if isinstance(row, Mapping) and "id" in row else ""
            problems.append(f"row {number}{name}: {error}")
    return problems


def shared_answers(rows: Iterable[object], others: Iterable[object]) -> set[str]:
    """Return the answers, lower case, that two splits have in common, however they are written.

    Raises:
        TaskError: A row that is no task; `check_rows` tells which.
    """
    return {_task_of(row).answer for row in rows} & {_task_of(row).answer for row in others}


def _task_of(row: object) -> Task:
    if not isinstance(row, Mapping) or COLUMN not in row:
        raise TaskError(f"a row must be an object with the column {COLUMN!r}")
    return parse_task(row[COLUMN])


def _answers_of(split: str, seed: int) -> Sequence[str]:
    words = list(answers())
    random.Random(seed).shuffle(words)  # noqa: S311 - must be reproducible
    cut = int(len(words) * _TRAIN_SHARE)
    parts = {"train": words[:cut], "validation": words[cut:]}
    if split not in parts:
        raise UsageError(f"split must be 'train' or 'validation', got {split!r}")
    return parts[split]


def draw_guesses(answer: str, count: int, draw: random.Random) -> tuple[str, ...]:
    """Draw guesses as a sound player makes them: words still possible, but for the answer itself."""
    game = Game(answer)
    for _ in range(count):
        possible = [
            word for word in answer_index().members(game.knowledge.candidates) if word != answer
        ]
        fresh = possible or [
            word for word in answers() if word != answer and not game.has_played(word)
        ]
        game.play(draw.choice(fresh), is_prior=True)
    return tuple(guess.word for guess in game.guesses)
