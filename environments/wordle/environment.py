"""Wordle as an environment: tasks in, episodes out, tool calls played, games scored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from environments.wordle import dataset, solver, text
from environments.wordle.game import Game
from environments.wordle.reward import WordleRewards, score
from environments.wordle.task import Task, parse_task
from environments.wordle.words import as_word
from rft_agent_sdk.environment import Environment, Episode, PolicyFunction
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Outcome, ToolResult


class WordleEpisode(Episode):
    """One game, with one tool."""

    system_prompt = text.SYSTEM_PROMPT
    tools = (text.TOOL,)

    def __init__(self, task: Task, rewards: WordleRewards) -> None:
        self.game = Game(task.answer, task.guesses)
        self.prompt = text.opening_prompt(task.prompt, self.game)
        self._rewards = rewards

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.game.over

    @property
    def acted(self) -> bool:
        """Whether the policy has played a well-formed guess; guesses of the task do not count."""
        return bool(self.game.own_guesses)

    @property
    def retry_prompt(self) -> str:
        """The user message of a second conversation; it shows the guesses of the task again."""
        return text.retry_prompt(self.prompt)

    @property
    def board(self) -> list[tuple[str, str]]:
        """Each guess in capitals with its marks of `G`, `Y` and `X`, for display."""
        return text.board_lines(self.game)

    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        """Play one tool call. Every call but one after the end counts towards the limit of calls."""
        game = self.game
        if game.over:
            return ToolResult(text.ALREADY_OVER, is_error=True)
        game.calls += 1
        if name != text.TOOL_NAME:
            return ToolResult(text.unknown_tool_result(game, name), is_error=True)
        word = _guess_in(arguments)
        if word is None:
            game.malformed += 1
            return ToolResult(text.malformed_result(game, arguments), is_error=True)
        if recovered and game.has_played(word):
            # text often tells earlier calls over again; only a real call may waste a guess on one
            return ToolResult(text.already_played_result(game, word))
        game.play(word, is_recovered=recovered)
        return ToolResult(text.guess_result(game))

    def reward(self, outcome: Outcome) -> Reward:
        """Score the game as it stands; see `reward.py`."""
        return score(self.game, outcome, self._rewards)


class Wordle(Environment):
    """The game of Wordle. A task is a JSON string with an answer; see `task.py`."""

    name = "wordle"

    def __init__(self, rewards: WordleRewards | None = None) -> None:
        self.rewards = rewards if rewards is not None else WordleRewards()
        self.floor = self.rewards.never_played

    def start(self, task: str) -> WordleEpisode:
        """Read a task string and start its game.

        Raises:
            TaskError: The string is no Wordle task; the message does not hold the answer.
        """
        return WordleEpisode(parse_task(task), self.rewards)

    def tasks(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Return task strings, each with its own answer; see `dataset.make_rows`."""
        return [row[dataset.COLUMN] for row in dataset.make_rows(split, count, seed)]

    def task_key(self, task: str) -> str:
        """Return what makes two tasks the same: the answer, lower case.

        Raises:
            TaskError: The string is no Wordle task.
        """
        return parse_task(task).answer

    def policies(self) -> Mapping[str, PolicyFunction]:
        """Reference policies: `solver` plays nearly as well as can be, `random` any word."""
        return MappingProxyType({"random": solver.random_policy, "solver": solver.solver_policy})


environment = Wordle()


def _guess_in(arguments: object) -> str | None:
    if not isinstance(arguments, Mapping) or set(arguments) != {text.ARGUMENT}:
        return None
    return as_word(arguments[text.ARGUMENT])
