"""Choosing tokens: by chance that depends on a seed and a count alone, after the filters that were asked for."""

import numpy as np
import pytest
import torch

from rft_agent_sdk.local.choose import Choosing, choose, uniform

pytestmark = pytest.mark.local

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5, -3.0])


def draws(count=20_000, **options):
    how = [Choosing(seed=seed, **options) for seed in range(count)]
    tokens, _ = choose(LOGITS.expand(count, -1), how, [0] * count)
    return np.bincount(tokens, minlength=len(LOGITS)) / count


def wanted(keep, temperature=1.0):
    chance = torch.softmax(LOGITS.double() / temperature, dim=-1).numpy() * np.isin(range(6), keep)
    return chance / chance.sum()


@pytest.mark.parametrize(
    ("options", "keep", "temperature"),
    [
        ({}, range(6), 1.0),
        ({"temperature": 0.5}, range(6), 0.5),
        ({"temperature": 2.0}, range(6), 2.0),
        ({"top_k": 2}, [0, 4], 1.0),
        # masses in their order: 0.47, 0.29, 0.17, 0.06
        ({"top_p": 0.5}, [0, 4], 1.0),
        ({"top_p": 0.8}, [0, 4, 1], 1.0),
        ({"top_p": 0.0}, [0], 1.0),
        ({"min_p": 0.3}, [0, 4, 1], 1.0),
        # of the two that top-k left the first has 62 %
        ({"top_k": 2, "top_p": 0.6}, [0], 1.0),
        ({"top_k": 2, "top_p": 0.65}, [0, 4], 1.0),
        ({"top_k": 100, "top_p": 1.0}, range(6), 1.0),
    ],
)
def test_tokens_come_as_often_as_the_filtered_distribution_says(options, keep, temperature):
    found = draws(**options)
    expected = wanted(list(keep), temperature)
    # four standard errors of 20,000 draws, and nothing at all where nothing is kept
    assert np.all(np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_temperature_zero_is_the_likeliest_token_whatever_else_is_asked_for():
    assert draws(50, temperature=0.0)[0] == 1
    assert draws(50, temperature=0.0, top_k=3, top_p=0.5)[0] == 1


def test_the_logprob_is_the_model_s_own_before_temperature_and_filters():
    how = [Choosing(seed=1), Choosing(0.3, seed=1), Choosing(top_k=1, seed=1), Choosing(0.0)]
    tokens, logprobs = choose(LOGITS.expand(4, -1), how, [0] * 4)
    own = torch.log_softmax(LOGITS, dim=-1)
    assert logprobs == pytest.approx([float(own[token]) for token in tokens])


def test_rows_of_a_batch_do_not_know_of_each_other():
    rng = torch.Generator().manual_seed(3)
    logits = torch.randn(50, 200, generator=rng) * 3
    how = [
        Choosing([1.0, 0.7, 0.0][at % 3], [0, 5][at % 2], [1.0, 0.9][at % 5 == 0], seed=at)
        for at in range(50)
    ]
    together, logprobs = choose(logits, how, list(range(50)))
    for at in range(50):
        token, logprob = choose(logits[at : at + 1], [how[at]], [at])
        assert (token, logprob) == ([together[at]], [logprobs[at]])


def test_logits_that_differ_in_the_last_bits_give_the_same_token():
    rng = torch.Generator().manual_seed(4)
    logits = torch.randn(2000, 100, generator=rng) * 3
    how = [Choosing(seed=at) for at in range(2000)]
    noise = 1 + 1e-6 * torch.randn(logits.shape, generator=rng)
    one, _ = choose(logits, how, [0] * 2000)
    other, _ = choose(logits * noise, how, [0] * 2000)
    assert one == other


def test_chance_is_even_and_differs_between_neighbouring_seeds_and_counts():
    found = uniform(np.repeat(range(300), 300).tolist(), np.tile(range(300), 300).tolist())
    assert 0 <= found.min() <= found.max() < 1
    counts = np.bincount((found * 100).astype(int), minlength=100)
    chi_square = ((counts - 900) ** 2 / 900).sum()
    assert chi_square < 99 + 5 * np.sqrt(2 * 99)
    grid = found.reshape(300, 300) - 0.5
    for one, other in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])):
        assert abs((one * other).mean() * 12) < 0.02  # correlation; its standard error is 0.003
    assert (
        uniform([7, -1, 2**63], [0, 0, 0]).tolist() == uniform([7, -1, 2**63], [0, 0, 0]).tolist()
    )
