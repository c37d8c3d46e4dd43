"""`rft mtrl launch`: check a managed job, say what it costs, and launch it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.mtrl._jobs import FAILED, runs_option
from rft_agent_sdk.cli.mtrl._launch_options import read_sound_launch, spec_options
from rft_agent_sdk.cli.mtrl._launch_show import Show
from rft_agent_sdk.cli.mtrl._launch_work import Work, request_of
from rft_agent_sdk.environment import load_environment

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.aws import Clients

_UNSURE = "whether it was created was never answered; look before you launch again"
_YAML = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("launch", short_help="Check a managed job, say what it costs, and launch it.")
@click.option("--config", type=_YAML, metavar="FILE", help="YAML of keys as below; options win.")
@spec_options
@click.option(
    "--environment",
    "name",
    metavar="NAME",
    help="Environment that the agent plays: every row's task is held against it, and it tells its worst solve.",
)
@click.option(
    "--prices",
    "price_file",
    type=_YAML,
    metavar="FILE",
    help="YAML of prices: MODEL: {prefill, sample, train} in US dollars per million tokens, and "
    "agentcore_per_rollout in US dollars.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything, print what would be sent, and change nothing anywhere.",
)
@click.option("--offline", is_flag=True, help="Check what needs no call to AWS, and stop.")
@click.option("--yes", is_flag=True, help="Do not ask before it costs money.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@runs_option
def command(
    config: Path | None,
    name: str | None,
    price_file: Path | None,
    dry_run: bool,
    offline: bool,
    yes: bool,
    as_json: bool,
    runs: str,
    **given: Any,
) -> int:
    """Launch a managed multi-turn RL job.

    Everything that can be checked without AWS is checked before the first call to it, and all that is wrong is
    told at once; then the account is asked, by reading calls. Only after that, and after a question with the
    price in it, are model package groups made, datasets uploaded and the job created. Nobody waits for it.

    Exit codes: 0 the job runs, or is as it should be, 1 AWS refused or never said whether there is a job, 2 the
    launch is wrong.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.launch import load_sdk

    show, code = Show(as_json), 0
    work = _work(config, given, name, price_file)
    if not (dry_run or offline):
        load_sdk()
        # It logs every step of its own, whole documents among them, and each refusal that is told here anyway. One
        # part of it sets a level of its own.
        for logger in ("sagemaker", "sagemaker.config"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
    findings, plan, cost = work.run()
    show.findings([*work.names(), *findings], "before any call to AWS")
    if offline:
        show.plan(plan, cost)
    else:
        with Clients(work.spec.region) as clients:
            show.findings(work.look_up(clients), "before anything was changed")
            findings, plan, cost = work.run()
            show.findings([*findings, *work.document(clients)], "before anything was changed")
            show.plan(plan, cost)
            show.changes(work.made(clients), is_dry=dry_run)
            if dry_run:
                show.request(request_of(work))
            else:
                if not yes:
                    _ask(work, plan.rollouts if plan else None, cost.told if cost else "")
                code = _launch(work, clients, show, Path(runs))
    show.end()
    return code


def _work(
    config: Path | None, given: dict[str, Any], name: str | None, price_file: Path | None
) -> Work:
    """Read all that a launch names: files, the environment, prices."""
    from rft_agent_sdk.mtrl.launch_spec import placed
    from rft_agent_sdk.mtrl.prices import Prices, read_prices
    from rft_agent_sdk.training.config_yaml import read_mapping

    spec, wrong = read_sound_launch(config, given)
    environment = load_environment(name) if name else None
    prices = read_prices(read_mapping(price_file), str(price_file)) if price_file else Prices({})
    work = Work(placed(spec), environment, prices, wrong)
    work.read_files()
    return work


def _ask(work: Work, rollouts: int | None, price: str) -> None:
    what = f"{rollouts:,} rollouts" if rollouts else "an unknown number of rollouts"
    click.confirm(
        f"Launch {what} with {work.spec.model} in {work.spec.region} for {price or 'an unknown price'}?",
        abort=True,
        err=True,
    )


def _launch(work: Work, clients: Clients, show: Show, folder: Path) -> int:
    job = work.launch(clients, folder)
    region = work.spec.region
    unsure = [] if job.is_certain else [f"{_UNSURE}: rft mtrl status {job.name} --region {region}"]
    show.job(
        job,
        [
            *unsure,
            f"rft mtrl wait {job.name} --region {region}",
            f"rft mtrl logs {job.name} --region {region}",
            f"rft mtrl stop {job.name} --region {region}",
            "Do not deploy the agent while the job runs: that ends it.",
        ],
    )
    if unsure:
        click.echo(f"job {job.name}: {unsure[0]}", err=True)
    return 0 if job.is_certain else FAILED
