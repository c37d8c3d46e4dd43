"""Token capture: a policy of one session that renders, samples, parses and records.

Where `samplers.base.Policy` answers at the level of messages, this one answers by tokens: it finds the
request's place in the session's message graph, extends the tokens of the turn it continues, has the
sampler go on from there, and records the turn before anyone is told of it.

A request that was answered before is answered the same; one whose answer is on its way joins it. So a
client that timed out and asks again gets the answer it missed, and nothing is sampled twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.dialects.fields import unsupported
from rft_agent_sdk.gateway.graph import Match, MessageGraph
from rft_agent_sdk.gateway.refusal import Refusal, to_json
from rft_agent_sdk.gateway.render import ParseStatus, Renderer
from rft_agent_sdk.gateway.samplers.base import Policy, PolicyRequest, Reply, settled
from rft_agent_sdk.gateway.samplers.token import Sampled, Sampler, SampleRequest
from rft_agent_sdk.gateway.turn_node import Rendering, TurnNode
from rft_agent_sdk.types import SamplingParams, ToolSpec, Usage

HistoryMode = Literal["linear", "tree"]
"""`linear` extends the tokens of the turn a request continues, and branches only where that cannot be
kept. `tree` renders every prompt anew and branches wherever the render differs."""

DEFAULT_MAX_TOKENS = 4096
"""Tokens a turn may take where neither the session nor the client says."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a session may use up; past any of these a request is a 400 `context_length_exceeded`.

    That status, since agents take it as the end of the conversation, while they retry a 429 for minutes.
    """

    max_context_tokens: int | None = None
    """Prompt and reply of one turn together."""
    budget: int | None = None
    """Sampled tokens of all turns together."""
    max_turns: int | None = None
    """Turns answered, abandoned ones aside."""

    def __post_init__(self) -> None:
        for name in ("max_context_tokens", "budget", "max_turns"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, or None for no limit; got {value!r}")


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: list[int]
    rendering: Rendering
    is_extension: bool | None


class CapturingPolicy(Policy):
    """Answers the turns of one session by tokens.

    Everything runs on the gateway's event loop; other threads read the graph under the session's lock,
    which is also held while a turn is committed.
    """

    extras = frozenset(
        {
            *("frequency_penalty", "logit_bias", "min_p", "presence_penalty", "seed", "top_k"),
            *("repetition_penalty", "metadata", "prompt_cache_key", "safety_identifier"),
            *("service_tier", "store", "user", "verbosity"),
        }
    )
    """Sampling belongs to the session, so fields that steer it change nothing here and are counted."""

    def __init__(
        self,
        renderer: Renderer,
        sampler: Sampler,
        *,
        record: Callable[[Callable[[], TurnNode]], None],
        limits: Limits | None = None,
        history_mode: HistoryMode = "linear",
        graph: MessageGraph | None = None,
        affinity: str = "",
    ) -> None:
        """Make the policy of one session.

        Args:
            renderer: Of the model that is sampled.
            sampler: Shared by the sessions of a gateway.
            record: Calls the function it is given, which adds a turn to the graph, or raises a
                `Refusal` because the session has ended.
            limits: What the session may use up.
            history_mode: Whether prompts are extended or always rendered anew.
            graph: The turns of a session that is taken up again.
            affinity: Requests with the same one prefer the same replica of the sampler.
        """
        self.renderer = renderer
        self.sampler = sampler
        self.limits = limits or Limits()
        self.graph = graph or MessageGraph()
        self.counts: Counter[str] = Counter()
        """`replayed` and `joined`: requests answered without sampling. `over_limit`: refused ones."""
        self._record = record
        self._mode = history_mode
        self._affinity = affinity
        self._flights: dict[tuple[object, ...], asyncio.Task[Reply]] = {}

    @property
    def is_over_limit(self) -> bool:
        """Whether a request was refused because a limit was reached."""
        return self.counts["over_limit"] > 0

    async def reply(self, request: PolicyRequest) -> Reply:
        """Answer one turn, or hand out the answer there is or will be.

        Raises:
            Refusal: 400, the request cannot be honoured or a limit is reached; others by the sampler.
        """
        tools = _tools(request)
        match = self.graph.match(request.messages, tools)
        asked = _digest(request)
        answered = [turn for turn in match.answers if turn.request == asked]
        if answered and (request.is_resend or not answered[-1].children):
            self.counts["replayed"] += 1
            turn = answered[-1]
            return Reply(turn.reply, turn.finish_reason, turn.usage)
        key = (match.request_key, asked)
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.ensure_future(self._sampled(request, match, tools, asked))
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._land(key, done))
        else:
            self.counts["joined"] += 1
        # Shielded: a caller that goes away leaves the answer to whoever asks again.
        return await asyncio.shield(flight)

    def _land(self, key: tuple[object, ...], flight: asyncio.Task[Reply]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # told to those who wait; there may be nobody left

    async def count_tokens(self, request: PolicyRequest) -> int:
        """Return how many tokens the request's prompt has, rendered whole."""
        return len(self._rendered(request.messages, _tools(request)))

    async def _sampled(
        self, request: PolicyRequest, match: Match, tools: tuple[ToolSpec, ...], asked: str
    ) -> Reply:
        prompt = self._prompt(match, tools)
        sampling = self._within_limits(request.sampling, len(prompt.ids))
        sampled = await self.sampler.sample(
            SampleRequest(
                prompt=prompt.ids,
                sampling=sampling,
                stop_ids=self.renderer.stop_ids,
                extras={},
                messages=match.history,
                tools=tools,
                affinity=self._affinity,
            )
        )
        return self._answer(match, tools, asked, prompt, sampled)

    def _answer(
        self,
        match: Match,
        tools: tuple[ToolSpec, ...],
        asked: str,
        prompt: _Prompt,
        sampled: Sampled,
    ) -> Reply:
        """Read what was sampled and record it; a turn is on record before anyone is told of it."""
        parsed = self.renderer.parse(
            sampled.ids, prompt=prompt.ids, tools=tools, finish_reason=sampled.finish_reason
        )
        usage = Usage(len(prompt.ids), len(sampled.ids))
        reply = settled(Reply(parsed.message, parsed.finish_reason, usage))
        written = len(reply.message.tool_calls) + (parsed.status is ParseStatus.ILL_FORMED)

        def commit() -> TurnNode:
            return self.graph.commit(
                match,
                prompt_ids=prompt.ids,
                sampled_ids=sampled.ids,
                logprobs=sampled.logprobs,
                reply=reply.message,
                finish_reason=reply.finish_reason,
                usage=usage,
                version=sampled.version,
                status=parsed.status.value,
                extension=prompt.is_extension,
                rendering=prompt.rendering,
                calls_written=written,
                request=asked,
            )

        self._record(commit)
        return reply

    def _prompt(self, match: Match, tools: tuple[ToolSpec, ...]) -> _Prompt:
        """Return the prompt of a matched request: extended where that can be kept, else whole."""
        turn = match.turn
        if self._mode == "linear" and turn is not None and self._goes_on(match, turn):
            before = self.graph.ids(turn)
            more = self.renderer.extend(
                before,
                match.history[: match.matched],
                match.new,
                tools,
                sampled=turn.sampled_ids,
                finish_reason=turn.finish_reason,
            )
            if more is not None:
                rendering: Rendering = "bridged" if self.renderer.mode == "bridge" else "healed"
                return _Prompt(before + more, rendering, True)
        is_extension = None if self._mode == "tree" else False
        return _Prompt(self._rendered(match.history, tools), "rendered", is_extension)

    def _goes_on(self, match: Match, turn: TurnNode) -> bool:
        """Whether a request only adds messages of others to a turn asked with the same tools."""
        return turn.tools == match.tools and not any(
            message.role in ("assistant", "system") for message in match.new
        )

    def _rendered(self, messages: Iterable[object], tools: tuple[ToolSpec, ...]) -> list[int]:
        try:
            return self.renderer.render(tuple(messages), tools)  # type: ignore[arg-type]
        except UsageError as error:
            raise Refusal(400, f"messages: {error}", param="messages") from error

    def _within_limits(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """Return the parameters with `max_tokens` cut to what is left.

        Raises:
            Refusal: 400, nothing is left.
        """
        limits = self.limits
        room = sampling.max_tokens or DEFAULT_MAX_TOKENS
        live = self.graph.live_turns() if limits.max_turns or limits.budget else []
        if limits.max_turns is not None and len(live) >= limits.max_turns:
            raise self._over(f"{len(live)} turns of {limits.max_turns} were answered")
        if limits.budget is not None:
            spent = sum(len(turn.sampled_ids) for turn in live)
            room = min(room, limits.budget - spent)
        if limits.max_context_tokens is not None:
            room = min(room, limits.max_context_tokens - prompt_tokens)
        if room < self.sampler.min_new_tokens:
            raise self._over(
                f"a prompt of {prompt_tokens} tokens leaves {max(0, room)} tokens to sample, of "
                f"{limits}; the sampler needs {self.sampler.min_new_tokens}"
            )
        return replace(sampling, max_tokens=room)

    def _over(self, why: str) -> Refusal:
        self.counts["over_limit"] += 1
        return Refusal(
            400,
            f"the session's limit is reached, this is its maximum context length: {why}",
            code="context_length_exceeded",
        )


def _tools(request: PolicyRequest) -> tuple[ToolSpec, ...]:
    """Return the tools to render.

    Raises:
        Refusal: 400, free sampling cannot keep what the request asks of the calls.
    """
    if request.tool_choice.mode == "required":
        raise unsupported("tool_choice", "the policy samples freely and cannot be made to call")
    if not request.parallel_tool_calls:
        raise unsupported("parallel_tool_calls", "the policy samples freely: it may call several")
    return () if request.tool_choice.mode == "none" else request.tools


def _digest(request: PolicyRequest) -> str:
    """Return what tells a request apart from others of equal messages and tools."""
    sampling = request.sampling.as_openai()
    if not (request.extras or request.nonce or sampling):
        return ""
    told = to_json([sampling, dict(request.extras), request.nonce])
    return hashlib.blake2b(told, digest_size=12).hexdigest()
