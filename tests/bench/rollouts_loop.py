"""The rollout half of a training loop, in a process of its own: the runner, and the gateway on a thread.

It plays one batch against the agent that it is told of, and says on stdout what that took.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

from environments.wordle.dataset import make_rows
from rft_agent_sdk.gateway import Gateway, GatewayServer, ScriptedSampler, load_renderer
from rft_agent_sdk.testing import call, scripted
from rft_agent_sdk.training.agents import HttpAgent
from rft_agent_sdk.training.rollouts import Played, Rollouts, RolloutSettings
from rft_agent_sdk.types import Message, SamplingParams, ToolSpec
from tests.bench.rollouts_usage import Usage

GROUP = 4
WORDS = ("slate", "crony", "pudgy", "fjord", "whack", "mimic")
"""The guesses of every game: whichever answer it has, it takes all six."""
SAMPLING = SamplingParams(temperature=1.0, max_tokens=512)
_SAID = scripted(*(call("guess_word", json.dumps({"guess": word})) for word in WORDS))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of rollouts took of the loop's process."""

    wall_s: float
    runner_cpu_s: float
    """CPU time of the thread that runs the loop; the rest is the gateway's and the sampler's."""
    before: Usage
    after: Usage

    @classmethod
    def load(cls, line: str) -> Self:
        """Return what `dump` wrote."""
        found = json.loads(line)
        before, after = Usage(**found.pop("before")), Usage(**found.pop("after"))
        return cls(before=before, after=after, **found)

    def dump(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))


async def policy(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Say the next word of the script; async, so that no thread is needed to ask."""
    said = _SAID(messages, tools)
    assert isinstance(said, Message)
    return said


async def play(agent_url: str, count: int) -> Batch:
    """Play `count` rollouts at once, in groups of four.

    Raises:
        RuntimeError: A rollout failed, or was not played to its end: nothing was measured.
    """
    renderer = load_renderer()
    gateway = Gateway(renderer=renderer, sampler=ScriptedSampler(policy, renderer))
    with GatewayServer(gateway) as server:
        settings = RolloutSettings(server.url, concurrency=count, retries=0, deadline_s=300.0)
        async with Rollouts(gateway, HttpAgent(agent_url), settings) as rollouts:
            rows = [row for row in make_rows("train", count) if _is_long(row["prompt"])]
            await rollouts.preflight(rows[-1], SAMPLING)  # both sides have imported what they need
            before, began, cpu_s = Usage.now(), time.perf_counter(), time.thread_time()
            groups = await rollouts.run_batch(rows[: count // GROUP], GROUP, SAMPLING)
            wall_s, cpu_s = time.perf_counter() - began, time.thread_time() - cpu_s
            after = Usage.now()
    _check([played for group in groups for played in group.rollouts], count)
    return Batch(wall_s, cpu_s, before, after)


def _is_long(task: str) -> bool:
    return json.loads(task)["answer"] not in WORDS


def _check(rollouts: Sequence[Played], count: int) -> None:
    ends = Counter(
        (played.trajectory.outcome.value, played.trajectory.turns) for played in rollouts
    )
    if ends != {("completed", len(WORDS)): count} or any(one.has_failed for one in rollouts):
        raise RuntimeError(f"wanted {count} rollouts of {len(WORDS)} turns, got {dict(ends)}")


if __name__ == "__main__":
    print(asyncio.run(play(sys.argv[1], int(sys.argv[2]))).dump())
