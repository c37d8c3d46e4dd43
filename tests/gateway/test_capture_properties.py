"""Token capture under clients and models that do as they please: what is trained is what was sampled.

Sessions are driven directly, with every template's renderer, so that thousands of turns cost seconds.
"""

import asyncio
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.capture import Limits
from rft_agent_sdk.gateway.conformance import conform
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.token import SampleFault
from rft_agent_sdk.types import Message, SamplingParams, ToolCall, ToolSpec
from tests.gateway.capture_play import Played, certain, echo, failed, run
from tests.gateway.templates import GUESS, TOKENS, renderer, tokenizer

EXAMPLES = 8
"""Conversations for each template."""
PHASES = (Phase.generate,)
"""Conversations are found quickly and shrink slowly: a failure is told as it was found."""
NOTE = ToolSpec("note", "Keep a note.", {"type": "object", "properties": {"text": {}}})
TOOLS = ((), (GUESS,), (GUESS, NOTE))
SPELLED = (
    "<|im_end|>",
    "</think>",
    "<tool_call>",
    "<|channel|>final",
    "[TOOL_CALLS]",
    "<|eot_id|>",
    "\uf8d6",
)
TEXT = st.sampled_from(["", "Hm.", " spaced \n", "\U0001f469\u200d\U0001f52c", *SPELLED]) | st.text(
    max_size=12
)
LOGPROBS = st.sampled_from([-0.5, -0.001, -7.25, 0.0, None, math.nan, 0.5, -math.inf, math.inf])
NAMES = sorted(TOKENS)


def drawn_reply(draw):
    """A well-formed reply, its calls with or without a tool that there is."""
    calls = tuple(
        ToolCall(
            draw(st.sampled_from(["guess_word", "note", "nobody"])),
            json.dumps(
                draw(st.dictionaries(st.sampled_from("ab"), TEXT | st.integers(), max_size=2))
            ),
            "",
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    return Message("assistant", draw(TEXT), draw(st.none() | TEXT), calls)


def drawn_ids(draw, made, prompt):
    """What a model may sample: a reply, one that broke off or lost its end, or anything at all."""
    kind = draw(st.sampled_from(["reply", "reply", "cut", "endless", "ill-formed", "random"]))
    if kind == "random":
        control = st.sampled_from(sorted(made.control_tokens.values()))
        ids = draw(
            st.lists(control | st.integers(0, 400) | st.just(999_999), min_size=1, max_size=12)
        )
        return ids, draw(st.booleans())
    ids = made.write(drawn_reply(draw), prompt=prompt)
    assume(ids)
    if kind == "ill-formed":
        at = draw(st.integers(0, len(ids) - 1))
        ids = [*ids[:at], *ids[at + 1 :]] or ids
    if kind == "cut":
        ids = ids[: draw(st.integers(1, len(ids)))]
    if kind == "endless" and len(ids) > 1 and ids[-1] in made.stop_ids:
        ids = ids[:-1]
    return ids, kind == "cut"


class Client:
    """An agent, or several, that remember what they please."""

    def __init__(self, played, draw):
        self.played = played
        self.draw = draw
        self.started = 0
        self.talks = [self.opening()]
        self.tools = draw(st.sampled_from(TOOLS))
        self.sent = []
        """Requests that were answered, with their replies."""

    def opening(self):
        self.started += 1
        system = [Message("system", "SYS")] if self.draw(st.booleans()) else []
        return [*system, Message("user", f"go {self.draw(TEXT)}")]

    def say(self, request):
        ids, is_cut = drawn_ids(self.draw, self.played.made, request.prompt)
        logprobs = [self.draw(LOGPROBS) for _ in ids]
        if self.draw(st.integers(0, 9)) == 0:
            raise SampleFault("the backend is broken")
        return ids, logprobs, is_cut

    async def step(self):
        kinds = ["ask"] * 6 + ["resend", "at once", "edit", "branch", "compact", "tools", "system"]
        kind = self.draw(st.sampled_from([*kinds, "foreign", "nonce"]))
        self.played.sampler.say = self.say
        number = self.draw(st.integers(0, len(self.talks) - 1))
        talk = self.talks[number]
        if kind == "resend" and self.sent:
            await self.resend()
            return
        if kind == "tools":
            self.tools = self.draw(st.sampled_from(TOOLS))
        elif kind != "ask":
            self.talks.append(self.changed(kind, talk))
            talk = self.talks[-1]
        options = {"nonce": str(self.draw(st.integers(0, 1)))} if kind == "nonce" else {}
        await self.ask(talk, times=2 if kind == "at once" else 1, **options)

    def changed(self, kind, talk):
        """A talk as an agent may have changed it."""
        at = self.draw(st.integers(0, len(talk) - 1))
        if kind == "branch":
            return [*talk[: at + 1], Message("user", self.draw(TEXT))]
        if kind == "compact":
            return [Message("user", f"So far: {self.draw(TEXT)}"), *talk[at:]]
        if kind == "system":
            return [*talk, Message("system", "Hurry."), Message("user", "on")]
        if kind == "foreign":
            return [*talk, Message("assistant", self.draw(TEXT)), Message("user", "on")]
        if kind == "edit" and talk[at].role == "assistant":
            return [*talk[:at], Message("assistant", self.draw(TEXT)), *talk[at + 1 :]]
        return list(talk)

    async def ask(self, talk, *, times=1, **options):
        stream, tools = self.draw(st.booleans()), self.tools
        messages = list(talk)
        asked = [self.played.ask(messages, tools, stream=stream, **options) for _ in range(times)]
        found: Any = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(found[0], Refusal):
            assert all(isinstance(one, Refusal) for one in found)
            self.played.answered += times - 1  # who joined it was told so as well
            return
        for one in found:
            if isinstance(one, BaseException):
                raise one
            assert one == found[0]
        self.sent.append((messages, tools, options, found[0]))
        self.go_on(talk, found[0].message)

    async def resend(self):
        messages, tools, options, _ = self.draw(st.sampled_from(self.sent))
        again = await self.played.ask(messages, tools, is_resend=True, **options)
        before = [r for m, t, o, r in self.sent if (m, t, o) == (messages, tools, options)]
        assert again in before

    def go_on(self, talk, reply):
        """Echo a reply in some client's manner, and answer its calls."""
        renamed = self.draw(st.sampled_from(["", "", f"mine_{len(self.sent)}_"]))
        message = echo(
            reply,
            reasoning=self.draw(st.booleans()),
            spaced=self.draw(st.booleans()),
            renamed=renamed,
        )
        talk.append(message)
        results = [
            Message("tool", self.draw(TEXT), tool_call_id=call.id) for call in message.tool_calls
        ]
        talk += reversed(results) if self.draw(st.booleans()) else results
        if not results or self.draw(st.integers(0, 3)) == 0:
            talk.append(Message("user", self.draw(TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_whatever_client_and_model_do_each_sampled_token_trains_once_as_sampled(name):
    made = renderer(name)

    @settings(max_examples=EXAMPLES, phases=PHASES)
    @given(st.sampled_from(["linear", "linear", "tree"]), st.data())
    def played(mode, data):
        with tempfile.TemporaryDirectory() as folder:
            play = Played(made, Path(folder), mode=mode)

            async def talk():
                client = Client(play, data.draw)
                for _ in range(data.draw(st.integers(1, 7))):
                    await client.step()

            run(talk())
            play.check()

    played()


CHECKS = {
    ("call", False): "tool result",
    ("call", True): "thinking",
    ("text", False): "new user message",
    ("text", True): "thinking, then a new user message",
    ("calls", False): "parallel calls",
    ("calls", True): "parallel calls",
}
"""What conformance has to say of a turn with and without reasoning."""


@pytest.mark.parametrize("name", NAMES)
def test_an_honest_client_gets_one_sample_unless_conformance_says_otherwise(name):
    made = renderer(name)
    passed = {check.name for check in conform(made).checks if check.passed}

    @settings(max_examples=EXAMPLES, phases=PHASES)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["call", "text", "calls"]), st.booleans()),
            min_size=1,
            max_size=5,
        ),
        st.booleans(),
        st.booleans(),
    )
    def played(turns, keeps, spaced):
        play = Played(made)
        wanted = {CHECKS[turn] for turn in turns[:-1]}
        if any(thinks for _, thinks in turns[:-1]):
            wanted |= {"thinking"}

        async def talk():
            history = [Message("system", "SYS"), Message("user", "go")]
            for number, (kind, thinks) in enumerate(turns):
                count = {"text": 0, "call": 1, "calls": 2}[kind]
                calls = tuple(
                    ToolCall("guess_word", f'{{"guess":"W{number}{n}"}}', f"call{number:04}{n}")
                    for n in range(count)
                )
                turn = Message(
                    "assistant", "" if calls else "Hi.", "Hm." if thinks else None, calls
                )
                play.sampler.say = lambda request, turn=turn: certain(
                    made.write(turn, prompt=request.prompt)
                )(request)
                reply = await play.ask(history, (GUESS,), stream=number % 2 == 0)
                history.append(echo(reply.message, reasoning=keeps, spaced=spaced))
                history += [
                    Message("tool", f"R{n}", tool_call_id=call.id)
                    for n, call in enumerate(reply.message.tool_calls)
                ]
                if not reply.message.tool_calls:
                    history.append(Message("user", "on"))

        run(talk())
        trajectory = play.check()
        if wanted <= passed:
            assert len(trajectory.samples) == 1

    played()


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "gemma4"])
def test_a_limit_is_never_passed_and_ends_the_rollout_as_truncated(name):
    made = renderer(name)
    small = st.none() | st.integers(1, 60)

    @settings(max_examples=3 * EXAMPLES, phases=PHASES)
    @given(small, small, st.none() | st.integers(1, 3), st.none() | st.integers(1, 20))
    def played(context, budget, turns, asked):
        limits = Limits(None if context is None else 40 + context, budget, turns)
        with tempfile.TemporaryDirectory() as folder:
            play = Played(made, Path(folder), limits=limits)
            play.sampler.say = lambda request: certain(
                made.write(Message("assistant", "word " * 6), prompt=request.prompt)
            )(request)
            is_over = run(_until_over(play, SamplingParams(max_tokens=asked)))
            trajectory = play.check()
        answers = play.sampler.answers.values()
        assert trajectory.turns <= (turns or 99)
        assert sum(len(sampled.ids) for _, sampled in answers) <= (budget or 9999)
        for prompt, sampled in answers:
            assert len(prompt) + len(sampled.ids) <= (limits.max_context_tokens or 9999)
            assert len(sampled.ids) <= (asked or 9999)
        assert (trajectory.outcome.value == "truncated") is is_over
        assert trajectory.counters.get("over_limit", 0) == is_over

    played()


async def _until_over(play, sampling):
    """Talk for five turns at most; return whether a limit ended it."""
    history = [Message("user", "go")]
    for number in range(5):
        found: Any
        (found,) = await asyncio.gather(
            play.ask(history, sampling=sampling), return_exceptions=True
        )
        if isinstance(found, Refusal):
            assert (found.status, found.code) == (400, "context_length_exceeded")
            return True
        history += [echo(found.message), Message("user", f"on {number}")]
    return False


def test_requests_on_their_way_together_do_not_pass_a_limit_that_each_would_keep():
    made = renderer("qwen3")
    play = Played(made, limits=Limits(max_turns=2, budget=30))
    play.sampler.say = lambda request: certain(
        made.write(Message("assistant", "word " * 40), prompt=request.prompt)
    )(request)

    async def talk():
        play.sampler.gate = asyncio.Event()
        asked = [asyncio.ensure_future(play.ask([Message("user", f"go {n}")])) for n in range(4)]
        await asyncio.sleep(0.01)
        play.sampler.gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = run(talk())
    assert all(not isinstance(one, BaseException) or isinstance(one, Refusal) for one in found)
    trajectory = play.check()
    assert trajectory.turns <= 2
    assert trajectory.counters["tokens_sampled"] <= 30
    assert trajectory.outcome.value == "truncated"


def test_a_clients_own_small_limit_is_no_limit_of_the_session():
    """A backend that plans for many tokens cuts its answer to what was asked for."""
    made = renderer("qwen3")
    play = Played(made)
    play.sampler.min_new_tokens = 512
    play.sampler.say = lambda request: certain(
        made.write(Message("assistant", "word " * 40), prompt=request.prompt)
    )(request)
    reply = run(play.ask([Message("user", "go")], sampling=SamplingParams(max_tokens=5)))
    assert (reply.finish_reason, reply.usage.completion_tokens) == ("length", 5)
    assert play.check().outcome.value == "completed"


def test_a_backend_that_plans_for_many_tokens_wants_room_for_them():
    made = renderer("qwen3")
    play = Played(made, limits=Limits(max_context_tokens=500))
    play.sampler.min_new_tokens = 512
    refusal = run(failed(play.ask([Message("user", "go")], sampling=SamplingParams(max_tokens=5))))
    assert refusal.code == "context_length_exceeded"
    assert play.sampler.calls == 0


def test_a_rollout_that_ran_into_a_limit_is_truncated_after_a_restart_too():
    made = renderer("qwen3")
    with tempfile.TemporaryDirectory() as folder:
        play = Played(made, Path(folder), limits=Limits(max_turns=1))
        play.sampler.say = certain([5, 6, 7])

        async def talk():
            reply = await play.ask([Message("user", "go")])
            history = [Message("user", "go"), reply.message, Message("user", "on")]
            await failed(play.ask(history))

        run(talk())
        assert play.check().outcome.value == "truncated"


@settings(max_examples=3 * EXAMPLES, phases=PHASES)
@given(st.sampled_from(NAMES), st.lists(TEXT, min_size=1, max_size=3), st.booleans())
def test_a_request_that_a_template_refuses_samples_nothing(name, texts, has_tools):
    made = renderer(name)
    play = Played(made)
    messages = [Message("user", texts[0]), *(Message("tool", t, tool_call_id="x") for t in texts)]
    tools = (GUESS,) if has_tools else ()
    try:
        prompt = made.render(messages, tools)
    except UsageError:
        refusal = run(failed(play.ask(messages, tools)))
        assert (refusal.status, play.sampler.calls) == (400, 0)
        return
    play.sampler.say = certain([5, 6, 7])
    run(play.ask(messages, tools))
    assert play.sampler.answers[0][0] == prompt


HALVES = {
    "qwen3": r'<tool_call>{"name": "guess_word", "arguments": {"guess": "\ud800"}}</tool_call><|im_end|>',
    "qwen3-coder": '<tool_call>\n<function=note>\n<parameter=text>\n{"a": "\\ud800"}\n</parameter>\n'
    "</function>\n</tool_call><|im_end|>",
    "gpt-oss": '<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"a":"\\ud800"}'
    "<|call|>",
    "mistral-nemo": r'[TOOL_CALLS][{"name": "note", "arguments": "{\"a\": \"\ud800\"}", "id": "123456789"}]</s>',
    "smollm3": r'<tool_call>{"name": "\ud800", "arguments": {}}</tool_call><|im_end|>',
}
"""Calls with half a surrogate pair: JSON can spell it, and no tokenizer takes it."""


@pytest.mark.parametrize("mode", ["linear", "tree"])
@pytest.mark.parametrize("name", sorted(HALVES))
def test_half_a_surrogate_pair_breaks_neither_the_next_prompt_nor_the_log(name, mode):
    ids = tokenizer(*TOKENS[name]).encode(HALVES[name], add_special_tokens=False).ids
    with tempfile.TemporaryDirectory() as folder:
        play = Played(renderer(name), Path(folder), mode=mode, task="half: \ud800")

        async def talk():
            play.sampler.say = certain(ids)
            reply = (await play.ask([Message("user", "go")], TOOLS[2])).message
            results = [Message("tool", "ok", tool_call_id=call.id) for call in reply.tool_calls]
            new = results or [Message("user", "on")]
            play.sampler.say = certain([5, 6, 7])
            await play.ask([Message("user", "go"), reply, *new], TOOLS[2])

        run(talk())
        assert play.check().turns == 2
