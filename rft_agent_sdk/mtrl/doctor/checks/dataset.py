"""The rows: whether every one is a task, whether they fill a batch, and whether the splits are apart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rft_agent_sdk.environment import Environment
from rft_agent_sdk.errors import RftError, UsageError
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.setup import Dataset, Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.plan import check_plan, make_plan

_SHOWN = 5
_TASKS_S = 20.0
_LONGEST = 1_000_000
"""Characters of a prompt from which something is probably wrong with the column."""


def dataset_rows(setup: Setup) -> Answer:
    """See that every row has a prompt that the service sends: one string, in the column `prompt`."""
    findings: list[Finding] = []
    told = []
    for dataset in _datasets(setup):
        findings += dataset.findings
        if not dataset.prompts:
            findings.append(
                problem(
                    "it has no row that a job can take",
                    "Make some: rft dataset --help.",
                    dataset.name,
                )
            )
        blank = [
            (place, "the prompt is empty")
            for place, prompt in dataset.prompts
            if not prompt.strip()
        ]
        if blank:
            findings.append(_told_rows(blank, "have an empty prompt"))
        told.append(f"{dataset.name}: {len(dataset.prompts)} rows")
    return findings or "; ".join(told)


def dataset_tasks(setup: Setup) -> Answer:
    """See that the environment can read every row's prompt as it is stored, which is all that an agent gets."""
    environment = _environment(setup)
    until = time.monotonic() + _TASKS_S
    findings: list[Finding] = []
    count = 0
    for dataset in _datasets(setup):
        bad = []
        for place, prompt in dataset.prompts:
            if time.monotonic() > until:
                break
            count += 1
            try:
                environment.start(prompt)
            except UsageError as error:
                bad.append((place, str(error)))
            except Exception as error:  # noqa: BLE001 - the environment's own code
                bad.append((place, f"the environment raised {type(error).__name__}: {error}"))
        if bad:
            findings.append(_told_rows(bad, f"are no task of environment {environment.name!r}"))
    return findings or f"{count} prompts are tasks of environment {environment.name!r}"


def dataset_size(setup: Setup) -> Answer:
    """See that the rows fill a batch, and that the epochs suffice for the steps."""
    rows = len(setup.dataset.prompts) if setup.dataset else setup.launch.rows
    if not rows and setup.dataset is None:
        raise Skipped("nobody said how many rows there are", "Give --dataset FILE, or --rows.")
    if not setup.settings.is_sound:
        raise Skipped("the hyperparameters are not sound", "See the check hyperparameters.")
    validation = len(setup.validation.prompts) if setup.validation else 0
    plan = make_plan(rows, setup.settings.values, validation_rows=validation)
    findings = [one for one in check_plan(plan) if one.id != "no-validation"]
    if 0 < plan.steps < plan.max_steps:
        findings.append(
            warning(
                f"the job ends after {plan.steps} of max_steps {plan.max_steps} steps: {plan.rows} rows are "
                f"{plan.steps_per_epoch:g} steps an epoch, and max_epochs is {plan.epochs}",
                f"Raise max_epochs to {-(-plan.max_steps * plan.batch_size // plan.rows)}, or lower max_steps.",
                "dataset",
            )
        )
    return findings or f"{plan.rows} rows, {plan.batch_size} a step: {plan.steps} steps"


def dataset_overlap(setup: Setup) -> Answer:
    """See that no task is trained on and validated with, in whatever case it is written."""
    first, second = setup.dataset, setup.validation
    assert first is not None  # their needs were seen to
    assert second is not None
    key = _key_of(_environment(setup))
    trained = {key(prompt): place for place, prompt in first.prompts}
    shared = [
        (place, f"the same task as {trained[key(prompt)]}")
        for place, prompt in second.prompts
        if key(prompt) in trained
    ]
    if shared:
        return _told_rows(
            shared,
            "are trained on too, so that validation measures what was learned by heart",
            "Take them out of one of the files; rft dataset check TRAIN VALIDATION lists them all.",
        )
    return f"none of {len(second.prompts)} validation tasks is trained on"


def dataset_repeats(setup: Setup) -> Answer:
    """Tell of rows that repeat a task: each of them is played a group of times in every epoch."""
    dataset = setup.dataset
    assert dataset is not None  # its need was seen to
    key = _key_of(_environment(setup))
    counts = Counter(key(prompt) for _, prompt in dataset.prompts)
    repeated = len(dataset.prompts) - len(counts)
    if repeated > len(dataset.prompts) // 2:
        return warning(
            f"{repeated} of {len(dataset.prompts)} rows repeat the task of an earlier one",
            "Leave repeats out: an epoch plays every row, and group_size is what plays one task many times.",
            dataset.name,
        )
    return f"{repeated} of {len(dataset.prompts)} rows repeat the task of an earlier one"


CHECKS = (
    Check(
        "dataset-rows",
        "Every row has a prompt, one string that the service sends as it is",
        dataset_rows,
        ("dataset",),
    ),
    Check(
        "dataset-tasks",
        "Every prompt is a task that the environment reads",
        dataset_tasks,
        ("dataset",),
    ),
    Check(
        "dataset-size",
        "The rows fill a batch, and the epochs suffice for the steps",
        dataset_size,
    ),
    Check(
        "dataset-repeats",
        "Most rows are distinct tasks",
        dataset_repeats,
        ("dataset",),
        matters=False,
    ),
    Check(
        "dataset-overlap",
        "No task is in both files, in whatever case",
        dataset_overlap,
        ("dataset", "validation"),
        matters=False,
    ),
)


def _datasets(setup: Setup) -> list[Dataset]:
    return [one for one in (setup.dataset, setup.validation) if one is not None]


def _environment(setup: Setup) -> Environment:
    try:
        return setup.loaded_environment()
    except RftError as error:
        raise Skipped("the environment does not load", "See the check environment.") from error


def _key_of(environment: Environment) -> Callable[[str], object]:
    """Return what makes two tasks the same; what the environment cannot read is told by another check."""
    own: Callable[[str], object] = getattr(environment, "task_key", str.casefold)

    def key(prompt: str) -> object:
        try:
            found = own(prompt)
        except RftError:
            return prompt.casefold()
        return found.casefold() if isinstance(found, str) else found

    return key


def _told_rows(
    rows: Sequence[tuple[str, str]],
    what: str,
    fix: str = "Put these rows right; rft dataset check FILE lists them all.",
) -> Finding:
    """Return one finding for many rows, the first of them by name."""
    shown = rows[:_SHOWN]
    listed = "; ".join(f"{place}: {why}" for place, why in shown)
    more = f"; and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    return problem(f"{len(rows)} rows {what}: {listed}{more}", fix, shown[0][0])
