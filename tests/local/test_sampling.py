"""Sampling with a cache says what the model says without one, whoever else is in the batch."""

import asyncio
import random

import pytest
import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.cache import RowCache
from rft_agent_sdk.local.choose import Choosing
from rft_agent_sdk.local.client import SamplingClient
from rft_agent_sdk.local.generate import Decoder, SamplingSettings
from rft_agent_sdk.local.model import LocalModel, ModelSettings
from rft_agent_sdk.local.turns import Ask
from rft_agent_sdk.local.weights import Weights
from tests.local.models import (
    VOCAB,
    granite,
    llama,
    mistral,
    plain_logits,
    plain_logprobs,
    qwen3,
    windowed,
)

pytestmark = pytest.mark.local

TOLERANCE = 2e-5
"""Nats in float32 between a cached and an uncached log-probability; about 2e-6 is seen."""


@pytest.fixture(params=[qwen3, llama, windowed, mistral, granite])
def model(request):
    return request.param()


def decoder_of(model, **settings):
    return Decoder(model, SamplingSettings(**settings))


def prompt(rng, length):
    return [rng.randrange(VOCAB) for _ in range(length)]


def play(decoder, weights, sessions, turns, *, seed=0, new=7):
    """Play conversations side by side; yield each turn's prompt and what was said."""
    rng = random.Random(seed)
    contexts = {f"s{at}": prompt(rng, rng.randint(1, 30)) for at in range(sessions)}
    for turn in range(turns):
        names = list(contexts)
        rng.shuffle(names)
        asked = [
            (
                name,
                decoder.submit(
                    weights,
                    Ask(
                        tuple(contexts[name]),
                        rng.randint(1, new),
                        Choosing(seed=turn),
                        session=name,
                    ),
                ),
            )
            for name in names
        ]
        for name, future in asked:
            said = future.result(30)
            yield list(contexts[name]), said
            contexts[name] += [*said.tokens, *prompt(rng, rng.randint(0, 9))]


def test_cached_logprobs_equal_uncached_ones_over_turns_of_interleaved_sessions(model):
    decoder, weights = decoder_of(model), Weights.of(model)
    reused = worst = 0
    for asked, said in play(decoder, weights, sessions=9, turns=5):
        wanted = plain_logprobs(model, asked, said.tokens)
        worst = max(worst, *(abs(a - b) for a, b in zip(wanted, said.logprobs, strict=True)))
        reused += said.reused
    decoder.close()
    assert worst < TOLERANCE
    assert reused > 500  # the cache was really used


def test_a_turn_reads_only_what_is_new_to_its_session():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    first = list(range(30))
    said = decoder.submit(weights, Ask(first, 5, session="a")).result(30)
    again = [*first, *said.tokens, 7, 8, 9]
    second = decoder.submit(weights, Ask(again, 5, session="a")).result(30)
    decoder.close()
    assert said.reused == 0
    # The last sampled token was never read: it is new together with the three.
    assert second.reused == 34
    assert decoder.tokens == (30 + 4, 10)


def test_a_prompt_that_leaves_the_session_s_path_reuses_what_is_common():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    decoder.submit(weights, Ask([1, 2, 3, 4, 5, 6], 4, session="a")).result(30)
    other = [1, 2, 3, 9, 9, 9, 9]
    said = decoder.submit(weights, Ask(other, 4, session="a")).result(30)
    decoder.close()
    assert said.reused == 3
    assert said.logprobs == pytest.approx(plain_logprobs(model, other, said.tokens), abs=TOLERANCE)


def test_the_same_prompt_again_reads_its_last_token_again():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    ask = Ask([5, 6, 7, 8], 3, Choosing(seed=4), session="a")
    first = decoder.submit(weights, ask).result(30)
    second = decoder.submit(weights, ask).result(30)
    decoder.close()
    assert second.reused == 3
    assert second.tokens == first.tokens


def test_a_request_gives_the_same_tokens_alone_and_among_others(model):
    decoder, weights = decoder_of(model), Weights.of(model)
    rng = random.Random(3)
    asks = [
        Ask(prompt(rng, rng.randint(1, 50)), 12, Choosing(temperature=0.9, seed=at))
        for at in range(40)
    ]
    alone = [decoder.submit(weights, ask).result(30).tokens for ask in asks]
    futures = [decoder.submit(weights, ask) for ask in asks]
    together = [future.result(30).tokens for future in futures]
    decoder.close()
    assert together == alone
    assert len({tuple(one) for one in alone}) > 30


def test_seeds_decide_and_differ():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)

    def said(seed):
        return decoder.submit(weights, Ask([1, 2, 3], 10, Choosing(seed=seed))).result(30).tokens

    first, again, other = said(1), said(1), said(2)
    decoder.close()
    assert first == again != other


def test_temperature_zero_takes_the_likeliest_token_and_reports_its_logprob():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    said = decoder.submit(weights, Ask([3, 1, 4], 8, Choosing(temperature=0))).result(30)
    decoder.close()
    logits = plain_logits(model, [3, 1, 4, *said.tokens])[2:-1]
    assert said.tokens == logits.argmax(dim=-1).tolist()
    assert said.logprobs == pytest.approx(
        plain_logprobs(model, [3, 1, 4], said.tokens), abs=TOLERANCE
    )


def test_a_stop_id_ends_the_turn_and_belongs_to_it():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    free = decoder.submit(weights, Ask([1, 2], 20, Choosing(seed=5))).result(30)
    stop = free.tokens[6]
    said = decoder.submit(
        weights, Ask([1, 2], 20, Choosing(seed=5), stop_ids=frozenset({stop}))
    ).result(30)
    decoder.close()
    assert free.end == "length"
    assert len(free.tokens) == 20
    assert said.end == "stop"
    assert said.tokens == free.tokens[: free.tokens.index(stop) + 1]


def test_two_hundred_sessions_wait_for_rows_and_all_are_right():
    model = qwen3()
    decoder, weights = decoder_of(model, max_rows=24), Weights.of(model)
    checked = 0
    for asked, said in play(decoder, weights, sessions=200, turns=3):
        if checked % 10 == 0:
            wanted = plain_logprobs(model, asked, said.tokens)
            assert said.logprobs == pytest.approx(wanted, abs=TOLERANCE)
        checked += 1
    decoder.close()
    assert checked == 600


def test_a_small_budget_evicts_sessions_and_changes_nothing_but_what_is_read_again():
    model = qwen3()
    decoder, weights = decoder_of(model, kept_tokens=120), Weights.of(model)
    for asked, said in play(decoder, weights, sessions=9, turns=4):
        wanted = plain_logprobs(model, asked, said.tokens)
        assert said.logprobs == pytest.approx(wanted, abs=TOLERANCE)
    decoder.close()
    assert decoder.shelf.evicted > 5
    assert decoder.shelf.tokens <= 120


def test_a_prompt_longer_than_a_pass_is_read_in_several():
    model = qwen3()
    decoder, weights = decoder_of(model, prefill_tokens=16), Weights.of(model)
    rng = random.Random(1)
    asks = [Ask(prompt(rng, length), 4, Choosing(seed=length)) for length in (1, 16, 17, 90, 3)]
    futures = [decoder.submit(weights, ask) for ask in asks]
    for ask, future in zip(asks, futures, strict=True):
        said = future.result(30)
        wanted = plain_logprobs(model, ask.prompt, said.tokens)
        assert said.logprobs == pytest.approx(wanted, abs=TOLERANCE)
    decoder.close()


def test_few_columns_make_turns_wait_and_never_starve():
    model = qwen3()
    decoder, weights = decoder_of(model, active_tokens=128), Weights.of(model)
    futures = [decoder.submit(weights, Ask([at % VOCAB] * 50, 30)) for at in range(12)]
    futures.append(decoder.submit(weights, Ask([1] * 400, 20)))
    assert [len(future.result(60).tokens) for future in futures] == [30] * 12 + [20]
    decoder.close()


async def test_a_cancelled_turn_gives_its_row_to_others():
    model = qwen3(positions=100_000)
    decoder, weights = decoder_of(model, max_rows=1), Weights.of(model)
    client = SamplingClient(decoder, weights)
    endless = asyncio.create_task(client.sample(Ask([1], 90_000)))
    queued = asyncio.create_task(client.sample(Ask([3], 90_000)))
    await asyncio.sleep(0.1)
    endless.cancel()
    queued.cancel()
    said = await asyncio.wait_for(client.sample(Ask([2], 3)), 20)
    decoder.close()
    assert len(said.tokens) == 3


def test_old_weights_are_sampled_beside_new_ones_as_long_as_they_are_held():
    model = qwen3()
    decoder, old = decoder_of(model), Weights.of(model)
    asked = [4, 5, 6, 7]
    before = plain_logits(model, asked)
    with torch.no_grad():
        for one in model.trainable().values():
            one.add_(torch.randn_like(one) * 0.1)
    new = Weights.of(model)
    futures = [
        decoder.submit(weights, Ask(asked, 6, Choosing(seed=at), session="s"))
        for at in range(4)
        for weights in (old, new)
    ]
    said = [future.result(30) for future in futures]
    decoder.close()
    for one in said[1::2]:
        assert one.logprobs == pytest.approx(
            plain_logprobs(model, asked, one.tokens), abs=TOLERANCE
        )
    first = torch.log_softmax(before[-1], dim=-1)
    for one in said[::2]:
        assert one.logprobs[0] == pytest.approx(float(first[one.tokens[0]]), abs=TOLERANCE)
    assert not torch.allclose(before, plain_logits(model, asked), atol=1e-2)


def test_what_sessions_left_is_thrown_away_with_the_client_of_their_weights():
    model = qwen3()
    decoder = decoder_of(model)
    client = SamplingClient(decoder, Weights.of(model))
    other = SamplingClient(decoder, Weights.of(model))
    for one in (client, other):
        one.submit(Ask([1, 2, 3], 5, session="s")).result(30)
    assert len(decoder.shelf) == 2
    client.close()
    said = other.submit(Ask([1, 2, 3], 5, session="s")).result(30)
    assert said.reused == 2
    assert len(decoder.shelf) == 1
    decoder.close()


def test_a_prompt_the_model_cannot_read_is_refused():
    model = qwen3(positions=64)
    decoder, weights = decoder_of(model), Weights.of(model)
    for wrong in ([], [VOCAB], [-1], [1] * 64):
        with pytest.raises(UsageError):
            decoder.submit(weights, Ask(wrong, 5))
    with pytest.raises(UsageError, match="max_tokens"):
        decoder.submit(weights, Ask([1], 0))
    # The context is the limit of a turn that asks for more.
    assert len(decoder.submit(weights, Ask([1] * 60, 50)).result(30).tokens) == 4
    decoder.close()


def test_a_decoder_that_is_closed_fails_what_is_under_way_and_takes_nothing_more():
    model = qwen3(positions=100_000)
    decoder, weights = decoder_of(model, max_rows=1), Weights.of(model)
    futures = [decoder.submit(weights, Ask([1], 90_000)) for _ in range(3)]
    decoder.close()
    for future in futures:
        with pytest.raises(EngineError):
            future.result(5)
    with pytest.raises(EngineError):
        decoder.submit(weights, Ask([1], 1))


def test_a_pass_that_fails_fails_its_turns_and_the_next_ones_are_sampled(monkeypatch):
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    real = RowCache.update

    def broken(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(RowCache, "update", broken)
    futures = [decoder.submit(weights, Ask([1, 2, at], 5, session="s")) for at in range(5)]
    for future in futures:
        with pytest.raises(EngineError, match="out of memory"):
            future.result(30)
    monkeypatch.setattr(RowCache, "update", real)
    said = decoder.submit(weights, Ask([1, 2, 3], 5, session="s")).result(30)
    decoder.close()
    assert said.logprobs == pytest.approx(
        plain_logprobs(model, [1, 2, 3], said.tokens), abs=TOLERANCE
    )


async def test_given_tokens_are_scored_with_the_likeliest_ones(monkeypatch):
    monkeypatch.setattr("rft_agent_sdk.local.score._AT_ONCE", 4)
    model = qwen3()
    client = SamplingClient(decoder_of(model), Weights.of(model))
    tokens = list(range(11))
    found = await client.score(tokens, top_k=3)
    client.decoder.close()
    logprobs = torch.log_softmax(plain_logits(model, tokens), dim=-1)
    assert found.logprobs[0] is None
    wanted = [float(logprobs[at, at + 1]) for at in range(10)]
    assert found.logprobs[1:] == pytest.approx(wanted, abs=TOLERANCE)
    assert found.top[0] == []
    for at, best in enumerate(found.top[1:]):
        ids = logprobs[at].topk(3).indices.tolist()
        assert [token for token, _ in best] == ids
        assert [logprob for _, logprob in best] == pytest.approx(
            logprobs[at, ids].tolist(), abs=TOLERANCE
        )


def test_logits_that_are_no_numbers_fail_their_turn_alone():
    model = qwen3()
    decoder, good = decoder_of(model), Weights.of(model)
    bad = Weights({name: torch.full_like(one, float("nan")) for name, one in good.tensors.items()})
    futures = [decoder.submit(weights, Ask([1, 2], 5)) for weights in (bad, good, bad)]
    assert len(futures[1].result(30).tokens) == 5
    for future in futures[::2]:
        with pytest.raises(EngineError, match="no numbers"):
            future.result(30)
    decoder.close()


def test_turns_that_begin_alike_are_read_once():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    rng = random.Random(2)
    shared = prompt(rng, 40)
    asks = [
        Ask([*shared, *prompt(rng, 5)], 6, Choosing(seed=at), session=f"s{at}") for at in range(8)
    ]
    # All at once: one of them reads, the others copy; a later one finds what is left.
    gate = decoder.submit(weights, Ask([1] * 300, 50))
    futures = [decoder.submit(weights, ask) for ask in asks]
    said = [future.result(30) for future in futures]
    gate.result(30)
    said.append(decoder.submit(weights, asks[0]).result(30))
    later = Ask([*shared, 1, 2], 6, session="later")
    said.append(decoder.submit(weights, later).result(30))
    decoder.close()
    for ask, one in zip([*asks, asks[0], later], said, strict=True):
        assert one.logprobs == pytest.approx(
            plain_logprobs(model, ask.prompt, one.tokens), abs=TOLERANCE
        )
    assert said[-1].reused == 40
    assert sorted(one.reused for one in said[:8])[1:] == [40] * 7


def test_a_session_s_own_turns_come_before_what_others_have_read():
    model = qwen3()
    decoder, weights = decoder_of(model), Weights.of(model)
    shared = list(range(30))
    mine = decoder.submit(weights, Ask([*shared, 40, 41], 4, session="mine")).result(30)
    decoder.submit(weights, Ask([*shared, 50, 51], 4, session="other")).result(30)
    again = decoder.submit(weights, Ask([*shared, 40, 41, *mine.tokens, 9], 4, session="mine"))
    assert again.result(30).reused == 35
    decoder.close()


def test_a_kind_of_model_that_says_something_else_with_a_cache_is_refused(monkeypatch):
    model = qwen3()
    monkeypatch.setattr(
        "rft_agent_sdk.local.cache.Masks.of",
        lambda self, positions, length, segments=None: torch.zeros(1, 1, 1, length),
    )
    with pytest.raises(UsageError, match=r"Qwen3ForCausalLM.*cannot be sampled here"):
        decoder_of(model)


def test_layers_that_keep_a_state_are_refused():
    config = Qwen3NextConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        num_experts=2,
        num_experts_per_tok=1,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    )
    model = LocalModel(Qwen3NextForCausalLM(config), None, ModelSettings("next"))
    with pytest.raises(UsageError, match="wanted a model of"):
        decoder_of(model)
