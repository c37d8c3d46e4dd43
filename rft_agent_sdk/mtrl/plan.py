"""What a job will play: steps, rollouts and the least time they take. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.mtrl.findings import Finding, Severity

STARTS_PER_S = 5
"""Rollouts that the service starts a second; no hyperparameter changes it."""
RECOMMENDED_BATCHES = 10
"""Batches of rows that the service's documentation recommends for a dataset."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job plays, without retries."""

    rows: int
    batch_size: int
    """Prompts of one step."""
    group_size: int
    """Rollouts of one prompt."""
    max_steps: int
    epochs: int
    steps: int
    """min(max_steps, epochs * rows / batch_size), whole steps."""
    validation_rows: int
    validations: int
    """Before the first step, every `val_every` steps, and after the last one."""

    @property
    def steps_per_epoch(self) -> float:
        """Steps that play every row once; with a fraction where the last batch is not full."""
        return self.rows / self.batch_size

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts of one step."""
        return self.batch_size * self.group_size

    @property
    def training_rollouts(self) -> int:
        """Rollouts of all steps."""
        return self.steps * self.rollouts_per_step

    @property
    def validation_rollouts(self) -> int:
        """Rollouts of all validations, one for each row of each."""
        return self.validations * self.validation_rows

    @property
    def rollouts(self) -> int:
        """All of them."""
        return self.training_rollouts + self.validation_rollouts

    @property
    def least_s(self) -> float:
        """Seconds that it takes merely to start them all."""
        return self.rollouts / STARTS_PER_S

    def lines(self) -> list[str]:
        """Return the arithmetic, line by line, for people."""
        per_step_s = self.rollouts_per_step / STARTS_PER_S
        epochs_steps = f"{self.epochs} epochs x {self.rows} rows / {self.batch_size}"
        return [
            f"rows: {self.rows}, {self.batch_size} a step: {self.steps_per_epoch:g} steps an epoch",
            f"steps: min(max_steps {self.max_steps}, {epochs_steps}) = {self.steps}",
            f"rollouts a step: {self.batch_size} prompts x group of {self.group_size} = {self.rollouts_per_step:,}, "
            f"at least {per_step_s:.0f} s to start at {STARTS_PER_S} a second",
            f"validations: {self.validations} of {self.validation_rows} rows = {self.validation_rollouts:,} rollouts",
            f"in all: {self.training_rollouts:,} + {self.validation_rollouts:,} = {self.rollouts:,} rollouts, "
            f"at least {hours(self.least_s)}",
        ]


def make_plan(
    rows: int, hyperparameters: Mapping[str, Any], *, validation_rows: int = 0
) -> JobPlan:
    """Work out what a job plays.

    Args:
        rows: Of the training dataset.
        hyperparameters: All that the job will have, see `hyperparameters.effective`.
        validation_rows: Of the validation dataset; 0 for none.
    """
    batch, epochs = hyperparameters["global_batch_size"], hyperparameters["max_epochs"]
    steps = min(hyperparameters["max_steps"], epochs * rows // batch)
    every = hyperparameters["val_every"]
    validated = {0, steps, *(range(every, steps + 1, every) if every else ())}
    return JobPlan(
        rows=rows,
        batch_size=batch,
        group_size=hyperparameters["group_size"],
        max_steps=hyperparameters["max_steps"],
        epochs=epochs,
        steps=steps,
        validation_rows=validation_rows,
        validations=len(validated) if validation_rows and steps else 0,
    )


def check_plan(plan: JobPlan) -> Iterator[Finding]:
    """Yield what is wrong, or wasteful, in what a job would play."""
    yield from check_rows(plan.rows, plan.batch_size)
    if not plan.validation_rows:
        yield Finding(
            "no-validation",
            Severity.WARNING,
            "validation_dataset",
            "there is none, and what the job's val/ metrics then measure is not documented",
            "Give rows that are not trained on: they are played before the first step, every val_every steps, "
            "and at the end.",
        )


def check_rows(rows: int, batch_size: int) -> Iterator[Finding]:
    """Yield what is wrong, or wasteful, in the number of rows.

    Args:
        rows: Of the training dataset.
        batch_size: Prompts of one step.
    """
    if rows < batch_size:
        yield Finding(
            "rows-below-batch",
            Severity.ERROR,
            "dataset",
            f"wanted at least one batch of {batch_size} rows, got {rows}",
            "Add rows, or take a smaller global_batch_size.",
        )
    elif rows < RECOMMENDED_BATCHES * batch_size:
        yield Finding(
            "rows-few",
            Severity.WARNING,
            "dataset",
            f"{rows} rows are {rows / batch_size:.1f} batches; {RECOMMENDED_BATCHES} or more are recommended",
            "Add rows if there are any: the same tasks come again in every epoch.",
        )
    if rows > batch_size and rows % batch_size:
        yield Finding(
            "rows-left-over",
            Severity.NOTE,
            "dataset",
            f"{rows % batch_size} of {rows} rows do not fill a last batch; what becomes of "
            "them is not documented",
            f"Take a multiple of {batch_size} rows to know what is played.",
        )


def check_length(
    hyperparameters: Mapping[str, Any],
    *,
    max_turns: int,
    turn_tokens: int,
    prompt_tokens: int,
    max_sequence_length: int,
) -> Iterator[Finding]:
    """Yield a warning where a long conversation would not fit.

    Args:
        hyperparameters: All that the job will have.
        max_turns: Most model calls of a rollout; the agent limits them.
        turn_tokens: Tokens that the tools add after each call.
        prompt_tokens: Tokens of the system message and the prompt.
        max_sequence_length: Tokens that the model's recipe allows a conversation.
    """
    reply = hyperparameters["sampling_max_tokens"]
    needed = max_turns * (reply + turn_tokens) + prompt_tokens
    if needed > max_sequence_length:
        yield Finding(
            "sequence-length",
            Severity.WARNING,
            "sampling_max_tokens",
            f"{max_turns} turns x ({reply} + {turn_tokens}) + {prompt_tokens} tokens = {needed:,}, above the "
            f"{max_sequence_length:,} of a conversation",
            "Lower sampling_max_tokens or the agent's turns, unless replies are never that long.",
        )


def hours(seconds: float) -> str:
    """Return a duration in words that suit its size."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
