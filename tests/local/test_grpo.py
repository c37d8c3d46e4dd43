"""The whole way: `rft grpo` with the engine on this machine, an agent over HTTP, the gateway, the sampler, the steps."""

import asyncio
import itertools
import json

import pytest

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.grpo import train
from rft_agent_sdk.gateway import Gateway, GatewayServer, SamplerPool, ScriptedSampler
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.local.model import ModelSettings
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.agents import HttpAgent
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.config import Config
from rft_agent_sdk.training.dataset import Row
from rft_agent_sdk.training.datums import build_datums
from rft_agent_sdk.training.engines.base import AdamParams
from rft_agent_sdk.training.engines.local import LocalEngine, LocalSettings
from rft_agent_sdk.training.rollouts import Rollouts, RolloutSettings
from rft_agent_sdk.types import Message, ToolCall
from tests.local.folders import tiny_folder
from tests.servers import serving
from tests.training.two_words import entrypoint

pytestmark = pytest.mark.local

ROWS = [Row({"prompt": json.dumps({"prompt": "Say a word.", "answer": "yes"})})] * 10


def teacher():
    """Says each word in its turn."""
    words = itertools.cycle(("yes", "no"))

    def say(messages, tools) -> Message:
        call = ToolCall("say", json.dumps({"word": next(words)}), "")
        return Message("assistant", "", None, (call,))

    return say


async def lessons_of(tokenizer):
    """Two rollouts of the teacher, as the gateway has captured them."""
    renderer = load_renderer(tokenizer=tokenizer)
    gateway = Gateway(
        renderer=renderer, sampler=SamplerPool(ScriptedSampler(teacher(), renderer, threads=1))
    )
    with serving(asgi_app(entrypoint())) as url, GatewayServer(gateway) as server:
        settings = RolloutSettings(server.url, concurrency=1)
        async with Rollouts(gateway, HttpAgent(url), settings) as rollouts:
            group = await rollouts.run_group(ROWS[0].payload, 2)
    assert sorted(one.reward for one in group.rollouts) == [0.0, 1.0]
    return build_datums((one.trajectory, 1.0) for one in group.rollouts).datums


async def taught(folder, states) -> str:
    """A model that says each word about as often as the other."""
    settings = LocalSettings(ModelSettings(str(folder), device="cpu", threads=1), states)
    async with await LocalEngine.open(settings) as engine:
        lessons = await lessons_of(engine.get_tokenizer())
        for step in range(150):
            await engine.forward_backward(lessons, "cross_entropy")
            await engine.optim_step(AdamParams(0.01 if step < 100 else 0.002))
        return await engine.save_weights("taught")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("made")
    return asyncio.run(taught(tiny_folder(path / "tiny"), path / "states"))


def config_of(base, folder, url, **more) -> Config:
    return Config(
        engine="local",
        base_model=base,
        device="cpu",
        lora_rank=0,
        threads=1,
        agent_url=url,
        dataset_path="rows.jsonl",
        batch_size=2,
        responses_per_prompt=8,
        max_new_tokens=60,
        max_context_tokens=1000,
        learning_rate=1e-3,
        max_rollout_time=60.0,
        eval_every=0,
        run_dir=str(folder),
        mlflow_uri="none",
        **more,
    )


def told_in(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_loop_raises_the_reward_of_a_real_model_and_goes_on_where_it_was(base, tmp_path):
    with serving(asgi_app(entrypoint())) as url:
        config = config_of(base, tmp_path, url, kl_coef=0.001, warmup_steps=2, save_every=2)
        assert composing.run(train(config, ROWS, ROWS[:1])) == 0
        further = config.model_copy(update={"epochs": 3})
        work = train(further, ROWS, ROWS[:1], resume=True, preflight=False)
        assert composing.run(work) == 0
    told = told_in(tmp_path)
    assert [line["step"] for line in told] == list(range(1, 16))
    rewards = [line["sampler/mean_reward"] for line in told]
    assert 0.1 < rewards[0] < 0.9
    assert sum(rewards[-3:]) / 3 > 0.9
    assert told[-1]["eval/accuracy"] == 1.0
    assert all(line["sampler/failed_rollouts"] == 0 for line in told)
    trained = [line for line in told if line["sampler/num_datums"]]
    assert all(line["train/sampler/kl"] < 1e-6 for line in trained)
    assert all(line["train/sampler/logprob_distance"] < 1e-4 for line in trained)
    assert trained[0]["train/actor/reference_kl"] == pytest.approx(0, abs=1e-6)
    assert max(line["train/actor/reference_kl"] for line in trained) > 0.001
    checkpoint = RunFolder(tmp_path).latest()
    assert checkpoint is not None
    assert checkpoint.engine_state.startswith(str(tmp_path / "states"))
