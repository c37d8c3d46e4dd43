"""What a job may cost, against the one run whose bill was published."""

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.hyperparameters import choose, effective, published
from rft_agent_sdk.mtrl.plan import make_plan
from rft_agent_sdk.mtrl.prices import RUN, Prices, estimate, read_prices, unused_prices

GPT_OSS = "openai-reasoning-gpt-oss-20b"
QWEN = "huggingface-vlm-qwen3-6-27b"


def plan(**asked):
    settings = effective(choose(GPT_OSS, {"max_epochs": 20, **asked}), published(GPT_OSS))
    return make_plan(640, settings, validation_rows=128)


def test_the_published_run_comes_out_at_its_published_bill():
    published_rollouts = RUN.rollouts / plan().rollouts  # its retries are not in a plan
    told = estimate(plan(), GPT_OSS, "us-east-1")
    assert told.tokens["prefill"] * published_rollouts == pytest.approx(491.6e6)
    assert told.tokens["sample"] * published_rollouts == pytest.approx(159.7e6)
    assert told.tokens["train"] * published_rollouts == pytest.approx(643.3e6)
    assert told.tokens_usd is not None
    assert told.tokens_usd * published_rollouts == pytest.approx(338.50, abs=0.05)
    assert told.agentcore_usd * published_rollouts == pytest.approx(79)


def test_the_estimate_says_what_it_stands_on():
    lines = estimate(plan(), GPT_OSS, "us-east-1").lines()
    assert lines[0] == (
        "tokens: 483.8 M prefill at $0.12, 157.2 M sample at $0.3, 633.1 M train at $0.36 = $333"
    )
    assert lines[2] == "in all: about $411"
    assert "estimated from one published run (105,486 Wordle rollouts" in lines[3]
    assert lines[4] == "prices as of 2026-06, before tax and discounts"


def test_twice_the_turns_read_four_times_the_tokens_and_sample_twice_as_many():
    once, twice = (estimate(plan(), GPT_OSS, "us-east-1", turns=turns) for turns in (6, 12))
    assert twice.tokens["prefill"] == pytest.approx(4 * once.tokens["prefill"])
    assert twice.tokens["sample"] == pytest.approx(2 * once.tokens["sample"])
    assert twice.agentcore_usd == pytest.approx(2 * once.agentcore_usd)


def test_a_region_without_prices_of_its_own_borrows_them_and_says_so():
    told = estimate(plan(), GPT_OSS, "us-west-2")
    assert told.usd == estimate(plan(), GPT_OSS, "us-east-1").usd
    assert told.lines()[4].startswith("prices as of 2026-06, list prices of us-east-1")


def test_a_model_without_published_prices_has_an_unknown_cost_and_known_tokens():
    told = estimate(plan(), QWEN, "us-west-2")
    assert told.usd is None
    assert told.told == "an unknown price for its tokens, and about $78 of AgentCore"
    assert told.lines()[0].endswith(
        "unknown: no published prices for this model; give them with --prices"
    )
    assert told.tokens["train"] > 6e8


def test_a_file_s_prices_win():
    values = {QWEN: {"prefill": 1, "sample": 2, "train": 3}, "agentcore_per_rollout": 0}
    told = estimate(plan(), QWEN, "us-west-2", prices=read_prices(values, "my.yaml"))
    tokens = told.tokens
    by_hand = (tokens["prefill"] + 2 * tokens["sample"] + 3 * tokens["train"]) / 1e6
    assert told.usd == pytest.approx(by_hand)
    assert told.agentcore_usd == 0
    assert told.lines()[4] == "prices as of my.yaml, before tax and discounts"


@pytest.mark.parametrize(
    "values",
    [
        {QWEN: {"prefill": 1, "sample": 2}},
        {QWEN: {"prefill": 1, "sample": 2, "train": "3"}},
        {QWEN: {"prefill": 1, "sample": 2, "train": -3}},
        {QWEN: {"prefill": 1, "sample": 2, "train": float("inf")}},
        {QWEN: {"prefill": 1, "sample": 2, "train": True}},
        {QWEN: {"prefill": 1, "sample": 2, "train": 3, "cache": 4}},
        {QWEN: 3},
        {"agentcore_per_rollout": None},
    ],
)
def test_a_price_file_with_anything_else_in_it_is_refused(values):
    with pytest.raises(UsageError, match=r"prices my\.yaml: wanted"):
        read_prices(values, "my.yaml")


def test_the_published_table_needs_no_file():
    assert Prices({}).of(GPT_OSS, "us-east-1").train == 0.36


def test_a_model_is_found_by_any_of_its_names_and_two_names_of_one_are_refused():
    entry = {"prefill": 1, "sample": 2, "train": 3}
    prices = read_prices({"openai/gpt-oss-20b": entry}, "p.yaml")
    assert prices.of("openai-reasoning-gpt-oss-20b", "us-west-2").train == 3
    assert not list(unused_prices(prices, "openai-reasoning-gpt-oss-20b"))
    (unused,) = unused_prices(prices, "huggingface-vlm-qwen3-6-27b")
    assert "has no prices of 'huggingface-vlm-qwen3-6-27b'" in unused.message
    with pytest.raises(UsageError, match="is there twice"):
        read_prices({"openai/gpt-oss-20b": entry, "openai-reasoning-gpt-oss-20b": entry}, "p.yaml")
    with pytest.raises(UsageError, match="wanted names of models as keys, got 20"):
        read_prices({20: entry}, "p.yaml")  # type: ignore[dict-item]
