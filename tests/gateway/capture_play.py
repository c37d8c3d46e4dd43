"""One captured session with a sampler that says what it is told to, and what must hold at its end."""

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rft_agent_sdk.gateway.capture import Limits
from rft_agent_sdk.gateway.captured import CapturedSession, SessionTerms, opened
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import PolicyRequest, Reply
from rft_agent_sdk.gateway.samplers.token import Sampled, SampledPiece, Sampler, SampleRequest, cut
from rft_agent_sdk.gateway.session_log import SessionLog, read_logs
from rft_agent_sdk.types import Outcome, ToolCall


def usable(logprob):
    """Whether a token with this logprob may train."""
    return logprob is not None and -math.inf < logprob <= 0.0


class ToldSampler(Sampler):
    """Says what it is told to; each answer has a version of its own, by which it is found again."""

    def __init__(self):
        self.answers = {}
        """Prompt and answer by version; refused ones are not in it."""
        self.requests: dict[object, SampleRequest] = {}
        """What was asked, by version."""
        self.calls = 0
        self.say = None
        """From the request to ids, logprobs and whether the limit cut it off; may raise."""
        self.gate = None

    @property
    def version(self):
        return self.calls

    async def sample(self, request):
        number, say = self.calls, self.say
        self.calls += 1
        assert say is not None
        if self.gate is not None:
            await self.gate.wait()
        ids, logprobs, is_cut = say(request)
        sampled = Sampled(ids, logprobs, "length" if is_cut else "stop", number)
        sampled = cut(sampled, request.sampling.max_tokens)
        self.answers[number] = list(request.prompt), sampled
        self.requests[number] = request
        return sampled

    async def stream(self, request):
        whole = await self.sample(request)
        for start in range(0, len(whole.ids), 3):
            yield SampledPiece(whole.ids[start : start + 3], whole.logprobs[start : start + 3])
        yield whole


class Played:
    """A session, asked directly, without HTTP."""

    def __init__(self, made, folder=None, *, mode="linear", limits=None, task="a task"):
        self.made = made
        self.sampler = ToldSampler()
        terms = SessionTerms(None, limits or Limits(), mode, task)
        log = None
        if folder is not None:
            log = SessionLog.create(folder, "session", opened(terms, b"\0" * 32, made))
        self.folder = folder
        self.session = CapturedSession("session", terms, made, self.sampler, log=log)
        self.policy = self.session.capture
        self.answered = 0
        self.asked = {}
        """The messages of the request that made an answer, by its version."""

    async def ask(self, messages, tools=(), *, stream=False, **options):
        """Return the reply to a request; what was told of a stream must make up its reply."""
        request = PolicyRequest(tuple(messages), tuple(tools), **options)
        if stream:
            reply = await self._streamed(request)
        else:
            reply = await self.policy.reply(request)
        self.answered += 1
        (turn,) = (turn for turn in self.policy.graph.turns if turn.reply is reply.message)
        self.asked.setdefault(turn.version, (tuple(messages), reply.message))
        return reply

    async def _streamed(self, request):
        pieces: list[Any] = [piece async for piece in self.policy.stream(request)]
        reply = pieces.pop()
        assert isinstance(reply, Reply)
        assert "".join(piece.text for piece in pieces) == reply.message.text
        assert "".join(piece.reasoning for piece in pieces) == (reply.message.reasoning or "")
        calls: dict[int, list[str]] = {}
        for piece in pieces:
            if piece.call_index is not None:
                parts = calls.setdefault(piece.call_index, ["", "", ""])
                parts[0] += piece.call_id
                parts[1] += piece.call_name
                parts[2] += piece.call_arguments
        told = [ToolCall(name, arguments, id) for id, name, arguments in calls.values()]
        assert told == list(reply.message.tool_calls)
        return reply

    def seal(self, rewards=(1.0,)):
        return self.session.seal(Outcome.COMPLETED, rewards)

    def check(self, rewards=(1.0,)):
        """Seal, and return the trajectory if it keeps every invariant of token capture."""
        trajectory = self.seal(rewards)
        trained: Counter[object] = Counter()
        seen: set[object] = set()
        for sample in trajectory.samples:
            self._check_sample(sample, trained, seen)
        assert seen == set(self.sampler.answers)  # nothing is abandoned by who gets stored answers
        for version, (_, sampled) in self.sampler.answers.items():
            assert trained[version] == sum(map(usable, sampled.logprobs))
        if trajectory.samples:
            assert math.fsum(s.weight for s in trajectory.samples) == pytest.approx(1, abs=1e-12)
        self._check_prompts()
        self._check_counters(trajectory)
        self._check_log(trajectory)
        return trajectory

    def _check_prompts(self):
        """A prompt is a whole render, or goes on from a turn that had the same tools."""
        for turn in self.policy.graph.turns:
            request = self.sampler.requests[turn.version]
            if turn.rendering == "rendered":
                assert list(request.prompt) == self.made.render(request.messages, request.tools)
            else:
                assert turn.extends
                assert turn.parent is not None
                assert turn.tools == turn.parent.tools
                assert not {"assistant", "system"} & {message.role for message in turn.context}

    def _check_sample(self, sample, trained, seen):
        end = 0
        for span in sample.spans:
            prompt, sampled = self.sampler.answers[span.version]
            assert end <= span.start
            assert list(sample.token_ids[: span.start]) == prompt
            assert list(sample.token_ids[span.start : span.end]) == sampled.ids
            assert not any(sample.loss_mask[end : span.start])
            mask = list(sample.loss_mask[span.start : span.end])
            logprobs = sample.logprobs[span.start : span.end]
            if span.version not in seen:
                assert mask == [int(usable(lp)) for lp in sampled.logprobs]
                wanted = [lp if usable(lp) else 0.0 for lp in sampled.logprobs]
                assert list(logprobs) == wanted
            else:
                assert not any(mask)
            trained[span.version] += sum(mask)
            seen.add(span.version)
            end = span.end
        assert end == len(sample.token_ids)
        messages, reply = self.asked[sample.spans[-1].version]
        told = [(message.role, message.text) for message in (*messages, reply)]
        assert [(message.role, message.text) for message in sample.messages] == told

    def _check_counters(self, trajectory):
        counts, answers = trajectory.counters, self.sampler.answers.values()
        assert counts["turns"] == trajectory.turns == len(answers) == len(self.session.turns)
        assert counts["bridged"] + counts["healed"] + counts["rendered"] == len(answers)
        assert counts["extended"] >= counts["bridged"] + counts["healed"]
        assert counts["invariant_violations"] == counts["abandoned"] == 0
        assert counts.get("stream_diverged", 0) == 0
        assert counts["tokens_sampled"] == sum(len(sampled.ids) for _, sampled in answers)
        missing = [lp for _, sampled in answers for lp in sampled.logprobs if not usable(lp)]
        assert counts["logprobs_missing"] == len(missing)
        repeated = counts.get("replayed", 0) + counts.get("joined", 0)
        assert self.answered == len(answers) + repeated
        cuts = sum(sampled.finish_reason == "length" for _, sampled in answers)
        assert counts["truncated"] == cuts
        assert counts["tool_calls_written"] >= counts["tool_calls_parsed"]

    def _check_log(self, trajectory):
        if self.folder is None:
            return
        (logged,) = read_logs(self.folder)
        again = CapturedSession.restored(logged, self.made, self.sampler)
        assert again.trajectory() == trajectory


def echo(message, *, reasoning=True, spaced=False, renamed=""):
    """A reply as a client sends it back."""
    calls = tuple(
        ToolCall(
            call.name, _spaced(call.arguments) if spaced else call.arguments, renamed + call.id
        )
        for call in message.tool_calls
    )
    return replace(message, reasoning=message.reasoning if reasoning else None, tool_calls=calls)


def _spaced(arguments):
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return json.dumps(value, separators=(" , ", " :  "), sort_keys=True)


async def failed(work):
    """Return the refusal that work ends in."""
    with pytest.raises(Refusal) as caught:
        await work
    return caught.value


def run(work):
    """Run a coroutine on a loop of its own."""
    return asyncio.run(work)


def certain(ids, is_cut=False):
    """What a sampler says that is told nothing but ids."""
    return lambda request: (ids, [-0.25] * len(ids), is_cut)
