"""Imitation: what is trained on in which step, at which rate, and where it goes on."""

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
from rft_agent_sdk.training.engines.base import AdamParams, Datum, Engine
from rft_agent_sdk.training.imitation import (
    ImitationSettings,
    imitate,
    learning_rate,
    plan,
)


def datum(number: int, length: int = 4) -> Datum:
    weights = (0.0,) * (length - 1) + (1.0,)
    return Datum((number,) * length, (number,) * length, weights, (0.0,) * length, (0.0,) * length)


class Noting(Engine):
    """An engine that notes what it is told."""

    def __init__(self, states=()):
        self.batches = []
        self.steps = []
        self.states = list(states)
        self.loaded = []

    async def forward_backward(self, datums, loss_fn, loss_fn_config=None):
        assert loss_fn == "cross_entropy"
        self.batches.append([one.tokens[0] for one in datums])
        return {"actor/pg_loss": 1.0}

    async def optim_step(self, params):
        self.steps.append(params)
        return {}

    async def save_state(self, description=""):
        self.states.append(description)
        return description

    async def load_state(self, name, *, with_optimizer=True):
        self.loaded.append(name)

    async def save_weights_and_get_sampling_client(self):
        raise NotImplementedError

    async def save_weights(self, description=""):
        raise NotImplementedError

    def get_tokenizer(self):
        raise NotImplementedError

    async def stop(self):
        pass


class Told:
    def __init__(self):
        self.steps = []

    def log(self, step, metrics):
        self.steps.append(step)

    def close(self):
        pass


SETTINGS = ImitationSettings(passes=3, batch_tokens=8, save_every=2)


def test_every_datum_is_trained_on_once_a_pass_in_steps_of_about_the_wanted_size():
    batches = plan([4] * 10, SETTINGS)
    assert sorted(at for batch in batches for at in batch) == sorted([*range(10)] * 3)
    assert {len(batch) for batch in batches} == {2}
    assert batches[:5] != batches[5:10]


def test_half_a_pass_trains_on_half_of_them():
    batches = plan([4] * 10, ImitationSettings(passes=0.5, batch_tokens=4))
    assert len({at for batch in batches for at in batch}) == 5


def test_nothing_to_train_on_is_refused():
    with pytest.raises(UsageError, match="wanted datums"):
        plan([], SETTINGS)


def test_the_rate_rises_and_then_falls_along_a_cosine():
    settings = ImitationSettings(adam=AdamParams(learning_rate=1.0), warmup_share=0.1)
    rates = [learning_rate(step, 100, settings) for step in range(100)]
    assert rates[0] < 0.11
    assert 0.95 < max(rates) <= 1
    assert rates.index(max(rates)) == 9
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.02 <= rates[-1] < 0.03


async def test_the_norm_to_clip_to_is_that_of_a_tokens_mean_loss(tmp_path):
    engine = Noting()
    await imitate(engine, [datum(n) for n in range(4)], SETTINGS, RunFolder(tmp_path), Told())
    assert [step.grad_clip_norm for step in engine.steps] == [2.0] * 6  # two trained tokens a step


async def test_a_run_that_goes_on_trains_on_what_is_left(tmp_path):
    datums = [datum(n) for n in range(4)]
    whole = Noting()
    await imitate(whole, datums, SETTINGS, RunFolder(tmp_path / "whole"), Told())
    assert whole.states == ["step 2", "step 4", "step 6"]
    folder, rest, told = RunFolder(tmp_path / "rest"), Noting(), Told()
    folder.save(Checkpoint(4, "step 4", {"steps": 6}))
    assert await imitate(rest, datums, SETTINGS, folder, told) == 6
    assert rest.loaded == ["step 4"]
    assert rest.batches == whole.batches[4:]
    assert told.steps == [5, 6]


async def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.save(Checkpoint(4, "step 4", {"steps": 7}))
    with pytest.raises(UsageError, match="of a plan of 7 steps, not of 6"):
        await imitate(Noting(), [datum(n) for n in range(4)], SETTINGS, folder, Told())
