import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.render import Renderer, load_renderer
from rft_agent_sdk.gateway.render.frame import Frame, Shape
from rft_agent_sdk.gateway.render.healing import TemplateRenderer
from rft_agent_sdk.types import Message, ToolCall
from tests.gateway.templates import (
    CHATML,
    GUESS,
    TOKENS,
    call,
    renderer,
    result,
    source,
    text_of,
    tokenizer,
)

SYSTEM, GO = Message("system", "SYS"), Message("user", "go")
FAITHFUL = sorted(set(TOKENS) - {"mistral-nemo"})
"""Templates that never change what stands before a call and its result."""
EXACT = ("qwen3", "qwen3.6", "qwen3.5-think", "gemma4", "ministral-3-reasoning", "llama", "smollm3")
"""Those that write a call as their models sample it, so that whole renders can be compared."""


def go_on(made: Renderer, prompt, history, sampled, new, reason="stop", tools=(GUESS,)):
    return made.extend(prompt + sampled, history, new, tools, sampled=sampled, finish_reason=reason)


def played(made: Renderer, rounds: int, reasoning: str | None = None):
    """A prompt, history and last turn after some rounds of calls, extended all the way."""
    history = [SYSTEM, GO]
    prompt = made.render(history, [GUESS])
    for number in range(rounds):
        turn = Message("assistant", "", reasoning, (call("CRANE", number),))
        sampled = made.write(turn, prompt=prompt)
        history.append(turn)
        added = go_on(made, prompt, history, sampled, [result("X", number)])
        assert added is not None
        prompt = prompt + sampled + added
        history.append(result("X", number))
    return prompt, history


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_conversation_of_calls_is_extended_without_a_break(name):
    played(renderer(name), 4, None if name == "llama" else "Hm.")


@pytest.mark.parametrize("name", EXACT)
def test_an_extended_prompt_is_the_one_that_a_whole_render_gives(name):
    made = renderer(name)
    prompt, history = played(made, 4)
    assert prompt == made.render(history, [GUESS])


CONTENT = st.text(max_size=40) | st.sampled_from(
    [
        *("<|im_end|>", "</think>\nx", "<tool_response>a</tool_response>", '"quoted" \\ {"k": 1}'),
        *("  spaced \n\n", "\n", "\U0001f469\u200d\U0001f52c", "rft0text0x rft0mark rft0id000"),
    ]
)
NEW = st.lists(st.sampled_from(["tool", "user"]), max_size=2)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(TOKENS)), st.data())
def test_any_conversation_keeps_what_was_served_and_adds_what_the_template_writes(name, data):
    """Whatever is said and however turns end: the tail reads as the messages, or a branch begins."""
    made = renderer(name)
    tools = data.draw(st.sampled_from([(), (GUESS,)]))
    history = [SYSTEM, GO][data.draw(st.integers(0, 1)) :]
    try:
        prompt = made.render(history, tools)
    except UsageError:
        assume(False)
    for number in range(data.draw(st.integers(1, 3))):
        turn, new = _turn_and_new(data, number, name)
        sampled = made.write(turn, prompt=prompt)
        reason = data.draw(st.sampled_from(["stop", "length"]))
        if reason == "length":
            sampled = sampled[: data.draw(st.integers(0, len(sampled) - 1))]
            parsed = made.parse(sampled, prompt=prompt, tools=tools, finish_reason=reason).message
            turn = Message("assistant", parsed.text, parsed.reasoning)
            new = [Message("user", "go on")]
        history.append(turn)
        added = go_on(made, prompt, history, sampled, new, reason, tools)
        if added is None:
            return
        text = text_of(made, added)
        assert all(_is_told(message.text, text) for message in new)
        whole = _whole(made, [*history, *new], tools)
        assert whole is None or added[-1] == whole[-1]
        prompt = prompt + sampled + added
        history += new


def _turn_and_new(data, number, name):
    calls = tuple(
        call(
            data.draw(st.sampled_from(["CRANE", "<|im_end|>", "a\nb"])).replace("\n", " "),
            10 * number + n,
        )
        for n in range(data.draw(st.integers(0, 2)))
    )
    if name == "llama":
        calls = calls[:1]
    turn = Message("assistant", "" if calls else data.draw(CONTENT), None, calls)
    new = [Message("tool", data.draw(CONTENT), tool_call_id=c.id) for c in calls]
    if not calls or data.draw(st.booleans()):
        new.append(Message("user", data.draw(CONTENT)))
    return turn, new


def _is_told(said: str, text: str) -> bool:
    """Whether a text holds what was said, as it is or in JSON, blanks around it aside."""
    escaped = said.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    plain = "".join(said.split())
    told = "".join(text.split())
    return plain in told or "".join(escaped.split()) in told or not said.isprintable()


def _whole(made, history, tools):
    """A whole render, `None` where the template refuses what extending has no trouble with."""
    try:
        return made.render(history, tools)
    except UsageError:
        return None


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(EXACT), st.lists(CONTENT, min_size=1, max_size=3))
def test_extending_equals_rendering_for_any_content(name, texts):
    made = renderer(name)
    history = [SYSTEM, GO]
    prompt = made.render(history, [GUESS])
    for number, text in enumerate(texts):
        turn = Message("assistant", "", None, (call("CRANE", number),))
        sampled = made.write(turn, prompt=prompt)
        history += [turn, result(text, number)]
        added = go_on(made, prompt, history[:-1], sampled, history[-1:])
        assert added is not None
        prompt = prompt + sampled + added
    assert prompt == made.render(history, [GUESS])


@pytest.mark.parametrize("name", ["qwen3", "qwen3.6", "gpt-oss", "gemma4"])
def test_reasoning_that_a_whole_render_would_drop_is_kept_as_served(name):
    made = renderer(name)
    prompt = made.render([GO], [])
    turn, new = Message("assistant", "Hi.", "Hm."), [Message("user", "And?")]
    sampled = made.write(turn, prompt=prompt)
    added = go_on(made, prompt, [GO, turn], sampled, new, tools=())
    assert added is not None
    assert "Hm." in text_of(made, prompt + sampled + added)
    assert "Hm." not in text_of(made, made.render([GO, turn, *new], []))


def test_reasoning_is_dropped_by_branching_if_that_is_wanted():
    made = load_renderer(
        tokenizer=tokenizer(*CHATML), template=source("qwen3"), keep_reasoning=False
    )
    prompt = made.render([GO], [])
    new = [Message("user", "And?")]
    for reasoning, is_branch in (("Hm.", True), (None, False)):
        turn = Message("assistant", "Hi.", reasoning)
        sampled = made.write(turn, prompt=prompt)
        assert (go_on(made, prompt, [GO, turn], sampled, new, tools=()) is None) is is_branch


@pytest.mark.parametrize(
    ("name", "text", "reason", "added"),
    [
        (
            "qwen3",
            "Hel",
            "length",
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            "Hello",
            "stop",
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            "<think>\nHm",
            "length",
            "\n</think>\n\n<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            '<tool_call>\n{"na',
            "length",
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Hm",
            "length",
            "<|end|><|start|>user<|message|>And?<|end|><|start|>assistant",
        ),
        ("gpt-oss", "<|channel|>anal", "length", None),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Hm<|end|>",
            "length",
            "<|start|>user<|message|>And?<|end|><|start|>assistant",
        ),
        (
            "gemma4",
            "<|channel>thought\nHm",
            "length",
            "\n<channel|><turn|>\n<|turn>user\nAnd?<turn|>\n<|turn>model\n",
        ),
        (
            "qwen3",
            "Hi<|endoftext|>",
            "stop",
            "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "gpt-oss",
            "<|channel|>final<|message|>Hi<|return|>",
            "stop",
            "<|start|>user<|message|>And?<|end|><|start|>assistant",
        ),
        ("gemma4", "Hi<|tool_response>", "stop", None),
    ],
)
def test_a_turn_that_broke_off_or_ended_oddly_is_closed_or_branched(name, text, reason, added):
    made = renderer(name)
    prompt = made.render([GO], [])
    sampled = tokenizer(*TOKENS[name]).encode(text, add_special_tokens=False).ids
    parsed = made.parse(sampled, prompt=prompt, tools=[], finish_reason=reason).message
    found = go_on(made, prompt, [GO, parsed], sampled, [Message("user", "And?")], reason, ())
    assert (found if found is None else text_of(made, found)) == added


def test_a_call_after_which_the_policy_ended_the_turn_in_another_way_is_branched():
    made = renderer("gemma4")
    prompt = made.render([GO], [GUESS])
    turn = Message("assistant", "", None, (call("CRANE"),))
    sampled = [*made.write(turn, prompt=prompt)[:-1], made.control_tokens["<turn|>"]]
    assert go_on(made, prompt, [GO, turn], sampled, [result("X")]) is None
    assert go_on(made, prompt, [GO, turn], sampled[:-1], [result("X")]) is not None


@pytest.mark.parametrize(
    "new",
    [
        [],
        [Message("assistant", "I said nothing.")],
        [result("X"), Message("assistant", "I said nothing."), GO],
        [result("X", 7)],
        [result("X"), GO, result("X"), GO, result("X")],
    ],
)
def test_what_cannot_follow_a_turn_is_branched(new):
    made = renderer("qwen3")
    prompt = made.render([GO], [GUESS])
    turn = Message("assistant", "", None, (call("CRANE"),))
    sampled = made.write(turn, prompt=prompt)
    assert go_on(made, prompt, [GO, turn], sampled, new) is None


NUMBERED = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.index }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
REWRITING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.revindex < 3 else m.content | upper }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
UNENDING = "{% for m in messages %}<tool_call>{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@pytest.mark.parametrize("template", [NUMBERED, REWRITING, UNENDING])
def test_a_template_that_cannot_be_continued_is_never_healed(template):
    made = load_renderer(tokenizer=tokenizer(*CHATML), template=template)
    prompt = made.render([GO], [])
    turn = Message("assistant", "Hi.")
    sampled = made.write(turn, prompt=prompt)
    assert go_on(made, prompt, [GO, turn], sampled, [Message("user", "And?")], tools=()) is None


SHOUTING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content | upper if m.role == 'tool' else m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def test_a_template_with_ways_of_its_own_is_rendered_each_time():
    made = load_renderer(tokenizer=tokenizer(*CHATML), template=SHOUTING)
    prompt = made.render([GO], [])
    turn = Message("assistant", "", None, (call("CRANE"),))
    sampled = made.write(turn, prompt=prompt)
    added = go_on(made, prompt, [GO, turn], sampled, [result("quiet")], tools=())
    assert added is not None
    assert "QUIET" in text_of(made, added)


def test_a_mistral_prompt_is_branched_where_its_tools_would_move():
    made = renderer("mistral-small-3.2")
    prompt = made.render([GO], [GUESS])
    turn, new = Message("assistant", "Hi."), [Message("user", "And?")]
    sampled = made.write(turn, prompt=prompt)
    assert go_on(made, prompt, [GO, turn], sampled, new) is None
    played(made, 2)


def test_results_in_another_order_keep_their_calls_ids():
    made = renderer("mistral-small-3.2")
    prompt = made.render([GO], [])
    turn = Message("assistant", "", None, (call("CRANE", 1), call("SLATE", 2)))
    sampled = made.write(turn, prompt=prompt)
    new = [result("two", 2), result("one", 1)]
    added = go_on(made, prompt, [GO, turn], sampled, new, tools=())
    assert added is not None
    whole = text_of(made, made.render([GO, turn, *new], []))
    assert whole.endswith(text_of(made, added))


class Counting:
    """A coder that counts the characters it is given."""

    def __init__(self, coder):
        self.coder = coder
        self.characters = 0

    def encode(self, text):
        self.characters += len(text)
        return self.coder.encode(text)

    def encode_plain(self, text):
        return self.coder.encode_plain(text)

    def decode(self, ids):
        self.characters += len(ids)
        return self.coder.decode(ids)


def test_the_work_of_a_turn_does_not_grow_with_the_turns_before():
    made = load_renderer(tokenizer=tokenizer(*CHATML), template=source("qwen3.6"))
    assert isinstance(made, TemplateRenderer)
    vocabulary = made._vocabulary
    counting = Counting(vocabulary._coder)
    vocabulary._coder = counting
    costs = []
    for rounds in (1, 40):
        prompt, history = played(made, rounds)
        turn = Message("assistant", "", None, (call("CRANE", 99),))
        sampled = made.write(turn, prompt=prompt)
        counting.characters = 0
        made.parse(sampled, prompt=prompt, tools=[GUESS], finish_reason="tool_calls")
        go_on(made, prompt, [*history, turn], sampled, [result("X", 99)])
        costs.append(counting.characters)
    assert costs[0] == costs[1] < 400


@settings(deadline=None)
@given(
    st.lists(CONTENT, min_size=2, max_size=2),
    st.lists(st.text("abc", max_size=4), min_size=1, max_size=1),
)
def test_a_frame_is_filled_in_the_places_of_its_messages(texts, ids):
    frame = Frame("E", ("E", 1, "-", 0, "-", -1, "."), str)
    assert frame.fill(texts, ids) == f"E{texts[1]}-{texts[0]}-{ids[0]}."


def test_a_shape_is_told_by_names_roles_and_answers_alone():
    turn = Message("assistant", "", None, (call("CRANE", 1), ToolCall("other", "{}", "x")))
    shape = Shape.of(turn, [Message("tool", "a", tool_call_id="x"), GO])
    assert shape == Shape(("guess_word", "other"), (("tool", 1), ("user", 0)))
    assert Shape.of(turn, [result("a", 9)]) is None
