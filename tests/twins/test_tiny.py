"""The tiny model: its gradients against finite differences, its sampling against its own probabilities."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rft_agent_sdk.twins.backend import Adam, Loss, OperationFailed, SampleRequest, TrainingDatum
from rft_agent_sdk.twins.tiny import TinyBackend

V = 5
DATUMS = (
    TrainingDatum((1, 2, 3), (2, 3, 0), (0.0, 1.0, 1.0), (0.0, -1.2, -2.9), (0.0, 0.7, -1.1)),
    TrainingDatum((4, 2), (2, 4), (0.5, 1.0), (-1.6, -1.0), (1.3, -0.4)),
)


def backend(**options):
    made = TinyBackend(V, gain=1.0, **options)
    random = np.random.default_rng(3)
    made._state.rows = {token: random.normal(size=V) for token in range(V)}
    return made


def total(made, loss):
    return sum(made.forward_backward(DATUMS, loss, backward=False).losses)


@pytest.mark.parametrize(
    "loss",
    [
        Loss("cross_entropy"),
        Loss("importance_sampling"),
        Loss("ppo"),
        Loss("ppo", 0.2, 5.0),
    ],
)
def test_the_gradient_is_that_of_the_summed_loss(loss):
    made = backend()
    made.forward_backward(DATUMS, loss, backward=True)
    for token in range(V):
        row = made._state.rows[token]
        for at in range(V):
            ends = []
            for shift in (1e-6, -1e-6):
                made._state.rows[token] = row + shift * np.eye(V)[at]
                ends.append(total(made, loss))
            made._state.rows[token] = row
            found = made._gradient.get(token, np.zeros(V))[at]
            assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


def test_cispo_follows_every_token_with_its_clipped_ratio_held_fixed():
    made, plain = backend(), backend()
    made.forward_backward(DATUMS, Loss("cispo"), backward=True)
    result = plain.forward_backward(DATUMS, Loss("cross_entropy"), backward=False)
    factors = []
    for datum, logprobs in zip(DATUMS, result.logprobs, strict=True):
        ratio = np.exp(np.array(logprobs) - np.array(datum.logprobs))
        factors.append(tuple(np.clip(ratio, 0.8, 1.2) * datum.weights * datum.advantages))
    weighted = [
        TrainingDatum(datum.tokens, datum.targets, factor)
        for datum, factor in zip(DATUMS, factors, strict=True)
    ]
    plain.forward_backward(weighted, Loss("cross_entropy"), backward=True)
    for token, row in plain._gradient.items():
        assert made._gradient[token] == pytest.approx(row)


def test_two_batches_accumulate_to_the_gradient_of_both_together():
    one, two = backend(), backend()
    one.forward_backward(DATUMS, Loss("ppo"), backward=True)
    for datum in DATUMS:
        two.forward_backward([datum], Loss("ppo"), backward=True)
    for token, row in one._gradient.items():
        assert two._gradient[token] == pytest.approx(row)


def test_the_first_step_of_adam_moves_by_the_learning_rate_against_the_sign():
    made = TinyBackend(V, gain=1.0)
    made.forward_backward([TrainingDatum((1,), (2,), (1.0,))], Loss("cross_entropy"), backward=True)
    made.optimizer_step(Adam(0.01, grad_clip_norm=0.0))
    assert made.weights()[1] == pytest.approx([-0.01, -0.01, 0.01, -0.01, -0.01], rel=1e-5)


def test_weights_taken_earlier_stay_what_they_were():
    made = TinyBackend(V)
    before = made.weights()
    made.forward_backward([TrainingDatum((1,), (2,), (1.0,))], Loss("cross_entropy"), backward=True)
    made.optimizer_step(Adam(0.01))
    assert made.logprobs(before, (1, 2)) == made.logprobs(None, (1, 2))
    assert made.logprobs(made.weights(), (1, 2)) != made.logprobs(None, (1, 2))


def test_sampled_logprobs_are_those_the_model_computes_for_the_same_tokens():
    made = backend()
    (found,) = made.sample(made.weights(), SampleRequest((3, 1), seed=5))
    assert found.stop_reason == "stop"
    assert found.tokens[-1] == 0
    recomputed = made.logprobs(made.weights(), (3, 1, *found.tokens))
    assert recomputed[2:] == pytest.approx(found.logprobs)


def test_a_seed_decides_the_tokens_and_its_sequences_differ():
    made = backend()
    request = SampleRequest((3, 1), num_samples=4, seed=5)
    first, again = made.sample(None, request), made.sample(None, request)
    assert first == again
    assert len(set(first)) > 1


def test_frequencies_are_the_probabilities():
    made = backend()
    found = made.sample(made.weights(), SampleRequest((3,), num_samples=4000, max_tokens=1, seed=1))
    counts = np.bincount([one.tokens[0] for one in found], minlength=V) / 4000
    wanted = [np.exp(made.logprobs(made.weights(), (3, token))[1]) for token in range(V)]
    assert counts == pytest.approx(wanted, abs=0.03)


def test_filters_keep_the_likeliest_tokens():
    made = backend()
    best = int(np.argmax(made._state.rows[3] + made._base))
    for kept in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}):
        (found,) = made.sample(made.weights(), SampleRequest((3,), max_tokens=1, **kept))
        assert found.tokens == (best,)


def test_an_optimizer_left_behind_starts_afresh():
    made = TinyBackend(V)
    datum = [TrainingDatum((1,), (2,), (1.0,))]
    made.forward_backward(datum, Loss("cross_entropy"), backward=True)
    made.optimizer_step(Adam(0.01))
    state = made.state()
    ends = []
    for with_optimizer in (True, False):
        made.load_state(state, with_optimizer=with_optimizer)
        assert made._state.steps == (1 if with_optimizer else 0)
        made.forward_backward(datum, Loss("cross_entropy"), backward=True)
        made.optimizer_step(Adam(0.01))
        ends.append(made.weights()[1])
    assert not np.array_equal(ends[0], ends[1])


def test_a_token_the_model_does_not_know_fails_the_operation():
    with pytest.raises(OperationFailed, match="token 9 is not one of the 5"):
        TinyBackend(V).logprobs(None, (1, 9))


def test_threads_may_sample_at_once_without_a_seed():
    made = TinyBackend(V)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: made.sample(None, SampleRequest((1,))), range(500)))
    assert len({one.logprobs for (one,) in found}) > 1
    assert next(made._count) == 500
