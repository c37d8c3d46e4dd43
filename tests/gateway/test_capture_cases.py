"""Known hard cases of token capture, end to end: exact texts of models, real clients, real templates.

A sampler returns the ids of a text as its model would have sampled it, control tokens as such.
"""

import json
from contextlib import ExitStack, contextmanager
from typing import Any

import anthropic
import openai
import pytest
import requests
from strands import Agent
from strands.models.openai import OpenAIModel

from rft_agent_sdk import Outcome
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.gateway.graph import MessageGraph
from rft_agent_sdk.gateway.record import build_trajectory
from rft_agent_sdk.gateway.samplers.token import Sampled, SampledPiece, Sampler
from rft_agent_sdk.types import Message
from tests.gateway.templates import TOKENS, renderer, text_of, tokenizer
from tests.gateway.test_strands_agent import guess_word

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
GO: Any = [{"role": "user", "content": "go"}]
CRANE = '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call>'
SLOTH = CRANE.replace("CRANE", "SLOTH")


def tool(name, **properties):
    """A tool as an OpenAI client sends it."""
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


GUESS: Any = tool("guess_word", guess={"type": "string"})


class Speaking(Sampler):
    """Samples the ids of given texts, one a turn."""

    version = 1

    def __init__(self, name, *turns):
        self.encode = tokenizer(*TOKENS[name]).encode
        self.left = list(turns)
        self.turns: list[tuple[Any, Sampled]] = []

    async def sample(self, request):
        raw, end = self.left.pop(0)
        ids = self.encode(raw, add_special_tokens=False).ids
        first = 1000 * len(self.turns)
        logprobs: list[float | None] = [-0.001 * (first + number) for number in range(len(ids))]
        self.turns.append((request, Sampled(ids, logprobs, end, self.version)))
        return self.turns[-1][1]

    async def stream(self, request):
        whole = await self.sample(request)
        for number, logprob in zip(whole.ids, whole.logprobs, strict=True):
            yield SampledPiece([number], [logprob])
        yield whole

    def prompt(self, turn):
        return list(self.turns[turn][0].prompt)


class Talk:
    """A session on a real server, and clients of it."""

    def __init__(self, name, turns, stack, **kwargs):
        self.made = renderer(name, **kwargs)
        self.sampler = Speaking(name, *((t, "stop") if isinstance(t, str) else t for t in turns))
        gateway = Gateway(renderer=self.made, sampler=self.sampler)
        self.server = stack.enter_context(GatewayServer(gateway))
        self.session = gateway.open()
        self.api: Any = stack.enter_context(
            openai.OpenAI(
                base_url=f"{self.server.url}/v1", api_key=self.session.secret, max_retries=0
            )
        )

    def ask(self, messages, *, stream=False, **options):
        """What was said, thought and called, and why it ended; the same streamed and whole."""
        if stream:
            return assembled(
                self.api.chat.completions.create(
                    model="m", messages=messages, stream=True, **options
                )
            )
        choice = self.api.chat.completions.create(model="m", messages=messages, **options).choices[
            0
        ]
        calls = [
            (call.id, call.function.name, call.function.arguments)
            for call in choice.message.tool_calls or ()
        ]
        thought = getattr(choice.message, "reasoning_content", None) or ""
        return choice.message.content or "", thought, calls, choice.finish_reason

    def sealed(self):
        """The trajectory, every sampled token of it trained once, with its own logprob."""
        trajectory = self.session.seal(Outcome.COMPLETED, [1.0])
        told: list[tuple[int, float]] = []
        for sample in trajectory.samples:
            rows = zip(sample.token_ids, sample.loss_mask, sample.logprobs, strict=True)
            told += [(number, logprob) for number, mask, logprob in rows if mask]
        sampled = [
            pair for _, s in self.sampler.turns for pair in zip(s.ids, s.logprobs, strict=True)
        ]
        assert sorted(told) == sorted(sampled)
        assert len(trajectory.samples[0].spans) >= 1
        return trajectory

    def statuses(self):
        return [span.status for sample in self.sealed().samples for span in sample.spans]


def assembled(chunks):
    said, thought, end = "", "", None
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            said += delta.content or ""
            thought += getattr(delta, "reasoning_content", None) or ""
            end = choice.finish_reason or end
            for call in delta.tool_calls or ():
                parts = calls.setdefault(call.index, ["", "", ""])
                parts[0] += call.id or ""
                parts[1] += call.function.name or ""
                parts[2] += call.function.arguments or ""
    return said, thought, [tuple(calls[index]) for index in sorted(calls)], end


@contextmanager
def talk(name, *turns, **kwargs):
    with ExitStack() as stack:
        yield Talk(name, turns, stack, **kwargs)


def told(calls):
    """Calls without their ids."""
    return [(name, json.loads(arguments)) for _, name, arguments in calls]


# --- what a model writes, read -------------------------------------------------------------------


@STREAMED
def test_a_closing_tag_inside_an_argument_does_not_end_the_call(stream):
    raw = (
        "Saving.\n"
        '<tool_call>\n{"name": "note", "arguments": {"text": "wrap it in <tool_call>...</tool_call>'
        ' tags"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "bash", "arguments": {"cmd": "mkdir -p t/{a,b"}}\n</tool_call>'
        "<|im_end|>"
    )
    tools = [tool("note", text={"type": "string"}), tool("bash", cmd={"type": "string"})]
    with talk("qwen3", raw) as played:
        said, thought, calls, end = played.ask(GO, tools=tools, stream=stream)
        assert (said, thought, end) == ("Saving.", "", "tool_calls")
        assert told(calls) == [
            ("note", {"text": "wrap it in <tool_call>...</tool_call> tags"}),
            ("bash", {"cmd": "mkdir -p t/{a,b"}),
        ]
        assert played.statuses() == ["ok"]


THINKING = [
    ("qwen3.6", {}, "The E is fixed.\n</think>\n\nI'll guess CRANE.<|im_end|>", "stop",
     "The E is fixed.", "I'll guess CRANE.", "ok"),
    ("qwen3.6", {}, "The E is fixed and", "length", "The E is fixed and", "", "truncated"),
    ("qwen3", {}, "<think>\nx\n</think>\n\nHi<|im_end|>", "stop", "x", "Hi", "ok"),
    ("qwen3.6", {"enable_thinking": False}, "Hello<|im_end|>", "stop", "", "Hello", "ok"),
    ("qwen3", {"enable_thinking": False}, "Hello<|im_end|>", "stop", "", "Hello", "ok"),
    ("qwen3", {}, "Write <think>a</think> literally.<|im_end|>", "stop", "",
     "Write <think>a</think> literally.", "ok"),
]  # fmt: skip


@STREAMED
@pytest.mark.parametrize(("name", "kwargs", "raw", "end", "thought", "said", "status"), THINKING)
def test_reasoning_is_told_from_the_answer_by_what_the_prompt_opened(
    name, kwargs, raw, end, thought, said, status, stream
):
    with talk(name, (raw, end), **kwargs) as played:
        assert played.ask(GO, stream=stream) == (said, thought, [], end)
        endings = {
            ("qwen3.6", True): "<think>\n",
            ("qwen3.6", False): "<think>\n\n</think>\n\n",
            ("qwen3", False): "<think>\n\n</think>\n\n",
            ("qwen3", True): "<|im_start|>assistant\n",
        }
        prompt = text_of(played.made, played.sampler.prompt(0))
        assert prompt.endswith(endings[name, not kwargs])
        assert played.statuses() == [status]


TYPED = tool(
    "t",
    word={"type": "string"},
    n={"type": "integer"},
    f={"type": "number"},
    b={"type": "boolean"},
    o={"type": "object"},
    l={"type": "array"},
    u={"type": ["string", "null"]},
)


def xml(**values):
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=t>\n{inner}</function>\n</tool_call><|im_end|>"


XML_VALUES = [
    (
        {"word": "null", "n": "230.0", "f": "1e3", "b": "True", "o": "{'a': True, 'b': None}",
         "l": '[{"k": true}]', "u": "None", "extra": "007"},
        {"word": "null", "n": 230, "f": 1000.0, "b": True, "o": {"a": True, "b": None},
         "l": [{"k": True}], "u": None, "extra": "007"},
    ),
    (
        {"n": "2026-01-15", "b": "maybe", "word": "007"},
        {"n": "2026-01-15", "b": "maybe", "word": "007"},
    ),
    ({"word": '{"x":1}'}, {"word": '{"x":1}'}),
    ({"word": "\n  def f():\n    pass\n"}, {"word": "\n  def f():\n    pass\n"}),
    ({"o": "__import__('os').getcwd()"}, {"o": "__import__('os').getcwd()"}),
]  # fmt: skip


@STREAMED
@pytest.mark.parametrize(("written", "meant"), XML_VALUES)
@pytest.mark.parametrize(
    ("name", "kwargs"), [("qwen3-coder", {}), ("qwen3.6", {"enable_thinking": False})]
)
def test_xml_arguments_are_typed_by_the_schema(name, kwargs, written, meant, stream):
    with talk(name, xml(**written), **kwargs) as played:
        said, _, calls, end = played.ask(GO, tools=[TYPED], stream=stream)
        assert (said, end) == ("", "tool_calls")
        ((_, arguments),) = told(calls)
        assert arguments == meant
        assert [type(value) for value in arguments.values()] == [type(v) for v in meant.values()]
        assert played.statuses() == ["ok"]


HARMONY = [
    (
        "<|channel|>analysis<|message|>Vowels first.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>Opening with a strong word.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.guess_word <|constrain|>json<|message|>{"guess":"CRANE"}<|call|>',
        "Opening with a strong word.", "Vowels first.", [("guess_word", {"guess": "CRANE"})],
        "tool_calls",
    ),
    (
        "<|channel|>analysis<|message|>Vowels first.<|end|><|start|>assistant to=functions.guess_word"
        '<|channel|>commentary json<|message|>{"guess": "CRANE"}<|call|>',
        "", "Vowels first.", [("guess_word", {"guess": "CRANE"})], "tool_calls",
    ),
]  # fmt: skip


@STREAMED
@pytest.mark.parametrize(("raw", "said", "thought", "calls", "end"), HARMONY)
def test_harmony_channels_and_both_places_of_the_recipient(raw, said, thought, calls, end, stream):
    with talk("gpt-oss", raw) as played:
        found = played.ask(GO, tools=[GUESS], stream=stream)
        assert (*found[:2], told(found[2]), found[3]) == (said, thought, calls, end)
        assert played.statuses() == ["ok"]


@STREAMED
def test_harmony_reasoning_in_two_messages_is_whole_and_in_order(stream):
    raw = (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
        "<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    )
    with talk("gpt-oss", raw) as played:
        said, thought, calls, end = played.ask(GO, stream=stream)
        assert (said, calls, end) == ("Done.", [], "stop")
        assert "".join(thought.split()) == "ab"


GEMMA = [
    (
        "<|channel>thought\nCheck.\n<channel|><|tool_call>call:note{text:<|\"|>She said \"hi\", {ok}: "
        "a,b<|\"|>,n:3,flag:true,tags:[<|\"|>a,b<|\"|>,<|\"|>c<|\"|>],m:{<|\"|>3<|\"|>:<|\"|>v:1"
        "<|\"|>},z:null}<tool_call|>",
        "Check.",
        ("note", {"text": 'She said "hi", {ok}: a,b', "n": 3, "flag": True, "tags": ["a,b", "c"],
                  "m": {"3": "v:1"}, "z": None}),
    ),
    ("<|tool_call>call:stop{}<tool_call|>", "", ("stop", {})),
]  # fmt: skip


@STREAMED
@pytest.mark.parametrize("closer", ["", "<|tool_response>"])
@pytest.mark.parametrize(("raw", "thought", "call"), GEMMA)
def test_gemma_strings_keep_quotes_commas_and_braces(raw, thought, call, closer, stream):
    with talk("gemma4", raw + closer) as played:
        found = played.ask(GO, tools=[tool("note"), tool("stop")], stream=stream)
        assert (*found[:2], told(found[2]), found[3]) == ("", thought, [call], "tool_calls")
        assert played.statuses() == ["ok"]


CUT = [
    (f"{CRANE}<|im_end|>", "stop", "tool_calls", 1, "ok"),
    (CRANE[: CRANE.index("ANE")], "length", "length", 0, "truncated"),
    ('<tool_call>\n{"name": "guess_word", "arguments": {oops}\n</tool_call><|im_end|>', "stop",
     "stop", 0, "ill_formed"),
]  # fmt: skip


@STREAMED
@pytest.mark.parametrize(("raw", "backend", "end", "count", "status"), CUT)
def test_a_call_that_is_cut_off_or_ill_formed_is_kept_as_text_and_flagged(
    raw, backend, end, count, status, stream
):
    with talk("qwen3", (raw, backend)) as played:
        said, _, calls, found = played.ask(GO, tools=[GUESS], stream=stream)
        assert (found, len(calls)) == (end, count)
        if not count:
            assert said == raw.removesuffix("<|im_end|>")
        assert played.statuses() == [status]


# --- what a client sends back --------------------------------------------------------------------

TURN_ONE = {
    "qwen3": f"<think>\nthink hard\n</think>\n\nI try.\n{CRANE}<|im_end|>",
    "qwen3.6": "think hard\n</think>\n\nI try.\n\n<tool_call>\n<function=guess_word>\n"
    "<parameter=guess>\nCRANE\n</parameter>\n</function>\n</tool_call><|im_end|>",
    "gpt-oss": "<|channel|>analysis<|message|>think hard<|end|><|start|>assistant<|channel|>"
    "commentary<|message|>I try.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.guess_word <|constrain|>json<|message|>{"guess":"CRANE"}<|call|>',
    "gemma4": "<|channel>thought\nthink hard\n<channel|>I try.<|tool_call>call:guess_word{guess:"
    '<|"|>CRANE<|"|>}<tool_call|><|tool_response>',
}
DONE = {
    "qwen3": "Done.<|im_end|>",
    "qwen3.6": "ok\n</think>\n\nDone.<|im_end|>",
    "gpt-oss": "<|channel|>final<|message|>Done.<|return|>",
    "gemma4": "Done.<turn|>",
}
FAMILIES = sorted(TURN_ONE)
START: Any = [
    {"role": "system", "content": "SYS"},
    {"role": "user", "content": [{"text": "go", "type": "text"}]},
]


def check_linear(played, turns=2):
    """One sample, whose every turn begins with the tokens of the one before."""
    trajectory = played.sealed()
    assert (len(trajectory.samples), trajectory.turns) == (1, turns)
    for number in range(turns - 1):
        before = played.sampler.prompt(number) + played.sampler.turns[number][1].ids
        assert played.sampler.prompt(number + 1)[: len(before)] == before
    return trajectory


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_strands_agent_gives_one_linear_sample_though_it_drops_reasoning(name, streaming):
    with talk(name, TURN_ONE[name], DONE[name]) as played:
        model = OpenAIModel(
            client_args={"base_url": f"{played.server.url}/v1", "api_key": played.session.secret},
            model_id="default",
            stream=streaming,
        )
        agent = Agent(model=model, tools=[guess_word], system_prompt="SYS", callback_handler=None)
        assert str(agent("go")).strip() == "Done."
        trajectory = check_linear(played)
        assert trajectory.counters["reasoning_restored"] == 1
        assert "think hard" in text_of(played.made, played.sampler.prompt(1))


RESULT: Any = {"role": "tool", "content": "Guess 1/6: CRANE"}
LISTED: Any = {"role": "tool", "content": [{"type": "text", "text": "Guess 1/6: CRANE"}]}


@STREAMED
@pytest.mark.parametrize("result", [RESULT, LISTED], ids=["string", "list"])
@pytest.mark.parametrize("has_text", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_second_turn_extends_the_first_in_every_spelling_of_its_echo(
    name, has_text, result, stream
):
    raw = TURN_ONE[name]
    if not has_text:
        raw = raw.replace("<|channel|>commentary<|message|>I try.<|end|><|start|>assistant", "")
        raw = raw.replace("I try.", "")
    with talk(name, raw, DONE[name]) as played:
        said, thought, calls, end = played.ask(START, tools=[GUESS], stream=stream)
        assert (said, thought, end) == ("I try." if has_text else "", "think hard", "tool_calls")
        ((call_id, called, _),) = calls
        echoed: dict[str, Any] = {
            "role": "assistant",
            "tool_calls": [
                {
                    "function": {"arguments": '{"guess": "CRANE"}', "name": called},
                    "id": call_id,
                    "type": "function",
                }
            ],
        }
        if has_text:
            echoed["content"] = [{"text": said, "type": "text"}]
        history = [*START, echoed, {**result, "tool_call_id": call_id}]
        assert played.ask(history, tools=[GUESS], stream=stream)[0] == "Done."
        check_linear(played)


@pytest.mark.parametrize("name", FAMILIES)
def test_content_lists_and_no_tools_render_as_plain_strings_do(name):
    prompts = []
    for content, options in (
        ("go", {}),
        ([{"type": "text", "text": "go"}], {"tools": []}),
    ):
        with talk(name, DONE[name]) as played:
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": content}],
                **options,
            }
            response = requests.post(
                f"{played.server.url}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {played.session.secret}"},
                timeout=10,
            )
            assert response.status_code == 200
            prompts.append(played.sampler.prompt(0))
    assert prompts[0] == prompts[1]
    if name == "qwen3":
        assert "<|im_start|>user\ngo<|im_end|>" in text_of(renderer(name), prompts[0])


AFTER_A_CALL = {
    "qwen3": "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
    '{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\nr1\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "qwen3.6": "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    "<tool_call>\n<function=guess_word>\n<parameter=guess>\nCRANE\n</parameter>\n</function>\n"
    "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n<think>\n",
}
A_CALL = '<|start|>assistant to=functions.guess_word<|channel|>commentary json<|message|>{"guess": "CRANE"}<|call|>'


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("arguments", ['{"guess":"CRANE"}', "", "null", "not json"])
def test_arguments_of_the_history_reach_templates_as_a_mapping(name, arguments):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "guess_word", "arguments": arguments},
    }
    history = [
        *GO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "r1"},
    ]
    with talk(name, DONE[name]) as played:
        assert played.ask(history)[0] == "Done."
        prompt = text_of(played.made, played.sampler.prompt(0))
        assert '\\"' not in prompt
        if arguments.startswith("{"):
            assert name not in AFTER_A_CALL or prompt == AFTER_A_CALL[name]
            assert name != "gpt-oss" or A_CALL in prompt
        elif name == "qwen3" and arguments != "not json":
            assert '"arguments": {}}' in prompt
        played.sealed()


@STREAMED
def test_the_whole_reply_reaches_the_client_and_its_echo_goes_on(stream):
    raw = f"Two openers.\n{CRANE}\n{SLOTH}<|im_end|>"
    with talk("qwen3", raw, DONE["qwen3"]) as played:
        said, _, calls, end = played.ask(GO, tools=[GUESS], stream=stream)
        assert (said, end) == ("Two openers.", "tool_calls")
        assert told(calls) == [("guess_word", {"guess": w}) for w in ("CRANE", "SLOTH")]
        assert calls[0][0] != calls[1][0]
        echoed = {
            "role": "assistant",
            "content": said,
            "tool_calls": [
                {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                for i, n, a in calls
            ],
        }
        results = [{"role": "tool", "tool_call_id": i, "content": a} for i, _, a in calls]
        played.ask([*GO, echoed, *results], tools=[GUESS], stream=stream)
        check_linear(played)


# --- Anthropic Messages --------------------------------------------------------------------------

BLOCKS: Any = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "SYS", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "I try."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "guess_word",
                    "input": {"guess": "CRANE"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and hurry"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [{"type": "text", "text": "bad"}, {"type": "text", "text": "word"}],
                },
            ],
        },
    ],
    "tools": [
        {
            "name": "guess_word",
            "input_schema": {"type": "object", "properties": {"guess": {"type": "string"}}},
        },
        {"name": "stop", "input_schema": {"type": "object", "properties": {}}},
    ],
}
STOPS = (
    '<think>\nr\n</think>\n\nOk.\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    "<|im_end|>"
)


def check_blocks(played, message):
    blocks = [block.model_dump() for block in message.content]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == ("r", "Ok.")
    assert (blocks[2]["name"], blocks[2]["input"]) == ("stop", {})
    assert message.stop_reason == "tool_use"
    request, sampled = played.sampler.turns[0]
    assert message.usage.output_tokens == len(sampled.ids)
    system, user, reply, result, hurry = request.messages
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool", "user"]
    assert (system.text, user.text, hurry.text) == ("SYS", "go", "and hurry")
    assert (reply.text, reply.reasoning) == ("I try.", "t")
    assert [(c.name, json.loads(c.arguments)) for c in reply.tool_calls] == [
        ("guess_word", {"guess": "CRANE"})
    ]
    assert "bad" in result.text
    assert "word" in result.text
    assert result.tool_call_id == reply.tool_calls[0].id
    played.sealed()


@STREAMED
def test_anthropic_blocks_are_put_in_order_and_come_back_in_order(stream):
    with talk("qwen3", STOPS) as played:
        api: Any = anthropic.Anthropic(base_url=played.server.url, api_key=played.session.secret)
        with api:
            if stream:
                with api.messages.stream(**BLOCKS) as events:
                    message = events.get_final_message()
            else:
                message = api.messages.create(**BLOCKS)
        check_blocks(played, message)


def test_anthropic_events_have_the_shape_that_clients_assemble():
    with talk("qwen3", STOPS) as played:
        response = requests.post(
            f"{played.server.url}/v1/messages",
            json={**BLOCKS, "stream": True},
            headers={"x-api-key": played.session.secret, "anthropic-version": "2023-06-01"},
            timeout=10,
        )
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    events = [event for event in map(json.loads, lines) if event["type"] != "ping"]
    kinds = [(event["type"], event.get("index")) for event in events]
    shape = [kind for number, kind in enumerate(kinds) if kind != kinds[number - 1]]
    blocks = [
        (f"content_block_{part}", index)
        for index in range(3)
        for part in ("start", "delta", "stop")
    ]
    ending = [("message_delta", None), ("message_stop", None)]
    # A call without arguments needs no delta.
    assert shape in (
        [("message_start", None), *blocks, *ending],
        [("message_start", None), *blocks[:7], *blocks[8:], *ending],
    )
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_anthropic_client_that_echoes_its_blocks_extends_its_turn():
    with talk("qwen3", STOPS, DONE["qwen3"]) as played:
        api: Any = anthropic.Anthropic(base_url=played.server.url, api_key=played.session.secret)
        with api:
            first = api.messages.create(**BLOCKS)
            result = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "ok"}
            content = [block.model_dump(exclude_none=True) for block in first.content]
            history = [
                *BLOCKS["messages"],
                {"role": "assistant", "content": content},
                {"role": "user", "content": [result]},
            ]
            last = api.messages.create(**{**BLOCKS, "messages": history})
        assert last.content[0].text == "Done."
        check_linear(played)


# --- bare ids ------------------------------------------------------------------------------------


def said(text):
    return Message("assistant", text)


def test_a_template_that_strips_reasoning_branches_and_each_token_trains_once():
    graph = MessageGraph()
    go, on = Message("user", "go"), Message("user", "on")
    graph.commit(
        graph.match([go]),
        prompt_ids=[1, 2, 3],
        sampled_ids=[10, 11, 12, 99],
        logprobs=[-0.1, -0.2, -0.3, -0.4],
        reply=Message("assistant", "Hi.", "hm"),
    )
    second = graph.match([go, said("Hi."), on])
    graph.commit(
        second,
        prompt_ids=[1, 2, 3, 12, 99, 198, 20, 21],
        sampled_ids=[30, 99],
        logprobs=[-0.5, -0.6],
        reply=said("Bye."),
    )
    assert second.turn is graph.turns[0]
    found = build_trajectory(graph, rollout_id="r", outcome=Outcome.COMPLETED, reward=0.7)
    first, last = found.samples
    assert first.token_ids == (1, 2, 3, 10, 11, 12, 99)
    assert first.loss_mask == (0, 0, 0, 1, 1, 1, 1)
    assert first.logprobs[3:] == (-0.1, -0.2, -0.3, -0.4)
    assert last.token_ids == (1, 2, 3, 12, 99, 198, 20, 21, 30, 99)
    assert last.loss_mask == (0, 0, 0, 0, 0, 0, 0, 0, 1, 1)
    assert last.logprobs[8:] == (-0.5, -0.6)
    assert {(s.rollout_id, s.reward) for s in found.samples} == {("r", 0.7)}
    assert found.trained_tokens == 6
    assert [first.weight, last.weight] == pytest.approx([4 / 6, 2 / 6])


@pytest.mark.parametrize("at_once", [False, True])
def test_an_answer_that_a_resend_replaced_never_trains(at_once):
    """Also where both were asked for before either was answered."""
    graph = MessageGraph()
    go, on = Message("user", "go"), Message("user", "on")
    earlier = graph.match([go])
    later = graph.match([go]) if at_once else None
    graph.commit(
        earlier, prompt_ids=[1, 2], sampled_ids=[10, 99], logprobs=[-1.0, -1.0], reply=said("A")
    )
    graph.commit(
        later or graph.match([go]),
        prompt_ids=[1, 2],
        sampled_ids=[11, 99],
        logprobs=[-2.0, -2.0],
        reply=said("B"),
    )
    graph.commit(
        graph.match([go, said("B"), on]),
        prompt_ids=[1, 2, 11, 99, 198, 5],
        sampled_ids=[12, 99],
        logprobs=[-3.0, -3.0],
        reply=said("C"),
    )
    found = build_trajectory(graph, rollout_id="r", outcome=Outcome.COMPLETED, reward=1.0)
    (sample,) = found.samples
    assert sample.token_ids == (1, 2, 11, 99, 198, 5, 12, 99)
    assert sample.loss_mask == (0, 0, 1, 1, 0, 0, 1, 1)
    assert (sample.weight, found.turns, found.counters["abandoned"]) == (1.0, 2, 1)


@STREAMED
def test_a_resend_through_the_gateway_samples_once(stream):
    with talk("qwen3", "A<|im_end|>", "B<|im_end|>") as played:
        found = [played.ask(GO, stream=stream)[0] for _ in range(2)]
        assert found == ["A", "A"]
        trajectory = played.sealed()
        assert (trajectory.turns, len(trajectory.samples)) == (1, 1)


def test_a_rollout_of_several_samples_weighs_as_one_rollout():
    turns = ["A<|im_end|>", "B<|im_end|>", "C<|im_end|>"]
    with talk("qwen3", *turns) as played:
        for number in range(3):
            played.ask([{"role": "user", "content": f"go {number}"}])
        trajectory = played.sealed()
    assert len(trajectory.samples) == 3
    assert {(s.rollout_id, s.reward) for s in trajectory.samples} == {(trajectory.rollout_id, 1.0)}
    assert sum(sample.weight for sample in trajectory.samples) == pytest.approx(1)
