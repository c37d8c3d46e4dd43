"""`rft gateway conform`: what a tokenizer and chat template keep from turn to turn."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.capturing import RENDERER_OPTIONS, read_kwargs
from rft_agent_sdk.errors import ChatTemplateError, RftError

if TYPE_CHECKING:
    from rft_agent_sdk.gateway.conformance import Check, Report

_MODES = {
    "bridge": "a next prompt is the served ids and what the model's renderer adds",
    "heal": "a next prompt is the served ids and the rest of the template's render",
    "branch": "each prompt is rendered whole and begins a branch of its own",
}


@click.command("conform", short_help="Check what a tokenizer and chat template keep.")
@click.argument("model", metavar="MODEL_OR_TEMPLATE")
@click.option("--tokenizer", metavar="PATH", help="A tokenizer.json, or a folder with one.")
@RENDERER_OPTIONS[0]
@RENDERER_OPTIONS[1]
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str,
    tokenizer: str | None,
    chat_template_kwargs: str | None,
    family: str | None,
    as_json: bool,
) -> int:
    """Check a model's folder or hub name, or a chat template's file, and say how turns will be followed up.

    A template without --tokenizer is checked with a small tokenizer that knows its control tokens. Exit
    code 1 if the template cannot be parsed, or if neither its prompts can be extended nor its turns read.
    """
    from rft_agent_sdk.gateway.conformance import conform

    if logging.getLogger().level > logging.DEBUG:  # the table tells the same, and better
        logging.getLogger("rft_agent_sdk.gateway.render").setLevel(logging.WARNING)
    try:
        report = conform(_renderer(model, tokenizer, read_kwargs(chat_template_kwargs), family))
    except ChatTemplateError as error:
        raise RftError(f"{model}: {error}") from error
    if as_json:
        click.echo(json.dumps({**asdict(report), "passed": report.passed}, ensure_ascii=False))
    else:
        _show(report)
    return 0 if report.is_usable else 1


def _renderer(model: str, tokenizer: str | None, kwargs: dict[str, Any], family: str | None) -> Any:
    from rft_agent_sdk.gateway.render import load_renderer
    from rft_agent_sdk.gateway.render.load import template_file
    from rft_agent_sdk.gateway.render.stand_in import stand_in_tokenizer

    found: Any = None if tokenizer is None else Path(tokenizer)
    if found is not None and found.is_dir():
        found /= "tokenizer.json"
    if Path(model).is_dir() or not (Path(model).is_file() or model.endswith(".jinja")):
        return load_renderer(model, tokenizer=found, chat_template_kwargs=kwargs, family=family)
    if found is None:
        found = stand_in_tokenizer(template_file(Path(model)), family)
    return load_renderer(
        tokenizer=found, template=Path(model), chat_template_kwargs=kwargs, family=family
    )


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    verdict = f"mode {report.mode}: {_MODES[report.mode]}"
    if not console.is_terminal:
        click.echo(report.renderer)
        for check in report.checks:
            click.echo(f"{_mark(check)}  {check.name:<36}{check.detail}".rstrip())
        click.echo(verdict)
        return
    table = Table(title=report.renderer, title_justify="left")
    for name in ("", "check", "finding"):
        table.add_column(name)
    for check in report.checks:
        style = "" if check.passed else "red"
        table.add_row(_mark(check), check.name, check.detail, style=style)
    console.print(table)
    console.print(verdict, style="bold")


def _mark(check: Check) -> str:
    return "ok  " if check.passed else "FAIL"
