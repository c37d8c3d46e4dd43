"""Datums: aligned by one position, zero where nothing trains, and never a token lost in silence."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.advantages import group_based_per_turn, grpo, score
from rft_agent_sdk.training.datums import DatumBatch, Weighting, build_datums
from rft_agent_sdk.training.engines.base import Datum
from rft_agent_sdk.trajectory import Sample, Trajectory, TurnSpan
from rft_agent_sdk.types import Outcome

# prompt 10 11, first turn 20 21, tool result 12, second turn 30
SAMPLE = Sample(
    "r",
    token_ids=(10, 11, 20, 21, 12, 30),
    loss_mask=(0, 0, 1, 1, 0, 1),
    logprobs=(0.0, 0.0, -0.1, -0.2, 0.0, -0.3),
    spans=(TurnSpan(0, 2, 4), TurnSpan(1, 5, 6)),
)


def rollout(*samples, turns=2, **fields):
    return Trajectory("r", Outcome.COMPLETED, samples, turns, **fields)


def build(sample, advantage=1.0, **options):
    return build_datums([(rollout(sample), advantage)], **options)


def test_inputs_lose_the_last_token_targets_the_first_and_everything_else_follows_the_targets():
    assert build(SAMPLE, 0.5) == DatumBatch(
        (
            Datum(
                tokens=(10, 11, 20, 21, 12),
                targets=(11, 20, 21, 12, 30),
                weights=(0.0, 1.0, 1.0, 0.0, 1.0),
                logprobs=(0.0, -0.1, -0.2, 0.0, -0.3),
                advantages=(0.0, 0.5, 0.5, 0.0, 0.5),
            ),
        ),
        trained_tokens=3,
        empty=0,
        masked=0,
        too_long=0,
    )


def test_an_advantage_per_turn_reaches_exactly_the_tokens_of_its_turn():
    assert build(SAMPLE, (0.5, -2.0)).datums[0].advantages == (0.0, 0.5, 0.5, 0.0, -2.0)


def test_a_turn_that_another_sample_trains_stays_out_of_this_one():
    first = replace(SAMPLE, weight=0.75)
    second = replace(
        SAMPLE,
        loss_mask=(0, 0, 0, 0, 0, 1),
        spans=(TurnSpan(0, 2, 4), TurnSpan(2, 5, 6)),
        weight=0.25,
    )
    batch = build_datums([(rollout(first, second, turns=3), (1.0, 2.0, 3.0))])
    assert [datum.advantages for datum in batch.datums] == [
        (0.0, 1.0, 1.0, 0.0, 2.0),
        (0.0, 0.0, 0.0, 0.0, 3.0),
    ]
    assert batch.datums[1].logprobs == (0.0, 0.0, 0.0, 0.0, -0.3)
    assert batch.trained_tokens == 4


def test_values_where_nothing_trains_are_zero_whatever_the_sample_holds_there():
    dirty = replace(SAMPLE, logprobs=(math.nan, -9.0, -0.1, -0.2, math.inf, -0.3))
    assert build(dirty) == build(SAMPLE)


def test_weighing_by_rollout_gives_each_rollout_one_however_it_was_cut():
    short = replace(SAMPLE, loss_mask=(0, 0, 1, 0, 0, 0), weight=0.25)
    long = replace(SAMPLE, weight=0.75)
    batch = build_datums([(rollout(short, long), 1.0)], weighting="rollout")
    assert [datum.weights for datum in batch.datums] == [
        (0.0, 0.25, 0.0, 0.0, 0.0),
        (0.0, 0.25, 0.25, 0.0, 0.25),
    ]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_the_total_weight_of_a_rollout_is_its_tokens_or_one(lengths):
    total = sum(lengths)
    samples = [
        Sample("r", tuple(range(n + 1)), (0, *(1,) * n), (0.0, *(-1.0,) * n), weight=n / total)
        for n in lengths
    ]
    expectations: tuple[tuple[Weighting, float], ...] = (("token", total), ("rollout", 1.0))
    for weighting, expected in expectations:
        batch = build_datums([(rollout(*samples), 1.0)], weighting=weighting)
        weights = [weight for datum in batch.datums for weight in datum.weights]
        assert math.fsum(weights) == pytest.approx(expected)
        assert weights == pytest.approx([expected / total] * total)


def test_samples_that_cannot_train_are_left_out_whole_and_counted_by_reason():
    nothing = replace(SAMPLE, token_ids=(), loss_mask=(), logprobs=(), spans=())
    lone = replace(SAMPLE, token_ids=(10,), loss_mask=(0,), logprobs=(0.0,), spans=())
    masked = replace(SAMPLE, loss_mask=(0,) * 6)
    batch = build_datums(
        [(rollout(nothing, lone, masked, SAMPLE), 1.0), (Trajectory("x", Outcome.COMPLETED), 1.0)]
    )
    assert batch.datums == build(SAMPLE).datums
    assert (batch.empty, batch.masked, batch.too_long, batch.dropped) == (2, 1, 0, 3)


def test_the_length_limit_counts_the_whole_sample_and_never_cuts():
    assert build(SAMPLE, max_length=6) == build(SAMPLE)
    assert build(SAMPLE, max_length=5) == DatumBatch((), 0, empty=0, masked=0, too_long=1)


def test_no_rollouts_give_no_datums():
    assert build_datums([]) == DatumBatch((), 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"loss_mask": (0, 0, 2, 1, 0, 1)}, r"holds 0 and 1, got \[0, 1, 2\]"),
        ({"loss_mask": (1, 0, 1, 1, 0, 1)}, "nothing predicts the first token"),
        ({"logprobs": (0.0, 0.0, math.nan, -0.2, 0.0, -0.3)}, "got nan"),
        ({"logprobs": (0.0, 0.0, -math.inf, -0.2, 0.0, -0.3)}, "got -inf"),
        ({"logprobs": (0.0, 0.0, 0.1, -0.2, 0.0, -0.3)}, "got 0.1"),
        ({"spans": (TurnSpan(0, 2, 7),)}, r"turn 0 spans 2\.\.7, outside the 6 tokens"),
    ],
)
def test_a_sample_that_contradicts_itself_is_refused_by_name(broken, message):
    with pytest.raises(UsageError, match=f"{message}.* rollout 'r'"):
        build(replace(SAMPLE, **broken))


@pytest.mark.parametrize(
    "spans",
    [(TurnSpan(0, 2, 4),), (TurnSpan(0, 2, 4), TurnSpan(1, 3, 6))],
    ids=["in none", "in two"],
)
def test_an_advantage_per_turn_needs_each_trained_token_in_one_turn(spans):
    with pytest.raises(UsageError, match=r"in one turn, got \d of 3 .* rollout 'r'"):
        build(replace(SAMPLE, spans=spans), (1.0, 2.0))


@pytest.mark.parametrize("turn", [2, -1])
def test_a_turn_that_the_rollout_does_not_have_is_refused(turn):
    spans = (TurnSpan(0, 2, 4), TurnSpan(turn, 5, 6))
    with pytest.raises(UsageError, match=f"turn {turn} .* rollout 'r'"):
        build(replace(SAMPLE, spans=spans), (1.0, 2.0))


@pytest.mark.parametrize(
    ("advantage", "message"),
    [
        ((1.0,), "got 1 for the 2 turns"),
        (math.nan, "must be finite, got nan"),
        ((0.0, math.inf), "must be finite"),
    ],
)
def test_an_advantage_that_does_not_fit_is_refused(advantage, message):
    with pytest.raises(UsageError, match=message):
        build(SAMPLE, advantage)


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(UsageError, match="'token' or 'rollout', got 'sample'"):
        build(SAMPLE, weighting="sample")
    with pytest.raises(UsageError, match="at least 2 tokens, got 1"):
        build(SAMPLE, max_length=1)


def test_rewards_of_a_group_reach_the_tokens_through_both_modules():
    good = rollout(SAMPLE, reward=3.0, per_turn=(1.0, 2.0))
    bad = replace(good, rollout_id="s", reward=1.0, per_turn=(1.0, 0.0))
    scored = [score(good, "g"), score(bad, "g")]
    for method, expected in (
        (grpo, [(0, 1, 1, 0, 1), (0, -1, -1, 0, -1)]),
        (group_based_per_turn, [(0, 0, 0, 0, 1), (0, 0, 0, 0, -1)]),
    ):
        found = method(scored).per_rollout
        batch = build_datums([(record, found[record.rollout_id]) for record in (good, bad)])
        assert [datum.advantages for datum in batch.datums] == [
            pytest.approx(row, abs=1e-5) for row in expected
        ]
