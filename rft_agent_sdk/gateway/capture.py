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
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.dialects.fields import unsupported
from rft_agent_sdk.gateway.flight import Flight
from rft_agent_sdk.gateway.graph import Match, MessageGraph
from rft_agent_sdk.gateway.live import LiveTurn
from rft_agent_sdk.gateway.refusal import Refusal, check_depth, to_json, too_deep
from rft_agent_sdk.gateway.render import ParseStatus, Renderer
from rft_agent_sdk.gateway.samplers.base import (
    Delta,
    Policy,
    PolicyRequest,
    Reply,
    deltas_of,
    settled,
)
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampleFault,
    Sampler,
    SampleRequest,
    turn_seed,
)
from rft_agent_sdk.gateway.turn_node import Rendering, TurnNode
from rft_agent_sdk.types import Message, SamplingParams, ToolSpec, Usage

logger = logging.getLogger(__name__)

HistoryMode = Literal["linear", "tree"]
"""`linear` extends the tokens of the turn a request continues, and branches only where that cannot be
kept. `tree` renders every prompt anew and branches wherever the render differs."""

Store = Callable[[TurnNode], None]
"""Writes a turn where it outlives the process, or raises."""

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
        record: Callable[[Callable[[Store | None], TurnNode]], None],
        noted: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        history_mode: HistoryMode = "linear",
        graph: MessageGraph | None = None,
        affinity: str = "",
        seed: int | None = None,
    ) -> None:
        """Make the policy of one session.

        Args:
            renderer: Of the model that is sampled.
            sampler: Shared by the sessions of a gateway.
            record: Calls the function it is given, which adds a turn to the graph once it is stored
                by what that function is given, or raises a `Refusal` because the session has ended.
            noted: Called when a limit was reached, which a restarted gateway has to know.
            limits: What the session may use up.
            history_mode: Whether prompts are extended or always rendered anew.
            graph: The turns of a session that is taken up again.
            affinity: Requests with the same one prefer the same replica of the sampler.
            seed: Seeds what is sampled: each turn by a seed of its own, the same whenever and in
                whatever order turns come. `None` leaves it to the sampler.
        """
        self.renderer = renderer
        self.sampler = sampler
        self.limits = limits or Limits()
        self.graph = graph or MessageGraph()
        self.counts: Counter[str] = Counter()
        """`replayed` and `joined`: requests answered without sampling. `over_limit`: refused ones.
        `stream_diverged`: replies of which a client was told what they did not begin with."""
        self._record = record
        self._noted = noted
        self._mode = history_mode
        self._affinity = affinity
        self._seed = seed
        self._flights: dict[tuple[object, ...], Flight] = {}
        self._rooms: dict[asyncio.Task[Any], int] = {}
        """Tokens that each turn on its way may still take."""

    @property
    def is_over_limit(self) -> bool:
        """Whether a request was refused because a limit was reached."""
        return self.counts["over_limit"] > 0

    async def reply(self, request: PolicyRequest) -> Reply:
        """Answer one turn, or hand out the answer there is or will be.

        Raises:
            Refusal: 400, the request cannot be honoured or a limit is reached; others by the sampler.
        """
        found = self._found(request, is_live=False)
        return found if isinstance(found, Reply) else await found.whole()

    async def stream(self, request: PolicyRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield one turn as it is sampled, then whole, once it is on record.

        Reasoning and text come as soon as nothing can change them, calls at the end. What was answered
        before comes at once; a turn on its way from its beginning, and live where it was begun so.

        Raises:
            Refusal: As `reply`, at any time before the whole.
        """
        found = self._found(request, is_live=True)
        if isinstance(found, Reply):
            for delta in deltas_of(found.message):
                yield delta
            yield found
            return
        async for piece in found.pieces():
            yield piece

    def _found(self, request: PolicyRequest, *, is_live: bool) -> Reply | Flight:
        """Return the answer there is, or the turn that will be it, begun here if there is none yet."""
        tools = _tools(request)
        with _within_depth():
            match = self.graph.match(request.messages, tools)
            asked = _digest(request)
        answered = [turn for turn in match.answers if turn.request == asked]
        if answered and (request.is_resend or not answered[-1].children):
            self.counts["replayed"] += 1
            turn = answered[-1]
            return Reply(turn.reply, turn.finish_reason, turn.usage)
        key = (match.request_key, asked)
        flight = self._flights.get(key)
        if flight is not None:
            self.counts["joined"] += 1
            return flight
        flight = self._flights[key] = Flight(is_live=is_live)
        task = flight.start(self._sampled(flight, request, match, tools, asked))
        task.add_done_callback(lambda _: self._flights.pop(key))
        return flight

    async def count_tokens(self, request: PolicyRequest) -> int:
        """Return how many tokens the request's prompt has, rendered whole."""
        with _within_depth():
            return len(self._rendered(request.messages, _tools(request)))

    async def _sampled(
        self,
        flight: Flight,
        request: PolicyRequest,
        match: Match,
        tools: tuple[ToolSpec, ...],
        asked: str,
    ) -> Reply:
        with _within_depth():
            prompt = self._prompt(match, tools)
        sampling = await self._granted(request.sampling, len(prompt.ids))
        wanted = SampleRequest(
            prompt=prompt.ids,
            sampling=sampling,
            stop_ids=self.renderer.stop_ids,
            seed=turn_seed(
                self._seed, prompt.ids, asked, sum(turn.request == asked for turn in match.answers)
            ),
            extras={},
            messages=match.history,
            tools=tools,
            affinity=self._affinity,
        )
        live = LiveTurn.of(self.renderer.turns, prompt.ids) if flight.is_live else None
        if live is None:
            sampled = await self.sampler.sample(wanted)
        else:
            sampled = await self._told(flight, live, wanted)
        reply = self._answer(match, tools, asked, prompt, sampled)
        flight.say(deltas_of(reply.message if live is None else self._rest(live, reply)))
        return reply

    async def _told(self, flight: Flight, live: LiveTurn, wanted: SampleRequest) -> Sampled:
        """Sample a turn, saying what is certain of it as it comes."""
        async with aclosing(self.sampler.stream(wanted)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Sampled):
                    return piece
                flight.say(live.take(piece.ids))
        raise SampleFault("wanted a whole turn at the end of the sampler's stream, got none")

    def _rest(self, live: LiveTurn, reply: Reply) -> Message:
        """Return what of a reply was not told yet."""
        rest, is_whole = live.rest(reply.message)
        if not is_whole:
            self.counts["stream_diverged"] += 1
            logger.error(
                "renderer=<%s>, tokens=<%s> | a turn was told otherwise than it was read; it is "
                "recorded as read",
                self.renderer.name,
                reply.usage.completion_tokens,
            )
        return rest

    def _answer(
        self,
        match: Match,
        tools: tuple[ToolSpec, ...],
        asked: str,
        prompt: _Prompt,
        sampled: Sampled,
    ) -> Reply:
        """Read what was sampled and record it; a turn is on record before anyone is told of it."""
        if not sampled.ids:
            raise SampleFault("wanted at least one sampled token, got none")
        parsed = self.renderer.parse(
            sampled.ids, prompt=prompt.ids, tools=tools, finish_reason=sampled.finish_reason
        )
        usage = Usage(len(prompt.ids), len(sampled.ids))
        reply = settled(Reply(parsed.message, parsed.finish_reason, usage))
        written = len(reply.message.tool_calls) + (parsed.status is ParseStatus.ILL_FORMED)

        def commit(store: Store | None) -> TurnNode:
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
                store=store,
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
        # A whole render may happen to begin with the turn before it; the ids alone say so.
        return _Prompt(self._rendered(match.history, tools), "rendered", None)

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

    async def _granted(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """Return the parameters with `max_tokens` cut to what is left.

        Turns on their way may yet use up what is left: where that matters, they are waited for.

        Raises:
            Refusal: 400, nothing is left.
        """
        task = asyncio.current_task()
        assert task is not None
        while (room := self._room(sampling, prompt_tokens)) is None:
            await asyncio.wait(self._rooms, return_when=asyncio.FIRST_COMPLETED)
        self._rooms[task] = room
        task.add_done_callback(self._rooms.pop)
        return sampling if room == sampling.max_tokens else replace(sampling, max_tokens=room)

    def _room(self, sampling: SamplingParams, prompt_tokens: int) -> int | None:
        """Return how many tokens may be sampled, `None` where turns on their way decide.

        Raises:
            Refusal: 400, none.
        """
        limits, others = self.limits, self._rooms.values()
        room = sampling.max_tokens or DEFAULT_MAX_TOKENS
        if limits.max_context_tokens is not None:
            context = limits.max_context_tokens - prompt_tokens
            # A client that asks for fewer tokens than the sampler plans for gets as few.
            if context < self.sampler.min_new_tokens:
                raise self._over(
                    f"a prompt of {prompt_tokens} tokens leaves {max(0, context)} tokens to sample, "
                    f"of {limits}; the sampler needs {self.sampler.min_new_tokens}"
                )
            room = min(room, context)
        live = self.graph.live_turns() if limits.max_turns or limits.budget else []
        if limits.max_turns is not None and len(live) + len(others) >= limits.max_turns:
            if others:
                return None
            raise self._over(f"{len(live)} turns of {limits.max_turns} were answered")
        if limits.budget is not None:
            left = limits.budget - sum(len(turn.sampled_ids) for turn in live)
            if others and left - sum(others) < room:
                return None
            if left < 1:
                raise self._over(f"all of the budget of {limits.budget} tokens was sampled")
            room = min(room, left)
        return room

    def _over(self, why: str) -> Refusal:
        self.counts["over_limit"] += 1
        self._noted()
        return Refusal(
            400,
            f"the session's limit is reached, this is its maximum context length: {why}",
            code="context_length_exceeded",
        )


@contextmanager
def _within_depth() -> Iterator[None]:
    """Refuse a request that a library below cannot follow, though `check_depth` let it pass."""
    try:
        yield
    except RecursionError:
        raise too_deep() from None


def _tools(request: PolicyRequest) -> tuple[ToolSpec, ...]:
    """Return the tools to render.

    Raises:
        Refusal: 400, free sampling cannot keep what the request asks of the calls, or its schemas or
            extras are nested too deeply.
    """
    check_depth([request.extras, *(tool.parameters for tool in request.tools)])
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
