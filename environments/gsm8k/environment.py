"""Word problems as an environment: tasks in, episodes out, calls answered, answers scored."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from environments.gsm8k import dataset, text
from environments.gsm8k.calculator import evaluate, is_calculation
from environments.gsm8k.numbers import as_number
from environments.gsm8k.policy import random_policy
from environments.gsm8k.reward import GSM8KRewards
from environments.gsm8k.task import Task, parse_task
from rft_agent_sdk.environment import Environment, Episode, PolicyFunction
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Outcome, ToolResult


class GSM8KEpisode(Episode):
    """One problem, with a calculator and one answer."""

    system_prompt = text.SYSTEM_PROMPT
    tools = text.TOOLS

    def __init__(self, task: Task, rewards: GSM8KRewards) -> None:
        self.prompt = task.prompt
        self.submitted: Fraction | None = None
        self.calculations: list[tuple[str, Fraction]] = []
        self._right_answer = task.answer
        self._rewards = rewards
        self._calls = self._malformed = self._recovered = 0

    @property
    def done(self) -> bool:
        """Whether an answer was given, or no calls are left."""
        return self.submitted is not None or self._calls >= text.CALLS

    @property
    def acted(self) -> bool:
        """Whether the policy has worked something out or given an answer."""
        return bool(self.calculations) or self.submitted is not None

    @property
    def retry_prompt(self) -> str:
        """The user message of a second conversation."""
        return text.retry_prompt(self.prompt)

    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        """Answer one tool call. Every call but one after the end counts towards the limit of calls."""
        if self.done:
            return ToolResult(text.already_over(), is_error=True)
        self._calls += 1
        self._recovered += recovered
        if name == text.CALCULATOR:
            return self._calculate(arguments)
        if name == text.SUBMIT:
            return self._submit(arguments)
        self._malformed += 1
        return ToolResult(text.unknown_tool(name, self._calls_left), is_error=True)

    def reward(self, outcome: Outcome) -> Reward:
        """Score the play as it stands. `outcome` decides nothing: only an answer given counts as one."""
        solved = self.submitted == self._right_answer
        worked = solved and any(
            value == self._right_answer and is_calculation(expression)
            for expression, value in self.calculations
        )
        earned = self._rewards.tiers.score(
            self._tier(solved),
            grade=int(solved and not worked),
            penalty=self._rewards.recovery_penalty * self._recovered / max(self._calls, 1),
        )
        counts = {
            "solved": solved,
            "worked": worked,
            "answered": self.submitted is not None,
            "calculations": len(self.calculations),
            "malformed": self._malformed,
            "recovered": self._recovered,
            "tool_calls": self._calls,
        }
        return Reward(
            earned.total, {**earned.components, **{name: float(n) for name, n in counts.items()}}
        )

    @property
    def _calls_left(self) -> int:
        return text.CALLS - self._calls

    def _calculate(self, arguments: object) -> ToolResult:
        expression = _only(arguments, text.EXPRESSION)
        if not isinstance(expression, str):
            return self._refuse(text.CALCULATOR, arguments)
        try:
            value = evaluate(expression)
        except UsageError as error:
            self._malformed += 1
            return ToolResult(text.not_calculated(str(error), self._calls_left), is_error=True)
        self.calculations.append((expression, value))
        return ToolResult(text.calculated(expression, value, self._calls_left))

    def _submit(self, arguments: object) -> ToolResult:
        answer = as_number(_only(arguments, text.ANSWER))
        if answer is None:
            return self._refuse(text.SUBMIT, arguments)
        self.submitted = answer
        return ToolResult(text.submitted(answer))

    def _refuse(self, name: str, arguments: object) -> ToolResult:
        self._malformed += 1
        return ToolResult(text.malformed(name, arguments, self._calls_left), is_error=True)

    def _tier(self, solved: bool) -> str:
        if solved:
            return "right"
        if self.submitted is not None:
            return "wrong"
        return "no_answer" if self.acted else "never_played"


class GSM8K(Environment):
    """Grade-school word problems. A task is a JSON string with a problem and its answer; see `task.py`."""

    name = "gsm8k"

    def __init__(self, rewards: GSM8KRewards | None = None) -> None:
        self.rewards = rewards if rewards is not None else GSM8KRewards()
        self.floor = self.rewards.never_played

    def start(self, task: str) -> GSM8KEpisode:
        """Read a task string and start its play.

        Raises:
            TaskError: The string is no such task; the message does not hold the answer.
        """
        return GSM8KEpisode(parse_task(task), self.rewards)

    def tasks(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Return task strings of made problems; see `problems.py`. The real ones come from a file."""
        return [row[dataset.COLUMN] for row in dataset.made_rows(split, count, seed)]

    def task_key(self, task: str) -> str:
        """Return what makes two tasks the same: the problem, whatever its case and spaces.

        Raises:
            TaskError: The string is no such task.
        """
        return " ".join(parse_task(task).prompt.split()).casefold()

    def policies(self) -> Mapping[str, PolicyFunction]:
        """Reference policies: `random` joins two numbers of the problem, whatever is asked."""
        return MappingProxyType({"random": random_policy})


environment = GSM8K()


def _only(arguments: object, name: str) -> object:
    if not isinstance(arguments, Mapping) or set(arguments) != {name}:
        return None
    return arguments[name]
