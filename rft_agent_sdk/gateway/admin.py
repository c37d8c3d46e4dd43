"""Routes for a trainer in another process: sessions opened, awaited, sealed and dropped, and counters.

They stand behind a key of their own, which no agent ever sees: a session's secret opens none of them.
A gateway without such a key has no such routes.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast, get_args

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.capture import HistoryMode
from rft_agent_sdk.gateway.core import Gateway
from rft_agent_sdk.gateway.dialects.fields import (
    a_count,
    a_name,
    a_number,
    a_string,
    an_object,
    bad,
)
from rft_agent_sdk.gateway.refusal import Refusal, parse_object
from rft_agent_sdk.gateway.sessions import Session, session_config
from rft_agent_sdk.gateway.visit import Visit
from rft_agent_sdk.trajectory import message_to_json, trajectory_to_json
from rft_agent_sdk.types import JSON, Outcome, SamplingParams, Turn

LONGEST_WAIT_S = 30.0
"""Seconds after which a wait for a session's end is answered anyway: proxies cut longer silences."""

_SAMPLING = ("temperature", "top_p", "max_tokens")
_OPEN = (
    *("task", "sampling", "max_context_tokens", "budget", "max_turns", "history_mode"),
    *("seed", "base_url"),
)


async def open_session(visit: Visit) -> None:
    """Serve `POST /sessions`; the body's fields are the arguments of `Gateway.open`.

    `base_url`, where agents reach the gateway by another name than this request did, goes into the
    `config` of the answer.
    """
    body = await _body(visit, *_OPEN)
    base_url = a_string(body.get("base_url"), "base_url", default=_own_url(visit))
    session = _usable(
        lambda: visit.gateway.open(
            task=None if body.get("task") is None else a_string(body["task"], "task"),
            sampling=_sampling(body.get("sampling")),
            max_context_tokens=a_count(body, "max_context_tokens"),
            budget=a_count(body, "budget"),
            max_turns=a_count(body, "max_turns"),
            history_mode=_history_mode(body.get("history_mode")),
            seed=a_count(body, "seed", low=0),
        )
    )
    await visit.reply(
        {
            "id": session.id,
            "secret": session.secret,
            "config": session_config(session.secret, base_url),
        }
    )


async def await_session(visit: Visit) -> None:
    """Serve `POST /sessions/result`: how a session ended, or `{"state": "PENDING"}` in a while."""
    body = await _body(visit, "secret", "timeout_s")
    session = _session(visit.gateway, body)
    given_s = a_number(body, "timeout_s", low=0)
    timeout_s = LONGEST_WAIT_S if given_s is None else min(given_s, LONGEST_WAIT_S)
    try:
        async with asyncio.timeout(timeout_s):
            result = await session.ended()
    except TimeoutError:
        await visit.reply({"state": session.rollout.state.value})
        return
    await visit.reply(
        {
            "state": result.state.value,
            "outcome": result.outcome,
            "rewards": list(result.rewards),
            "turns": [_turn_to_json(turn) for turn in result.turns],
        }
    )


async def seal_session(visit: Visit) -> None:
    """Serve `POST /sessions/seal`; the answer is the trajectory, and under `calls` what was asked for."""
    body = await _body(visit, "secret", "outcome", "rewards")
    session = _session(visit.gateway, body)
    outcome, rewards = _outcome(body.get("outcome")), _rewards(body.get("rewards"))

    def seal() -> JSON:
        trajectory = trajectory_to_json(_usable(lambda: session.seal(outcome, rewards)))
        calls = [
            {"operation": one.operation, "status": one.status} for one in session.rollout.calls
        ]
        return {**trajectory, "calls": calls}

    # A long rollout takes a while to write down, and others are being sampled meanwhile.
    await visit.reply(await asyncio.to_thread(seal))


async def drop_session(visit: Visit) -> None:
    """Serve `POST /sessions/drop`; a session that is gone already is no error."""
    secret = a_name((await _body(visit, "secret")).get("secret"), "secret")
    is_known = visit.gateway.find_session(secret) is not None
    if is_known:
        visit.gateway.resume(secret).drop()
    await visit.reply({"dropped": is_known})


async def stats(visit: Visit) -> None:
    """Serve `GET /stats`."""
    _check_key(visit)
    await visit.reply(await asyncio.to_thread(visit.gateway.stats))


def _check_key(visit: Visit) -> None:
    scheme, _, key = (visit.exchange.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not visit.gateway.is_admin(key):
        raise Refusal(401, "wanted the gateway's admin key as bearer; a session's secret is none")


async def _body(visit: Visit, *names: str) -> JSON:
    """Return the body of an authorized request, of these fields only."""
    _check_key(visit)
    body = parse_object(await visit.body() or b"{}")
    for name in body:
        if name not in names:
            raise Refusal(400, f"{name}: wanted one of {', '.join(names)}", param=name)
    return body


def _session(gateway: Gateway, body: JSON) -> Session:
    secret = a_name(body.get("secret"), "secret")
    if gateway.find_session(secret) is None:
        raise Refusal(
            404,
            "no session has this secret: it was never opened here, or was dropped",
            code="unknown_session",
        )
    return gateway.resume(secret)


def _usable(call: Any) -> Any:
    """Return what a call returns; what its caller can put right is a 400."""
    try:
        return call()
    except UsageError as error:
        raise Refusal(400, str(error)) from error


def _own_url(visit: Visit) -> str:
    return f"{visit.exchange.scope.get('scheme', 'http')}://{visit.exchange.header(b'host') or ''}"


def _sampling(value: object) -> SamplingParams | None:
    if value is None:
        return None
    given = an_object(value, "sampling")
    for name in given:
        if name not in _SAMPLING:
            raise bad("sampling", f"an object of {', '.join(_SAMPLING)}", given)
    return SamplingParams(
        a_number(given, "temperature", low=0),
        a_number(given, "top_p", low=0, high=1),
        a_count(given, "max_tokens"),
    )


def _history_mode(value: object) -> HistoryMode | None:
    if value is not None and value not in get_args(HistoryMode):
        raise bad("history_mode", f"one of {get_args(HistoryMode)}", value)
    return cast("HistoryMode | None", value)


def _outcome(value: object) -> Outcome | None:
    if value is None:
        return None
    if value not in list(Outcome):
        raise bad("outcome", f"one of {[outcome.value for outcome in Outcome]}", value)
    return Outcome(cast("str", value))


def _rewards(value: object) -> list[float]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(entry) in (int, float) for entry in value):
        raise bad("rewards", "a list of numbers", value)
    return value


def _turn_to_json(turn: Turn) -> JSON:
    return {
        "messages": [message_to_json(message) for message in turn.messages],
        "reply": message_to_json(turn.reply),
        "finish_reason": turn.finish_reason,
        "usage": [turn.usage.prompt_tokens, turn.usage.completion_tokens],
    }
