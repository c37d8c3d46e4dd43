"""Wordle as an environment: tasks in, episodes out, tool calls played, games scored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol

from environments.wordle import compact_text, dataset, solver, teacher, text
from environments.wordle.game import Game
from environments.wordle.lessons import make_lessons
from environments.wordle.reward import WordleRewards, game_points, score, shaping
from environments.wordle.task import Task, parse_task
from environments.wordle.words import as_word
from rft_agent_sdk.environment import Environment, Episode, PolicyFunction
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Outcome, ToolResult

Style = Literal["plain", "compact"]
"""How texts are written: in plain English, or in few tokens; both tell the same."""


class Texts(Protocol):
    """What a module of texts offers."""

    SYSTEM_PROMPT: str

    def opening_prompt(self, instruction: str, game: Game) -> str: ...  # noqa: D102 - told there
    def retry_prompt(self, prompt: str) -> str: ...  # noqa: D102
    def guess_result(self, game: Game) -> str: ...  # noqa: D102
    def malformed_result(self, game: Game, given: object) -> str: ...  # noqa: D102
    def unknown_tool_result(self, game: Game, name: str) -> str: ...  # noqa: D102
    def already_played_result(self, game: Game, word: str) -> str: ...  # noqa: D102


_STYLES: Mapping[str, Texts] = MappingProxyType({"plain": text, "compact": compact_text})


class WordleEpisode(Episode):
    """One game, with one tool."""

    tools = (text.TOOL,)

    def __init__(
        self, task: Task, rewards: WordleRewards, texts: Texts = text, *, per_turn: bool = False
    ) -> None:
        self.game = Game(task.answer, task.guesses)
        self.system_prompt = texts.SYSTEM_PROMPT
        self.prompt = texts.opening_prompt(task.prompt, self.game)
        self._rewards = rewards
        self._texts = texts
        self.credits: list[float] | None = [] if per_turn else None

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
        return self._texts.retry_prompt(self.prompt)

    @property
    def board(self) -> list[tuple[str, str]]:
        """Each guess in capitals with its marks of `G`, `Y` and `X`, for display."""
        return text.board_lines(self.game)

    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        """Play one tool call. Every call but one after the end counts towards the limit of calls."""
        if self.credits is None:
            return self._play(name, arguments, recovered=recovered)
        before = game_points(self.game, self._rewards)
        result = self._play(name, arguments, recovered=recovered)
        added = game_points(self.game, self._rewards) - before
        self.credits.append(shaping(added, self._rewards))
        return result

    def reward(self, outcome: Outcome) -> Reward:
        """Score the game as it stands; see `reward.py`."""
        return score(self.game, outcome, self._rewards)

    def _play(self, name: str, arguments: Mapping[str, Any], *, recovered: bool) -> ToolResult:
        game, texts = self.game, self._texts
        if game.over:
            return ToolResult(text.ALREADY_OVER, is_error=True)
        game.calls += 1
        if name != text.TOOL_NAME:
            return ToolResult(texts.unknown_tool_result(game, name), is_error=True)
        word = _guess_in(arguments)
        if word is None:
            game.malformed += 1
            return ToolResult(texts.malformed_result(game, arguments), is_error=True)
        if recovered and game.has_played(word):
            # text often tells earlier calls over again; only a real call may waste a guess on one
            return ToolResult(texts.already_played_result(game, word))
        game.play(word, is_recovered=recovered)
        return ToolResult(texts.guess_result(game))


class Wordle(Environment):
    """The game of Wordle. A task is a JSON string with an answer; see `task.py`."""

    name = "wordle"

    def __init__(
        self,
        rewards: WordleRewards | None = None,
        *,
        style: Style = "plain",
        per_turn: bool = False,
    ) -> None:
        """Make the environment.

        Args:
            rewards: The constants of the reward; the documented ones when `None`.
            style: How its texts are written.
            per_turn: Whether the reward is told by turn, for advantages per turn: each guess's shaping, and with the
                last one the outcome. They add up to the same reward.

        Raises:
            UsageError: There is no such style.
        """
        if style not in _STYLES:
            raise UsageError(f"style must be one of {', '.join(_STYLES)}, got {style!r}")
        self.style: Style = style
        self.per_turn = per_turn
        self.rewards = rewards if rewards is not None else WordleRewards()
        self.floor = self.rewards.never_played

    def start(self, task: str) -> WordleEpisode:
        """Read a task string and start its game.

        Raises:
            TaskError: The string is no Wordle task; the message does not hold the answer.
        """
        return WordleEpisode(
            parse_task(task), self.rewards, _STYLES[self.style], per_turn=self.per_turn
        )

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
        """Reference policies: `solver` plays nearly as well as can be, `teacher` soundly, `random` any word."""
        return MappingProxyType(
            {
                "random": solver.random_policy,
                "solver": solver.solver_policy,
                "teacher": teacher.teacher_policy,
            }
        )

    def lessons(self, count: int, seed: int, held_out: Collection[str], **how: Any) -> list[str]:
        """Return task strings to learn from, without the answers of `held_out` tasks; see `make_lessons`."""
        avoid = {self.task_key(task) for task in held_out}
        return make_lessons(count, seed, avoid=avoid, **how)

    def pieces(self) -> tuple[str, ...]:
        """Return texts that a small tokenizer made for this environment has a token for."""
        return tuple(compact_text.pieces()) if self.style == "compact" else ()


environment = Wordle()


def _guess_in(arguments: object) -> str | None:
    if not isinstance(arguments, Mapping) or set(arguments) != {text.ARGUMENT}:
        return None
    return as_word(arguments[text.ARGUMENT])
