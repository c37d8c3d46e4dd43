"""`rft mtrl rehearse`: a whole managed job on this machine, before it costs anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rft_agent_sdk.cli.inputs import ENTRYPOINT
from rft_agent_sdk.errors import UsageError

_STYLES = {"ERROR": "bold red", "WARNING": "bold yellow", "NOTE": "bold cyan", "note:": "dim"}
"""Of the report's lines, by their first words."""
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("rehearse", short_help="Play a whole managed job here: no AWS, nothing spent.")
@click.option(
    "--agent",
    default=ENTRYPOINT,
    show_default=True,
    metavar="FILE.py|MODULE:OBJECT",
    help="The agent to start. A file is run as the runtime runs it.",
)
@click.option("--agent-url", metavar="URL", help="An agent that serves already, instead.")
@click.option(
    "--gateway-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port of the Job Runtime's stand-in, for --agent-url.  [default: a free one]",
)
@click.option(
    "--config",
    type=_FILE,
    help="YAML of `rft mtrl launch`: its files, model, region and hyperparameters; options win.",
)
@click.option("--dataset", type=_FILE, help="Training rows.  [default: the environment's own]")
@click.option("--validation", type=_FILE, help="Validation rows.")
@click.option("--rows", default=0, type=click.IntRange(0), help="Take so many training rows only.")
@click.option(
    "--validation-rows",
    type=click.IntRange(0),
    help="Take so many validation rows only, 0 for none.  [default: 4; all with --full]",
)
@click.option("--environment", default="wordle", show_default=True, help="Whose policies to use.")
@click.option("--policy", help="A policy of the environment, or openai:URL.  [default: solver]")
@click.option(
    "--noise",
    default=0.3,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of turns that a scripted policy plays badly at temperature 1, so that rewards vary.",
)
@click.option("--seed", default=0, show_default=True, help="Of rows and noise.")
@click.option("--steps", type=click.IntRange(1), help="Steps to play.  [default: 2]")
@click.option("--batch", type=click.IntRange(1), help="Prompts per step.  [default: 4]")
@click.option("--group", type=click.IntRange(1), help="Rollouts per prompt.  [default: 4]")
@click.option("--full", is_flag=True, help="The job's own numbers, at the service's pace: hours.")
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    help="Divides the service's waits.  [default: 10; 1 with --full or openai:URL]",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A hyperparameter of the job, such as rollout_timeout=900. Repeatable.",
)
@click.option("--model", help="Name in the hub.  [default: openai-reasoning-gpt-oss-20b]")
@click.option("--region", help="Of the job.  [default: us-west-2]")
@click.option(
    "--prices", "price_file", type=_FILE, help="YAML of prices, as for `rft mtrl launch`."
)
@click.option("--runs", default="runs", show_default=True, help="Folder for the run's record.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Play a managed multi-turn RL job on this machine, as the service would, and tell what it would have said.

    The job is really created, at a local AWS, and really played: by your agent, against the in-repo gateway in the
    Job Runtime's place. Rollouts are started, retried and failed by the service's rules; nothing is trained.

    Exit codes: 0 the job would complete, 1 it would fail, 2 the command was wrong, 3 it would complete and teach
    nothing (every rollout went wrong, or the rewards of a prompt never differ), 4 what was played completed, but the
    report has an ERROR for which the job cannot be launched like this (rows that fill no batch, or are no tasks).
    """
    from rft_agent_sdk.cli.mtrl._rehearsing import rehearse

    as_json = given.pop("as_json")
    report = rehearse(_settings(**given), lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(report)
    if report.comes_to:
        context.exit(report.comes_to.value)


def _settings(
    *,
    config: Path | None,
    assignments: tuple[str, ...],
    full: bool,
    price_file: Path | None,
    runs: str,
    **given: Any,
) -> Any:
    """Return what is asked for: by options, else by a launch's file."""
    from rft_agent_sdk.cli.mtrl._rehearsal_settings import Settings, launch_settings
    from rft_agent_sdk.cli.mtrl._rehearsing import new_run_dir
    from rft_agent_sdk.mtrl.prices import read_prices
    from rft_agent_sdk.training.config_yaml import read_mapping

    told = launch_settings(config) if config is not None else {}
    told |= {name: value for name, value in given.items() if value is not None}
    told["hyperparameters"] = {**told.get("hyperparameters", {}), **_pairs(assignments)}
    prices = read_prices(read_mapping(price_file), str(price_file)) if price_file else None
    return Settings(run_dir=new_run_dir(Path(runs)), is_full=full, prices=prices, **told)


def _pairs(assignments: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set wants NAME=VALUE, got {assignment!r}")
        pairs[name.strip()] = value.strip()
    return pairs


def _show(report: Any) -> None:
    """Print the report, coloured where there is a terminal."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    verdict = "bold red" if report.comes_to else "bold green"
    for number, line in enumerate(report.lines()):
        console.print(line, style=verdict if number == 0 else _STYLES.get(line.partition(" ")[0]))
