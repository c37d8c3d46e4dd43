"""What a job will play: the arithmetic, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.mtrl.hyperparameters import choose, effective, published
from rft_agent_sdk.mtrl.plan import check_length, check_plan, hours, make_plan

GPT_OSS = "openai-reasoning-gpt-oss-20b"


def settings(**asked):
    return effective(choose(GPT_OSS, asked), published(GPT_OSS))


def ids(findings):
    return [finding.id for finding in findings]


def test_the_published_run_s_plan_by_hand():
    plan = make_plan(640, settings(max_epochs=20), validation_rows=128)
    assert plan.steps_per_epoch == 5
    assert plan.steps == 100
    assert plan.rollouts_per_step == 1024
    assert plan.training_rollouts == 102_400
    assert plan.validations == 11  # steps 0, 10, ..., 100
    assert plan.validation_rollouts == 1408
    assert plan.rollouts == 103_808
    assert plan.least_s == pytest.approx(20_761.6)


def test_its_arithmetic_is_told_line_by_line():
    assert make_plan(640, settings(max_epochs=20), validation_rows=128).lines() == [
        "rows: 640, 128 a step: 5 steps an epoch",
        "steps: min(max_steps 100, 20 epochs x 640 rows / 128) = 100",
        "rollouts a step: 128 prompts x group of 8 = 1,024, at least 205 s to start at 5 a second",
        "validations: 11 of 128 rows = 1,408 rollouts",
        "in all: 102,400 + 1,408 = 103,808 rollouts, at least 5.8 h",
    ]


def test_few_epochs_end_a_run_before_max_steps():
    assert make_plan(640, settings(max_epochs=3)).steps == 15


def test_a_last_validation_comes_where_val_every_does_not_end():
    plan = make_plan(640, settings(max_epochs=5), validation_rows=10)  # 25 steps: 0, 10, 20, 25
    assert plan.validations == 4


def test_without_val_every_there_are_the_first_and_the_last_validation():
    plan = make_plan(640, settings(max_epochs=5, val_every=0), validation_rows=10)
    assert plan.validations == 2


def test_without_validation_rows_none_is_counted_and_it_is_told():
    plan = make_plan(1280, settings())
    assert plan.validation_rollouts == 0
    assert ids(check_plan(plan)) == ["no-validation"]


def test_fewer_rows_than_a_batch_are_refused():
    plan = make_plan(127, settings(), validation_rows=9)
    assert plan.steps == 0
    assert plan.validations == 0
    (found,) = check_plan(plan)
    assert found.id == "rows-below-batch"
    assert found.message == "wanted at least one batch of 128 rows, got 127"


def test_one_batch_of_rows_is_taken_with_a_warning_and_ten_without():
    assert ids(check_plan(make_plan(128, settings(), validation_rows=9))) == ["rows-few"]
    assert ids(check_plan(make_plan(1280, settings(), validation_rows=9))) == []


def test_rows_that_fill_no_batch_are_told():
    assert ids(check_plan(make_plan(1281, settings(), validation_rows=9))) == ["rows-left-over"]


def test_a_conversation_that_may_outgrow_the_recipe_is_warned_about_with_the_sum():
    bounds = {"turn_tokens": 200, "prompt_tokens": 500, "max_sequence_length": 65_536}
    assert list(check_length(settings(), max_turns=6, **bounds)) == []
    (found,) = check_length(settings(), max_turns=8, **bounds)
    assert "8 turns x (8192 + 200) + 500 tokens = 67,636, above the 65,536" in found.message


@pytest.mark.parametrize(("seconds", "told"), [(90, "90 s"), (1800, "30 min"), (45_600, "12.7 h")])
def test_durations_are_told_in_words_of_their_size(seconds, told):
    assert hours(seconds) == told


@given(
    rows=st.integers(1, 5000),
    epochs=st.integers(1, 30),
    max_steps=st.integers(1, 1000),
    every=st.integers(0, 100),
    validation=st.integers(1, 300),
)
def test_a_plan_is_never_longer_than_its_limits(rows, epochs, max_steps, every, validation):
    asked = settings(max_epochs=epochs, max_steps=max_steps, val_every=every)
    plan = make_plan(rows, asked, validation_rows=validation)
    assert plan.steps <= max_steps
    assert plan.steps * plan.batch_size <= epochs * rows
    assert plan.steps == max_steps or (plan.steps + 1) * plan.batch_size > epochs * rows
    assert 0 <= plan.validations <= plan.steps + 1
    assert plan.rollouts == plan.training_rollouts + plan.validation_rollouts
