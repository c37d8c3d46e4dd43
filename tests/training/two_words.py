"""A policy of two words and one number, its engine, and an environment that likes one of them.

The policy says "yes" with probability sigmoid(weight), else "no". Which of its samples says which is a
fixed sequence, so that a step gives the same rewards however its rollouts overlap.
"""

import json
import math
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rft_agent_sdk import Reward, Rollout, play, rft_handler
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.pool import SamplerPool
from rft_agent_sdk.gateway.samplers.token import Sampled, Sampler
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.agents import HttpAgent
from rft_agent_sdk.training.engines.base import AdamParams, Engine
from rft_agent_sdk.training.rollouts import Rollouts, RolloutSettings
from rft_agent_sdk.types import Message, Outcome, ToolCall, ToolResult, ToolSpec
from tests.servers import serving

RENDERER = load_renderer()
GOLDEN = (math.sqrt(5) - 1) / 2
LEAST = -1e-9
SAY = ToolSpec(
    "say",
    "Say a word.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


def said(word: str) -> list[int]:
    """The ids of a reply that calls the tool with a word."""
    call = ToolCall("say", json.dumps({"word": word}), "")
    return RENDERER.write(Message("assistant", "", None, (call,)), prompt=RENDERER.render([], ()))


class SayEpisode:
    """Ends with the first word said; the reward is 1 for the task's word."""

    system_prompt = "You say one word."
    retry_prompt = "Say it."
    tools = (SAY,)
    board = ()

    def __init__(self, task: str) -> None:
        self.wanted = json.loads(task)["answer"]
        self.prompt = json.loads(task)["prompt"]
        self.said = ""

    @property
    def done(self) -> bool:
        return bool(self.said)

    @property
    def acted(self) -> bool:
        return bool(self.said)

    def call(self, name: str, arguments: Any, *, recovered: bool = False) -> ToolResult:
        self.said = str(arguments.get("word"))
        return ToolResult("heard")

    def recover(self, text: str) -> list[Any]:
        return []

    def reward(self, outcome: Outcome) -> Reward:
        is_right = float(self.said == self.wanted)
        return Reward(is_right, {"solved": is_right})


class SayEnvironment:
    """Tasks are JSON objects with a prompt and an answer."""

    name = "say"
    floor = 0.0

    def start(self, task: str) -> Any:
        return SayEpisode(task)

    def tasks(self, split: str, count: int, seed: int = 0) -> list[str]:
        return []

    def policies(self) -> dict[str, Any]:
        return {}


def entrypoint(environment: Any = None) -> Any:
    """The function that is served: plays an episode with the policy at the gateway."""
    played = environment or SayEnvironment()

    @rft_handler
    def say(rollout: Rollout) -> Reward:
        return play(played, rollout)

    return say


class TableSampler(Sampler):
    """Says "yes" or "no" by a weight; counts its samples by prompt, so that they are a fixed sequence."""

    def __init__(self, weight: float, version: int, start: int = 0) -> None:
        self.weight = weight
        self._version = version
        self._start = start
        self.asked: Counter[tuple[int, ...]] = Counter()
        self.temperatures: list[float | None] = []
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        return self._version

    async def sample(self, request: Any) -> Sampled:
        prompt = tuple(request.prompt)
        with self._lock:
            number = self.asked[prompt] + 31 * self._version + self._start
            self.asked[prompt] += 1
            self.temperatures.append(request.sampling.temperature)
        p = 1 / (1 + math.exp(-self.weight))
        if request.sampling.temperature == 0:
            is_yes = p >= 0.5
        else:
            is_yes = (number * GOLDEN) % 1 < p
        return Sampled(*self.written(is_yes), "stop", self._version)

    def written(self, is_yes: bool) -> tuple[list[int], list[float | None]]:
        """The ids of a call that says a word; the first of them carries the choice's log-probability."""
        ids = said("yes" if is_yes else "no")
        p = 1 / (1 + math.exp(-self.weight))
        return ids, [math.log(p if is_yes else 1 - p), *([LEAST] * (len(ids) - 1))]


class TableEngine(Engine):
    """Plain policy gradient on one number. `calls` tells what was done, in order."""

    def __init__(self, folder: Path, weight: float = -1.0) -> None:
        self.folder = folder
        self.weight = weight
        self.grad = 0.0
        self.calls: list[str] = []
        self.clients: list[float] = []
        self.stopped = 0
        self.before_step: Any = None

    async def forward_backward(self, datums, loss_fn, loss_fn_config=None):
        self.calls.append("forward_backward")
        p = 1 / (1 + math.exp(-self.weight))
        loss = []
        for datum in datums:
            first = next(t for t, weight in enumerate(datum.weights) if weight)
            ids = list(datum.targets[first:])
            assert ids in (said("yes"), said("no"))
            is_yes = ids == said("yes")
            assert math.isclose(datum.logprobs[first], math.log(p if is_yes else 1 - p))
            loss.append(datum.advantages[first] * ((1 - p) if is_yes else -p))
        self.grad += math.fsum(loss) / len(loss)
        return {"actor/pg_loss": -math.fsum(loss), "actor/ppo_kl": 0.0}

    async def optim_step(self, params: AdamParams):
        self.calls.append("optim_step")
        if self.before_step is not None:
            await self.before_step(self)
        self.weight += params.learning_rate * self.grad
        norm, self.grad = abs(self.grad), 0.0
        return {"actor/grad_norm": norm}

    async def save_weights_and_get_sampling_client(self):
        self.calls.append("save_weights_and_get_sampling_client")
        self.clients.append(self.weight)
        return self.weight

    async def save_state(self, description: str = "") -> str:
        self.calls.append("save_state")
        path = self.folder / f"state-{len(list(self.folder.glob('state-*')))}"
        path.write_text(json.dumps(self.weight))
        return str(path)

    async def load_state(self, name: str, *, with_optimizer: bool = True) -> None:
        self.calls.append("load_state")
        self.weight = json.loads(Path(name).read_text())  # noqa: ASYNC240 - a few bytes

    async def save_weights(self, description: str = "") -> str:
        self.calls.append("save_weights")
        return "published"

    def get_tokenizer(self) -> Any:
        return None

    async def stop(self) -> None:
        self.stopped += 1


class Stage:
    """A gateway and an agent, both served on loopback."""

    def __init__(self, agent_url: str, gateway: Gateway, server: GatewayServer, pool: Any) -> None:
        self.agent_url = agent_url
        self.gateway = gateway
        self.server = server
        self.pool = pool

    def bind(self, client: float, version: int) -> None:
        """Make a sampler of an engine's client, and sample with it from now on."""
        self.pool.rebind(TableSampler(client, version))

    def rollouts(self, agent: Any = None, **settings: Any) -> Rollouts:
        chosen = RolloutSettings(self.server.url, **{"deadline_s": 20.0, **settings})
        return Rollouts(self.gateway, agent or HttpAgent(self.agent_url), chosen)


@contextmanager
def stage(weight: float = 0.0, app: Any = None):
    """Serve the entrypoint, or another app, and a gateway with the two-word policy."""
    pool = SamplerPool(TableSampler(weight, 0))
    gateway = Gateway(renderer=RENDERER, sampler=pool)
    with ExitStack() as stack:
        url = stack.enter_context(serving(app or asgi_app(entrypoint())))
        server = stack.enter_context(GatewayServer(gateway))
        yield Stage(url, gateway, server, pool)
