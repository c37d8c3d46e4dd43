"""A saved state goes on exactly where it was, and is there whole or not at all."""

import os
import resource
from contextlib import contextmanager

import pytest
import torch
from transformers import AutoModelForCausalLM

from rft_agent_sdk.errors import EngineError
from rft_agent_sdk.local.losses import LossSpec
from rft_agent_sdk.local.state import load_state, save_pretrained, save_state
from rft_agent_sdk.local.trainer import Trainer, TrainerSettings
from rft_agent_sdk.training.engines.base import AdamParams
from tests.local.models import examples, plain_logits, qwen3

pytestmark = pytest.mark.local

ADAM = AdamParams(1e-3, weight_decay=0.1)


def one_step(trainer, seed):
    trainer.forward_backward(examples(6, seed=seed), LossSpec("ppo"))
    trainer.step(ADAM)


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def bfloat16(model):
    model.core.bfloat16()
    return model


@pytest.mark.parametrize(
    "make", [qwen3, lambda **o: qwen3(lora_rank=4, **o), lambda **o: bfloat16(qwen3(**o))]
)
def test_the_step_after_loading_is_bit_by_bit_the_one_that_would_have_come(make, tmp_path):
    first = Trainer(make(), TrainerSettings(warmup_steps=5))
    one_step(first, 1)
    one_step(first, 2)
    save_state(first, tmp_path / "state", {"told": [1, "two"]})
    one_step(first, 3)
    other = Trainer(make(seed=9), TrainerSettings(warmup_steps=5))
    one_step(other, 4)
    assert load_state(other, tmp_path / "state") == {"told": [1, "two"]}
    # The base of an adapter is no part of a state: it is what both have loaded.
    if first.model.adapted is not None:
        frozen = {k: v for k, v in first.model.core.state_dict().items() if "lora_" not in k}
        other.model.core.load_state_dict(frozen, strict=False)
    one_step(other, 3)
    assert same(first.optimizer.weights(), other.optimizer.weights())
    for key, value in first.optimizer.state()["adam"].items():
        assert same(value, other.optimizer.state()["adam"][key])
    assert first.optimizer.steps == other.optimizer.steps == 3


def test_a_state_in_memory_is_taken_up_alike_any_number_of_times():
    trainer = Trainer(qwen3())
    one_step(trainer, 1)
    weights, moments = trainer.optimizer.weights(), trainer.optimizer.state()
    ends = []
    for _ in range(3):
        trainer.optimizer.load_weights(weights)
        trainer.optimizer.load_state(moments)
        one_step(trainer, 2)
        ends.append(trainer.optimizer.weights())
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


def test_random_numbers_go_on_where_they_were(tmp_path):
    one = Trainer(qwen3())
    save_state(one, tmp_path / "state")
    drawn = torch.rand(5)
    load_state(one, tmp_path / "state")
    assert torch.equal(torch.rand(5), drawn)


def test_without_the_optimizer_it_starts_afresh_warm_up_included(tmp_path):
    one = Trainer(qwen3(), TrainerSettings(warmup_steps=4))
    one_step(one, 1)
    one_step(one, 2)
    save_state(one, tmp_path / "state")
    weights = one.optimizer.weights()
    one_step(one, 3)
    load_state(one, tmp_path / "state", with_optimizer=False)
    assert same(one.optimizer.weights(), weights)
    one.forward_backward(examples(2), LossSpec("ppo"))
    assert one.step(ADAM)["actor/lr"] == pytest.approx(ADAM.learning_rate / 4)


def test_loading_drops_the_gradient_that_was_accumulated(tmp_path):
    one = Trainer(qwen3())
    save_state(one, tmp_path / "state")
    one.forward_backward(examples(2), LossSpec("ppo"))
    load_state(one, tmp_path / "state")
    assert one.optimizer.gradient_norm() == 0


def test_a_state_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    one = Trainer(qwen3())

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("torch.save", fail)
    with pytest.raises(EngineError, match="cannot be written: the disk is full") as caught:
        save_state(one, tmp_path / "state")
    assert caught.value.usable
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_never_overwritten(tmp_path):
    one = Trainer(qwen3())
    save_state(one, tmp_path / "state")
    with pytest.raises(EngineError, match="never overwritten"):
        save_state(one, tmp_path / "state")


@pytest.mark.parametrize("damage", ["missing", "weights.safetensors", "optimizer.pt", "state.json"])
def test_a_damaged_state_is_refused_and_nothing_changes(damage, tmp_path):
    one = Trainer(qwen3())
    folder = tmp_path / "state"
    if damage != "missing":
        save_state(one, folder)
        path = folder / damage
        path.write_bytes(path.read_bytes()[:20])
    one_step(one, 1)
    before = one.optimizer.weights()
    with pytest.raises(EngineError, match="wanted a saved state") as caught:
        load_state(one, folder)
    assert caught.value.usable
    assert same(one.optimizer.weights(), before)


def test_another_model_s_state_is_refused(tmp_path):
    save_state(Trainer(qwen3(lora_rank=4)), tmp_path / "state")
    for other in (Trainer(qwen3(lora_rank=8)), Trainer(qwen3())):
        with pytest.raises(EngineError, match="another model's"):
            load_state(other, tmp_path / "state")


def test_a_saved_model_is_loaded_by_transformers_with_the_adapter_in_it(tmp_path):
    one = Trainer(qwen3(lora_rank=4))
    one_step(one, 1)
    one.step(AdamParams(0.05))
    save_pretrained(one, tmp_path / "merged")
    save_pretrained(one, tmp_path / "adapter", merge=False)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        logits = again(torch.arange(20)[None]).logits[0]
    assert torch.allclose(logits, plain_logits(one.model, range(20)), atol=2e-5)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    one_step(one, 2)  # it goes on training


@contextmanager
def files_of_at_most(size):
    """No file may grow larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("save", [save_state, save_pretrained])
@pytest.mark.parametrize("share", [0.1, 1.5])  # too small for the weights; for the moments alone
def test_what_a_full_disk_cuts_off_is_told_and_leaves_nothing_behind(save, share, tmp_path):
    trainer = Trainer(qwen3())
    one_step(trainer, 1)
    size = sum(value.nbytes for value in trainer.optimizer.weights().values())
    if save is save_pretrained:
        share = min(share, 0.5)
    with files_of_at_most(int(size * share)), pytest.raises(EngineError) as caught:
        save(trainer, tmp_path / "folder")
    assert caught.value.usable
    assert list(tmp_path.iterdir()) == []
    save(trainer, tmp_path / "folder")


@pytest.mark.parametrize("left", [b"", b"\x80\x02", b"PK\x03\x04", bytes(200), b"{}" * 40])
def test_damaged_moments_are_told_and_change_nothing(left, tmp_path):
    trainer = Trainer(qwen3())
    save_state(trainer, tmp_path / "state")
    (tmp_path / "state" / "optimizer.pt").write_bytes(left)
    before = {name: value.clone() for name, value in trainer.optimizer.weights().items()}
    with pytest.raises(EngineError, match="wanted a saved state"):
        load_state(trainer, tmp_path / "state")
    assert same(before, trainer.optimizer.weights())


@pytest.mark.parametrize("save", [save_state, save_pretrained])
def test_what_a_killed_process_left_half_written_is_in_nobodys_way(save, tmp_path):
    part = (
        tmp_path / f".folder.{os.getpid()}.part"
    )  # in a container the process id is always the same
    part.mkdir()
    (part / "stale").touch()
    save(Trainer(qwen3()), tmp_path / "folder")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
    assert not (tmp_path / "folder" / "stale").exists()
