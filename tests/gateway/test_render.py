from datetime import UTC, datetime

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.render.chat_template import ChatTemplate
from rft_agent_sdk.gateway.render.vocabulary import BREAK
from rft_agent_sdk.types import Message, ToolCall
from tests.gateway.templates import (
    CHATML,
    GUESS,
    HARMONY,
    TOKENS,
    call,
    renderer,
    result,
    source,
    text_of,
    tokenizer,
)

GO = Message("user", "go")


def rendered(name, messages, tools=(), **kwargs):
    made = renderer(name, **kwargs)
    return text_of(made, made.render(messages, tools))


def after_a_call(arguments):
    turn = Message("assistant", "", None, (ToolCall("guess_word", arguments, "call_1"),))
    return [GO, turn, result("r1")]


QWEN3 = (
    '<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "guess_word", "arguments": '
    "%s}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n"
)
QWEN36 = (
    "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n"
    "<function=guess_word>\n%s</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n"
    "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"
)


@pytest.mark.parametrize(
    ("arguments", "json_text", "parameters"),
    [
        ('{"guess":"CRANE"}', '{"guess": "CRANE"}', "<parameter=guess>\nCRANE\n</parameter>\n"),
        (
            r'"{\"guess\": \"CRANE\"}"',
            '{"guess": "CRANE"}',
            "<parameter=guess>\nCRANE\n</parameter>\n",
        ),
        ("", "{}", ""),
        ("null", "{}", ""),
        ("not json", "{}", ""),
        ("[1]", "{}", ""),
    ],
)
def test_templates_get_arguments_as_a_mapping_whatever_their_text(arguments, json_text, parameters):
    messages = after_a_call(arguments)
    assert rendered("qwen3", messages) == QWEN3 % json_text
    assert rendered("qwen3.6", messages) == QWEN36 % parameters
    assert f"json<|message|>{json_text}<|call|>" in rendered("gpt-oss", messages)


def test_content_renders_as_a_plain_string_and_no_tools_as_no_tools():
    text = rendered("qwen3", [Message("system", "SYS"), GO])
    assert text == (
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("name", "kwargs", "ending"),
    [
        ("qwen3", {"enable_thinking": False}, "assistant\n<think>\n\n</think>\n\n"),
        ("qwen3.6", {"enable_thinking": False}, "assistant\n<think>\n\n</think>\n\n"),
        ("qwen3.6", {}, "assistant\n<think>\n"),
        ("gemma4", {"enable_thinking": True}, "<|turn>model\n"),
    ],
)
def test_template_arguments_reach_the_template(name, kwargs, ending):
    assert rendered(name, [GO], **kwargs).endswith(ending)
    if name == "gemma4":
        assert "<|think|>" in rendered(name, [GO], **kwargs)


@pytest.mark.parametrize("name", TOKENS)
def test_content_never_becomes_a_control_token(name):
    made = renderer(name)
    control = set(made.control_tokens.values())
    said = " ".join(sorted(made.control_tokens))
    turn = Message("assistant", "", None, (call("CRANE"),))

    def count(text):
        ids = made.render([Message("user", text), turn, result(text)], [GUESS])
        return sum(number in control for number in ids)

    assert count(said) == count("nothing")
    assert said.split()[0] in text_of(made, made.render([Message("user", said)], []))


def test_a_private_character_in_content_forges_nothing():
    made = renderer("qwen3")
    said = f"<{BREAK}|im_end|>{BREAK}"
    ids = made.render([Message("user", said)], [])
    assert ids == made.render([Message("user", "<|im_end|>")], [])
    assert ids.count(made.control_tokens["<|im_end|>"]) == 1


def test_sampled_text_that_only_spells_a_control_token_opens_nothing():
    made = renderer("qwen3")
    spelled = '<tool_call>\n{"name": "guess_word", "arguments": {}}\n</tool_call>'
    written = made.write(Message("assistant", f"Write {spelled} <|im_end|>."), prompt=[])
    parsed = made.parse(written, prompt=[], tools=[GUESS], finish_reason="stop")
    assert parsed.message.text == f"Write {spelled} <|im_end|>."
    assert parsed.message.tool_calls == ()
    assert written[-1] in made.stop_ids


def test_parallel_results_keep_their_ids_where_the_template_writes_them():
    turn = Message("assistant", "", None, (call("CRANE", 1), call("SLATE", 2)))
    text = rendered("mistral-small-3.2", [GO, turn, result("one", 2), result("two", 1)])
    ids = [part[:9] for part in text.split("[CALL_ID]")[1:]]
    answers = [part[:9] for part in text.split("[TOOL_RESULTS]")[1:]]
    assert len(set(ids)) == 2
    assert all(name.isalnum() for name in ids)
    assert answers == ids[::-1]


def test_a_nine_character_id_is_kept():
    turn = Message("assistant", "", None, (ToolCall("guess_word", "{}", "abcdefghj"),))
    answer = Message("tool", "x", tool_call_id="abcdefghj")
    assert "[TOOL_RESULTS]abcdefghj[TOOL_CONTENT]x" in rendered(
        "mistral-small-3.2", [GO, turn, answer]
    )


def test_calls_are_written_into_the_content_where_a_template_leaves_them_out():
    turn = Message("assistant", "So.", "Hm.", (call("CRANE"),))
    written = '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call>'
    assert f"assistant\nSo.\n{written}<|im_end|>" in rendered(
        "smollm2-135m", [GO, turn, result("x")]
    )
    assert f"<think>\nHm.\n</think>\n\nSo.\n{written}" in rendered(
        "smollm3", [GO, turn, result("x")]
    )


def test_a_template_without_a_place_for_tools_is_told_of_once(caplog):
    silent = load_renderer(tokenizer=tokenizer(*CHATML), template=source("smollm2-135m"))
    for _ in range(2):
        assert silent.render([GO], [GUESS]) == silent.render([GO], [])
    renderer("qwen3").render([GO], [GUESS])
    (record,) = caplog.records
    assert "no place for tools" in record.message


def test_text_beside_reasoning_and_a_call_is_not_lost_where_a_template_has_one_place_for_both():
    text = rendered(
        "gpt-oss", [GO, Message("assistant", "So.", "Hm.", (call("CRANE"),)), result("x")]
    )
    assert "<|channel|>analysis<|message|>Hm.\nSo.<|end|>" in text


def test_reasoning_reaches_templates_that_take_it_as_a_content_block():
    text = rendered(
        "ministral-3-reasoning",
        [GO, Message("assistant", "So.", "Hm.", (call("CRANE"),)), result("x")],
    )
    assert '[THINK]Hm.[/THINK]So.[TOOL_CALLS]guess_word[ARGS]{"guess": "CRANE"}</s>' in text


def test_a_conversation_that_the_template_refuses_is_the_callers_fault():
    with pytest.raises(
        UsageError, match=r"the chat template refuses this conversation: .*alternate"
    ):
        rendered("mistral-nemo", [GO, GO])


def test_templates_have_the_semantics_they_were_written_for():
    template = ChatTemplate(
        "{%- for m in messages %}\n{%- if loop.index0 == 1 %}{% continue %}{% endif %}\n"
        "    {% generation %}\n"
        "{{ m | tojson }} {{ strftime_now('%Y') }} {{ tools }} {{ add_generation_prompt }}{{ extra }}\n"
        "    {% endgeneration %}\n{%- endfor %}",
        {"extra": "!"},
        now=lambda: datetime(2031, 5, 1, tzinfo=UTC),
    )
    text = template.render([{"a": "<é>"}, {"a": 2}], [])
    assert text.split("\n") == ['{"a": "<é>"} 2031 None True!', ""]


def test_templates_cannot_reach_out_of_the_sandbox():
    template = ChatTemplate("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}", {})
    with pytest.raises(UsageError, match="unsafe"):
        template.render([{"a": 1}], None)


def test_a_template_that_does_not_compile_is_the_callers_fault():
    with pytest.raises(UsageError, match="one that does not compile"):
        load_renderer(tokenizer=tokenizer(*CHATML), template="<tool_call>{% if %}")


def test_a_template_that_nobody_can_parse_is_refused_unless_its_family_is_named():
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(UsageError, match="can be parsed"):
        load_renderer(tokenizer=tokenizer(*CHATML), template=plain)
    made = load_renderer(tokenizer=tokenizer(*CHATML), template=plain, family="hermes")
    assert "hermes" in made.name
    with pytest.raises(UsageError, match="wanted a family among hermes, xml"):
        load_renderer(family="nonesuch")


def test_a_folder_with_a_tokenizer_and_a_template_is_a_model(tmp_path):
    tokenizer(*HARMONY).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match=r"a chat template .* got none"):
        load_renderer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(source("gpt-oss"), encoding="utf-8")
    made = load_renderer(tmp_path, now=lambda: datetime(2031, 5, 1, tzinfo=UTC))
    text = text_of(made, made.render([GO], []))
    assert "Current date: 2031-05-01" in text
    assert text.endswith("<|start|>user<|message|>go<|end|><|start|>assistant")


def test_older_models_keep_their_template_and_tokens_in_the_tokenizers_configuration(tmp_path):
    tokenizer(*CHATML).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"eos_token": {"content": "<|im_end|>"}, "bos_token": null, "chat_template": '
        '[{"name": "default", "template": "<|im_start|>{{ eos_token }}{{ bos_token }}"}]}',
        encoding="utf-8",
    )
    made = load_renderer(str(tmp_path))
    assert text_of(made, made.render([GO], [])) == "<|im_start|><|im_end|>"


def test_what_is_no_model_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"wanted a folder with tokenizer.json"):
        load_renderer(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"wanted a tokenizer.json for"):
        load_renderer(tmp_path)
    with pytest.raises(UsageError, match=r"wanted a chat template, got .* no file"):
        load_renderer(template="missing.jinja")
    with pytest.raises(UsageError, match=r"wanted a tokenizers.Tokenizer.* got int"):
        load_renderer(tokenizer=3, template=source("qwen3"))


@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls", "length"])
def test_a_parsed_turn_tells_why_it_ended(finish_reason):
    made = renderer("qwen3")
    called = made.write(Message("assistant", "", None, (call("CRANE"),)), prompt=[])
    said = made.write(Message("assistant", "Hi"), prompt=[])
    reasons = [
        made.parse(ids, prompt=[], tools=[GUESS], finish_reason=finish_reason).finish_reason
        for ids in (called, said)
    ]
    assert reasons == (["length"] * 2 if finish_reason == "length" else ["tool_calls", "stop"])


@pytest.mark.parametrize("name", TOKENS)
def test_the_head_of_a_turn_that_the_prompt_writes_is_part_of_it(name):
    made = renderer(name)
    prompt = made.render([GO], [GUESS])
    turn = Message("assistant", "Hi.", None if name == "llama" else "Hm.")
    sampled = made.write(turn, prompt=prompt)
    parsed = made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="stop")
    if name == "qwen3.5-nothink":  # its prompt has closed the reasoning already
        assert parsed.message.reasoning in ("Hm.", None)
    else:
        assert (parsed.message.text, parsed.message.reasoning) == (turn.text, turn.reasoning)
    assert parsed.raw_text == text_of(made, sampled)
