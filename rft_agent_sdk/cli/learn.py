"""`rft learn`: a small policy learns an environment on this machine."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from rft_agent_sdk.cli import composing
from rft_agent_sdk.errors import UsageError


@click.command("learn", short_help="Watch a small policy learn, with no GPU and no download.")
@click.option("--environment", help="What is learnt.  [default: environments.wordle:compact]")
@click.option("--seed", type=click.IntRange(0), help="Of everything.  [default: 0]")
@click.option("--minutes", type=float, help="What the stages are scaled to.  [default: 30]")
@click.option(
    "--games", type=click.IntRange(1), help="Games of the teacher.  [default: by minutes]"
)
@click.option("--steps", type=click.IntRange(1), help="Steps of GRPO.  [default: by minutes]")
@click.option("--threads", type=click.IntRange(1), help="Of torch.  [default: 1]")
@click.option(
    "--set", "numbers", multiple=True, metavar="KEY=VALUE", help="Any number of the recipe."
)
@click.option(
    "--quick", is_flag=True, help="All stages in a minute or two; next to nothing is learnt."
)
@click.option("--run-dir", type=click.Path(path_type=Path), help="[default: one under runs/]")
@click.option("--resume", is_flag=True, help="Go on with the run in --run-dir.")
@click.option(
    "--pool",
    multiple=True,
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="Learn nothing: tell what these runs, each of its own seed, came to together.",
)
def command(
    numbers: tuple[str, ...],
    quick: bool,
    run_dir: Path | None,
    resume: bool,
    pool: tuple[Path, ...],
    **given: Any,
) -> int:
    """Teach a policy of 1.5 million parameters, from random weights, through the deployed agent's own code.

    A teacher's games are captured and imitated, then GRPO goes on by reward. Words that are never a secret in training
    tell before and after each what was learnt. A run that was stopped, or killed, goes on by --resume.
    """
    from rft_agent_sdk.cli.learning.recipe import Recipe
    from rft_agent_sdk.cli.learning.record import Record
    from rft_agent_sdk.cli.learning.stages import check
    from rft_agent_sdk.training.config import read_override
    from rft_agent_sdk.training.files import locked

    if pool:
        from rft_agent_sdk.cli.learning.report import pooled

        click.echo(pooled([Record.read(folder) for folder in pool]))
        return 0
    chosen = given | {name: _plain(value) for name, value in map(read_override, numbers)}
    if resume and run_dir is None:
        raise UsageError("--resume needs to know which run: name its folder by --run-dir")
    asked = sorted(name for name, value in chosen.items() if value is not None)
    if resume and (asked or quick):
        raise UsageError(
            f"a run that is gone on with keeps its recipe: leave out {', '.join(asked) or 'quick'}"
        )
    composing.check_local()
    if logging.getLogger().level > logging.DEBUG:  # not asked to be verbose: the bars tell enough
        logging.getLogger("rft_agent_sdk").setLevel(logging.WARNING)
    # Threads that spin while they wait would take the cores from the agent. Before torch is loaded, or never.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    folder = run_dir or Path("runs", datetime.now(UTC).strftime("learn-%Y%m%d-%H%M%S"))
    recipe = None if resume else Recipe.of(quick=quick, **chosen)
    if recipe is not None:
        check(recipe)
    with locked(folder):
        record = Record.read(folder) if recipe is None else Record.begin(folder, recipe)
        click.echo(f"run {folder}", err=True)
        return composing.run(_all(record))


async def _all(record: Any) -> None:
    from rft_agent_sdk.cli.learning.report import write_report
    from rft_agent_sdk.cli.learning.stages import learn

    await learn(record)
    click.echo(write_report(record))


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
