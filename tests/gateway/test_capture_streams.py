"""Captured turns told while they are sampled, to real clients; recorded as if nobody listened."""

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import Any

import anthropic
import httpx
import openai
import pytest

from rft_agent_sdk import Outcome
from rft_agent_sdk.gateway import Delta, Gateway, GatewayServer, Refusal, Reply
from rft_agent_sdk.gateway.flight import Flight
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.token import Sampled, SampledPiece, Sampler
from rft_agent_sdk.types import Message

RENDERER = load_renderer()
GO: Any = [{"role": "user", "content": "go"}]
LONG = "<think>\nThe E is fixed.\n</think>\n\nI guess CRANE, since it is a word of five.<|im_end|>"
WAIT_S = 10
"""Long enough for a busy machine; no comment comes meanwhile, so that a silent stream fails its test."""
CALL = '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n</tool_call>'
GUESS = {
    "name": "guess_word",
    "description": "",
    "parameters": {"type": "object", "properties": {"guess": {"type": "string"}}},
}


class Typist(Sampler):
    """Samples a text token by token; waits at a gate after `pause_after` of them."""

    version = 3

    def __init__(self, raw="", finish="stop", *, pause_after=None, error=None):
        self.load(raw, finish)
        self.pause_after = pause_after
        self.error = error
        self.gate = asyncio.Event()
        self.calls = 0
        self.said = 0
        """Tokens given away so far."""

    def load(self, raw, finish):
        self.ids = ids_of(raw)
        self.finish = finish

    async def sample(self, request):
        async for piece in self.stream(request):
            if isinstance(piece, Sampled):
                return piece
        raise AssertionError("there is always a whole")

    async def stream(self, request):
        self.calls += 1
        for number, token in enumerate(self.ids):
            if number == self.pause_after:
                await self.gate.wait()
                if self.error is not None:
                    raise self.error
            self.said = number + 1
            yield SampledPiece([token], [-0.5])
        yield Sampled(list(self.ids), [-0.5] * len(self.ids), self.finish, self.version)


def ids_of(raw):
    """Text with its marks as ids."""
    assert RENDERER.turns is not None
    return RENDERER.turns.vocabulary.encode(raw)


class Table:
    """A gateway with one sampler, one session at a time, and real clients."""

    def __init__(self, stack, sampler):
        self.stack, self.sampler = stack, sampler
        self.gateway = Gateway(renderer=RENDERER, sampler=sampler, keep_alive_s=60)
        self.server = stack.enter_context(GatewayServer(self.gateway))
        self.open()

    def open(self):
        """Go on in a new session."""
        self.session = self.gateway.open()
        found: Any = self.gateway.find_session(self.session.secret)
        self.capture = found.capture

    def open_gate(self):
        loop = self.server._thread.server.servers[0].get_loop()
        loop.call_soon_threadsafe(self.sampler.gate.set)

    def openai(self) -> Any:
        made = openai.OpenAI(
            base_url=f"{self.server.url}/v1",
            api_key=self.session.secret,
            max_retries=0,
            timeout=WAIT_S,
        )
        return self.stack.enter_context(made).chat.completions

    def anthropic(self) -> Any:
        made = anthropic.Anthropic(
            base_url=self.server.url, api_key=self.session.secret, max_retries=0, timeout=WAIT_S
        )
        self.stack.callback(made.close)
        return made.messages

    def stream(self, **options):
        """A stream of chunks as the OpenAI client has it."""
        return self.openai().create(model="m", messages=GO, stream=True, **options)


@pytest.fixture
def sit():
    """Makes tables."""
    with ExitStack() as stack:
        yield lambda *args, **options: Table(stack, Typist(*args, **options))


def until(is_so):
    """Wait for something that another thread does."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def joined(chunks):
    """Chunks put together: reasoning, text, calls, why it ended."""
    reasoning = text = ""
    calls: dict[int, list[str]] = {}
    finish = None
    for chunk in chunks:
        (choice,) = chunk.choices
        delta = choice.delta
        reasoning += getattr(delta, "reasoning_content", None) or ""
        text += delta.content or ""
        for piece in delta.tool_calls or ():
            call = calls.setdefault(piece.index, ["", ""])
            call[0] += piece.function.name or ""
            call[1] += piece.function.arguments or ""
        finish = choice.finish_reason or finish
    return reasoning, text, list(calls.values()), finish


def plain(completion):
    """The same of a plain completion."""
    (choice,) = completion.choices
    message = choice.message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    reasoning = getattr(message, "reasoning_content", None) or ""
    return reasoning, message.content or "", calls, choice.finish_reason


def test_openai_hears_reasoning_and_text_before_the_last_token_is_sampled(sit):
    table = sit(LONG, pause_after=len(ids_of(LONG)) - 3)
    heard: list[Any] = []
    stream = table.stream()
    while not joined(heard)[1].startswith("I guess CRANE, since"):
        heard.append(next(stream))
    assert joined(heard)[0] == "The E is fixed."
    assert table.sampler.said == len(table.sampler.ids) - 3
    assert table.session.turns == ()
    table.open_gate()
    whole = joined([*heard, *stream])
    assert whole == ("The E is fixed.", "I guess CRANE, since it is a word of five.", [], "stop")
    assert [turn.reply for turn in table.session.turns] == [
        Message("assistant", whole[1], whole[0])
    ]


def test_anthropic_hears_thinking_and_text_before_the_last_token_is_sampled(sit):
    table = sit(LONG, pause_after=len(ids_of(LONG)) - 3)
    kinds, text = [], ""
    with table.anthropic().stream(model="m", max_tokens=100, messages=GO) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                kinds.append(event.delta.type)
            if event.type == "text":
                text += event.text
                if text.startswith("I guess CRANE, since"):
                    break
        assert table.sampler.said == len(table.sampler.ids) - 3
        assert "thinking_delta" in kinds
        table.open_gate()
        whole = stream.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[0].thinking == "The E is fixed."
    assert whole.content[1].text == "I guess CRANE, since it is a word of five."
    assert whole.usage.output_tokens == len(table.sampler.ids)


TURNS = {
    "reasoning and text": (LONG, "stop"),
    "a call": (f"{CALL}<|im_end|>", "stop"),
    "a call cut off": ('<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CR', "length"),
    "a broken call": (
        '<tool_call>\n{"name": "guess_word", "arguments": {oops}\n</tool_call><|im_end|>',
        "stop",
    ),
    "text, and calls that quote marks": (
        'Saving.\n<tool_call>\n{"name": "note", "arguments": {"text": "wrap it in '
        '<tool_call>...</tool_call> tags"}}\n</tool_call>\n<tool_call>\n{"name": "bash", "arguments": '
        '{"cmd": "mkdir -p t/{a,b"}}\n</tool_call><|im_end|>',
        "stop",
    ),
    "all three": (f"<think>\nSo\n</think>\n\nI try. {CALL}<|im_end|>", "stop"),
    "white space at the end": ("Well.  \n<|im_end|>", "stop"),
    "white space at the start": (f"  Well. {CALL}<|im_end|>", "stop"),
    "open reasoning": ("<think>\nThe E is fixed and", "length"),
    "nothing": ("<|im_end|>", "stop"),
}


def test_plain_and_streamed_agree_and_record_the_same(sit):
    table = sit()
    api = table.openai()
    asked: Any = {"model": "m", "messages": GO}
    asked["tools"] = [{"type": "function", "function": GUESS}]
    for name, (raw, finish) in TURNS.items():
        table.sampler.load(raw, finish)
        records = []
        found = []
        for stream in (False, True):
            table.open()
            headers = {"Authorization": f"Bearer {table.session.secret}"}
            reply = api.create(**asked, stream=stream, extra_headers=headers)
            found.append(joined(reply) if stream else plain(reply))
            trajectory = table.session.seal(Outcome.COMPLETED, [1.0])
            (sample,) = trajectory.samples
            assert sample.token_ids[-len(table.sampler.ids) :] == tuple(table.sampler.ids)
            records.append(
                (sample.token_ids, sample.loss_mask, sample.logprobs, trajectory.counters)
            )
        assert found[0] == found[1], name
        assert records[0] == records[1], name


def test_plain_and_streamed_agree_for_anthropic(sit):
    table = sit()
    api = table.anthropic()
    asked: Any = {"model": "m", "messages": GO, "max_tokens": 200}
    asked["tools"] = [{"name": "guess_word", "input_schema": GUESS["parameters"]}]
    hidden = {"id": True, "content": {"__all__": {"id", "parsed_output"}}}
    for name, (raw, finish) in TURNS.items():
        table.sampler.load(raw, finish)
        found = []
        for stream in (False, True):
            table.open()
            headers = {"x-api-key": table.session.secret}
            if stream:
                with api.stream(**asked, extra_headers=headers) as events:
                    reply = events.get_final_message()
            else:
                reply = api.create(**asked, extra_headers=headers)
            found.append(reply.model_dump(exclude=hidden))
        assert found[0] == found[1], name


def test_a_client_that_hangs_up_loses_nothing_and_a_resend_replays_it(sit):
    table = sit(LONG, pause_after=15)
    with table.stream() as stream:
        next(chunk for chunk in stream if joined([chunk])[0])
    table.open_gate()
    until(lambda: table.session.turns)
    (turn,) = table.session.turns
    assert joined(table.stream())[1] == turn.reply.text
    assert plain(table.openai().create(model="m", messages=GO))[1] == turn.reply.text
    assert table.sampler.calls == 1
    assert table.capture.counts["replayed"] == 2


def test_one_that_joins_hears_what_was_said_and_goes_on_live(sit):
    table = sit(LONG, pause_after=15)
    first, second = table.stream(), table.stream()
    heard = [next(chunk for chunk in first if joined([chunk])[0])]
    late = [next(chunk for chunk in second if joined([chunk])[0])]
    assert joined(late) == joined(heard)
    found: list[Any] = []
    asked = threading.Thread(
        target=lambda: found.append(table.openai().create(model="m", messages=GO))
    )
    asked.start()
    until(lambda: table.capture.counts["joined"] == 2)
    table.open_gate()
    asked.join(WAIT_S)
    assert joined([*heard, *first]) == joined([*late, *second]) == plain(found[0])
    assert (table.sampler.calls, len(table.session.turns)) == (1, 1)


def test_a_stream_that_joins_a_plain_request_gets_the_whole(sit):
    table = sit(LONG, pause_after=15)
    found: list[Any] = []
    asked = threading.Thread(
        target=lambda: found.append(table.openai().create(model="m", messages=GO))
    )
    asked.start()
    until(lambda: table.sampler.said == 15)
    stream = table.stream()
    table.open_gate()
    whole = joined(stream)
    asked.join(WAIT_S)
    assert whole == plain(found[0])
    assert table.sampler.calls == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refusal(503, "the engine went away"), "the engine went away"),
        (ValueError("holds a secret"), "the policy failed: ValueError"),
    ],
)
def test_a_sampler_that_fails_in_mid_stream_is_an_error_event_and_no_turn(sit, error, told):
    table = sit(LONG, pause_after=15, error=error)
    stream = table.stream()
    assert next(chunk for chunk in stream if joined([chunk])[0])
    table.open_gate()
    with pytest.raises(openai.APIError, match=told):
        list(stream)
    assert table.session.turns == ()
    table.sampler.error = None
    assert joined(table.stream())[3] == "stop"
    assert (table.sampler.calls, len(table.session.turns)) == (2, 1)


def test_a_seal_in_mid_stream_is_an_error_event_and_no_turn(sit):
    table = sit(LONG, pause_after=15)
    stream = table.stream()
    assert next(chunk for chunk in stream if joined([chunk])[0])
    trajectory = table.session.seal(Outcome.TIMEOUT, [])
    table.open_gate()
    with pytest.raises(openai.APIError):
        list(stream)
    assert (trajectory.samples, table.session.turns) == ((), ())


def test_the_turn_is_on_record_when_the_finish_reason_arrives(sit):
    table = sit(f"Hi {CALL}<|im_end|>")
    for chunk in table.stream():
        if chunk.choices[0].delta.tool_calls or chunk.choices[0].finish_reason:
            assert len(table.session.turns) == 1
    assert chunk.choices[0].finish_reason == "tool_calls"


def test_a_turn_told_otherwise_than_it_is_read_is_counted_logged_and_recorded_as_read(sit, caplog):
    table = sit("Hello there, you.<|im_end|>")
    other = ids_of("Good day.<|im_end|>")

    async def fickle(request):
        yield SampledPiece(table.sampler.ids, [-0.5] * len(table.sampler.ids))
        yield Sampled(other, [-0.5] * len(other), "stop", 3)

    table.sampler.stream = fickle
    assert joined(table.stream()) == ("", "Hello there, you.", [], "stop")
    (turn,) = table.session.turns
    assert turn.reply.text == "Good day."
    assert table.session.seal().counters["stream_diverged"] == 1
    assert "told otherwise than it was read" in caplog.text


def test_a_stream_without_a_whole_turn_is_refused(sit):
    table = sit("Hello<|im_end|>")

    async def endless(request):
        yield SampledPiece(table.sampler.ids, [-0.5] * len(table.sampler.ids))

    table.sampler.stream = endless
    with pytest.raises(openai.APIError, match="wanted a whole turn"):
        list(table.stream())
    assert table.session.turns == ()


def test_the_first_words_reach_a_raw_client_while_sampling_waits(sit):
    table = sit(LONG, pause_after=15)
    body = {"model": "m", "messages": GO, "stream": True}
    headers = {"Authorization": f"Bearer {table.session.secret}"}
    url = f"{table.server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=WAIT_S) as reply:
        lines = reply.iter_lines()
        assert next(line for line in lines if "reasoning_content" in line)
        assert not table.sampler.gate.is_set()
        table.open_gate()
        assert list(lines)[-2] == "data: [DONE]"


async def test_who_stops_waiting_for_a_flight_takes_nothing_from_the_others():
    flight, gate = Flight(is_live=True), asyncio.Event()
    reply = Reply(Message("assistant", "ab"))

    async def work():
        flight.say([Delta(text="a")])
        await gate.wait()
        flight.say([Delta(text="b")])
        return reply

    async def heard():
        return [piece async for piece in flight.pieces()]

    task = flight.start(work())
    waiting = [asyncio.ensure_future(one()) for one in (flight.whole, heard, flight.whole, heard)]
    await asyncio.sleep(0)
    for gone in waiting[:2]:
        gone.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await waiting[2] == await task == reply
    assert await waiting[3] == await heard() == [Delta(text="a"), Delta(text="b"), reply]
