"""Estimates by hand and by counting."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.estimates import normal, pass_at_k, pass_power_k, wilson


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_draws_that_have_a_solution(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_power_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (2, 3, 1), (2, 1, 3), (2, 1, 0), (2, -1, 1)])
def test_counts_that_cannot_be_are_refused(n, c, k):
    with pytest.raises(UsageError):
        pass_at_k(n, c, k)


def test_the_interval_is_wilsons():
    found = wilson(0.5, 100)
    assert (round(found.low, 4), round(found.high, 4)) == (0.4038, 0.5962)
    found = wilson(1.0, 10)
    assert (round(found.low, 4), found.high) == (0.7225, 1.0)


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_the_interval_holds_the_mean_and_stays_within_0_and_1(mean, n):
    found = wilson(mean, n)
    assert 0 <= found.low <= mean <= found.high <= 1


def test_the_interval_of_a_mean_is_the_normal_one():
    found = normal(0.5, 2.0, 16)
    assert (found.value, round(found.low, 4), round(found.high, 4)) == (0.5, -0.48, 1.48)
