"""The engine: the surface of a Training Session over a model on this machine."""

import asyncio
from pathlib import Path

import pytest
import torch

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.local import LocalSampler
from rft_agent_sdk.gateway.samplers.pool import SamplerPool
from rft_agent_sdk.gateway.samplers.token import SampleRequest
from rft_agent_sdk.local.generate import SamplingSettings
from rft_agent_sdk.local.model import ModelSettings
from rft_agent_sdk.local.turns import Ask
from rft_agent_sdk.training.engines.base import AdamParams, Datum
from rft_agent_sdk.training.engines.local import LocalEngine, LocalSettings
from rft_agent_sdk.types import SamplingParams
from tests.local.folders import tiny_folder

pytestmark = pytest.mark.local

ADAM = AdamParams(1e-2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("made") / "tiny")


def settings_of(folder, states, **model) -> LocalSettings:
    return LocalSettings(
        ModelSettings(str(folder), device="cpu", **model),
        Path(states),
        sampling=SamplingSettings(seed=3),
    )


@pytest.fixture
async def engine(folder, tmp_path):
    async with await LocalEngine.open(settings_of(folder, tmp_path / "states")) as found:
        yield found


async def sampled_datums(client, count, *, advantage=1.0) -> list[Datum]:
    """What a client samples, as the loop would train it."""
    prompt = (5, 6, 7)
    said = await asyncio.gather(
        *(client.sample(Ask(prompt, 12, session=str(at))) for at in range(count))
    )
    found = []
    for at, one in enumerate(said):
        ids = (*prompt, *one.tokens)
        sign = advantage if at % 2 else -advantage
        found.append(
            Datum(
                ids[:-1],
                ids[1:],
                (0.0, 0.0, *[1.0] * len(one.tokens)),
                (0.0, 0.0, *one.logprobs),
                (0.0, 0.0, *[sign] * len(one.tokens)),
            )
        )
    return found


@pytest.mark.parametrize("rank", [0, 4])
async def test_sampler_and_trainer_agree_at_every_step(folder, tmp_path, rank):
    async with await LocalEngine.open(settings_of(folder, tmp_path, lora_rank=rank)) as engine:
        for _ in range(4):
            client = await engine.save_weights_and_get_sampling_client()
            datums = await sampled_datums(client, 16)
            told = await engine.forward_backward(datums, "ppo")
            assert told["sampler/kl"] < 1e-9
            assert told["sampler/logprob_distance"] < 1e-5
            assert told["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
            assert told["actor/pg_clipfrac"] == 0
            assert told["tokens/trained"] == 16 * 12
            stepped = await engine.optim_step(ADAM)
            assert stepped["actor/grad_norm"] == pytest.approx(told["actor/grad_norm"])
            # A second pass of the same step is past the sampler's weights: that is drift, not disagreement.
            again = await engine.forward_backward(datums, "ppo")
            assert "sampler/kl" not in again
            assert abs(again["actor/ppo_kl"]) > 1e-4
            await engine.optim_step(ADAM)


async def test_earlier_clients_keep_their_weights(engine):
    old = await engine.save_weights_and_get_sampling_client()
    before = (await old.score([1, 2, 3, 4])).logprobs
    await engine.forward_backward(await sampled_datums(old, 4), "importance_sampling")
    await engine.optim_step(ADAM)
    new = await engine.save_weights_and_get_sampling_client()
    assert (await old.score([1, 2, 3, 4])).logprobs == before
    assert (await new.score([1, 2, 3, 4])).logprobs != pytest.approx(before[1:], abs=1e-3)


async def test_a_state_by_its_name_goes_on_exactly_in_another_engine(engine, folder, tmp_path):
    client = await engine.save_weights_and_get_sampling_client()
    datums = await sampled_datums(client, 8)
    await engine.forward_backward(datums, "ppo")
    await engine.optim_step(ADAM)
    name = await engine.save_state("step 1")
    assert Path(name).name == "state-0001-step-1"
    ends = []
    async with await LocalEngine.open(settings_of(folder, tmp_path / "other")) as other:
        await other.load_state(name)
        for one in (engine, other):
            await one.forward_backward(datums, "ppo")
            await one.optim_step(ADAM)
            client = await one.save_weights_and_get_sampling_client()
            ends.append((client.weights.tensors, client.decoder.next_seed()))
    assert all(torch.equal(value, ends[1][0][key]) for key, value in ends[0][0].items())
    assert ends[0][1] == ends[1][1]
    assert Path(await engine.save_state()).name == "state-0002-unnamed"


async def test_published_weights_are_a_model_to_begin_with(engine, tmp_path):
    client = await engine.save_weights_and_get_sampling_client()
    await engine.forward_backward(await sampled_datums(client, 4), "ppo")
    await engine.optim_step(ADAM)
    name = await engine.save_weights("end of the run")
    client = await engine.save_weights_and_get_sampling_client()
    wanted = (await client.score([1, 2, 3, 4])).logprobs
    async with await LocalEngine.open(settings_of(name, tmp_path / "further")) as other:
        client = await other.save_weights_and_get_sampling_client()
        found = (await client.score([1, 2, 3, 4])).logprobs
        assert found[1:] == pytest.approx(wanted[1:], abs=1e-5)
        assert other.get_tokenizer().chat_template == engine.get_tokenizer().chat_template


async def test_what_is_refused_leaves_the_engine_usable_and_a_failure_does_not(engine):
    with pytest.raises(UsageError):
        await engine.forward_backward([], "ppo")
    with pytest.raises(UsageError):
        await engine.forward_backward([], "ppo", {"clip_low_threshold": 2.0})
    with pytest.raises(EngineError) as caught:
        await engine.load_state("/nowhere")
    assert caught.value.usable
    client = await engine.save_weights_and_get_sampling_client()
    datums = await sampled_datums(client, 2)
    await engine.forward_backward(datums, "ppo")

    def broken(*_, **__):
        raise RuntimeError("out of memory")

    engine.trainer.forward_backward = broken
    with pytest.raises(EngineError, match="out of memory") as caught:
        await engine.forward_backward(datums, "ppo")
    assert not caught.value.usable
    with pytest.raises(EngineError, match="cannot go on"):
        await engine.optim_step(ADAM)


async def test_a_cancelled_pass_ends_before_the_next_operation_and_the_weights_can_be_saved(engine):
    client = await engine.save_weights_and_get_sampling_client()
    datums = await sampled_datums(client, 4) * 100
    before = engine.trainer.optimizer.weights()
    running = asyncio.create_task(engine.forward_backward(datums, "ppo"))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    name = await engine.save_state("rescued")
    assert engine.trainer.optimizer.gradient_norm() > 0  # the pass had come to its end
    await engine.load_state(name)
    assert all(
        torch.equal(one, before[key]) for key, one in engine.trainer.optimizer.weights().items()
    )
    assert engine.trainer.optimizer.gradient_norm() == 0


async def test_a_cancelled_step_leaves_it_open_what_the_weights_are(engine):
    client = await engine.save_weights_and_get_sampling_client()
    await engine.forward_backward(await sampled_datums(client, 4), "ppo")
    running = asyncio.create_task(engine.optim_step(ADAM))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(EngineError, match="optim_step was cancelled"):
        await engine.save_state("rescued")


async def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        await LocalEngine.open(settings_of(tmp_path / "nowhere", tmp_path))
    settings = LocalSettings(ModelSettings(str(tmp_path), device="npu"), tmp_path)
    with pytest.raises(UsageError, match="wanted a device"):
        await LocalEngine.open(settings)


async def test_stopping_twice_is_safe_and_ends_everything(folder, tmp_path):
    engine = await LocalEngine.open(settings_of(folder, tmp_path))
    client = await engine.save_weights_and_get_sampling_client()
    await engine.stop()
    await engine.stop()
    with pytest.raises(EngineError):
        await client.sample(Ask([1], 3))
    with pytest.raises(EngineError):
        await engine.save_state()


async def test_the_gateway_s_sampler_asks_as_it_is_asked(engine):
    client = await engine.save_weights_and_get_sampling_client()
    sampler = LocalSampler(client, version=7, max_tokens=9, max_context_tokens=40)
    first = await sampler.sample(SampleRequest([5, 6, 7], seed=4, affinity="r"))
    again = await sampler.sample(SampleRequest([5, 6, 7], seed=4))
    other = await sampler.sample(SampleRequest([5, 6, 7]))
    assert first == again != other
    assert (first.version, first.finish_reason, len(first.ids)) == (7, "length", 9)
    assert sampler.missing_logprobs == 0
    scored = (await client.score([5, 6, 7, *first.ids])).logprobs
    assert first.logprobs == pytest.approx(scored[3:], abs=1e-5)
    greedy = SamplingParams(temperature=0.0, max_tokens=4)
    best = await sampler.sample(SampleRequest([5, 6, 7], greedy))
    narrow = await sampler.sample(
        SampleRequest([5, 6, 7], SamplingParams(max_tokens=4), extras={"top_k": 1})
    )
    assert best.ids == narrow.ids
    stopped = await sampler.sample(
        SampleRequest([5, 6, 7], greedy, stop_ids=frozenset({best.ids[1]}))
    )
    assert stopped.finish_reason == "stop"
    assert stopped.ids == best.ids[: best.ids.index(best.ids[1]) + 1]
    # The context is the limit where it is nearer than what was asked for.
    assert len((await sampler.sample(SampleRequest([5] * 37))).ids) == 3
    with pytest.raises(Refusal) as caught:
        await sampler.sample(SampleRequest([5] * 40))
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(Refusal) as caught:
        await sampler.sample(SampleRequest([10**6]))
    assert caught.value.status == 400


async def test_a_pool_swaps_weights_in_flight_and_old_ones_leave_nothing(engine):
    old = await engine.save_weights_and_get_sampling_client()
    pool = SamplerPool(LocalSampler(old, version=1, max_tokens=300))
    flying = [
        asyncio.create_task(pool.sample(SampleRequest([5, at], affinity=str(at))))
        for at in range(6)
    ]
    await asyncio.sleep(0.05)
    await engine.forward_backward(await sampled_datums(old, 4), "ppo")
    await engine.optim_step(ADAM)
    new = await engine.save_weights_and_get_sampling_client()
    closed = pool.rebind(LocalSampler(new, version=2, max_tokens=300))
    fresh = await pool.sample(SampleRequest([5, 9], affinity="9"))
    found = await asyncio.gather(*flying)
    await asyncio.wrap_future(closed)
    assert {one.version for one in found} == {1}
    assert fresh.version == 2
    scored = (await old.score([5, 0, *found[0].ids])).logprobs
    assert found[0].logprobs == pytest.approx(scored[2:], abs=2e-5)
    await new.score([1, 2])  # what was dropped is dropped by now
    assert len(engine.decoder.shelf) == 1
    await pool.aclose()
