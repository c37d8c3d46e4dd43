"""An environment that a small policy learns in seconds: one word of three is right."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from rft_agent_sdk import Reward
from rft_agent_sdk.environment import Environment, Episode, PolicyFunction
from rft_agent_sdk.types import Message, Outcome, ToolCall, ToolResult, ToolSpec

PROMPTS = ("red", "blue", "green")
WORDS = ("one", "two", "six")
RIGHT = "six"
SAY = ToolSpec(
    "say",
    "Say a word.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_draw = random.Random(0)


class ThreeWordsEpisode(Episode):
    """Ends with the first word said; the reward is 1 for the right one."""

    system_prompt = "Say a word."
    tools = (SAY,)

    def __init__(self, task: str) -> None:
        self.prompt = task.split()[0]
        self._said: str | None = None

    @property
    def done(self) -> bool:
        return self._said is not None

    @property
    def acted(self) -> bool:
        return self.done

    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        self._said = str(arguments.get("word"))
        return ToolResult("heard")

    def reward(self, outcome: Outcome) -> Reward:
        is_right = float(self._said == RIGHT)
        return Reward(is_right, {"solved": is_right})


class ThreeWords(Environment):
    """A task is a prompt and a number, which tells it from the others."""

    name = "three-words"
    floor = -1.0

    def start(self, task: str) -> ThreeWordsEpisode:
        return ThreeWordsEpisode(task)

    def tasks(self, split: str, count: int, seed: int = 0) -> list[str]:
        return [f"{PROMPTS[n % 3]} {split}-{n}" for n in range(count)]

    def policies(self) -> Mapping[str, PolicyFunction]:
        return {"guesser": guess}

    def pieces(self) -> tuple[str, ...]:
        return (*PROMPTS, *WORDS)


def guess(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Say any of the words: what to imitate before reward tells which."""
    word = _draw.choice(WORDS)
    return Message("assistant", "", None, (ToolCall("say", json.dumps({"word": word}), "call_1"),))


environment = ThreeWords()
