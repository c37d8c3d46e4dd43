"""`Rollout`: what user code holds while one rollout is played."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.calls import PolicyCalls
from rft_agent_sdk.context import Deadline
from rft_agent_sdk.errors import RolloutCancelled, RolloutOver
from rft_agent_sdk.reward import Reward, shared_out
from rft_agent_sdk.types import JSON, Outcome, ToolSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI
    from strands.models.openai import OpenAIModel

    from rft_agent_sdk.endpoint import Endpoint
    from rft_agent_sdk.environment import Episode
    from rft_agent_sdk.payload import RolloutRequest

logger = logging.getLogger(__name__)

DEFAULT_BUDGET_S = 420.0
"""Seconds a rollout may play: well inside the 600 s a managed job waits for its reward."""
MAX_BUDGET_S = 86_400.0
REPORT_MARGIN_S = 10.0
"""Seconds of a trainer's deadline kept back for reporting, at most a tenth of it."""
REASONING_EFFORTS = ("low", "medium", "high")


class Rollout:
    """One rollout: its request, its time, its clients, and what has happened so far.

    Made by `@rft_handler`, one for each invocation. Safe to use from any thread.
    """

    def __init__(
        self,
        request: RolloutRequest,
        *,
        budget_s: float | None = None,
        session_id: str | None = None,
        allow_hosts: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not as the default: `help` would print every variable, secrets too.
        environ = os.environ if environ is None else environ
        self.request = request
        self.session_id = session_id
        """The AgentCore session id, where there is one."""
        self.invocation_id = uuid.uuid4().hex
        """Fresh for each invocation; part of the reports' idempotency tokens."""
        self.deadline = Deadline(_budget(request, budget_s, environ), clock)
        self.outcome = Outcome.COMPLETED
        """Why the rollout ends, as far as the agent knows; set it to `TRUNCATED` where that is the case."""
        self.episode: Episode | None = None
        self.acts: list[int] = []
        """For each call of the episode's tools, how many model calls had been answered."""
        self.opening: JSON | None = None
        """Messages and tools of the first request, known before it is sent."""
        self.calls = PolicyCalls()
        """Counts of the policy calls made so far."""
        self.optional_fields = _optional_fields(environ)
        """Request fields that an endpoint may refuse without failing the call."""
        self._allow_hosts = tuple(allow_hosts)
        self._environ = environ
        self._endpoint: Endpoint | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._cancelled: str | None = None
        self._on_cancel: Callable[[], None] | None = None

    @property
    def prompt(self) -> str:
        """The prompt, byte for byte as it came."""
        return self.request.prompt

    @property
    def task(self) -> str:
        """The string `Environment.start` reads."""
        return self.request.task

    @property
    def endpoint(self) -> Endpoint:
        """Where the policy is.

        Raises:
            EndpointError: None can be told, or a bearer token may not be sent there.
        """
        from rft_agent_sdk.endpoint import resolve_endpoint

        with self._lock:
            if self._endpoint is None:
                self._endpoint = resolve_endpoint(
                    self.request, environ=self._environ, allow_hosts=self._allow_hosts
                )
            return self._endpoint

    def model(self, **config: Any) -> OpenAIModel:
        """Return a Strands model of the policy; `config` as `strands.models.openai.OpenAIModel` takes it."""
        from rft_agent_sdk.policy import strands_model

        return strands_model(**config)

    def openai(self) -> OpenAI:
        """Return an OpenAI client of the policy."""
        from rft_agent_sdk.policy import openai_client

        return openai_client()

    def async_openai(self) -> AsyncOpenAI:
        """Return an asynchronous OpenAI client of the policy, for any event loop."""
        from rft_agent_sdk.policy import async_openai_client

        return async_openai_client()

    def attach(self, episode: Episode) -> None:
        """Make `episode` the one whose score counts when the rollout is cut short."""
        self.episode = episode
        messages = (
            [{"role": "system", "content": episode.system_prompt}] if episode.system_prompt else []
        )
        messages.append({"role": "user", "content": episode.prompt})
        self.opening = {"messages": messages, **_tools(episode.tools)}

    def by_turn(self, reward: Reward) -> Reward:
        """Share the episode's reward out to the model calls, where it tells what its calls earned.

        Raises:
            RewardError: Credits that are not one finite number for each call.
        """
        credits = getattr(self.episode, "credits", None)  # it need not be a subclass
        if credits is None or reward.per_turn is not None:
            return reward
        return shared_out(reward, list(credits), list(self.acts), self.calls.succeeded)

    def check_open(self) -> None:
        """Raise if no further policy call may start.

        Raises:
            RolloutOver: The deadline has passed, or the rollout was closed.
            RolloutCancelled: It was asked to stop.
        """
        if self._cancelled is not None:
            raise RolloutCancelled(f"the rollout was cancelled: {self._cancelled}")
        if self._closed or self.deadline.expired:
            raise RolloutOver("the rollout's time is up; no further policy call may start")

    @property
    def closed(self) -> bool:
        """Whether the rollout's result is settled, so that anything done now is too late."""
        return self._closed

    def close(self) -> None:
        """Settle the result: no further policy call may start."""
        self._closed = True

    def cancel(self, reason: str) -> None:
        """Ask the rollout to stop now and report what it has. Callable from any thread."""
        self._cancelled = reason
        if self._on_cancel is not None:
            self._on_cancel()

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Call `callback` on `cancel`, at once if that has happened already."""
        self._on_cancel = callback
        if self._cancelled is not None:
            callback()


def _budget(request: RolloutRequest, budget_s: float | None, environ: Mapping[str, str]) -> float:
    """Return the seconds to play: what the trainer gives, less a margin to report in, else our own budget.

    A variable that is no number is logged and passed over: an error here would cost a rollout its
    reward for a typing mistake.
    """
    if request.gateway is not None and request.gateway.deadline_s is not None:
        given = min(request.gateway.deadline_s, MAX_BUDGET_S)
        return given - min(REPORT_MARGIN_S, 0.1 * given)
    if budget_s is not None:
        return budget_s
    text = environ.get("ROLLOUT_BUDGET_SECONDS", "").strip()
    try:
        seconds = float(text) if text else DEFAULT_BUDGET_S
    except ValueError:
        seconds = -1.0
    if 0 < seconds <= MAX_BUDGET_S:
        return seconds
    logger.error(
        "ROLLOUT_BUDGET_SECONDS=<%s> | wanted seconds up to %d; using %d",
        text,
        MAX_BUDGET_S,
        DEFAULT_BUDGET_S,
    )
    return DEFAULT_BUDGET_S


def _optional_fields(environ: Mapping[str, str]) -> JSON:
    effort = environ.get("REASONING_EFFORT", "").strip().lower()
    return {"reasoning_effort": effort} if effort in REASONING_EFFORTS else {}


def _tools(tools: Sequence[ToolSpec]) -> JSON:
    return {"tools": [tool.as_openai() for tool in tools]} if tools else {}
