"""A training pass computes what the written-out losses say, and what plain transformers computes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.losses import LossSpec, divergence, token_losses
from rft_agent_sdk.local.model import LocalModel
from rft_agent_sdk.local.trainer import Trainer, TrainerSettings
from rft_agent_sdk.training.engines.base import AdamParams, Datum
from rft_agent_sdk.training.loss import compute_loss
from tests.local.models import (
    VOCAB,
    Example,
    examples,
    granite,
    llama,
    mistral,
    plain_logits,
    qwen3,
    windowed,
)

pytestmark = pytest.mark.local

LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo")


def trainer(model=None, **settings) -> Trainer:
    return Trainer(model or qwen3(), TrainerSettings(**settings))


def gradients(of: Trainer) -> dict[str, torch.Tensor]:
    return {name: one.grad.clone() for name, one in of.model.trainable().items()}


def near(one, other, tolerance=1e-4):
    """Whether two sets of gradients are equal, up to a share of the largest entry."""
    assert one.keys() == other.keys()
    largest = max(float(value.abs().max()) for value in other.values())
    return all(
        float((value - other[name]).abs().max()) <= tolerance * largest
        for name, value in one.items()
    )


def datum_of(example: Example) -> Datum:
    return Datum(
        example.tokens, example.targets, example.weights, example.logprobs, example.advantages
    )


def plain_gradients(model, sequences, loss_of) -> dict[str, torch.Tensor]:
    """What a plain step of transformers gives: one sequence after the other, autograd of a written-out loss."""
    for one in model.trainable().values():
        one.grad = None
    for example in sequences:
        logits = model.core(torch.tensor([example.tokens])).logits[0]
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs[range(len(example.targets)), list(example.targets)]
        loss_of(chosen, example).backward()
    found = {name: one.grad.clone() for name, one in model.trainable().items()}
    for one in model.trainable().values():
        one.grad = None
    return found


def near_policy(model, sequences) -> list[Example]:
    """The sequences as if the model itself, a little different, had sampled them: ratios about 1."""
    rng = np.random.default_rng(0)
    found = []
    for example in sequences:
        logprobs = torch.log_softmax(plain_logits(model, example.tokens), dim=-1)
        chosen = logprobs[range(len(example.targets)), list(example.targets)].numpy()
        sampled = np.minimum(chosen + rng.normal(0, 0.3, len(chosen)), 0) * np.array(
            example.weights
        )
        found.append(replace(example, logprobs=tuple(map(float, sampled))))
    return found


@pytest.mark.parametrize("make", [qwen3, mistral, granite])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_metrics_and_gradients_are_those_of_the_written_out_ones(name, make):
    model = make()
    assert model.has_plain_head == (make is not granite)
    sequences = near_policy(model, examples(12))
    one = trainer(model)
    spec = LossSpec(name, 0.9, 1.15)
    found = one.forward_backward(sequences, spec, only_trained=False)
    wanted = compute_loss(
        name,
        [datum_of(each) for each in sequences],
        found.logprobs,
        {"clip_low_threshold": 0.9, "clip_high_threshold": 1.15},
    )
    assert sum(found.losses) == pytest.approx(wanted.value, rel=1e-5)
    for key, value in wanted.metrics.items():
        assert found.metrics[key] == pytest.approx(value, rel=1e-4, abs=1e-6)
    if name in ("ppo", "cispo"):
        assert 0.1 < found.metrics["actor/pg_clipfrac"] < 0.9
    # The written-out gradient by each log-probability, taken through plain transformers.
    slopes = dict(zip(map(id, sequences), wanted.gradients, strict=True))

    def through(chosen, example):
        return (chosen * torch.tensor(slopes[id(example)], dtype=torch.float32)).sum()

    own = gradients(one)
    assert near(own, plain_gradients(model, sequences, through))


def test_a_hand_calculation_of_ppo():
    # Two tokens of one vocabulary entry each: r = 1.5 clips for A = 1, r = 0.5 for A = -1 does not.
    logprobs = torch.log(torch.tensor([0.3, 0.1, 0.1]))
    sampled = torch.log(torch.tensor([0.2, 0.2, 0.2]))
    advantages, weights = torch.tensor([1.0, 1.0, -1.0]), torch.tensor([1.0, 2.0, 1.0])
    terms = token_losses(LossSpec("ppo"), logprobs, sampled, weights, advantages)
    assert terms.losses.tolist() == pytest.approx([-1.2, -2 * 0.5, 0.8])
    assert terms.is_clipped.tolist() == [True, False, True]


@pytest.mark.parametrize("make", [qwen3, llama, windowed, mistral, granite])
@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch_tokens": 1},
        {"micro_batch_tokens": 64},
        {"micro_batch_tokens": 64, "packed": True},
        {"micro_batch_tokens": 100_000, "packed": True},
    ],
)
def test_padded_packed_and_one_by_one_are_the_same(make, settings):
    sequences = examples(15)
    whole = trainer(make())
    wanted = whole.forward_backward(sequences, LossSpec("ppo"))
    other = trainer(make(), **settings)
    found = other.forward_backward(sequences, LossSpec("ppo"))
    for one, two in zip(found.logprobs, wanted.logprobs, strict=True):
        assert one == pytest.approx(two, abs=2e-5)
    assert found.losses == pytest.approx(wanted.losses, rel=1e-4, abs=1e-4)
    assert near(gradients(other), gradients(whole))
    if settings.get("packed"):
        assert found.metrics["tokens/padded"] == found.metrics["tokens"]


def test_passes_add_up_until_the_step():
    sequences = examples(8)
    whole, parts = trainer(), trainer()
    whole.forward_backward(sequences, LossSpec("ppo"))
    for at in range(0, 8, 3):
        parts.forward_backward(sequences[at : at + 3], LossSpec("ppo"))
    assert near(gradients(parts), gradients(whole))


def test_a_forward_pass_alone_leaves_no_gradient():
    one = trainer()
    found = one.forward_backward(examples(3), LossSpec("ppo"), backward=False)
    assert len(found.losses) == 3
    assert all(each.grad is None for each in one.model.trainable().values())


def test_logits_that_are_computed_twice_give_the_same(monkeypatch):
    sequences = examples(6)
    whole, split = trainer(), trainer(kl_coef=0.1)
    wanted = whole.forward_backward(sequences, LossSpec("ppo"))
    monkeypatch.setattr("rft_agent_sdk.local.trainer._LOGITS_AT_ONCE", 7 * VOCAB)
    found = split.forward_backward(sequences, LossSpec("ppo"))
    assert found.losses == pytest.approx(wanted.losses, rel=1e-5)
    assert near(gradients(split), gradients(whole))  # at the start there is no divergence


def test_gradient_checkpointing_changes_nothing():
    sequences = examples(6)
    for rank in (0, 4):
        plain = trainer(qwen3(lora_rank=rank))
        saving = trainer(qwen3(lora_rank=rank, gradient_checkpointing=True))
        assert saving.model.core.model.layers[0].gradient_checkpointing
        assert saving.model.core.training
        for one in (plain, saving):
            one.forward_backward(sequences, LossSpec("ppo"))
        assert near(gradients(saving), gradients(plain))


ADAM = AdamParams(1e-2, beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.1, grad_clip_norm=0.5)


def test_a_step_is_that_of_torch_s_adamw_after_clipping():
    one, sequences = trainer(), examples(5)
    twin = one.model.twin(with_copies=True)
    parameters = list(twin.core.parameters())
    plain = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    for _ in range(3):
        one.forward_backward(sequences, LossSpec("ppo"))
        own = gradients(one)
        for name, parameter in twin.core.named_parameters():
            parameter.grad = own[name].clone()
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, 0.5))
        plain.step()
        told = one.step(ADAM)
        assert told["actor/grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert told["actor/grad_norm"] > 0.5
    for name, parameter in twin.core.named_parameters():
        assert torch.allclose(one.model.trainable()[name], parameter, atol=2e-6)


def test_a_clip_norm_of_zero_does_not_clip_and_a_step_clears():
    free, clipped = trainer(), trainer()
    for one, norm in ((free, 0.0), (clipped, 1e9)):
        one.forward_backward(examples(5), LossSpec("ppo"))
        one.step(replace(ADAM, grad_clip_norm=norm))
        assert all(each.grad is None for each in one.model.trainable().values())
    for name, value in free.optimizer.weights().items():
        assert torch.equal(value, clipped.optimizer.weights()[name])


def test_the_learning_rate_rises_over_the_warm_up():
    one = trainer(warmup_steps=4)
    rates = []
    for _ in range(6):
        one.forward_backward(examples(1), LossSpec("ppo"))
        rates.append(one.step(ADAM)["actor/lr"])
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_a_gradient_that_is_no_number_is_thrown_away_and_the_weights_stay():
    one = trainer()
    before = one.optimizer.weights()
    one.forward_backward(examples(2), LossSpec("ppo"))
    next(iter(one.model.trainable().values())).grad[0] = float("nan")
    with pytest.raises(EngineError) as caught:
        one.step(ADAM)
    assert caught.value.usable
    for name, value in one.optimizer.weights().items():
        assert torch.equal(value, before[name])
    one.forward_backward(examples(2), LossSpec("ppo"))
    assert math.isfinite(one.step(ADAM)["actor/grad_norm"])


@pytest.mark.parametrize("kind", ["exact", "k3"])
@pytest.mark.parametrize("rank", [0, 4])
def test_the_divergence_from_the_first_weights_is_none_at_first_and_pulls_back_later(kind, rank):
    one = trainer(qwen3(lora_rank=rank), kl_coef=0.5, kl_kind=kind)
    sequences = examples(6)
    nothing = [replace(each, advantages=(0.0,) * len(each.tokens)) for each in sequences]
    first = one.forward_backward(sequences, LossSpec("ppo"))
    assert first.metrics["actor/reference_kl"] == pytest.approx(0, abs=1e-6)
    one.step(ADAM)
    for _ in range(3):
        one.forward_backward(sequences, LossSpec("importance_sampling"))
        one.step(ADAM)
    away = one.forward_backward(nothing, LossSpec("ppo"), backward=False).metrics
    assert away["actor/reference_kl"] > 0.02
    for _ in range(10):
        one.forward_backward(nothing, LossSpec("ppo"))
        one.step(replace(ADAM, weight_decay=0.0))
    back = one.forward_backward(nothing, LossSpec("ppo"), backward=False).metrics
    assert back["actor/reference_kl"] < 0.5 * away["actor/reference_kl"]


def test_k3_is_the_exact_divergence_on_average_over_the_model_s_own_samples():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 8, generator=generator).expand(50_000, -1)
    other = (logits[:1] + torch.randn(1, 8, generator=generator) * 0.5).expand(50_000, -1)
    targets = torch.multinomial(torch.softmax(logits[0], -1), 50_000, True, generator=generator)
    exact = float(divergence("exact", logits[:1], other[:1], targets[:1])[0])
    wanted = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=logits[0]),
        torch.distributions.Categorical(logits=other[0]),
    )
    assert exact == pytest.approx(float(wanted), rel=1e-5)
    assert float(divergence("k3", logits, other, targets).mean()) == pytest.approx(exact, rel=0.03)


def test_lora_trains_the_adapter_alone_and_merging_it_is_the_adapter():
    model = qwen3(lora_rank=4)
    one = trainer(model)
    base = {k: v.clone() for k, v in model.core.named_parameters() if "lora_" not in k}
    before = plain_logits(model, range(20))
    for _ in range(3):
        one.forward_backward(examples(6), LossSpec("cross_entropy"))
        one.step(ADAM)
    after = plain_logits(model, range(20))
    assert all("lora_" in name for name in model.trainable())
    for name, value in model.core.named_parameters():
        assert "lora_" in name or torch.equal(value, base[name])
    assert float((after - before).abs().max()) > 0.1
    with torch.no_grad():
        merged = model.merged()(torch.arange(20)[None]).logits[0]
        assert torch.allclose(merged, after, atol=2e-5)
        with model.without_adapter():
            assert torch.allclose(plain_logits(model, range(20)), before, atol=1e-6)


def test_bfloat16_keeps_steps_that_it_could_not_hold():
    model = qwen3()
    model.core.bfloat16()
    one = trainer(model)
    name = "model.layers.0.mlp.up_proj.weight"
    before = one.optimizer.weights()[name]
    for _ in range(20):  # each far below half a unit in the last place of a weight of 0.3
        one.forward_backward(examples(3), LossSpec("cross_entropy"))
        one.step(replace(ADAM, learning_rate=1e-4, weight_decay=0.0, grad_clip_norm=1.0))
    moved = (one.optimizer.weights()[name] - before).abs()
    assert float(moved.mean()) > 3e-4
    assert model.trainable()[name].dtype == torch.bfloat16
    assert torch.equal(model.trainable()[name], one.optimizer.weights()[name].bfloat16())


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [Example((1, VOCAB), (2, 3), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0))],
        [Example((1, 2), (2, -1), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0))],
        [Example((1, 2), (2, 3), (1.0,), (0.0, 0.0), (0.0, 0.0))],
        [Example((1, 2), (2, 3), (1.0, 1.0), (0.0, math.nan), (0.0, 0.0))],
        [Example((1,) * 513, (1,) * 513, (1.0,) * 513, (0.0,) * 513, (0.0,) * 513)],
    ],
)
def test_what_cannot_train_is_refused_before_anything_changes(wrong):
    one = trainer()
    with pytest.raises(UsageError):
        one.forward_backward([*examples(1), *wrong] if wrong else [], LossSpec("ppo"))
    assert all(each.grad is None for each in one.model.trainable().values())


def test_what_stands_at_a_token_without_a_weight_has_no_influence():
    plain = Example((1, 2, 3), (2, 3, 4), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0), (0.0, 1.0, 0.0))
    odd = replace(plain, logprobs=(math.nan, -1.0, math.inf), advantages=(math.nan, 1.0, 7.0))
    one, other = trainer(), trainer()
    one.forward_backward([plain], LossSpec("ppo"))
    other.forward_backward([odd], LossSpec("ppo"))
    assert near(gradients(other), gradients(one), 0.0)


def test_dropout_is_off_so_that_two_passes_agree():
    model = qwen3()
    model.core.config.attention_dropout = 0.5
    for layer in model.core.model.layers:
        layer.self_attn.attention_dropout = 0.5
    again = LocalModel(model.core, None, replace(model.settings, gradient_checkpointing=True))
    one = trainer(again)
    first = one.forward_backward(examples(3), LossSpec("ppo"), backward=False)
    second = one.forward_backward(examples(3), LossSpec("ppo"), backward=False)
    assert first.logprobs == second.logprobs
