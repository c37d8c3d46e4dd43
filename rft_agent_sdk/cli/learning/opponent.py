"""A policy that learnt here as somebody's opponent: it plays the same task through the gateway, beforehand."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.cli.learning import playing
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.cli.learning.tasks import Tasks
from rft_agent_sdk.environment import Episode, load_environment
from rft_agent_sdk.errors import RftError
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Message, Outcome, SamplingParams

if TYPE_CHECKING:
    from rft_agent_sdk.training.rollouts import Played


@dataclass(frozen=True, slots=True)
class Opponent:
    """How a policy played a task."""

    board: Sequence[tuple[str, str]]
    """Its rows, as `Episode.board` has them."""
    reward: Reward


def held_out_task(folder: Path, seed: int) -> str:
    """Return a task that the run in a folder never trained on.

    Raises:
        UsageError: There is no such run, or it has left no policy yet.
    """
    record = Record.read(folder)
    _ = record.policy  # a run without one has no tasks yet either, and says so
    tasks = Tasks.read(record.folder / "tasks.json").held_out
    return random.Random(seed).choice(tasks)  # noqa: S311 - which game to play


def play_against(folder: Path, task: str) -> Opponent:
    """Let the policy of a run play a task, greedily, through the deployed entrypoint's code.

    Raises:
        UsageError: There is no such run, or it has left no policy yet.
        RftError: It could not be played.
    """
    composing.check_local()
    logging.getLogger("rft_agent_sdk").setLevel(logging.WARNING)  # a person is playing here
    record = Record.read(folder)
    played = asyncio.run(_played(record, task))
    if played.has_failed:
        raise RftError(f"the opponent could not play: {played.detail or played.trajectory.outcome}")
    episode = load_environment(record.recipe.environment).start(task)
    for message in played.trajectory.samples[-1].messages:
        _replay(episode, message)
    return Opponent(list(episode.board), episode.reward(Outcome.COMPLETED))


async def _played(record: Record, task: str) -> Played:
    recipe = record.recipe
    with served({"RFT_ENVIRONMENT": recipe.environment}) as url:
        config = playing.config_of(recipe, record.policy, record.folder, url)
        async with playing.playing(config) as at:
            sampling = SamplingParams(0.0, 1.0, playing.MAX_NEW_TOKENS)
            return await at.rollouts.run_rollout({"prompt": task}, sampling)


def _replay(episode: Episode, message: Message) -> None:
    if message.role != "assistant":
        return
    calls = message.tool_calls or episode.recover(message.text)
    for call in calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = {}
        episode.call(call.name, arguments, recovered=not message.tool_calls)
