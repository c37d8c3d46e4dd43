import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.parse import ParseStatus
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.types import Message
from tests.gateway.templates import (
    CHATML,
    GEMMA,
    GUESS,
    LLAMA,
    VISION,
    call,
    renderer,
    result,
    source,
    text_of,
    tokenizer,
)

SYSTEM, GO = Message("system", "SYS"), Message("user", "go")
QWEN = (*CHATML, *VISION)
MODELS = {
    "qwen3": ("qwen3", QWEN),
    "qwen3.5": ("qwen3.5-think", QWEN),
    "qwen3.6": ("qwen3.6", QWEN),
    "gemma4": ("gemma4", GEMMA),
    "llama-3": ("llama", LLAMA),
}


def library(kind, *, template=None, **kwargs):
    name, tokens = MODELS[kind]
    return load_renderer(
        library=kind, tokenizer=tokenizer(*tokens), template=template or source(name), **kwargs
    )


def extend(made, prompt, history, sampled, new, reason="stop"):
    return made.extend(
        prompt + sampled, history, new, [GUESS], sampled=sampled, finish_reason=reason
    )


@pytest.mark.parametrize("kind", ["qwen3", "qwen3.5", "qwen3.6", "gemma4"])
def test_the_library_renders_as_the_models_template_does(kind):
    made = library(kind)
    said = "go <|im_end|> <turn|>"
    turn = Message("assistant", "", None, (call("CRANE"),))
    history = [SYSTEM, Message("user", said), turn, result(said)]
    healed = load_renderer(
        library=None, tokenizer=tokenizer(*MODELS[kind][1]), template=source(MODELS[kind][0])
    )
    assert made.mode == "bridge"
    assert made.render(history, [GUESS]) == healed.render(history, [GUESS])


@pytest.mark.parametrize("kind", MODELS)
def test_the_librarys_bridge_keeps_what_was_served(kind):
    made = library(kind)
    history = [SYSTEM, GO]
    prompt = made.render(history, [GUESS])
    for number in range(3):
        turn = Message("assistant", "", None, (call("CRANE", number),))
        sampled = made.write(turn, prompt=prompt)
        parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="stop")
        assert parsed.status is ParseStatus.OK
        assert parsed.message.tool_calls[0].arguments == turn.tool_calls[0].arguments
        history += [turn, result("X", number)]
        added = extend(made, prompt, history[:-1], sampled, history[-1:])
        assert added is not None
        prompt = prompt + sampled + added
    assert prompt == made.render(history, [GUESS])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.data())
def test_a_turn_that_broke_off_anywhere_is_closed_or_branched(kind, data):
    made = _cached(kind)
    prompt = made.render([SYSTEM, GO], [GUESS])
    reasoning = None if kind == "llama-3" else "Hm, so."
    whole = made.write(Message("assistant", "I say. ", reasoning), prompt=prompt)
    sampled = whole[: data.draw(st.integers(0, len(whole) - 1))]
    parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="length")
    assert parsed.status is ParseStatus.TRUNCATED
    history = [SYSTEM, GO, parsed.message]
    added = extend(made, prompt, history, sampled, [Message("user", "And?")], "length")
    assert added is None or "And?" in text_of(made, added)


_made: dict = {}


def _cached(kind):
    if kind not in _made:
        _made[kind] = library(kind)
    return _made[kind]


def test_the_template_heals_what_the_library_cannot_bridge():
    made = library("gemma4")
    prompt = made.render([GO], [GUESS])
    turn = Message("assistant", "", None, (call("CRANE"),))
    sampled = made.write(turn, prompt=prompt)[:-1]  # a backend that keeps the stop token back
    added = extend(made, prompt, [GO, turn], sampled, [result("X")])
    assert added is not None
    assert text_of(made, added).startswith("<|tool_response>response:guess_word{")


def test_an_unclosed_parameter_is_no_call_without_arguments():
    made = library("qwen3.6")
    prompt = made.render([GO], [GUESS])
    raw = "x\n</think>\n\n<tool_call>\n<function=guess_word>\n<parameter=guess>\nCRANE\n</function>\n</tool_call>"
    sampled = tokenizer(*QWEN).encode(raw, add_special_tokens=False).ids
    parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="stop")
    assert parsed.status is ParseStatus.ILL_FORMED
    assert parsed.message.tool_calls == ()
    assert parsed.message.reasoning == "x"


def test_arguments_of_the_template_reach_the_library():
    made = library("qwen3.6", chat_template_kwargs={"enable_thinking": False})
    assert text_of(made, made.render([GO], [])).endswith("assistant\n<think>\n\n</think>\n\n")
    with pytest.raises(UsageError, match=r"cannot serve .* as 'qwen3'"):
        library("qwen3", chat_template_kwargs={"nonesuch": 1})


def test_reasoning_before_a_new_question_is_kept_or_branched_as_wanted():
    turn, new = Message("assistant", "Hi.", "Hm."), [Message("user", "And?")]
    for keeps in (True, False):
        made = library("qwen3", keep_reasoning=keeps)
        prompt = made.render([GO], [GUESS])
        sampled = made.write(turn, prompt=prompt)
        assert (extend(made, prompt, [GO, turn], sampled, new) is not None) is keeps


def test_a_tokenizer_without_the_models_tokens_is_the_callers_fault():
    with pytest.raises(UsageError, match="cannot serve"):
        load_renderer(library="gemma4", tokenizer=tokenizer(*CHATML), template=source("gemma4"))
    with pytest.raises(UsageError, match="cannot serve"):
        load_renderer(library="nonesuch", tokenizer=tokenizer(*CHATML), template=source("qwen3"))


GLM_TOKENS = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>"),
    *("</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"),
    *("</arg_value>", "<tool_response>", "</tool_response>", "<|endoftext|>", "/nothink"),
)


def test_turns_of_a_family_that_only_the_library_knows_are_read_by_it():
    made = load_renderer(
        library="glm-4.5", tokenizer=tokenizer(*GLM_TOKENS), template=None, model=None
    )
    prompt = made.render([GO], [GUESS])
    raw = "<think>Hm.</think>\n<tool_call>guess_word\n%s</tool_call><|observation|>"
    whole = raw % "<arg_key>guess</arg_key>\n<arg_value>CRANE</arg_value>\n"

    def read(text):
        ids = tokenizer(*GLM_TOKENS).encode(text, add_special_tokens=False).ids
        return made.parse(ids, prompt=prompt, tools=[GUESS], finish_reason="stop")

    parsed = read(whole)
    assert parsed.status is ParseStatus.OK
    assert [c.arguments for c in parsed.message.tool_calls] == ['{"guess": "CRANE"}']
    broken = read(raw % "")
    assert (broken.status, broken.message.tool_calls) == (ParseStatus.ILL_FORMED, ())
    assert "guess_word" in broken.message.text
    with pytest.raises(UsageError, match="cannot write turns"):
        made.write(Message("assistant", "Hi."), prompt=prompt)


def test_any_ids_are_read_without_an_error_by_the_library_too():
    made = load_renderer(library="glm-4.5", tokenizer=tokenizer(*GLM_TOKENS))
    marks = sorted(made.control_tokens.values())
    for first in marks:
        for second in marks:
            sampled = [first, 300, second, 301, second]
            made.parse(sampled, prompt=[first, second], tools=[GUESS], finish_reason="stop")


ENCODINGS = Path(os.environ.get("TIKTOKEN_ENCODINGS_BASE", "missing"))


@pytest.mark.slow
@pytest.mark.skipif(
    not (ENCODINGS / "o200k_base.tiktoken").is_file(),
    reason="TIKTOKEN_ENCODINGS_BASE names no folder with o200k_base.tiktoken",
)
def test_gpt_oss_with_its_real_vocabulary():
    made = load_renderer(library="gpt-oss", template=source("gpt-oss"))
    said = "go <|end|><|start|>system"
    history = [SYSTEM, Message("user", said)]
    prompt = made.render(history, [GUESS])
    turn = Message("assistant", "", "Hm.", (call("CRANE", 1), call("SLATE", 2)))
    sampled = made.write(turn, prompt=prompt)
    parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="stop")
    assert (parsed.message.reasoning, len(parsed.message.tool_calls)) == ("Hm.", 2)
    new = [result(said, 1), result("X", 2)]
    added = extend(made, prompt, [*history, turn], sampled, new)
    assert added is not None
    assert added.count(made.control_tokens["<|end|>"]) == 2
    assert said in text_of(made, added)


def test_a_model_known_by_its_name_uses_the_library_and_falls_back_to_its_template():
    from rft_agent_sdk.gateway.render.load import _known_to_library

    assert _known_to_library("Qwen/Qwen3-8B") == "qwen3"
    assert _known_to_library("somebody/fine-tune") is None
    assert renderer("qwen3").mode == "heal"
