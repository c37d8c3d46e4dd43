"""`rft play`: a person in the policy's place."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.cli.boards import board, reward_line, squares
from rft_agent_sdk.environment import Episode, load_environment
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import Outcome, ToolSpec

if TYPE_CHECKING:
    from rich.console import Console

    from rft_agent_sdk.cli.learning.opponent import Opponent


@click.command("play", short_help="Play an environment yourself in the terminal.")
@click.option("--environment", default="wordle", show_default=True)
@click.option("--task", help="A task string of the environment.  [default: a random one]")
@click.option("--seed", type=int, help="Which random task.")
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Race the policy of this run of `rft learn`; the task is one it never trained on.",
)
def command(environment: str, task: str | None, seed: int | None, against: Path | None) -> None:
    """Play one episode by hand and see the reward a policy would get. An empty line gives up."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    loaded = load_environment(environment)
    seed = secrets.randbelow(2**31) if seed is None else seed
    opponent = None
    if against is not None:
        from rft_agent_sdk.cli.learning.opponent import held_out_task, play_against

        task = held_out_task(against, seed) if task is None else task
        opponent = play_against(against, task)
        console.print(
            "The policy has played. Its marks are shown beside yours, its words at the end.\n"
        )
    episode = loaded.start(loaded.tasks("validation", 1, seed)[0] if task is None else task)
    console.print(episode.prompt)
    while not episode.done:
        line = _ask(episode)
        if not line:
            break
        try:
            name, arguments = _call(line, episode.tools)
        except UsageError as error:  # a slip of the keyboard: the game goes on
            console.print(str(error))
            continue
        result = episode.call(name, arguments)
        if episode.board:
            console.print(board(episode.board))
        if opponent is not None:
            console.print(squares(opponent.board[: len(episode.board)], "the policy's"))
        console.print(result.text, style="dim" if episode.board else "")
    console.print(reward_line(episode.reward(Outcome.COMPLETED)))
    if opponent is not None:
        _end_race(console, episode, opponent)


def _end_race(console: Console, episode: Episode, opponent: Opponent) -> None:
    """Show the opponent's board, words and all, and tell who was better."""
    console.print("\nthe policy")
    console.print(board(opponent.board))
    console.print(reward_line(opponent.reward))
    lead = episode.reward(Outcome.COMPLETED).total - opponent.reward.total
    told = "You were better." if lead > 0 else "The policy was better." if lead < 0 else "A draw."
    console.print(told, style="bold")


def _ask(episode: Episode) -> str:
    hint = " or ".join(tool.name for tool in episode.tools)
    try:
        return input(f"{hint}> ").strip()
    except EOFError:  # the end of input gives up, as an empty line does
        click.echo()
        return ""


def _call(line: str, tools: Any) -> tuple[str, dict[str, Any]]:
    """Read a line as a call: the value of the only argument, or `tool {"json": ...}`."""
    first, _, rest = line.partition(" ")
    named = next((tool for tool in tools if tool.name == first), None)
    tool: ToolSpec = named or tools[0]
    text = rest if named else line
    if text.lstrip().startswith("{"):
        try:
            return tool.name, dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise UsageError(f"the arguments are no JSON object: {error}") from None
    properties = list(tool.parameters.get("properties", {}))
    if len(properties) != 1:
        raise UsageError(f'{tool.name} takes {properties}: write {tool.name} {{"name": value}}')
    return tool.name, {properties[0]: _value(text.strip(), tool.parameters["properties"])}


def _value(text: str, properties: Any) -> Any:
    """Read the only argument: text where the tool wants text, else JSON where it is JSON."""
    (schema,) = properties.values()
    if not isinstance(schema, dict) or schema.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # the tool says what it wanted
