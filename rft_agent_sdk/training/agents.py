"""How a rollout's agent is invoked: over plain HTTP, or as a runtime deployed on AgentCore.

Either way an invocation that fails is an `Answer` that says so, not an exception: one bad rollout is
data, and what follows from it is decided where rollouts are counted.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import httpx

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON, Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
_ARN = re.compile(
    r"arn:aws[a-z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]+):[0-9]{12}:runtime/[A-Za-z][A-Za-z0-9_-]*"
)
_BUSY = (409, 429, 503)
"""Statuses that say "not now": the request was not taken, so sending it again plays nothing twice."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0
_SHOWN = 500
_STOPPERS = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one invocation."""

    body: JSON | None = None
    """The agent's response; `None` where there is none."""
    failure: Outcome | None = None
    """Why there is none."""
    detail: str = ""
    """The same for people."""


class AgentRunner(Protocol):
    """Invokes an agent. Used on one event loop."""

    async def invoke(self, payload: JSON, session_id: str, timeout_s: float) -> Answer:
        """Send a payload in a session of its own and wait for the response, `timeout_s` seconds at most."""
        ...

    async def stop(self, session_id: str) -> None:
        """Give up what is still running of a session. Never raises."""
        ...

    async def aclose(self) -> None:
        """Close connections and threads."""
        ...


class HttpAgent:
    """An agent that serves `POST /invocations` itself: `rft serve`, AgentCore's own app, a container."""

    def __init__(
        self, url: str, *, busy_pause_s: float = _FIRST_PAUSE_S, rng: random.Random | None = None
    ) -> None:
        """Describe the agent; nothing is opened yet.

        Args:
            url: Where it serves, with or without `/invocations`.
            busy_pause_s: Mean pause, in seconds, before asking a busy agent again; it doubles each time.
            rng: Source of the pauses' jitter.

        Raises:
            UsageError: No http or https URL.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"an agent's URL is http://… or https://…, got {url!r}")
        self._target = url.rstrip("/").removesuffix("/invocations") + "/invocations"
        self._pauses = _Pauses(busy_pause_s, rng)
        self._client = httpx.AsyncClient(
            verify=tls_context(),
            trust_env=False,  # a rollout's secret goes to the agent, never through a proxy
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    def __repr__(self) -> str:
        return f"HttpAgent({self._target!r})"

    async def invoke(self, payload: JSON, session_id: str, timeout_s: float) -> Answer:
        """Send a payload; see `AgentRunner`."""
        until = time.monotonic() + timeout_s
        answer = _late(timeout_s)
        data = json.dumps(
            payload
        ).encode()  # in ASCII, which has a way to write half a surrogate pair
        try:
            async with asyncio.timeout(timeout_s):
                for pause_s in self._pauses:
                    response = await self._client.post(
                        self._target,
                        content=data,
                        headers={SESSION_HEADER: session_id, "content-type": "application/json"},
                        timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s)),
                    )
                    answer = _answer(response.status_code, response.content)
                    if response.status_code not in _BUSY or time.monotonic() + pause_s > until:
                        return answer
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            return _late(timeout_s)
        except httpx.TimeoutException as error:
            if isinstance(error, httpx.ReadTimeout):
                return _late(timeout_s)
            return _unreached(f"{type(error).__name__} at {self._target}")
        except httpx.HTTPError as error:
            return _unreached(f"{type(error).__name__} at {self._target}: {error}")
        return answer

    async def stop(self, session_id: str) -> None:
        """Do nothing: such an agent has no sessions to stop."""

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class AgentCoreAgent:
    """A runtime deployed on Bedrock AgentCore, invoked by botocore on a bounded pool of threads."""

    def __init__(
        self,
        arn: str,
        *,
        qualifier: str = "DEFAULT",
        tps: float = 5.0,
        concurrency: int = 128,
        timeout_s: float = 1860.0,
        endpoint_url: str | None = None,
        busy_pause_s: float = _FIRST_PAUSE_S,
        rng: random.Random | None = None,
    ) -> None:
        """Make a client; nothing is called yet.

        Args:
            arn: The runtime's ARN, which names its region.
            qualifier: Name of the runtime's endpoint.
            tps: Most invocations started per second; an account's limit is 25.
            concurrency: Most invocations at one time; each holds a thread and a connection.
            timeout_s: Longest silence of an agent, in seconds: over the longest rollout.
            endpoint_url: Where the service is; `None` for AWS's own.
            busy_pause_s: Mean pause, in seconds, before the first retry of a busy service.
            rng: Source of the pauses' jitter.

        Raises:
            UsageError: No runtime's ARN, or a number that makes no sense.
        """
        import botocore.config
        import botocore.session

        match = _ARN.fullmatch(arn)
        if match is None:
            raise UsageError(
                "a runtime ARN is arn:aws:bedrock-agentcore:<region>:<account>:runtime/<name>-<id>, "
                f"got {arn!r}"
            )
        if tps <= 0 or concurrency < 1:
            raise UsageError(
                f"wanted tps > 0 and concurrency >= 1, got {tps!r} and {concurrency!r}"
            )
        config = botocore.config.Config(
            connect_timeout=10,
            read_timeout=timeout_s,
            retries={"max_attempts": 0},  # here, where the rate is kept and the deadline known
            max_pool_connections=concurrency + _STOPPERS,
        )
        self._client: Any = botocore.session.Session().create_client(
            "bedrock-agentcore",
            region_name=match["region"],
            endpoint_url=endpoint_url,
            config=config,
        )
        self._runtime = {"agentRuntimeArn": arn, "qualifier": qualifier}
        self._rate = _Rate(tps)
        self._pauses = _Pauses(busy_pause_s, rng)
        self._slots = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, "rft-agentcore")
        # Apart, so that stopping sessions does not wait for those that are to be stopped.
        self._stoppers = ThreadPoolExecutor(_STOPPERS, "rft-agentcore-stop")

    def __repr__(self) -> str:
        return f"AgentCoreAgent({self._runtime['agentRuntimeArn']!r})"

    async def invoke(self, payload: JSON, session_id: str, timeout_s: float) -> Answer:
        """Send a payload; see `AgentRunner`. Time spent waiting for the rate does not count."""
        data = json.dumps(payload).encode()
        async with self._slots:
            until = time.monotonic() + timeout_s
            answer = _late(timeout_s)
            for pause_s in self._pauses:
                waited_s = await self._rate.wait()
                until += waited_s
                call = functools.partial(self._invoke, data, session_id)
                try:
                    async with asyncio.timeout(until - time.monotonic()):
                        status, answer = await self._on(self._threads, call)
                except TimeoutError:
                    return _late(timeout_s)
                if status not in _BUSY or time.monotonic() + pause_s > until:
                    return answer
                logger.info("status=<%s>, pause_s=<%.1f> | AgentCore is busy", status, pause_s)
                await asyncio.sleep(pause_s)
        return answer

    async def stop(self, session_id: str) -> None:
        """Stop the session, so that nothing goes on being billed."""
        await self._on(self._stoppers, functools.partial(self._stop, session_id))

    async def aclose(self) -> None:
        """Close the client; threads end with their calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stoppers.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _on(self, threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, call)

    def _invoke(self, data: bytes, session_id: str) -> tuple[int, Answer]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            answer = self._client.invoke_agent_runtime(
                **self._runtime,
                runtimeSessionId=session_id,
                contentType="application/json",
                accept="application/json",
                payload=data,
            )
            return 200, _answer(200, answer["response"].read())
        except NoCredentialsError:
            raise UsageError(
                "there are no AWS credentials: export AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            ) from None
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error.response.get("Error", {}).get("Code")
            failure = Outcome.AGENT_ERROR if status == 424 else Outcome.INFRASTRUCTURE_ERROR
            return status, Answer(None, failure, f"AgentCore says {code} ({status})")
        except (BotoCoreError, OSError) as error:
            return 0, _unreached(f"invoking the runtime failed: {type(error).__name__}: {error}")

    def _stop(self, session_id: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.stop_runtime_session(**self._runtime, runtimeSessionId=session_id)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "ResourceNotFoundException":
                logger.warning("session=<%s> | could not be stopped: %s", session_id, error)
        except (BotoCoreError, OSError) as error:
            logger.warning("session=<%s> | could not be stopped: %s", session_id, error)


class _Rate:
    """Lets so many pass per second, evenly."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._next = 0.0

    async def wait(self) -> float:
        """Wait for the next place; return for how many seconds."""
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._interval_s
        await asyncio.sleep(at - now)
        return at - now


class _Pauses:
    """Iterates over ever longer pauses, without end, each jittered; anew for each call."""

    def __init__(self, first_s: float, rng: random.Random | None) -> None:
        self._first_s = first_s
        self._rng = rng or random.Random()  # noqa: S311 - jitter

    def __iter__(self) -> Iterator[float]:
        mean_s = self._first_s
        while True:
            yield min(_LONGEST_PAUSE_S, mean_s * self._rng.uniform(0.5, 1.5))
            mean_s *= 2


def _answer(status: int, content: bytes) -> Answer:
    if status != 200:
        text = content[:_SHOWN].decode("utf-8", "replace")
        is_agent = status in (400, 404, 422, 500)
        failure = Outcome.AGENT_ERROR if is_agent else Outcome.INFRASTRUCTURE_ERROR
        return Answer(None, failure, f"the agent answered {status}: {text}")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        shown = content[:_SHOWN]
        return Answer(
            None, Outcome.AGENT_ERROR, f"the agent's response is no JSON object: {shown!r}"
        )
    return Answer(body)


def _late(timeout_s: float) -> Answer:
    return Answer(None, Outcome.TIMEOUT, f"the agent gave no answer within {timeout_s:g} s")


def _unreached(detail: str) -> Answer:
    return Answer(None, Outcome.INFRASTRUCTURE_ERROR, detail)
