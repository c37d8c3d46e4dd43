"""`rft doctor`: is it safe to launch a managed job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.mtrl._launch_data import read_data
from rft_agent_sdk.cli.mtrl._launch_options import read_launch, spec_options
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.doctor.check import Checked
    from rft_agent_sdk.mtrl.doctor.run import Report
    from rft_agent_sdk.mtrl.doctor.setup import Dataset, Setup

_MARKS = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}
_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor", short_help="Tell whether it is safe to launch a managed job.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The launch, as `rft mtrl launch` takes it: YAML of keys as below; options win.",
)
@spec_options
@click.option(
    "--project",
    "root",
    default=".",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Root of the project, which holds agentcore/.",
)
@click.option("--environment", help="Whose tasks are played.  [default: the project's]")
@click.option(
    "--payload",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Payload of the smoke test.  [default: payload.json of the project]",
)
@click.option("--invoke", is_flag=True, help="Invoke the deployed agent, twice.")
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="URL",
    help="AWS_ENDPOINT_URL* may name this, as a stand-in's; repeatable.",
)
@click.option("--url", help="Ask an agent that is served on this machine, too.")
@click.option(
    "--only", multiple=True, metavar="ID", help="Make this check or group only; repeatable."
)
@click.option(
    "--skip", multiple=True, metavar="ID", help="Leave this check or group out; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--list", "is_list", is_flag=True, help="Print the table of checks, and make none.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Tell whether it is safe to launch a managed job, and what to do where it is not.

    Without options it looks at this machine and this project; with credentials and the names of a launch, at the
    account, the roles, the runtime and the job too. Nothing is changed. Exit code 0: safe. 1: not safe, or not
    known to be: a check that matters was skipped; --skip leaves it out. 2: wrong options.
    """
    from rft_agent_sdk.mtrl.doctor.run import choose, examine

    if options["is_list"]:
        click.echo(_table())
        return
    chosen = choose(options["only"], options["skip"])
    setup = _setup(options, {group for group, _ in chosen})
    if options["as_json"]:
        report = examine(setup, chosen)
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        groups: set[str] = set()
        report = examine(setup, chosen, told=lambda checked: _show(checked, groups))
        click.echo(_skipped(report), nl=bool(_skipped(report)))
        click.echo(f"\n{_verdict(report)}")
    if not report.is_safe:
        context.exit(1)


def _setup(options: dict[str, Any], groups: set[str]) -> Setup:
    """Read what is to be examined.

    Raises:
        UsageError: An option cannot be read.
    """
    from rft_agent_sdk.mtrl.doctor.setup import Setup
    from rft_agent_sdk.mtrl.launch_spec import LaunchSpec

    if not options["root"].is_dir():
        raise UsageError(f"--project: there is no folder {str(options['root'])!r}")
    given = {name: options[name] for name in LaunchSpec.model_fields}
    launch = read_launch(options["config"], given)
    has_rows = "dataset" in groups
    return Setup(
        root=options["root"],
        launch=launch,
        is_whole=options["config"] is not None,
        dataset=_rows("dataset", launch.dataset) if has_rows else None,
        validation=_rows("validation_dataset", launch.validation_dataset) if has_rows else None,
        environment=options["environment"],
        payload=options["payload"],
        url=options["url"],
        endpoints=frozenset(url.rstrip("/") for url in options["endpoints"]),
        invoke=options["invoke"],
    )


def _rows(key: str, given: str) -> Dataset | None:
    """Read a file of rows; what lies in S3 or has an ARN is not read here."""
    from rft_agent_sdk.mtrl.doctor.setup import Dataset

    data, rows = read_data(key, given, "", None)
    if data is None or data.uri.startswith("arn:") or given.startswith("s3://"):
        return None
    return Dataset(given, [(row.source, row.payload["prompt"]) for row in rows], data.findings)


def _show(checked: Checked, groups: set[str]) -> None:
    """Print a check as it is made; the skipped ones come together at the end."""
    if checked.result == "skipped":
        return
    if checked.group not in groups:
        groups.add(checked.group)
        click.secho(f"\n{checked.group}", bold=True)
    result = checked.result.value
    mark = click.style(_MARKS[result], fg=_COLOURS[result])
    click.echo(
        f"  {mark} {checked.check.id}: {_indented(checked.found if not checked.findings else '')}".rstrip(
            ": "
        )
    )
    for finding in checked.findings:
        place = f"{finding.where}: " if finding.where else ""
        click.echo(f"            {_indented(place + finding.message)}")
        click.echo(f"            fix: {_indented(finding.fix)}")


def _skipped(report: Report) -> str:
    """Return what was skipped, together where the same is lacking."""
    from rft_agent_sdk.mtrl.doctor.check import Result

    alike: dict[tuple[str, str], list[str]] = {}
    for one in report.of(Result.SKIPPED):
        alike.setdefault((one.found, one.fix), []).append(one.check.id)
    lines = [
        f"  {', '.join(ids)}\n            {_indented(why)}\n            to make them: {_indented(how)}"
        for (why, how), ids in alike.items()
    ]
    return "\n".join([click.style("\nskipped", bold=True), *lines]) if lines else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n            ")


def _verdict(report: Report) -> str:
    from rft_agent_sdk.mtrl.doctor.check import Result

    problems, warnings = report.of(Result.PROBLEM), report.of(Result.WARNING)
    skipped = report.of(Result.SKIPPED)
    counted = (
        f"{len(report.of(Result.OK))} ok, {len(warnings)} with a warning, {len(problems)} with a problem, "
        f"{len(skipped)} skipped"
    )
    if problems:
        names = ", ".join(one.check.id for one in problems)
        return click.style("Not safe to launch", fg="red", bold=True) + f": {names}. ({counted})"
    if report.unknown:
        names = ", ".join(one.check.id for one in report.unknown)
        return (
            click.style("Not known to be safe to launch", fg="yellow", bold=True)
            + f": nothing was found against it, but these were skipped: {names}. ({counted})"
        )
    return (
        click.style("Safe to launch", fg="green", bold=True)
        + f", as far as was looked. ({counted})"
    )


def _table() -> str:
    """Return the table of checks, in Markdown."""
    from rft_agent_sdk.mtrl.doctor.checks import GROUPS
    from rft_agent_sdk.mtrl.doctor.needs import NEEDS

    lines = ["| group | id | what holds where all is well | needs |", "|---|---|---|---|"]
    for group, checks in GROUPS.items():
        for check in checks:
            needs = ", ".join(dict.fromkeys(NEEDS[name].text for name in check.needs)) or "-"
            lines.append(f"| {group} | `{check.id}` | {check.title} | {needs} |")
    return "\n".join(lines)
