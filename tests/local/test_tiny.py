"""The tiny policy: its folder is one that the gateway serves, and its tokenizer makes games short."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.wordle import compact
from environments.wordle.solver import random_policy, solver_policy
from rft_agent_sdk.cli import main
from rft_agent_sdk.gateway.conformance import conform
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.types import Message

pytestmark = pytest.mark.local


def make(folder, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["local", "init-tiny", "--out", str(folder), *arguments])
    return exit_.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "tiny"
    assert make(path) == 0
    return path


@pytest.fixture(scope="module")
def renderer(folder):
    return load_renderer(folder)


def turns(renderer, policy, answer, *prior):
    """Play a game on token ids; yield each turn's sampled ids and the ids that follow them."""
    episode = compact.start(json.dumps({"answer": answer, "guesses": prior}))
    history = [Message("system", episode.system_prompt), Message("user", episode.prompt)]
    prompt = renderer.render(history, episode.tools)
    yield prompt, []
    while True:
        reply = replace(policy(history, episode.tools), text="")
        sampled = renderer.write(reply, prompt=prompt)
        read = renderer.parse(sampled, prompt=prompt, tools=episode.tools, finish_reason="stop")
        assert read.message.tool_calls[0].arguments == reply.tool_calls[0].arguments
        (call,) = reply.tool_calls
        result = episode.call(call.name, json.loads(call.arguments))
        history.append(reply)
        new = [Message("tool", result.text, tool_call_id=call.id)]
        if episode.done:
            yield sampled, []
            return
        added = renderer.extend(
            prompt + sampled, history, new, episode.tools, sampled=sampled, finish_reason="stop"
        )
        history += new
        prompt = prompt + sampled + added
        assert prompt == renderer.render(history, episode.tools), "served ids are a whole render"
        yield sampled, added


def test_the_gateway_continues_its_turns_from_served_ids(renderer):
    report = conform(renderer)
    assert report.passed
    assert report.mode == "heal"
    assert report.checks[0].detail == "exact"


@pytest.mark.parametrize("policy", [solver_policy, random_policy])
def test_a_game_is_few_tokens(renderer, policy):
    for answer, *prior in [("riser",), ("elegy",), ("knoll", "crane"), ("vivid", "slate", "crony")]:
        (prompt, _), *played = turns(renderer, policy, answer, *prior)
        assert len(prompt) <= 6 + (25 if prior else 0) + 7 * len(prior)
        assert all(len(sampled) <= 10 for sampled, _ in played)
        assert all(len(sampled + added) <= 45 for sampled, added in played)
        total = len(prompt) + sum(len(sampled + added) for sampled, added in played)
        assert total <= 300


def test_no_piece_is_taken_for_a_control_token(renderer):
    assert all(token.startswith("<") and token.endswith(">") for token in renderer.control_tokens)
    assert len(renderer.control_tokens) == 9


@settings(max_examples=100, deadline=None)
@given(text=st.text() | st.lists(st.sampled_from([*compact.pieces(), "a", "\n", "é"])).map("".join))
def test_any_text_is_encoded_and_decoded_to_what_it_was(renderer, text):
    vocabulary = renderer.turns.vocabulary
    guarded = vocabulary.guard(text)
    decoded = vocabulary.decode(vocabulary.encode(guarded))
    assert decoded == text.replace("\uf8d6", "")


def test_weights_are_made_from_the_seed_and_differ_for_another(tmp_path, folder):
    again, other = tmp_path / "again", tmp_path / "other"
    assert make(again) == make(other, "--seed", "1") == 0
    for name in ("tokenizer.json", "config.json", "chat_template.jinja"):
        assert (again / name).read_text() == (folder / name).read_text()
    weights = [(path / "model.safetensors").read_bytes() for path in (folder, again, other)]
    assert weights[0] == weights[1] != weights[2]


def test_it_is_loaded_as_any_causal_model_and_has_the_size_asked_for(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    size = ["--hidden", "64", "--layers", "2", "--heads", "2", "--inner", "128"]
    assert make(tmp_path / "small", *size) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "small")
    assert model.config.hidden_size == 64
    assert 0.05 < model.get_input_embeddings().weight.std().item() < 0.07
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    prompt = load_renderer(tmp_path / "small").render([Message("user", "Begin.")], ())
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Begin."}], add_generation_prompt=True, return_dict=False
    )
    assert said == prompt
    import torch

    assert model(torch.tensor([prompt])).logits.isfinite().all()


def test_a_folder_that_holds_something_and_a_width_that_cannot_be_are_refused(folder, capsys):
    assert make(folder) == 2
    assert "wanted an empty folder or none" in capsys.readouterr().err
    assert make(folder.parent / "odd", "--hidden", "90") == 2
    assert "hidden must be a multiple of twice the heads" in capsys.readouterr().err
