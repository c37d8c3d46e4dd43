"""A gateway in another process, used by a trainer as if it were a `Gateway` in its own.

Several gateways add up: a session lives in the one that opened it, and the base URL that its agent is
given names that one. Calls that any number of times do no more than once are made again while a
gateway is being restarted.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from rft_agent_sdk.errors import (
    AccessDeniedError,
    JobRuntimeError,
    NotFoundError,
    ServerError,
    UnreachableError,
    UsageError,
)
from rft_agent_sdk.gateway.capture import HistoryMode
from rft_agent_sdk.gateway.refusal import to_json
from rft_agent_sdk.gateway.rollout import RolloutState
from rft_agent_sdk.gateway.sessions import SessionResult, session_config
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.trajectory import Trajectory, message_from_json, trajectory_from_json
from rft_agent_sdk.types import JSON, Outcome, SamplingParams, Turn, Usage

_POLL_S, _ASK_S = 20.0, 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class RemoteGateway:
    """Opens sessions at a gateway that serves elsewhere, with its admin key. Safe to use from any thread."""

    def __init__(
        self,
        url: str,
        admin_key: str,
        *,
        agent_url: str | None = None,
        timeout_s: float = 60.0,
        patience_s: float = 30.0,
    ) -> None:
        """Describe the gateway; nothing is opened yet.

        Args:
            url: Its URL as it is reached from here, without `/v1`.
            admin_key: The key it was started with.
            agent_url: Its URL as agents reach it; `None` for the same.
            timeout_s: Longest wait for an answer, in seconds.
            patience_s: How long a gateway that cannot be reached is tried again, in seconds.

        Raises:
            UsageError: The URL is not http or https, or there is no key.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"a gateway is http://… or https://…, got {url!r}")
        if not admin_key:
            raise UsageError(f"the gateway at {url!r} needs its admin key, got an empty one")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.agent_url = (agent_url or self.url).rstrip("/")
        self._patience_s = patience_s
        self._client = httpx.Client(
            headers={"authorization": f"Bearer {admin_key}", "content-type": "application/json"},
            timeout=timeout_s,
            verify=tls_context(),
            trust_env=False,  # no netrc in place of our key, no proxy from the environment
            # Threads that wait for results hold a connection each.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    def __repr__(self) -> str:
        return f"RemoteGateway({self.url!r})"

    def open(
        self,
        *,
        task: str | None = None,
        sampling: SamplingParams | None = None,
        max_context_tokens: int | None = None,
        budget: int | None = None,
        max_turns: int | None = None,
        history_mode: HistoryMode | None = None,
        seed: int | None = None,
    ) -> RemoteSession:
        """Open a session that captures tokens; the arguments are those of `Gateway.open`.

        Raises:
            UsageError: A limit is below 1, or that gateway captures no tokens.
            JobRuntimeError: The gateway refused, failed, or could not be reached; see `errors`.
        """
        body = {
            "task": task,
            "sampling": None if sampling is None else asdict(sampling),
            "max_context_tokens": max_context_tokens,
            "budget": budget,
            "max_turns": max_turns,
            "history_mode": history_mode,
            "seed": seed,
            "base_url": self.agent_url,
        }
        # Made again only where it cannot have arrived: another session would stay open for good.
        opened = self._call("OpenSession", "/sessions", body, is_safe=False)
        return RemoteSession(opened["secret"], opened["id"], self)

    def stats(self) -> JSON:
        """Return how many sessions there are and what happened in them; as `Gateway.stats`."""
        return self._call("Stats", "/stats", None)

    def close(self) -> None:
        """Close the connections; a later call fails."""
        self._client.close()

    def __enter__(self) -> RemoteGateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self,
        operation: str,
        path: str,
        body: JSON | None,
        *,
        is_safe: bool = True,
        until: float = math.inf,
    ) -> JSON:
        """Return the answer to a call, made again until its time or the patience is over.

        Args:
            operation: Its name, for errors.
            path: Where it goes.
            body: What it says; `None` for a GET.
            is_safe: Whether it may be made again when it may have arrived.
            until: Monotonic time after which it is not made again.
        """
        until = min(until, time.monotonic() + self._patience_s)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._sent(operation, path, body)
            except httpx.TransportError as error:
                is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if not (is_safe or is_unsent) or time.monotonic() + pause_s > until:
                    raise UnreachableError(
                        f"{operation} got no answer from {self.url}: {type(error).__name__}: {error}",
                        operation=operation,
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _sent(self, operation: str, path: str, body: JSON | None) -> JSON:
        method, content = ("GET", None) if body is None else ("POST", to_json(body))
        response = self._client.request(method, self.url + path, content=content)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.status_code == 200 and isinstance(answer, dict):
            return answer
        raise _error(operation, response.status_code, answer)


@dataclass(frozen=True, slots=True)
class RemoteSession:
    """What a trainer holds of a session at a `RemoteGateway`; as `Session`, but for `turns`.

    Every call but `ended` waits for the gateway's answer.
    """

    secret: str = field(repr=False)
    """The agent's API key."""
    id: str
    """A name for people; opens nothing."""
    gateway: RemoteGateway
    rollout: RemoteRecord = field(default_factory=lambda: RemoteRecord(), repr=False)
    """What is known here of what was asked for: nothing before it is sealed."""

    def config(
        self,
        base_url: str | None = None,
        *,
        model_id: str = "default",
        deadline_s: float | None = None,
        report: bool = True,
    ) -> JSON:
        """Return the `_config` object of a rollout request, secret included.

        Args:
            base_url: The gateway's URL as the agent reaches it; `None` for the gateway's `agent_url`.
            model_id: Model name the agent is to send.
            deadline_s: Seconds the rollout may take.
            report: Whether the agent is to report its end to the gateway as well.
        """
        return session_config(
            self.secret,
            base_url or self.gateway.agent_url,
            model_id=model_id,
            deadline_s=deadline_s,
            report=report,
        )

    def result(self, timeout_s: float | None = None) -> SessionResult:
        """Wait until the agent has reported its end.

        Raises:
            TimeoutError: It did not within `timeout_s` seconds.
            UsageError: The gateway has no such session.
            JobRuntimeError: As for `RemoteGateway.open`.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            wait_s = max(0.0, min(_POLL_S, until - time.monotonic()))
            answer = self._call("AwaitSession", "result", {"timeout_s": wait_s}, until)
            if "rewards" in answer:
                return _result(answer)
            if time.monotonic() >= until:
                raise TimeoutError(f"session {self.id} has not ended within {timeout_s} s")

    async def ended(self) -> SessionResult:
        """Wait until the agent has reported its end, on any event loop; raises as `result` does."""
        while True:
            # Short calls, made now and then: a long one would hold one of the loop's few threads.
            call = functools.partial(self._call, "AwaitSession", "result", {"timeout_s": 0})
            answer = await asyncio.to_thread(call)
            if "rewards" in answer:
                return _result(answer)
            await asyncio.sleep(_ASK_S)

    def seal(self, outcome: Outcome | None = None, rewards: Sequence[float] = ()) -> Trajectory:
        """End the session and return its record; see `Session.seal`.

        Raises:
            UsageError: The rewards do not fit, and the session is not ended; or there is no such one.
            JobRuntimeError: As for `RemoteGateway.open`.
        """
        body = {"outcome": outcome, "rewards": list(map(float, rewards))}
        answer = self._call("SealSession", "seal", body)
        calls = answer.pop("calls", [])
        self.rollout.calls[:] = [RemoteCall(one["operation"], one["status"]) for one in calls]
        return trajectory_from_json(answer)

    def drop(self) -> None:
        """Seal the session and have the gateway forget it."""
        self._call("DropSession", "drop", {})

    def _call(self, operation: str, name: str, body: JSON, until: float = math.inf) -> JSON:
        body = {"secret": self.secret, **body}
        return self.gateway._call(operation, f"/sessions/{name}", body, until=until)


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One request, as it was answered; the rest of a `Call` stays with the gateway."""

    operation: str
    status: int | None


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """What was asked for in a session."""

    calls: list[RemoteCall] = field(default_factory=list)


def _error(operation: str, status: int, answer: Any) -> Exception:
    """Return what an answer other than 200 stands for: for what the caller can put right, as a `Gateway` would."""
    found = answer.get("error") if isinstance(answer, dict) else None
    error = found if isinstance(found, dict) else {}
    message = str(error.get("message") or "not in the words of a gateway")[:500]
    if status == 400 or error.get("code") == "unknown_session":
        return UsageError(message)
    kinds: dict[int, type[JobRuntimeError]] = {401: AccessDeniedError, 404: NotFoundError}
    kind = kinds.get(status, ServerError if status >= 500 else JobRuntimeError)
    hint = "; was that gateway started with an admin key?" if status == 404 else ""
    code = error.get("code")
    return kind(
        f"{operation} answered {status}: {message}{hint}",
        operation=operation,
        status=status,
        code=code if isinstance(code, str) else None,
    )


def _result(answer: JSON) -> SessionResult:
    outcome = answer["outcome"]
    turns = tuple(
        Turn(
            tuple(map(message_from_json, turn["messages"])),
            message_from_json(turn["reply"]),
            turn["finish_reason"],
            Usage(*turn["usage"]),
        )
        for turn in answer["turns"]
    )
    return SessionResult(
        RolloutState(answer["state"]),
        None if outcome is None else Outcome(outcome),
        tuple(answer["rewards"]),
        turns,
    )
