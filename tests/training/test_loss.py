"""Losses by hand, gradients by finite differences, and nothing from tokens that do not train."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.engines.base import Datum, LossName
from rft_agent_sdk.training.loss import clip_bounds, compute_loss

LOSSES: tuple[LossName, ...] = get_args(LossName)
WITH_RATIO = [name for name in LOSSES if name != "cross_entropy"]
STEP = 1e-6


def datum(weights, logprobs, advantages):
    n = len(weights)
    return Datum((1,) * n, (2,) * n, tuple(weights), tuple(logprobs), tuple(advantages))


def one(loss, ratio, advantage, *, weight=1.0, sampled=-1.0, config=None):
    """The loss of a single token, its slope, and its metrics."""
    found = compute_loss(
        loss,
        [datum([weight], [sampled], [advantage])],
        [[sampled + math.log(ratio)]],
        config,
    )
    return found.value, found.gradients[0][0], found.metrics


def test_cross_entropy_by_hand():
    found = compute_loss(
        "cross_entropy", [datum([1.0, 0.0, 0.5], [0.0] * 3, [0.0] * 3)], [[-1.0, -7.0, -4.0]]
    )
    assert found.value == 1.0 + 0.5 * 4.0
    assert found.gradients[0].tolist() == [-1.0, 0.0, -0.5]
    assert found.metrics == {"actor/pg_loss": 1.5}


@pytest.mark.parametrize(("ratio", "advantage"), [(0.5, 1.0), (1.0, -2.0), (3.0, 2.0)])
def test_importance_sampling_by_hand(ratio, advantage):
    value, slope, metrics = one("importance_sampling", ratio, advantage, weight=0.5)
    assert value == pytest.approx(-0.5 * ratio * advantage)
    assert slope == pytest.approx(-0.5 * ratio * advantage)
    assert metrics["actor/pg_clipfrac"] == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # rose enough: no more pull
        (0.5, 2.0, -1.0, -1.0),  # fell though it was good: pulled back
        (1.0, -2.0, 2.0, 2.0),
        (1.5, -2.0, 3.0, 3.0),  # rose though it was bad: pushed down
        (0.5, -2.0, 1.6, 0.0),  # fell enough: no more push
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_ppo_by_hand(ratio, advantage, value, slope):
    found = one("ppo", ratio, advantage)
    assert found[:2] == pytest.approx((value, slope))
    assert found[2]["actor/pg_clipfrac"] == (slope == 0.0 and advantage != 0.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "bounded"),
    [(1.1, 2.0, 1.1), (1.5, 2.0, 1.2), (0.5, 2.0, 0.8), (1.5, -2.0, 1.2), (0.5, -2.0, 0.8)],
)
def test_cispo_by_hand(ratio, advantage, bounded):
    value, slope, metrics = one("cispo", ratio, advantage)
    assert value == pytest.approx(-bounded * advantage * (-1.0 + math.log(ratio)))
    assert slope == pytest.approx(-bounded * advantage)
    assert metrics["actor/pg_clipfrac"] == (bounded != ratio)


@pytest.mark.parametrize("loss", WITH_RATIO)
def test_on_the_policy_that_sampled_every_loss_has_the_same_gradient(loss):
    assert one(loss, 1.0, 3.0, weight=0.5)[1] == -1.5


def test_at_a_threshold_itself_the_gradient_is_that_of_the_inside():
    high, low = math.exp(0.25), math.exp(-0.25)
    config = {"clip_low_threshold": low, "clip_high_threshold": high}
    edge_high = datum([1.0], [-1.0], [1.0]), [-0.75]
    edge_low = datum([1.0], [-1.0], [-1.0]), [-1.25]
    for (token, target), slope in ((edge_high, -high), (edge_low, low)):
        found = compute_loss("ppo", [token], [target], config)
        assert found.gradients[0].tolist() == [pytest.approx(slope)]
        assert found.metrics["actor/pg_clipfrac"] == 0.0
        outside = [target[0] + math.copysign(1e-9, target[0] + 1.0)]
        found = compute_loss("ppo", [token], [outside], config)
        assert found.gradients[0].tolist() == [0.0]
        assert found.metrics["actor/pg_clipfrac"] == 1.0


def test_thresholds_are_bounds_of_the_ratio_and_not_distances_from_one():
    wide = {"clip_low_threshold": 0.2, "clip_high_threshold": 5.0}
    assert one("ppo", 4.0, 1.0, config=wide)[:2] == pytest.approx((-4.0, -4.0))
    assert one("ppo", 6.0, 1.0, config=wide)[:2] == pytest.approx((-5.0, 0.0))
    assert one("cispo", 0.1, 1.0, config=wide)[1] == pytest.approx(-0.2)


def test_thresholds_left_out_are_the_defaults_and_others_are_refused():
    assert clip_bounds() == (0.8, 1.2)
    assert clip_bounds({"clip_high_threshold": 1.28}) == (0.8, 1.28)
    for low, high in ((0.0, 1.0), (1.0, 10.0)):
        config = {"clip_low_threshold": low, "clip_high_threshold": high}
        assert clip_bounds(config) == (low, high)
    with pytest.raises(UsageError, match=r"configured by .* only, got 'kl_coef'"):
        clip_bounds({"kl_coef": 0.1})
    for name, value in (
        ("clip_low_threshold", 1.2),
        ("clip_low_threshold", -0.1),
        ("clip_high_threshold", 0.2),
        ("clip_high_threshold", 11.0),
        ("clip_high_threshold", math.nan),
    ):
        with pytest.raises(UsageError, match=f"{name} bounds the ratio .* got {value!r}"):
            clip_bounds({name: value})


def test_metrics_are_means_over_the_tokens_that_train():
    token = datum([1.0, 0.0, 2.0, 1.0], [-1.0, -5.0, -1.0, -2.0], [1.0, 9.0, 1.0, -1.0])
    found = compute_loss("ppo", [token], [[-1.0, -9.0, -0.5, -1.9]])
    assert found.metrics == {
        "actor/pg_loss": pytest.approx((-1.0 - 2 * 1.2 + math.exp(0.1)) / 3),
        "actor/ppo_kl": pytest.approx((0.0 - 0.5 - 0.1) / 3),
        "actor/pg_clipfrac": pytest.approx(1 / 3),
    }


@st.composite
def batches(draw):
    """Two datums, some tokens masked, and target log-probabilities not at a threshold."""
    datums, targets = [], []
    for _ in range(2):
        n = draw(st.integers(1, 6))
        sampled = [draw(st.floats(-6, -0.01)) for _ in range(n)]
        moves = [
            draw(
                st.floats(-1.5, 1.5).filter(
                    lambda move: all(abs(move - math.log(edge)) > 1e-4 for edge in (0.8, 1.2))
                )
            )
            for _ in range(n)
        ]
        weights = [draw(st.sampled_from([0.0, 0.25, 1.0])) for _ in range(n)]
        datums.append(datum(weights, sampled, [draw(st.floats(-3, 3)) for _ in range(n)]))
        targets.append(np.array(sampled) + moves)
    return datums, targets


def moved(values, i, t, by):
    changed = [np.array(row, np.float64) for row in values]
    changed[i][t] += by
    return changed


def slopes(value_at, targets):
    """Central differences of a function of (datum, token, step)."""
    return [
        [(value_at(i, t, STEP) - value_at(i, t, -STEP)) / (2 * STEP) for t in range(len(row))]
        for i, row in enumerate(targets)
    ]


@given(batches(), st.sampled_from(["cross_entropy", "importance_sampling", "ppo"]))
def test_the_gradient_agrees_with_finite_differences(batch, loss):
    datums, targets = batch

    def value_at(i, t, by):
        return compute_loss(loss, datums, moved(targets, i, t, by)).value

    for ours, theirs in zip(
        compute_loss(loss, datums, targets).gradients, slopes(value_at, targets), strict=True
    ):
        assert ours == pytest.approx(np.array(theirs), abs=1e-6)


@given(batches())
def test_the_gradient_of_cispo_agrees_with_finite_differences_at_a_ratio_held_still(batch):
    datums, targets = batch

    def value_at(i, t, by):
        # both log-probabilities move, so the ratio, whose gradient is stopped, does not
        shifted = moved([each.logprobs for each in datums], i, t, by)
        still = [
            replace(each, logprobs=tuple(row)) for each, row in zip(datums, shifted, strict=True)
        ]
        return compute_loss("cispo", still, moved(targets, i, t, by)).value

    for ours, theirs in zip(
        compute_loss("cispo", datums, targets).gradients, slopes(value_at, targets), strict=True
    ):
        assert ours == pytest.approx(np.array(theirs), abs=1e-6)


@given(batches(), st.sampled_from(LOSSES), st.sampled_from([math.nan, -math.inf, 1e9]))
def test_tokens_that_do_not_train_have_no_influence(batch, loss, junk):
    datums, targets = batch

    def spoiled(each, values):
        return tuple(v if w else junk for v, w in zip(values, each.weights, strict=True))

    dirty = [
        replace(
            each,
            logprobs=spoiled(each, each.logprobs),
            advantages=spoiled(each, each.advantages),
        )
        for each in datums
    ]
    there = [spoiled(each, row) for each, row in zip(datums, targets, strict=True)]
    clean, found = compute_loss(loss, datums, targets), compute_loss(loss, dirty, there)
    assert (found.value, found.metrics) == (clean.value, clean.metrics)
    for ours, theirs, each in zip(found.gradients, clean.gradients, datums, strict=True):
        assert ours.tolist() == theirs.tolist()
        assert not ours[np.array(each.weights) == 0].any()


@given(batches(), st.sampled_from(LOSSES))
def test_a_batch_in_parts_adds_up(batch, loss):
    datums, targets = batch
    whole = compute_loss(loss, datums, targets)
    parts = [compute_loss(loss, [each], [row]) for each, row in zip(datums, targets, strict=True)]
    assert whole.value == pytest.approx(sum(part.value for part in parts), abs=1e-12)
    assert [row.tolist() for row in whole.gradients] == [
        part.gradients[0].tolist() for part in parts
    ]


@given(batches())
def test_with_the_ratio_inside_its_bounds_ppo_is_importance_sampling(batch):
    datums, targets = batch
    wide = {"clip_low_threshold": 0.0, "clip_high_threshold": 10.0}
    ppo = compute_loss("ppo", datums, targets, wide)
    plain = compute_loss("importance_sampling", datums, targets)
    assert (ppo.value, ppo.metrics) == (plain.value, plain.metrics)


def test_a_batch_in_which_nothing_trains_is_worth_nothing():
    found = compute_loss("ppo", [datum([0.0], [0.0], [0.0])], [[-3.0]])
    assert (found.value, found.gradients[0].tolist()) == (0.0, [0.0])
    assert set(found.metrics.values()) == {0.0}


def test_what_does_not_fit_is_refused():
    token = datum([1.0], [-1.0], [1.0])
    for datums, targets in (([], []), ([token], []), ([token], [[-1.0, -1.0]])):
        with pytest.raises(UsageError, match="at least one datum, of shapes"):
            compute_loss("ppo", datums, targets)
    with pytest.raises(UsageError, match="every trained token needs a finite"):
        compute_loss("ppo", [token], [[math.nan]])
    with pytest.raises(UsageError, match=r"wanted a loss out of .* got 'dpo'"):
        compute_loss("dpo", [token], [[-1.0]])  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", WITH_RATIO)
@pytest.mark.parametrize("gap", [-5000.0, 5000.0])
def test_a_token_that_two_models_hold_for_impossible_stays_finite_and_pulls_nothing(loss, gap):
    sampled, target = (-1.0, -1.0 + gap) if gap < 0 else (-5001.0, -1.0)
    found = compute_loss(loss, [datum([1.0], [sampled], [-1.0])], [[target]])
    assert math.isfinite(found.value)
    assert abs(found.gradients[0][0]) == (0.0 if loss != "cispo" else 1.2 if gap > 0 else 0.8)
