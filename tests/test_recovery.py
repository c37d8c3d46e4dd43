"""Calls written as plain text are found; talk about calls is not."""

from __future__ import annotations

import ast
import json
import math
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rft_agent_sdk.recovery import MAX_CALLS, MAX_CHARACTERS, recover_calls
from rft_agent_sdk.recovery.literals import LiteralReader, Unreadable, read_whole
from rft_agent_sdk.types import ToolSpec


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, "", schema)


STRING = {"type": "string"}
GUESS = tool("guess_word", ("guess",), guess=STRING)
NOTE = tool("note", ("text",), text=STRING)
MOVE = tool("robot.move-to", ("x", "y"), x={"type": "integer"}, y={"type": "integer"}, why=STRING)
STOP = tool("stop")
ANY = tool("any")
TOOLS = (GUESS, NOTE, MOVE, STOP, ANY)


def found(text: str, tools: tuple[ToolSpec, ...] = TOOLS) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in recover_calls(text, tools)]


CRANE = [("guess_word", {"guess": "crane"})]
CRANE_JSON = '{"name": "guess_word", "arguments": {"guess": "crane"}}'
CRANE_XML = "<function=guess_word>\n<parameter=guess>\ncrane\n</parameter>\n</function>"

SPELLINGS = {
    "nova tools": "<tools>\n<__function=guess_word>\n<__parameter=guess>crane</__parameter>\n</__function>\n</tools>",
    "nova, closed plainly": "<tools>\n<__function=guess_word>\n<__parameter=guess>crane</__parameter>\n</function>\n</tools>",
    "python, positional": 'guess_word("crane")',
    "python, keyword": "guess_word(guess='crane')",
    "python, over lines": 'guess_word(\n    guess="crane",\n)',
    "python, triple quotes": 'guess_word("""crane""")',
    "python, namespace": 'functions.guess_word(guess="crane")',
    "python, list": '[guess_word(guess="crane")]',
    "python, object": 'guess_word({"guess": "crane"})',
    "python, code mark": '`guess_word("crane")`',
    "python, fence": '```python\nguess_word("crane")\n```',
    "python, after a preamble": 'I start with a common word.\n\nguess_word("crane")',
    "python, before a comment": 'guess_word("crane")\nThis splits the list well.',
    "python, after a colon": 'My first guess: guess_word("crane").',
    "python, after a sentence": 'Vowels first. guess_word("crane")',
    "json, arguments": CRANE_JSON,
    "json, parameters": '{"name": "guess_word", "parameters": {"guess": "crane"}}',
    "json, typed": '{"type": "function", "name": "guess_word", "parameters": {"guess": "crane"}}',
    "json, function": '{"function": {"name": "guess_word", "arguments": {"guess": "crane"}}}',
    "json, function is the name": '{"function": "guess_word", "arguments": {"guess": "crane"}}',
    "json, tool and args": '{"tool": "guess_word", "args": {"guess": "crane"}}',
    "json, arguments as text": '{"name": "guess_word", "arguments": "{\\"guess\\": \\"crane\\"}"}',
    "json, message": '{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "guess_word", "arguments": "{\\"guess\\":\\"crane\\"}"}}]}',
    "json, list": f"[{CRANE_JSON}]",
    "json, over lines": json.dumps(json.loads(CRANE_JSON), indent=2),
    "json, python quotes": "{'name': 'guess_word', 'arguments': {'guess': 'crane'}}",
    "json, fence": f"Here it is:\n```json\n{CRANE_JSON}\n```\nNow I wait.",
    "json, fence on its line": f"```{CRANE_JSON}```",
    "json, after a colon": f"Calling: {CRANE_JSON}",
    "json, python tag": f"<|python_tag|>{CRANE_JSON}<|eom_id|>",
    "converse": '{"toolUse": {"toolUseId": "t1", "name": "guess_word", "input": {"guess": "crane"}}}',
    "converse message": '{"output": {"message": {"role": "assistant", "content": [{"text": "x"}, {"toolUse": {"name": "guess_word", "input": {"guess": "crane"}}}]}}}',
    "hermes": f"<tool_call>\n{CRANE_JSON}\n</tool_call>",
    "hermes, inside a line": f"I will play <tool_call>{CRANE_JSON}</tool_call> and see.",
    "hermes, list": f"<tool_call>[\n{CRANE_JSON}\n]</tool_call><|im_end|>",
    "hermes, never closed": f"<tool_call>\n{CRANE_JSON}",
    "xml": CRANE_XML,
    "xml, in tags": f"I guess.\n<tool_call>\n{CRANE_XML}\n</tool_call><|im_end|>",
    "xml, on one line": "<function=guess_word><parameter=guess>crane</parameter></function>",
    "xml, function not closed": "<tool_call><function=guess_word><parameter=guess>crane</parameter></tool_call>",
    "xml, names as attributes": '<function name="guess_word"><parameter name="guess">crane</parameter></function>',
    "xml, invoke": '<invoke name="guess_word">\n<parameter name="guess">crane</parameter>\n</invoke>',
    "xml, json inside": '<function=guess_word>{"guess": "crane"}</function>',
    "xml, windows lines": CRANE_XML.replace("\n", "\r\n"),
    "harmony": '<|channel|>commentary to=functions.guess_word <|constrain|>json<|message|>{"guess": "crane"}<|call|>',
    "harmony, recipient in the role": '<|start|>assistant to=functions.guess_word<|channel|>commentary json<|message|>{"guess": "crane"}<|call|>',
    "harmony, no constrain": '<|channel|>commentary to=functions.guess_word<|message|>{"guess": "crane"}',
    "harmony, no namespace": '<|channel|>commentary to=guess_word <|constrain|>json<|message|>{"guess": "crane"}<|call|>',
    "harmony, marks stripped": 'assistantcommentary to=functions.guess_word json{"guess": "crane"}',
    "gemma": '<|tool_call>call:guess_word{guess:<|"|>crane<|"|>}<tool_call|><|tool_response>',
    "gemma, marks stripped": "call:guess_word{guess:crane}",
    "gemma, json quotes": '<|tool_call>call:guess_word{"guess": "crane"}<tool_call|>',
    "mistral list": '[TOOL_CALLS][{"name": "guess_word", "arguments": {"guess": "crane"}, "id": "abcdefghj"}]</s>',
    "mistral with id": '[TOOL_CALLS]guess_word[CALL_ID]abcdefghj[ARGS]{"guess": "crane"}</s>',
    "mistral": 'So: [TOOL_CALLS]guess_word[ARGS]{"guess": "crane"}</s>',
    "mistral, no args mark": '[TOOL_CALLS] guess_word{"guess": "crane"}',
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_each_spelling_gives_one_call(text):
    assert found(text) == CRANE


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_no_spelling_calls_a_tool_that_was_not_given(text):
    assert found(text, (NOTE, STOP)) == []
    assert found(text, ()) == []


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_missing_required_argument_is_no_call(text):
    assert found(text, (tool("guess_word", ("guess", "why"), guess=STRING, why=STRING),)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The word is crane.",
        'I could call guess_word("crane") or guess_word("slate")',
        'I could call guess_word("crane") or guess_word("slate").\nLet me think.',
        'I called guess_word("crane") before',
        "I might call the tool guess_word('crane')",
        'guess_word("crane") would split the list in half.',
        'Options:\n- guess_word("crane")\n- guess_word("slate")',
        '1. guess_word("crane")\n2. guess_word("slate")',
        'Option A: guess_word("crane")\nOption B: guess_word("slate")',
        f'A: {CRANE_JSON}\nB: {CRANE_JSON}',
        '1. guess_word("crane")',
        'It wants a quoted word, e.g. guess_word("crane")',
        'word = guess_word("crane")',
        'print(guess_word("crane"))',
        'self.guess_word("crane")',
        'my_guess_word("crane")',
        "guess_word(guess)",
        "guess_word(guess: str)",
        "guess_word()",
        "guess_word(...)",
        f"I could send {CRANE_JSON} or wait.",
        f"- {CRANE_JSON}\n- nothing",
        '{"guess": "crane"}',
        '{"name": "guess_word"}',
        '"guess_word"',
    ],
)  # fmt: skip
def test_talk_about_a_call_is_not_a_call(text):
    assert found(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '<|channel|>commentary to=functions.guess_word <|constrain|>json<|message|>{"guess": "cra<|call|>',
        '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "crane"}\n</tool_call><|im_end|>',
        "<tool_call>\n<function=guess_word>\n<parameter=guess>\ncrane\n</function>\n</tool_call>",
        "<function=guess_word>\n<parameter=guess>\ncra",
        "<function=guess_word>\n</function>",
        "<function=guess_word>",
        '<|tool_call>call:guess_word{guess:<|"|>crane',
        "call:guess_word{guess:}",
        '[TOOL_CALLS]guess_word[ARGS]{"guess": "cr',
        "[TOOL_CALLS]guess_word[ARGS]",
        '{"name": "guess_word", "arguments": ["crane"]}',
        '{"name": "guess_word", "arguments": "crane"}',
        '{"name": "guess_word", "arguments": null}',
        '{"name": "guess_word", "arguments": {"guess": NaN}}',
        '{"name": "guess_word", "arguments": {"guess": 1e999}}',
        '{"name": "guess_word", "arguments": {"guess": ' + "9" * 5000 + "}}",
        'guess_word("crane',
        'guess_word("crane"',
        'guess_word("crane", "slate")',
        'guess_word("crane", guess="slate")',
        'guess_word(guess="crane", guess="slate")',
        'guess_word(guess="crane", "slate")',
        'guess_word(__import__("os").getcwd())',
        'guess_word("a" + "b")',
        'guess_word(f"crane")',
        '[guess_word("crane"',
        '[guess_word("crane") guess_word("slate")]',
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_not_a_call(text):
    assert found(text) == []


def test_a_recited_tool_definition_is_not_a_call():
    for spec in (GUESS, STOP):
        definition = json.dumps(spec.as_openai())
        assert found(definition) == []
        assert found(f"<tools>\n{definition}\n</tools>") == []


def test_calls_come_in_order_of_appearance_across_notations():
    text = (
        f'guess_word("first")\n{CRANE_JSON}\n<tool_call>{{"name": "stop", "arguments": {{}}}}</tool_call>\n'
        "<function=note>\n<parameter=text>\nlast\n</parameter>\n</function>"
    )
    assert found(text) == [
        ("guess_word", {"guess": "first"}),
        *CRANE,
        ("stop", {}),
        ("note", {"text": "last"}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[guess_word("crane"), stop()]',
        'guess_word("crane")\nstop()',
        f'{CRANE_JSON}; {{"name": "stop", "parameters": {{}}}}',
        f'<tool_call>{CRANE_JSON}\n{{"name": "stop", "arguments": {{}}}}</tool_call>',
        '<|tool_call>call:guess_word{guess:<|"|>crane<|"|>}<tool_call|><|tool_call>call:stop{}<tool_call|>',
        '[TOOL_CALLS]guess_word[ARGS]{"guess": "crane"}[TOOL_CALLS]stop[ARGS]{}</s>',
        f"{CRANE_XML}\n<function=stop>\n</function>",
    ],
)
def test_two_calls_of_one_notation_are_both_found(text):
    assert found(text) == [*CRANE, ("stop", {})]


def test_a_closing_tag_or_brace_inside_a_string_does_not_cut_a_call():
    text = (
        'Saving.\n<tool_call>\n{"name": "note", "arguments": {"text": "wrap it in <tool_call>...</tool_call> tags"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "note", "arguments": {"text": "mkdir -p t/{a,b"}}\n</tool_call><|im_end|>'
    )
    assert found(text) == [
        ("note", {"text": "wrap it in <tool_call>...</tool_call> tags"}),
        ("note", {"text": "mkdir -p t/{a,b"}),
    ]


def test_a_closing_tag_inside_an_xml_value_does_not_cut_it():
    value = "use </parameter> and </function>\n</tool_call>, then <function=...>"
    assert found(f"<function=note>\n<parameter=text>\n{value}\n</parameter>\n</function>") == [
        ("note", {"text": value})
    ]


@pytest.mark.parametrize(
    "outer",
    [
        json.dumps({"name": "note", "arguments": {"text": 'x\nguess_word("crane")\ny'}}),
        '<function=note>\n<parameter=text>\nguess_word("crane")\n</parameter>\n</function>',
        '[TOOL_CALLS]note[ARGS]{"text": "\n' + "guess_word('crane')\n\"}",
        'call:note{text:<|"|>\nguess_word("crane")\n<|"|>}',
    ],
)
def test_what_a_call_holds_is_not_read_as_another(outer):
    assert [name for name, _ in found(outer)] == ["note"]
    assert found(outer, (GUESS,)) == []  # nor when the call around it is of another's tool


def test_a_parameter_left_open_does_not_swallow_the_next_call():
    broken = (
        "<tool_call>\n<function=guess_word>\n<parameter=guess>\nslate\n</function>\n</tool_call>\n"
    )
    assert found(f"{broken}<tool_call>\n{CRANE_XML}\n</tool_call>") == CRANE


def test_text_that_broke_off_inside_a_string_yields_nothing_after_it():
    assert found('{"name": "note", "arguments": {"text": "so\nguess_word(\'crane\')\n') == []


def test_a_broken_python_call_does_not_hide_the_next_line():
    assert found('guess_word("slate)\nguess_word("crane")') == CRANE


@pytest.mark.parametrize(
    "reasoning",
    [
        '<think>\nguess_word("slate")\n</think>\n',
        '[THINK]guess_word("slate")[/THINK]',
        '<|channel|>analysis<|message|>guess_word("slate")<|end|><|start|>assistant',
        '<|channel>thought\nguess_word("slate")\n<channel|>',
    ],
)
def test_reasoning_that_came_along_is_stepped_over(reasoning):
    assert found(f"{reasoning}\n{CRANE_JSON}") == CRANE
    assert found(reasoning) == []
    assert found(reasoning[: reasoning.index("</") if "</" in reasoning else 40]) == []


XML_TYPES = tool(
    "t",
    word=STRING,
    n={"type": "integer"},
    f={"type": "number"},
    b={"type": "boolean"},
    o={"type": "object"},
    l={"type": "array"},
    u={"type": ["string", "null"]},
    m={"anyOf": [{"type": "integer"}, {"type": "null"}]},
    r={"$ref": "#/$defs/Level"},
    x={},
)
XML_TYPES = ToolSpec("t", "", {**XML_TYPES.parameters, "$defs": {"Level": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("word", "null", "null"),
        ("word", "007", "007"),
        ("word", "12345", "12345"),
        ("word", "true", "true"),
        ("word", '{"x":1}', '{"x":1}'),
        ("word", "", ""),
        ("word", "\n  indented\n\n", "\n  indented\n\n"),
        ("n", "230.0", 230),
        ("n", " 5 ", 5),
        ("n", "-7", -7),
        ("n", "2.5", "2.5"),
        ("n", "2026-01-15", "2026-01-15"),
        ("n", "1e999", "1e999"),
        ("n", "9" * 5000, "9" * 5000),
        ("f", "1e3", 1000.0),
        ("f", "0.1", 0.1),
        ("f", "nan", "nan"),
        ("b", "True", True),
        ("b", "false", False),
        ("b", "maybe", "maybe"),
        ("b", "1", "1"),
        ("o", "{'a': True, 'b': None}", {"a": True, "b": None}),
        ("o", "{'a': open('x')}", "{'a': open('x')}"),
        ("o", "[1]", "[1]"),
        ("l", '[{"k": true}]', [{"k": True}]),
        ("l", "[1, 2", "[1, 2"),
        ("u", "None", None),
        ("u", "null", None),
        ("u", "5", "5"),
        ("m", "null", None),
        ("m", "5", 5),
        ("r", "3", 3),
        ("x", "3", "3"),
        ("extra", "007", "007"),
    ],
)
def test_an_xml_argument_is_typed_by_the_schema(name, text, value):
    call = f"<function=t>\n<parameter={name}>\n{text}\n</parameter>\n</function>"
    (_, arguments) = found(call, (XML_TYPES,))[0]
    assert arguments == {name: value}
    assert type(arguments[name]) is type(value)


def test_positional_python_arguments_take_the_schemas_order():
    assert found('note("a")\nrobot.move-to(1, 2, why="b")') == [
        ("note", {"text": "a"}),
        ("robot.move-to", {"x": 1, "y": 2, "why": "b"}),
    ]
    assert found("robot.move-to(1, y=-2)") == [("robot.move-to", {"x": 1, "y": -2})]
    assert found("robot.move-to(1)") == []


def test_a_name_is_not_taken_for_a_longer_one():
    tools = (tool("guess"), tool("guess_word"), tool("a.b"), tool("a+b"))
    assert [name for name, _ in found("guess_word()\nguess()\naxb()\na+b()", tools)] == [
        "guess_word",
        "guess",
        "a+b",
    ]


def test_gemma_values_keep_their_types_and_their_strings():
    text = (
        '<|tool_call>call:any{text:<|"|>She said "hi", {ok}: a,b<|"|>,n:3,flag:true,tags:[<|"|>a,b<|"|>,<|"|>c<|"|>],'
        'm:{<|"|>3<|"|>:<|"|>v:1<|"|>},z:null}<tool_call|>'
    )
    want = {
        "text": 'She said "hi", {ok}: a,b',
        "n": 3,
        "flag": True,
        "tags": ["a,b", "c"],
        "m": {"3": "v:1"},
        "z": None,
    }
    assert found(text) == [("any", want)]


def test_arguments_are_valid_utf8_json_even_with_half_a_surrogate_pair():
    (call,) = recover_calls('note("\\ud83d\\ude00 é")', TOOLS)
    assert call.arguments == '{"text": "😀 é"}'
    (call,) = recover_calls('note("\\ud83d")', TOOLS)
    assert call.arguments.encode() == b'{"text": "\\ud83d"}'


def test_only_so_many_calls_and_so_much_text_are_read():
    assert len(found('guess_word("crane")\n' * 50)) == MAX_CALLS
    many = json.dumps([json.loads(CRANE_JSON)] * 50)
    assert len(found(many)) == MAX_CALLS
    padding = "word " * (MAX_CHARACTERS // 5) + "\n"
    assert found(padding + CRANE_JSON) == []
    assert found(CRANE_JSON + "\n" + padding) == CRANE


def test_a_call_at_the_cut_does_not_seem_to_end_the_text():
    call = 'guess_word("crane")'
    text = "x" * (MAX_CHARACTERS - len(call) - 2) + ": " + call
    assert found(text) == CRANE
    assert found(text + ' or guess_word("slate")') == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
arguments = st.dictionaries(st.text(), json_values, max_size=4).filter(lambda a: "type" not in a)


@given(json_values, st.booleans())
def test_the_reader_reads_json_as_json_does(value, ascii_only):
    assert read_whole(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(json_values)
def test_the_reader_reads_python_literals_as_python_does(value):
    text = repr(value)
    if "\\U" not in text and "\\N" not in text:
        assert read_whole(text) == ast.literal_eval(text)


@given(st.text())
def test_the_reader_reads_or_says_unreadable_and_never_reads_a_non_finite_number(text):
    value: Any = None
    try:
        value, end = LiteralReader(text, words=True).value(0)
    except Unreadable as failure:
        end = failure.position
    assert 0 <= end <= len(text)
    assert not isinstance(value, float) or math.isfinite(value)


@given(arguments, st.booleans(), st.sampled_from([None, 2]))
def test_any_arguments_survive_each_json_notation(given_arguments, ascii_only, indent):
    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    call = dump({"name": "any", "arguments": given_arguments})
    for text in (
        call,
        f"<tool_call>\n{call}\n</tool_call>",
        f"[TOOL_CALLS]any[ARGS]{dump(given_arguments)}",
        f"<|channel|>commentary to=functions.any <|constrain|>json<|message|>{dump(given_arguments)}<|call|>",
        dump({"toolUse": {"name": "any", "input": given_arguments}}),
    ):
        assert found(text) == [("any", given_arguments)]


@given(st.text().filter(lambda text: "<" not in text))
@example("\r")
def test_any_text_survives_as_an_xml_string(value):
    text = f"<function=note>\n<parameter=text>\n{value}\n</parameter>\n</function>"
    assert found(text) == [("note", {"text": value})]


@given(st.text().filter(lambda text: "<" not in text))
def test_any_text_survives_as_a_gemma_string(value):
    assert found(f'call:note{{text:<|"|>{value}<|"|>}}') == [("note", {"text": value})]


FRAGMENTS = [
    *("guess_word(", "stop()", '"crane"', "guess=", ")", "{", "}", "[", "]", ":", ",", "\n", " "),
    *('"', "'", '"""', "\\", '<|"|>', "call:note{", "to=functions.note", "<|message|>", "[ARGS]"),
    *("[TOOL_CALLS]", "<tool_call>", "</tool_call>", "<function=note>", "<parameter=text>"),
    *("</parameter>", "</function>", "<think>", "</think>", "```", "`", CRANE_JSON, '"name":'),
    *('"arguments":', "note", "any", "1e5", "-", "true", "é", "\ud800", "\\ud800", "word"),
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
def test_no_text_raises_and_every_call_is_sound(text):
    for call in recover_calls(text, TOOLS):
        spec = next(spec for spec in TOOLS if spec.name == call.name)
        decoded = json.loads(call.arguments.encode())
        assert isinstance(decoded, dict)
        assert set(spec.parameters["required"]) <= set(decoded)


@pytest.mark.parametrize(
    "unit",
    [
        *("{", "[", '{"a":', '{"a":\n', "[[1],", '["', '{"a\\":"', "note(", 'note("', "note('''\n"),
        *('note("\\', "[note(", "[ ", "<function=note>", "<function=note><parameter=text>"),
        "<function=note><parameter=text>x</function>",
        "<function=note><parameter=text></parameter>   ",
        *("<tool_call>{", "<tool_call>   ", "to=note", "to=note<|message|>", "call:note{"),
        *('call:note{text:<|"|>', "[TOOL_CALLS]note[CALL_ID]", "`", "```", "**", "stop()", "stop() `"),
        *("a", " ", "\n", "\\", '"', "<think>", "<|channel|>analysis<|message|>", CRANE_JSON + "x"),
    ],
)  # fmt: skip
def test_time_grows_no_faster_than_the_text(unit):
    def seconds(characters: int) -> float:
        text = unit * (characters // len(unit)) + "</parameter>"
        best = math.inf
        for _ in range(3):
            start = time.thread_time()
            recover_calls(text, TOOLS)
            best = min(best, time.thread_time() - start)
        return best

    short, long = seconds(4_000), seconds(32_000)
    # 8 times the text: 8 for linear, 64 for quadratic. Below a few milliseconds the clock is noise.
    assert long < 0.005 or long < 25 * short
