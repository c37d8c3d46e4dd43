"""`rft local`: models that are sampled and trained on this machine."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.environment import Environment
    from rft_agent_sdk.local.tiny import Script


@click.group("local", short_help="Make models that are trained on this machine.")
def command() -> None:
    """Make models that are sampled and trained on this machine. Needs the [local] extra."""


@command.command("init-tiny", short_help="Make a policy small enough to learn on two CPU cores.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--environment",
    default="environments.wordle:compact",
    show_default=True,
    help="Whose texts its tokenizer knows.",
)
@click.option("--seed", default=0, show_default=True, help="Of its weights.")
@click.option("--hidden", default=160, show_default=True, type=click.IntRange(8), help="Width.")
@click.option("--layers", default=4, show_default=True, type=click.IntRange(1))
@click.option("--heads", default=4, show_default=True, type=click.IntRange(1))
@click.option("--inner", default=480, show_default=True, type=click.IntRange(8))
def init_tiny_command(
    out: Path, environment: str, seed: int, hidden: int, layers: int, heads: int, inner: int
) -> None:
    """Write a transformer with random weights and a tokenizer of its own as a Hugging Face folder.

    It writes turns as Qwen 3 does. The tokenizer has a token for each text that the environment says again
    and again, and takes any other byte by byte.
    """
    from rft_agent_sdk.environment import load_environment

    if out.exists() and any(out.iterdir()):
        raise UsageError(f"wanted an empty folder or none, got {str(out)!r}; name another")
    script = script_of(load_environment(environment))
    from rft_agent_sdk.local.tiny import Shape, init_tiny

    count = init_tiny(out, chat_template(), script, Shape(hidden, layers, heads, inner), seed)
    click.echo(f"{out}: {count / 1e6:.2f} million parameters")


@command.command("import-gguf", short_help="Make a folder of a model in a GGUF file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--chat-template",
    "template",
    default="own",
    show_default=True,
    metavar="own|tools|FILE",
    help="How messages are written: as the file has it; `tools` as Qwen 3 does, with tools and calls, for a "
    "model whose own template has no place for them; or by a template of yours.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16"]),
    default="bfloat16",
    show_default=True,
    help="What the weights are written in.",
)
def import_gguf_command(file: Path, out: Path, template: str, dtype: Any) -> None:
    """Write the model in a GGUF file, dequantised, as a Hugging Face folder that trains and is sampled here.

    Takes the kinds of models that transformers reads from GGUF, and the package gguf.
    """
    from rft_agent_sdk.cli.composing import check_local
    from rft_agent_sdk.gateway.render.load import template_file

    check_local()
    given = {"own": None, "tools": chat_template()}
    text = given[template] if template in given else template_file(Path(template))
    from rft_agent_sdk.local.gguf import import_gguf

    count = import_gguf(file, out, dtype=dtype, chat_template=text)
    click.echo(f"{out}: {count / 1e6:.1f} million parameters in {dtype}")
    _tell_of_tools(out)


def _tell_of_tools(folder: Path) -> None:
    """Say so where a model's template keeps it from ever seeing a tool, or cannot be used at all."""
    from rft_agent_sdk.gateway.conformance import shows_tools
    from rft_agent_sdk.gateway.render import load_renderer

    try:
        if shows_tools(load_renderer(folder)):
            return
        told = "its chat template has no place for tools, so it is told of none"
    except UsageError as error:
        told = f"its messages cannot be rendered: {error}"
    click.echo(f"{folder}: {told}; --chat-template tools gives it another", err=True)


def chat_template() -> str:
    """Return the chat template of this package, which writes turns as Qwen 3 does."""
    folder = resources.files("rft_agent_sdk.gateway.data")
    return folder.joinpath("chat_template.jinja").read_text("utf-8")


def script_of(environment: Environment) -> Script:
    """Return what an environment says again and again, told by one of its episodes.

    An environment may have a method `pieces` that returns further texts.

    Raises:
        UsageError: It ships no tasks, or an episode without tools.
    """
    from rft_agent_sdk.local.tiny import Script

    episode = environment.start(environment.tasks("train", 1)[0])
    if not episode.tools:
        raise UsageError(f"wanted an environment with tools, got {environment.name!r}")
    pieces: tuple[str, ...] = getattr(environment, "pieces", tuple)()
    return Script(episode.system_prompt, episode.tools, (episode.prompt,), pieces)
