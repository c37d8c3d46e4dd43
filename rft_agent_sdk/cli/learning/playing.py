"""What every stage that plays is composed of: a gateway over what samples, and the agent that plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.grpo import Open, rollout_settings
from rft_agent_sdk.cli.learning.recipe import Recipe

if TYPE_CHECKING:
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.engines.base import Engine
    from rft_agent_sdk.training.rollouts import Rollouts

MAX_NEW_TOKENS = 24
"""Of one turn; a guess takes ten."""
_MAX_CONTEXT = 1024
_ROLLOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Playing:
    """An engine whose policy plays."""

    config: Config
    engine: Engine
    rollouts: Rollouts
    bind: Any
    """Takes a sampling client and a version: sampled from now on."""


def config_of(recipe: Recipe, policy: Path, folder: Path, agent_url: str, **more: Any) -> Config:
    """Return the config of a run of the loop, as `rft grpo` would be told it.

    Raises:
        UsageError: The recipe's numbers make none.
    """
    from rft_agent_sdk.training.config import checked

    values = {
        "engine": "local",
        "base_model": str(policy),
        "agent_url": agent_url,
        "lora_rank": 0,
        "device": "cpu",
        "threads": recipe.threads,
        "dataset_path": "tasks.json",
        "seed": recipe.seed,
        "max_context_tokens": _MAX_CONTEXT,
        "max_new_tokens": MAX_NEW_TOKENS,
        "max_rollout_time": _ROLLOUT_S,
        "max_concurrent_rollouts": recipe.concurrency,
        "history_mode": "linear",
        "run_dir": str(folder),
        "mlflow_uri": "none",
    }
    return checked({**values, **more}, "the recipe's GRPO")


@asynccontextmanager
async def playing(
    config: Config, open_engine: Open = composing.open_engine
) -> AsyncIterator[Playing]:
    """Open an engine, sample its weights, and play with them over the agent; the engine is stopped at the end."""
    from rft_agent_sdk.training.rollouts import Rollouts

    engine = await open_engine(config)
    try:
        capture = composing.capture(config, engine)
        capture.bind(await engine.save_weights_and_get_sampling_client(), 0)
        with composing.serve(config, capture.gateway) as server:
            agent = composing.agent_of(config.agent_url, "")
            settings = rollout_settings(config, server.url)
            async with Rollouts(capture.gateway, agent, settings) as rollouts:
                yield Playing(config, engine, rollouts, capture.bind)
    finally:
        await engine.stop()


@asynccontextmanager
async def taught(config: Config, teacher: Any) -> AsyncIterator[Rollouts]:
    """Play with a function of the conversation, in the tokens that the config's model would have sampled."""
    from transformers import AutoTokenizer

    from rft_agent_sdk.gateway import Gateway, ScriptedSampler, load_renderer
    from rft_agent_sdk.training.rollouts import Rollouts

    renderer = load_renderer(tokenizer=AutoTokenizer.from_pretrained(config.base_model))
    sampler = ScriptedSampler(teacher, renderer, version="teacher", threads=2)
    gateway = Gateway(
        renderer=renderer, sampler=sampler, history_mode=config.history_mode, model="teacher"
    )
    try:
        with composing.serve(config, gateway) as server:
            agent = composing.agent_of(config.agent_url, "")
            async with Rollouts(gateway, agent, rollout_settings(config, server.url)) as rollouts:
                yield rollouts
    finally:
        await sampler.aclose()
