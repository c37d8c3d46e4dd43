import json

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.parse import FAMILIES, ParseStatus, by_name, family_of, status_of
from rft_agent_sdk.types import ToolSpec
from tests.gateway.templates import FOLDER, GUESS, source

HERMES, XML, HARMONY = FAMILIES["hermes"], FAMILIES["xml"], FAMILIES["harmony"]
GEMMA, LLAMA, MISTRAL = FAMILIES["gemma"], FAMILIES["llama"], FAMILIES["mistral-args"]
EXAMPLES = json.loads((FOLDER / "examples.json").read_text(encoding="utf-8"))
WORD = ToolSpec(
    "guess",
    "",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
PREFILLS = {"qwen3.5-think.jinja": "assistant\n<think>\n", "gpt-oss.jinja": "assistant"}


def read(family, text, *tools, prefill="", cut=False):
    """A reading as plain values: reasoning, text, calls, status."""
    reading = family.read(text, by_name(tools), prefill=prefill, is_cut=cut)
    calls = [(call.name, json.loads(call.arguments)) for call in reading.calls]
    status = status_of(reading, "length" if cut else "stop")
    return reading.reasoning, reading.text, calls, status


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e['template']}: {e['case']}")
def test_texts_of_every_family_read_as_checked_by_hand(example):
    expected = example["expected"]
    family = family_of((FOLDER / example["template"]).read_text(encoding="utf-8"))
    is_cut = expected.get("error") == "truncated"
    prefill = PREFILLS.get(example["template"], "")
    found = family.read(example["raw"], by_name([WORD]), prefill=prefill, is_cut=is_cut)
    calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in found.calls]
    ids = [call.id for call in found.calls]

    assert (found.reasoning or "") == expected["reasoning"]
    assert calls == [
        {"name": c["name"], "arguments": c["arguments"]} for c in expected["tool_calls"]
    ]
    assert ids == [c.get("id", "") for c in expected["tool_calls"]]
    if "error" not in expected:
        assert found.text == expected["content"]
        assert status_of(found, "stop") is ParseStatus.OK
    elif is_cut:
        assert status_of(found, "length") is ParseStatus.TRUNCATED
    else:
        assert status_of(found, "stop") is ParseStatus.ILL_FORMED
        assert found.text  # the broken call, as written


def test_a_closing_tag_inside_an_argument_does_not_end_a_json_call():
    raw = (
        'Saving.\n<tool_call>\n{"name": "note", "arguments": {"text": "wrap it in '
        '<tool_call>...</tool_call> tags"}}\n</tool_call>\n<tool_call>\n{"name": "bash", "arguments": '
        '{"cmd": "mkdir -p t/{a,b"}}\n</tool_call><|im_end|>'
    )
    assert read(HERMES, raw) == (
        None,
        "Saving.",
        [
            ("note", {"text": "wrap it in <tool_call>...</tool_call> tags"}),
            ("bash", {"cmd": "mkdir -p t/{a,b"}),
        ],
        ParseStatus.OK,
    )


@pytest.mark.parametrize("family", [HERMES, XML], ids=lambda family: family.name)
@pytest.mark.parametrize(
    ("prefill", "cut", "raw", "expected"),
    [
        (
            "<think>\n",
            False,
            "The E is fixed.\n</think>\n\nI'll guess CRANE.<|im_end|>",
            ("The E is fixed.", "I'll guess CRANE.", [], ParseStatus.OK),
        ),
        (
            "<think>\n",
            True,
            "The E is fixed and",
            ("The E is fixed and", "", [], ParseStatus.TRUNCATED),
        ),
        ("", False, "<think>\nx\n</think>\n\nHi<|im_end|>", ("x", "Hi", [], ParseStatus.OK)),
        (
            "<think>\n\n</think>\n\n",
            False,
            "Hello<|im_end|>",
            (None, "Hello", [], ParseStatus.OK),
        ),
        (
            "",
            False,
            "Write <think>a</think> literally.<|im_end|>",
            (None, "Write <think>a</think> literally.", [], ParseStatus.OK),
        ),
    ],
)
def test_reasoning_is_told_by_the_prompt_and_the_beginning_of_a_turn(
    family, prefill, cut, raw, expected
):
    assert read(family, raw, prefill=prefill, cut=cut) == expected


def test_a_call_drafted_in_reasoning_is_not_made():
    draft = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    raw = f"<think>\nMaybe {draft}\n</think>\n\nNo.<|im_end|>"
    assert read(HERMES, raw) == (f"Maybe {draft}", "No.", [], ParseStatus.OK)


def test_reasoning_that_never_ends_makes_no_call_and_is_flagged():
    raw = '<think>\nSo <tool_call>\n{"name": "a", "arguments": {}}\n</tool_call><|im_end|>'
    reasoning, text, calls, status = read(HERMES, raw)
    assert (text, calls, status) == ("", [], ParseStatus.ILL_FORMED)
    assert reasoning is not None


TYPED = ToolSpec(
    "t",
    "",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "n": {"type": "integer"},
            "f": {"type": "number"},
            "b": {"type": "boolean"},
            "o": {"type": "object"},
            "l": {"type": "array"},
            "u": {"type": ["string", "null"]},
        },
    },
)


def xml(**values):
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function=t>\n{parameters}</function>\n</tool_call><|im_end|>"


def test_xml_arguments_are_typed_by_the_schema():
    raw = xml(
        word="null",
        n="230.0",
        f="1e3",
        b="True",
        o="{'a': True, 'b': None}",
        l='[{"k": true}]',
        u="None",
        extra="007",
    )
    [(name, arguments)] = read(XML, raw, TYPED)[2]
    assert name == "t"
    assert arguments == {
        "word": "null",
        "n": 230,
        "f": 1000.0,
        "b": True,
        "o": {"a": True, "b": None},
        "l": [{"k": True}],
        "u": None,
        "extra": "007",
    }
    assert type(arguments["n"]) is int


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("n", "2026-01-15", "2026-01-15"),
        ("b", "maybe", "maybe"),
        ("word", "007", "007"),
        ("word", '{"x":1}', '{"x":1}'),
        ("word", "\n  two\n    lines\n", "\n  two\n    lines\n"),
        ("word", "</parameter> and <parameter=x>", "</parameter> and <parameter=x>"),
        ("word", "", ""),
    ],
)
def test_an_xml_value_that_is_not_of_its_type_stays_text(name, written, expected):
    assert read(XML, xml(**{name: written}), TYPED)[2] == [("t", {name: expected})]


@pytest.mark.parametrize(
    "body",
    [
        "<function=t>\n<parameter=word>\ncrane\n</function>",
        "<function=t>\n<parameter=word>\ncrane\n<parameter=n>\n3\n</parameter>\n</function>",
        "<function=t>\n<parameter=word>\ncrane\n</parameter>",
        "<function=t>",
        '{"name": "t", "arguments": {}}',
        "",
    ],
)
def test_a_broken_xml_call_stays_text_and_is_flagged(body):
    raw = f"<tool_call>\n{body}\n</tool_call>"
    assert read(XML, f"Hm.\n{raw}<|im_end|>", TYPED) == (
        None,
        f"Hm.\n{raw}",
        [],
        ParseStatus.ILL_FORMED,
    )


def test_an_unclosed_parameter_does_not_swallow_the_next_call():
    first = "<tool_call>\n<function=t>\n<parameter=word>\ncrane\n</function>\n</tool_call>"
    _, text, calls, status = read(XML, f"{first}\n{xml(word='slate')}", TYPED)
    assert (text, calls, status) == (first, [("t", {"word": "slate"})], ParseStatus.ILL_FORMED)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            "<|channel|>analysis<|message|>Vowels first.<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>Opening with a strong word.<|end|><|start|>assistant<|channel|>commentary "
            'to=functions.guess_word <|constrain|>json<|message|>{"guess":"CRANE"}<|call|>',
            ("Vowels first.", "Opening with a strong word.", [("guess_word", {"guess": "CRANE"})]),
        ),
        (
            "<|channel|>analysis<|message|>Vowels first.<|end|><|start|>assistant to=functions.guess_word"
            '<|channel|>commentary json<|message|>{"guess": "CRANE"}<|call|>',
            ("Vowels first.", "", [("guess_word", {"guess": "CRANE"})]),
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
            "<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>",
            ("a\nb", "Done.", []),
        ),
        ("Just text.", (None, "Just text.", [])),
        ("", (None, "", [])),
    ],
)
@pytest.mark.parametrize("prefill", ["assistant", ""])
def test_harmony_channels_and_both_places_of_the_recipient(prefill, raw, expected):
    assert read(HARMONY, raw, GUESS, prefill=prefill) == (*expected, ParseStatus.OK)


def test_harmony_continues_the_channel_that_the_prompt_opened():
    raw = "Think.<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    prefill = "assistant<|channel|>analysis<|message|>"
    assert read(HARMONY, raw, prefill=prefill) == ("Think.", "Done.", [], ParseStatus.OK)


def test_gemma_strings_keep_quotes_commas_and_braces():
    raw = (
        '<|channel>thought\nCheck.\n<channel|><|tool_call>call:note{text:<|"|>She said "hi", {ok}: a,b'
        '<|"|>,n:3,flag:true,tags:[<|"|>a,b<|"|>,<|"|>c<|"|>],m:{<|"|>3<|"|>:<|"|>v:1<|"|>},z:null}'
        "<tool_call|><|tool_call>call:stop{}<tool_call|><|tool_response>"
    )
    arguments = {
        "text": 'She said "hi", {ok}: a,b',
        "n": 3,
        "flag": True,
        "tags": ["a,b", "c"],
        "m": {"3": "v:1"},
        "z": None,
    }
    assert read(GEMMA, raw) == ("Check.", "", [("note", arguments), ("stop", {})], ParseStatus.OK)


def test_a_bare_json_object_is_a_call_only_if_it_names_a_tool():
    called = '{"name": "guess_word", "parameters": {"guess": "CRANE"}}'
    other = '{"name": "crane", "parameters": {"wings": 2}}'
    assert read(LLAMA, f"{called}<|eot_id|>", GUESS)[1:3] == (
        "",
        [("guess_word", {"guess": "CRANE"})],
    )
    assert read(LLAMA, f"<|python_tag|>{called}<|eom_id|>", GUESS)[2]
    assert read(LLAMA, f" {other}<|eot_id|>", GUESS) == (None, f" {other}", [], ParseStatus.OK)
    assert read(LLAMA, other, GUESS) == (None, other, [], ParseStatus.OK)
    assert read(LLAMA, f"So: {called}", GUESS)[2] == []
    assert read(LLAMA, called[:-4], GUESS)[2:] == ([], ParseStatus.ILL_FORMED)


@pytest.mark.parametrize(
    ("raw", "cut", "calls", "status"),
    [
        (
            '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call><|im_end|>',
            False,
            [("guess_word", {"guess": "CRANE"})],
            ParseStatus.OK,
        ),
        (
            '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CR',
            True,
            [],
            ParseStatus.TRUNCATED,
        ),
        (
            '<tool_call>\n{"name": "guess_word", "arguments": {oops}\n</tool_call><|im_end|>',
            False,
            [],
            ParseStatus.ILL_FORMED,
        ),
    ],
)
def test_a_cut_off_or_broken_call_is_flagged_and_stays_text(raw, cut, calls, status):
    _, text, found, how = read(HERMES, raw, GUESS, cut=cut)
    assert (found, how) == (calls, status)
    assert text == ("" if calls else raw.removesuffix("<|im_end|>"))


@pytest.mark.parametrize(
    ("family", "raw"),
    [
        (XML, "<tool_call>\n<function=guess_word>\n<parameter=guess>\nCRA"),
        (GEMMA, '<|tool_call>call:guess_word{guess:<|"|>CRA'),
        (LLAMA, '{"name": "guess_word", "parameters": {"gu'),
        (MISTRAL, '[TOOL_CALLS]guess_word[ARGS]{"guess": "CRA'),
        (
            HARMONY,
            '<|channel|>commentary to=functions.guess_word <|constrain|>json<|message|>{"guess": "C',
        ),
        (HARMONY, "<|channel|>commentary to=functions.gue"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_call_cut_off_by_the_limit_is_never_made(family, raw):
    assert read(family, raw, GUESS, cut=True) == (None, raw, [], ParseStatus.TRUNCATED)


def test_a_whole_call_before_one_that_was_cut_off_stays_a_call():
    whole = '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call>\n'
    cut = '<tool_call>\n{"name": "gue'
    assert read(HERMES, whole + cut, GUESS, cut=True)[1:] == (
        cut,
        [("guess_word", {"guess": "CRANE"})],
        ParseStatus.TRUNCATED,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"guess":"CRANE"}', '{"guess":"CRANE"}'),
        ('{"guess" :  "CRANE"}', '{"guess" :  "CRANE"}'),
        ("null", "{}"),
        ('""', "{}"),
        (r'"{\"guess\": 1}"', '{"guess": 1}'),
    ],
)
def test_json_arguments_stay_as_the_model_wrote_them(arguments, expected):
    raw = f'<tool_call>\n{{"name": "guess_word", "arguments": {arguments}}}\n</tool_call>'
    [call] = HERMES.read(raw, {}).calls
    assert call.arguments == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            '{"name": "a", "arguments": [1]}',
            '{"name": "a", "arguments": NaN}',
            '{"arguments": {}}',
        ),
        *('{"name": "", "arguments": {}}', "[]", '"a"', '{"name": "a", "arguments": "x"}', ""),
        *('{"name": "a", "arguments": {"x": Infinity}}', "[" * 5000, "9" * 5000),
        '{"name": "a", "arguments": {}} and more',
    ],
    ids=lambda value: value[:40],
)
def test_json_that_is_no_call_is_flagged_and_stays_text(value):
    raw = f"<tool_call>{value}</tool_call>"
    assert read(HERMES, raw) == (None, raw, [], ParseStatus.ILL_FORMED)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("qwen3", "hermes"),
        ("qwen3-coder", "xml"),
        ("qwen3.5-nothink", "xml"),
        ("qwen3.6", "xml"),
        ("gpt-oss", "harmony"),
        ("gemma4", "gemma"),
        ("llama", "llama"),
        ("mistral-nemo", "mistral-list"),
        ("mistral-small-3.2", "mistral-id"),
        ("ministral-3-reasoning", "mistral-args"),
        ("smollm2-135m", "hermes"),
        ("smollm3", "hermes"),
    ],
)
def test_a_template_tells_its_family(template, name):
    assert family_of(source(template)).name == name


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}<start_of_turn>{{ m.content }}<end_of_turn>{% endfor %}",
        "<|im_start|><tool_call>{{ name }}<arg_key>k</arg_key>",
        "",
    ],
)
def test_a_template_that_nobody_can_parse_is_refused(template):
    with pytest.raises(UsageError, match="wanted a chat template whose tool calls can be parsed"):
        family_of(template)
