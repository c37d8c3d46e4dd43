"""How `rft gateway` is told to capture tokens: whose renderer, which sampler, where the log goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rft_agent_sdk.cli.policies import find_sampler
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON


def gateway_parts(
    *,
    capture: bool,
    model: str | None,
    template: str | None,
    chat_template_kwargs: str | None,
    family: str | None,
    sampler: str | None,
    log_dir: str | None,
    history_mode: str | None,
    environment: str,
) -> JSON:
    """Return the arguments of `Gateway` that make it capture tokens; none where nothing asks for it.

    Raises:
        UsageError: What is named is not there, or does not go together.
    """
    if not (capture or model or template or sampler):
        if log_dir or history_mode or chat_template_kwargs or family:
            raise UsageError(
                "--log-dir, --history-mode, --chat-template-kwargs and --family are about token capture: "
                "say --capture, --model, --template or --sampler too"
            )
        return {}
    from rft_agent_sdk.gateway.render import load_renderer

    renderer = load_renderer(
        model,
        template=None if template is None else Path(template),
        chat_template_kwargs=read_kwargs(chat_template_kwargs),
        family=family,
    )
    return {
        "renderer": renderer,
        "sampler": find_sampler(sampler or "solver", renderer, environment),
        "log_dir": log_dir,
        "history_mode": history_mode or "linear",
    }


def read_kwargs(text: str | None) -> JSON:
    """Return the template's arguments in an option's JSON object; a `UsageError` if it is none."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"--chat-template-kwargs {text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"--chat-template-kwargs wants a JSON object, got {text!r}")
    return found


def options(command: Any) -> Any:
    """Add the options that `gateway_parts` takes, and `--admin-key-env`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


RENDERER_OPTIONS = (
    click.option("--chat-template-kwargs", metavar="JSON", help="The template's own arguments."),
    click.option("--family", help="How turns are written, where the template does not tell."),
)
_OPTIONS = (
    click.option("--capture", is_flag=True, help="Capture tokens, with a small tokenizer."),
    click.option("--model", help="Capture with this model's tokenizer: a folder, or a hub name."),
    click.option("--template", metavar="FILE", help="Chat template in place of the model's."),
    *RENDERER_OPTIONS,
    click.option(
        "--sampler",
        metavar="NAME",
        help="What samples captured turns: vllm:URL#MODEL, sglang:URL, or a policy of the "
        "environment.  [default: solver]",
    ),
    click.option("--log-dir", metavar="DIR", help="Keep sessions there, and take them up again."),
    click.option("--history-mode", type=click.Choice(["linear", "tree"]), help="[default: linear]"),
    click.option(
        "--admin-key-env",
        metavar="VARIABLE",
        help="Environment variable with the key by which a trainer opens sessions over HTTP.",
    ),
)
