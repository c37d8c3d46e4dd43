"""One sampling request, one turn: read, asked, stored, answered."""

from __future__ import annotations

import logging
import secrets
from contextlib import aclosing
from dataclasses import fields, replace

from rft_agent_sdk.gateway.access import TRAJECTORY_HEADER, identify
from rft_agent_sdk.gateway.dialects.anthropic import AnthropicDialect
from rft_agent_sdk.gateway.dialects.base import ChatRequest, Dialect, ReplyHead, ReplyStream
from rft_agent_sdk.gateway.dialects.fields import unsupported
from rft_agent_sdk.gateway.dialects.openai import OpenAIDialect
from rft_agent_sdk.gateway.faults import Fault
from rft_agent_sdk.gateway.job_runtime import Job
from rft_agent_sdk.gateway.refusal import Refusal, parse_object
from rft_agent_sdk.gateway.rollout import GatewayRollout
from rft_agent_sdk.gateway.samplers.base import Reply, settled
from rft_agent_sdk.gateway.sse import HEADERS, KeptAlive
from rft_agent_sdk.gateway.visit import Dropped, Visit
from rft_agent_sdk.types import SamplingParams, Turn

logger = logging.getLogger(__name__)

OPENAI = OpenAIDialect()
ANTHROPIC = AnthropicDialect()
RETRY_HEADER = b"x-stainless-retry-count"
"""How the official clients count their own retries."""
NONCE_HEADER = b"x-rft-nonce"
"""With a value of its own, a request equal to an earlier one is a new one and no retry."""
_NOTHING_ASKED = SamplingParams()


async def chat(visit: Visit) -> None:
    """Serve `/v1/chat/completions` and `/sample`; the body says whether to stream."""
    await _turn(visit, OPENAI)


async def sample_stream(visit: Visit) -> None:
    """Serve `/sample-with-response-stream`, which streams whatever the body says."""
    await _turn(visit, OPENAI, must_stream=True)


async def messages(visit: Visit) -> None:
    """Serve `/v1/messages`; the body says whether to stream."""
    await _turn(visit, ANTHROPIC)


async def count_tokens(visit: Visit) -> None:
    """Serve `/v1/messages/count_tokens`.

    It asks the policy and leaves everything as it was: no call is recorded, no fault spent, no
    trajectory made, and a rollout that has ended may still be asked about.
    """
    body = await visit.body()
    policy = identify(visit, body).terms.policy
    request = ANTHROPIC.parse_count(parse_object(body))
    await visit.reply(ANTHROPIC.count(await policy.count_tokens(request)))


async def _turn(visit: Visit, dialect: Dialect, *, must_stream: bool = False) -> None:
    body = await visit.body()
    rollout = visit.rollout = _rollout(visit, body)
    await visit.face(rollout.faults)
    rollout.check_open()
    parsed = parse_object(body)
    visit.noted = {name: value for name, value in parsed.items() if name not in dialect.bulky}
    request = _on_terms(_as_sent(visit, dialect.parse(parsed, rollout.recall)), rollout, dialect)
    head = ReplyHead(secrets.token_hex(12), request.policy.model, int(visit.at))
    if must_stream or request.stream:
        await _streamed(visit, rollout, dialect.stream(head, request), request)
    else:
        reply = await _asked(rollout, request)
        _store(rollout, request, reply)
        await visit.reply(dialect.reply(head, reply))


def _rollout(visit: Visit, body: bytes) -> GatewayRollout:
    owner = identify(visit, body)
    if not isinstance(owner, Job):
        return owner
    trajectory_id = visit.exchange.header(TRAJECTORY_HEADER)
    if trajectory_id is None:
        raise Refusal(
            400,
            "the trajectory id is missing: X-Amzn-SageMaker-Trajectory-Id",
            param="TrajectoryId",
        )
    return owner.trajectory(trajectory_id)


def _as_sent(visit: Visit, request: ChatRequest) -> ChatRequest:
    """Return the request with what its headers tell of how it was sent."""
    resent = visit.exchange.header(RETRY_HEADER) not in (None, "0")
    nonce = visit.exchange.header(NONCE_HEADER) or ""
    if not (resent or nonce):
        return request
    return replace(request, policy=replace(request.policy, is_resend=resent, nonce=nonce))


def _on_terms(request: ChatRequest, rollout: GatewayRollout, dialect: Dialect) -> ChatRequest:
    """Return the request as the rollout's terms have it."""
    allowed = rollout.terms.policy.extras
    if allowed is not None:
        for name in request.policy.extras:
            if name not in allowed:
                raise unsupported(
                    dialect.spelled.get(name, name), "the policy here cannot honour it"
                )
    fixed = rollout.terms.sampling
    if fixed is None:
        return request
    asked = request.policy.sampling
    sampling = fixed if asked == _NOTHING_ASKED else _held(fixed, asked, rollout)
    return replace(request, policy=replace(request.policy, sampling=sampling))


def _held(fixed: SamplingParams, asked: SamplingParams, rollout: GatewayRollout) -> SamplingParams:
    """Return the parameters that are fixed, and where none is, those asked for."""
    values = {}
    for field in fields(SamplingParams):
        held, wanted = getattr(fixed, field.name), getattr(asked, field.name)
        if held is not None and wanted not in (None, held):
            rollout.counts["sampling_ignored"] += 1
        values[field.name] = wanted if held is None else held
    return SamplingParams(**values)


async def _asked(rollout: GatewayRollout, request: ChatRequest) -> Reply:
    try:
        return settled(await rollout.terms.policy.reply(request.policy))
    except Refusal:
        raise
    except Exception as error:
        raise _broken(rollout, error) from error


async def _streamed(
    visit: Visit, rollout: GatewayRollout, written: ReplyStream, request: ChatRequest
) -> None:
    """Answer in pieces. From the first byte on, an error can only be an event of the stream."""
    write = visit.exchange.write
    await visit.start(HEADERS)
    await write(written.start())
    try:
        reply = await _relayed(visit, rollout, written, request)
        # Before the last event: who has read the whole stream may at once ask for the turns.
        _store(rollout, request, reply)
    except Refusal as refusal:
        rollout.counts["stream_broken"] += 1
        await write(written.error(refusal), more=False)
        return
    if visit.fault is Fault.LOSE_REPLY:
        raise Dropped
    await write(written.end(reply), more=False)


async def _relayed(
    visit: Visit, rollout: GatewayRollout, written: ReplyStream, request: ChatRequest
) -> Reply:
    """Write the policy's pieces as they come, comments while none come; return the whole.

    A client that hung up changes nothing: the policy is heard out, and the turn is kept.
    """
    reply: Reply | None = None
    is_cut = False
    try:
        with KeptAlive(visit.exchange.write, visit.gateway.keep_alive_s) as stream:
            async with aclosing(rollout.terms.policy.stream(request.policy)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        reply = piece
                    elif not is_cut:
                        await stream.write(written.delta(piece))
                        is_cut = visit.fault is Fault.LOSE_REPLY
    except Refusal:
        raise
    except Exception as error:
        raise _broken(rollout, error) from error
    if reply is None:
        raise Refusal(500, "the policy's stream ended without a reply")
    return settled(reply)


def _store(rollout: GatewayRollout, request: ChatRequest, reply: Reply) -> None:
    asked = request.policy
    rollout.store(Turn(asked.messages, reply.message, reply.finish_reason, reply.usage))


def _broken(rollout: GatewayRollout, error: Exception) -> Refusal:
    """Log what a policy raised and return what the client is told, which is not the text of it."""
    logger.error("rollout=<%s> | the policy failed", rollout.id, exc_info=error)
    return Refusal(500, f"the policy failed: {type(error).__name__}")
