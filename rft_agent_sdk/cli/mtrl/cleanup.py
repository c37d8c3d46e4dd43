"""`rft mtrl cleanup`: what a project left in an account, and removing it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.mtrl._jobs import FAILED, region_option
from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.cleanup import Removal
    from rft_agent_sdk.mtrl.leftovers import Inventory, Leftover, Scope

_NOTES = """\
Never looked for: roles (the job's role costs nothing; the agent's goes with its stack), the bucket that the CDK keeps
bundles in, the log groups of all jobs (/aws/sagemaker/Job/...), and old versions of objects in a bucket that keeps them."""
_TWO_WAYS = """\
Two ways to remove what `agentcore deploy` made. This command deletes the CloudFormation stack and leaves the project's
files alone. `agentcore remove all` takes everything out of the files under agentcore/ for the next `agentcore deploy` to
remove: it rewrites them, so restore them afterwards, from git: git checkout -- agentcore/"""


@click.command(
    "cleanup", short_help="List what a project left in an account; remove it if asked to."
)
@region_option
@click.option(
    "--project",
    help="Name of an AgentCore project: its stacks and runtimes, and the jobs that those play.  [default: that of "
    "agentcore/agentcore.json here, if nothing else is given]",
)
@click.option("--prefix", default="", help="Whatever has a name that begins so.")
@click.option("--tag", metavar="KEY=VALUE", help="Only what has this tag.")
@click.option(
    "--s3", multiple=True, metavar="S3URI", help="Folders with outputs; again for another."
)
@click.option("--include-used", is_flag=True, help="Also what found jobs used, under other names.")
@click.option("--datasets", is_flag=True, help="Also the datasets of found jobs.")
@click.option("--only", multiple=True, metavar="KIND", help="Only this kind; again for another.")
@click.option("--remove", is_flag=True, help="Remove it, asking before each kind.")
@click.option("--yes", is_flag=True, help="Remove it without asking.")
@click.option("--dry-run", is_flag=True, help="Only list, as without --remove.")
@click.option(
    "--timeout",
    default=900.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait for jobs and stacks.",
)
@click.option(
    "--poll", default=10.0, show_default=True, type=click.FloatRange(0.01), help="Seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(region: str | None, **options: Any) -> int:
    """List what a project left in an account: what is billed while nobody looks, and what merely lingers.

    Running jobs, training sessions, stacks, runtimes and their endpoints, forwarding functions, MLflow apps, model
    packages and their groups, log groups, outputs and datasets in S3, in the order in which --remove takes them.
    Nothing is removed that was not listed, and what only a job's document names is kept unless --include-used.

    Exit codes: 0 listed or removed, 1 something could not be listed or is left, 2 the command was wrong.
    """
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.cleanup import Patience, remove
    from rft_agent_sdk.mtrl.inventory import take_inventory

    if options["dry_run"] and (options["remove"] or options["yes"]):
        raise UsageError("wanted --dry-run or --remove, got both")
    scope = _scope(options)
    with Clients(region) as clients:
        inventory = take_inventory(clients, scope)
        _choose(inventory, options["only"])
        _show(inventory, scope, as_json=options["as_json"])
        removal = None
        if (options["remove"] or options["yes"]) and inventory.removable:
            removal = remove(
                clients,
                inventory,
                confirm=_confirm(is_said=options["yes"]),
                patience=Patience(options["timeout"], options["poll"]),
                tell=lambda one, outcome: click.echo(
                    f"{one.kind}\t{one.name}\t{outcome}", err=True
                ),
            )
            _tell(removal)
    return FAILED if inventory.problems or (removal and removal.left) else 0


def _scope(options: Mapping[str, Any]) -> Scope:
    from rft_agent_sdk.mtrl.leftovers import Scope

    project = options["project"]
    if not (project or options["prefix"] or options["tag"] or options["s3"]):
        project = _project_here()
    tag = None
    if options["tag"]:
        key, is_pair, value = options["tag"].partition("=")
        if not is_pair or not key:
            raise UsageError(f"--tag: wanted KEY=VALUE, got {options['tag']!r}")
        tag = (key, value)
    return Scope(
        project or "",
        options["prefix"],
        tag,
        options["s3"],
        include_used=options["include_used"],
        include_datasets=options["datasets"],
    )


def _project_here() -> str:
    """Return the name of the AgentCore project of the working directory; empty where there is none."""
    try:
        found = json.loads(Path("agentcore/agentcore.json").read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(found.get("name") or "") if isinstance(found, dict) else ""


def _choose(inventory: Inventory, kinds: Sequence[str]) -> None:
    """Leave out the kinds that nobody asked for."""
    from rft_agent_sdk.mtrl.leftovers import KINDS

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"--only: wanted kinds of {', '.join(KINDS)}; got {unknown!r}")
    if kinds:
        # A job that runs is told of in any case: it may need what else is to go.
        inventory.found = [
            one if one.kind in kinds else replace(one, kept="not asked for by --only")
            for one in inventory.found
            if one.kind in (*kinds, "job")
        ]


def _show(inventory: Inventory, scope: Scope, *, as_json: bool) -> None:
    from rft_agent_sdk.mtrl.leftovers import KINDS

    ordered = [one for kind in KINDS for one in inventory.of(kind)]
    if as_json:
        click.echo(json.dumps([one.to_json() for one in ordered], indent=2, ensure_ascii=False))
    else:
        for one in ordered:
            marks = ["billed"] if one.is_billed else []
            marks += [f"kept: {one.kept}"] if one.kept else []
            marks += [f"in use: {one.blocked}"] if one.blocked else []
            click.echo("\t".join([one.kind, one.name, one.detail, "; ".join(marks)]).rstrip())
    for problem in inventory.problems:
        click.echo(f"not looked for: {problem}", err=True)
    if not ordered:
        click.echo("nothing is there", err=True)
        return
    click.echo(_NOTES, err=True)
    if scope.project or inventory.of("stack"):
        click.echo(_TWO_WAYS, err=True)


def _confirm(*, is_said: bool) -> Any:
    from rft_agent_sdk.mtrl.leftovers import KINDS

    def confirm(kind: str, things: Sequence[Leftover]) -> bool:
        if is_said:
            return True
        names = ", ".join(one.name for one in things)
        return click.confirm(f"Remove {len(things)} {KINDS[kind]}: {names}?", err=True)

    return confirm


def _tell(removal: Removal) -> None:
    """Say what is left, and why."""
    click.echo(
        f"removed {len(removal.removed)}, declined {len(removal.declined)}, left {len(removal.left)}",
        err=True,
    )
    for one in removal.left:
        click.echo(f"left\t{one.what.kind}\t{one.what.name}\t{one.why}")
