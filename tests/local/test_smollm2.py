"""A real small language model over the whole loop: its tokenizer, its weights, what it learns in minutes."""

import asyncio
import math

import pytest
from transformers import AutoTokenizer

from environments.wordle import compact
from rft_agent_sdk.cli.entrypoint import served
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.trajectory import read_jsonl, write_jsonl
from tests.local import smollm2

pytestmark = [
    pytest.mark.local,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (smollm2.MODEL / "config.json").exists(),
        reason="`make test-smollm` fetches the model first",
    ),
]


@pytest.fixture(scope="module")
def agent():
    with served(smollm2.AGENT) as url:
        yield url


def test_captured_ids_are_those_of_the_model_s_own_tokenizer_and_template(agent, tmp_path):
    config = smollm2.config_of(smollm2.MODEL, tmp_path, agent)
    games = asyncio.run(smollm2.taught(config, 4))
    write_jsonl(tmp_path / "games.jsonl", games)
    assert list(read_jsonl(tmp_path / "games.jsonl")) == games
    tokenizer = AutoTokenizer.from_pretrained(smollm2.MODEL)
    renderer = load_renderer(smollm2.MODEL)
    tools = [tool.as_openai() for tool in compact.start(smollm2.tasks(1, 0)[0]).tools]
    for game in games:
        (sample,) = game.samples
        turns = [message for message in sample.messages if message.role == "assistant"]
        assert len(sample.spans) == len(turns) == game.turns > 0
        written = [smollm2.as_chat(message) for message in sample.messages]
        whole = tokenizer.apply_chat_template(written, tools=tools, return_dict=False)
        assert (
            tokenizer.decode(whole[-1:]) == "\n"
        )  # after the turn's end, which is the last that is sampled
        assert list(sample.token_ids) == whole[:-1]
        for span, turn in zip(sample.spans, turns, strict=True):
            ids = sample.token_ids
            read = renderer.parse(
                ids[span.start : span.end],
                prompt=ids[: span.start],
                tools=[],
                finish_reason="stop",
            ).message
            assert [(one.name, one.arguments) for one in read.tool_calls] == [
                (one.name, one.arguments) for one in turn.tool_calls
            ]
            assert tokenizer.decode(ids[span.start : span.end]).endswith("</tool_call><|im_end|>")


def test_sampler_and_trainer_agree_before_the_first_step(agent, tmp_path):
    config = smollm2.config_of(smollm2.MODEL, tmp_path, agent, dtype="float32", max_new_tokens=24)
    told = asyncio.run(smollm2.first_pass(config, 2))
    assert told["tokens/trained"] > 20
    assert told["sampler/kl"] < 1e-8
    assert told["sampler/logprob_distance"] < 1e-4


def test_it_learns_to_call_a_tool_and_goes_on_by_reward(tmp_path, capsys):
    report = smollm2.prove(tmp_path)
    with capsys.disabled():
        print("\n" + smollm2.told(report))
    before, after = report.before, report.after
    assert before is not None
    assert after is not None
    assert before.calls < 0.1
    assert after.calls > 0.8
    assert after.valid > before.valid
    assert after.reward > before.reward + 0.2
    assert (
        report.imitation[-1] < report.imitation[0] / 2
    )  # the rest is which word the teacher draws
    # In bfloat16 a cached pass and a whole one round differently.
    assert report.grpo[0]["train/sampler/kl"] < 5e-3
    assert len(report.grpo) == smollm2.GRPO_STEPS
    for step in report.grpo:
        assert step["sampler/failed_rollouts"] == 0
        assert step["sampler/flat_groups"] < smollm2.STEP_TASKS
        assert math.isfinite(step["train/actor/pg_loss"])
        assert 0 < step["train/actor/grad_norm"] < math.inf
    assert report.moved > 0
