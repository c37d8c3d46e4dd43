"""`rft mtrl evaluate`: base and trained models side by side, as the service plays them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.mtrl._evaluating import Asked
from rft_agent_sdk.cli.mtrl._jobs import (
    FAILED,
    TERMINATED,
    TIMED_OUT,
    Terminated,
    heeding_sigterm,
    region_option,
)
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.evaluation import Evaluated
    from rft_agent_sdk.mtrl.series import Cell, Series


_GOES_ON = "the job that was begun goes on; the same command takes it up again"


@click.command("evaluate", short_help="Evaluate base and trained models, one job after the other.")
@region_option
@click.option(
    "--job", "job_name", metavar="NAME", help="A training job to take all from but the dataset."
)
@click.option("--dataset", metavar="S3URI", help="Tasks that nothing was trained on.")
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="[LABEL=]ARN",
    help="A trained model package; again for another.  [default: what the job left, as `trained`]",
)
@click.option("--no-base", is_flag=True, help="Do not evaluate the base model.")
@click.option(
    "--temperature",
    "temperatures",
    multiple=True,
    metavar="T[,T...]",
    help="From 0 to 2; again, or a list, evaluates each model at each.  [default: 0]",
)
@click.option("--group-size", type=int, help="Rollouts of each task, 1 to 128.  [default: 1]")
@click.option(
    "--pass-k", multiple=True, type=int, help="Which pass@k.  [default: as far as the group goes]"
)
@click.option(
    "--success-threshold", type=float, help="The reward that counts as solved.  [default: 1]"
)
@click.option("--top-p", type=float, help="0 to 1.  [default: 1]")
@click.option("--max-tokens", type=int, help="Of one reply, 512 to 8192.  [default: 4096]")
@click.option("--rollout-timeout", type=float, help="Seconds, from 300.  [default: 600]")
@click.option("--rollout-concurrency", type=int, help="32 to 96.  [default: 96]")
@click.option("--rollout-retries", type=int, help="1 to 10.  [default: 3]")
@click.option(
    "--max-runtime", type=int, help="Seconds after which the service ends a job.  [default: a day]"
)
@click.option("--role", metavar="ARN", help="Of the jobs.")
@click.option("--agent", metavar="ARN", help="A runtime, or a function that forwards to an agent.")
@click.option("--base-model", metavar="NAME", help="In the hub, or its ARN.")
@click.option("--output", metavar="S3URI", help="Where the jobs write.")
@click.option("--mlflow-app", metavar="ARN", help="Where they log.")
@click.option("--experiment", help="MLflow experiment.")
@click.option("--kms-key", metavar="ARN", help="For what they write.")
@click.option("--accept-eula", is_flag=True, help="Accept the base model's licence.")
@click.option(
    "--reasoning-effort",
    help="The effort that must be deployed. It sets nothing: the agent takes it from its own environment, so another "
    "one needs a deployment.",
)
@click.option(
    "--across-efforts", is_flag=True, help="Have results of several efforts in one table."
)
@click.option("--run-dir", default="runs/mtrl/evaluation", show_default=True, metavar="DIR")
@click.option("--name", default="eval", show_default=True, help="What the jobs' names begin with.")
@click.option("--retry-failed", is_flag=True, help="Play again what failed or was stopped.")
@click.option(
    "--poll", default=30.0, show_default=True, type=click.FloatRange(0.01), help="Seconds."
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), help="Seconds.  [default: no limit]"
)
@click.option("--no-plot", is_flag=True, help="Draw nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option("--dry-run", is_flag=True, help="Print the jobs' documents; create nothing.")
def command(region: str | None, job_name: str | None, **options: Any) -> int:
    """Evaluate the base model and trained ones, at several temperatures, as evaluation jobs of the service.

    One job after the other: an account runs one at a time unless its quota was raised, and one that is in the way
    is waited for. The series is kept in RUN_DIR/series.json, so that after an interruption the same command, or
    `rft mtrl evaluate --run-dir DIR` alone, goes on where it was. Results are a table, RUN_DIR/results.json,
    and evaluation.png and .svg.

    Reasoning effort is the deployed agent's: each result says which one it was played at. To compare efforts,
    evaluate, deploy the agent with another REASONING_EFFORT, and evaluate again with --across-efforts.

    Exit codes: 0 all are done, 1 some job failed or has no numbers yet, 2 the command was wrong, 4 the time of
    --timeout is up (the same command goes on), 130 or 143 interrupted or
    terminated (likewise).
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.evaluate import deployed_agent, drop_unborn
    from rft_agent_sdk.mtrl.evaluation import check_setting
    from rft_agent_sdk.mtrl.evaluation_results import refuse_mixed_efforts
    from rft_agent_sdk.mtrl.job import describe_job
    from rft_agent_sdk.mtrl.series import open_series

    folder = Path(options["run_dir"])
    with Clients(region) as clients, _held(folder, is_dry=options["dry_run"]):
        job = None if job_name is None else describe_job(clients("sagemaker"), job_name)
        asked = Asked(job, options)
        series = open_series(folder, asked.setting(clients))
        models, temperatures = asked.models(series), asked.temperatures(series)
        check_setting(series.setting, temperatures)
        if job is not None and series.setting.dataset in job.trained_on:
            click.echo("WARNING: the model was trained on these very tasks", err=True)
        if options["dry_run"]:
            return _dry_run(series, models, temperatures, options["name"])
        stated, now = options["reasoning_effort"], datetime.now(UTC)
        effort = deployed_agent(clients, series, stated, now).effort
        cells = series.plan(models, temperatures, effort)
        drop_unborn(clients, series, cells)
        refuse_mixed_efforts(
            (cell.effort for cell in series.cells), is_said=options["across_efforts"]
        )
        # What was begun at another effort needs no deployment to be followed to its end.
        begun = [cell for cell in series.cells if cell.job and not cell.is_over]
        return _run(clients, series, [*(one for one in begun if one not in cells), *cells], options)


@contextmanager
def _held(folder: Path, *, is_dry: bool) -> Iterator[None]:
    """Hold the folder of a series: two processes would pay for each job twice, and lose each other's numbers.

    Raises:
        UsageError: Another process holds it.
    """
    from rft_agent_sdk.training.files import locked

    if is_dry:
        yield
        return
    with locked(folder):
        yield


def _run(clients: Clients, series: Series, cells: list[Cell], options: Mapping[str, Any]) -> int:
    from rft_agent_sdk.mtrl.evaluate import Pace, SeriesTimeout, retry_failed, run_series

    if options["retry_failed"]:
        retry_failed(cells)
    code = 0
    try:
        with heeding_sigterm():
            run_series(
                clients,
                series,
                cells,
                name=options["name"],
                stated_effort=options["reasoning_effort"],
                pace=Pace(options["poll"], options["timeout"]),
                tell=lambda line: click.echo(line, err=True),
            )
    except SeriesTimeout:
        click.echo("the time is up; the same command goes on", err=True)
        code = TIMED_OUT
    except KeyboardInterrupt:
        click.echo(_GOES_ON, err=True)
        raise
    except Terminated:
        click.echo(f"terminated; {_GOES_ON}", err=True)
        return TERMINATED
    _show(series, options)
    undone = [cell for cell in cells if not cell.is_done]
    for cell in undone:
        why = cell.failure or (cell.status or "not begun")
        click.echo(f"no result: {cell.title}: {why}", err=True)
    return code or (FAILED if undone else 0)


def _show(series: Series, options: Mapping[str, Any]) -> None:
    """Print what there is, and keep it."""
    from rft_agent_sdk.mtrl.evaluation_results import gains, table
    from rft_agent_sdk.mtrl.plot import plot

    results = series.results()
    if not results:
        return
    kept = {
        "setting": series.setting.to_json(),
        "results": [one.to_json() for one in results],
    }
    text = json.dumps(kept, indent=2, ensure_ascii=False)
    (series.folder / "results.json").write_text(text + "\n", "utf-8")
    click.echo(text if options["as_json"] else "\n".join([table(results), *gains(results)]))
    if options["no_plot"]:
        return
    try:
        for ending in ("png", "svg"):
            plot(results, series.folder / f"evaluation.{ending}", title=series.setting.dataset)
    except UsageError as error:
        click.echo(str(error), err=True)
    else:
        click.echo(f"drawn: {series.folder / 'evaluation.png'}", err=True)


def _dry_run(
    series: Series, models: list[Evaluated], temperatures: list[float], prefix: str
) -> int:
    """Print the request of each job, as one JSON array."""
    from rft_agent_sdk.mtrl.evaluation import evaluation_name, evaluation_request

    requests = []
    for model in models:
        for temperature in temperatures:
            name = evaluation_name(prefix, model, temperature, datetime.now(UTC))
            request = evaluation_request(series.setting, model, temperature, name)
            document = json.loads(request["JobConfigDocument"])
            requests.append({**request, "JobConfigDocument": document})
    click.echo(json.dumps(requests, indent=2, ensure_ascii=False))
    return 0
