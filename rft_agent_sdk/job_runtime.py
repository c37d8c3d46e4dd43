"""CompleteRollout and UpdateReward: how a rollout's end reaches whoever is training.

Two calls in fixed order, over `requests`. There is no call to read the state back, so what a 409
means is told from what this client itself has sent: after an attempt of our own that went unanswered
it means that attempt arrived; on a first attempt it means somebody else moved the trajectory on.
"""

from __future__ import annotations

import email.utils
import hashlib
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import requests

from rft_agent_sdk.context import Deadline
from rft_agent_sdk.errors import (
    AccessDeniedError,
    ConflictError,
    CredentialsError,
    JobRuntimeError,
    NotFoundError,
    QuotaExceededError,
    ServerError,
    ThrottledError,
    UnreachableError,
    ValidationError,
)
from rft_agent_sdk.tls import ca_bundle
from rft_agent_sdk.tracing import Span, span
from rft_agent_sdk.types import JSON, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rft_agent_sdk.endpoint import Endpoint

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 20.0
"""Seconds one attempt may take."""
LAST_TRY_S = 0.5
"""Seconds before the deadline at which the last attempt starts, however long a pause was due."""
_BACKOFF_CAP_S = 8.0

_BY_STATUS: dict[int, type[JobRuntimeError]] = {
    400: ValidationError,
    401: AccessDeniedError,
    402: QuotaExceededError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: ThrottledError,
}
_BY_CODE: dict[str, type[JobRuntimeError]] = {
    "ValidationException": ValidationError,
    "AccessDeniedException": AccessDeniedError,
    "ResourceNotFoundException": NotFoundError,
    "ServiceQuotaExceededException": QuotaExceededError,
    "ConflictException": ConflictError,
    "ThrottlingException": ThrottledError,
    "InternalServerException": ServerError,
}
"""The service's own error types; one of them says more than the status does."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of reporting one rollout."""

    reported: bool
    """Whether the reward was accepted."""
    error: str | None = None
    """Why it was not."""


class JobRuntimeClient:
    """Reports one rollout to the Job Runtime, or to a gateway in its place.

    `trajectory_id` and `invocation_id` make the idempotency tokens: attempts of one invocation share
    theirs, and a later invocation of the same rollout may report anew.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        job_arn: str | None,
        trajectory_id: str,
        invocation_id: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._job_arn = job_arn
        self._trajectory_id = trajectory_id
        self._invocation_id = invocation_id
        self._sleep = sleep

    def report(self, rewards: Sequence[float], outcome: Outcome, deadline: Deadline) -> Report:
        """Complete the rollout and send its rewards; never raises for what the service answers.

        A conflict on completion still sends the reward once: the rollout was completed by somebody
        else, and may yet lack its reward. Rewards by turn that are refused, as where the other side counts
        another number of turns, are sent as their sum: a rollout without its reward is worth nothing.
        """
        retry = True
        try:
            try:
                self.complete_rollout(deadline)
            except ConflictError as error:
                logger.warning(
                    "rollout=<%s> | %s; sending the reward once", self._trajectory_id, error
                )
                retry = False
            try:
                self.update_reward(rewards, deadline, outcome=outcome, retry=retry)
            except ValidationError as error:
                if len(rewards) < 2:
                    raise
                logger.warning(
                    "rollout=<%s>, rewards=<%d> | %s; sending their sum",
                    self._trajectory_id,
                    len(rewards),
                    error,
                )
                self.update_reward([math.fsum(rewards)], deadline, outcome=outcome, retry=retry)
        except (JobRuntimeError, CredentialsError) as error:
            return Report(False, f"{type(error).__name__}: {error}")
        return Report(True)

    def complete_rollout(
        self, deadline: Deadline, status: Literal["ready", "failed"] = "ready"
    ) -> None:
        """Declare the rollout over. `failed` fails the whole managed job.

        Raises:
            JobRuntimeError: Refused, or not answered inside the deadline; by status, see `errors`.
            CredentialsError: No credentials to sign with.
        """
        self._call("CompleteRollout", "complete-rollout", {"Status": status}, deadline)

    def update_reward(
        self,
        rewards: Sequence[float],
        deadline: Deadline,
        *,
        outcome: Outcome | None = None,
        retry: bool = True,
    ) -> None:
        """Send the rewards: one number, or one per sampled turn. Raises as `complete_rollout` does."""
        body: JSON = {"Rewards": list(rewards)}
        if self._job_arn is None and outcome is not None:
            body["Outcome"] = outcome.value
        self._call("UpdateReward", "update-reward", body, deadline, retry=retry)

    def _call(
        self, operation: str, path: str, body: JSON, deadline: Deadline, *, retry: bool = True
    ) -> None:
        """POST until answered for good or out of time."""
        told = {"trajectory_id": self._trajectory_id, "job_arn": self._job_arn}
        with span(operation, told) as traced:
            body = {**self._identity(operation, len(body.get("Rewards", ()))), **body}
            try:
                self._until_answered(operation, path, body, deadline, retry, traced)
            except JobRuntimeError as error:
                traced.set({"http.response.status_code": error.status, "error_code": error.code})
                raise

    def _until_answered(
        self, operation: str, path: str, body: JSON, deadline: Deadline, retry: bool, traced: Span
    ) -> None:
        unanswered = False
        attempt = 0
        while True:
            attempt += 1
            traced.set({"attempts": attempt})
            try:
                self._post(operation, path, body, deadline)
            except ConflictError:
                if unanswered:
                    return  # our own earlier attempt did arrive
                raise
            except (ServerError, UnreachableError, ThrottledError) as error:
                unanswered = unanswered or not isinstance(error, ThrottledError)
                left = deadline.remaining() - LAST_TRY_S
                if not retry or left <= 0:
                    raise
                self._sleep(min(left, max(_backoff(attempt), error.retry_after_s or 0)))
            else:
                traced.set({"http.response.status_code": 200})
                return

    def _identity(self, operation: str, rewards: int) -> JSON:
        # A token stands for one body: the sum of refused rewards needs another than they had.
        parts = "\0".join((self._trajectory_id, operation, self._invocation_id, str(rewards)))
        token = hashlib.sha256(parts.encode()).hexdigest()[:36]
        body: JSON = {"TrajectoryId": self._trajectory_id, "ClientToken": token}
        if self._job_arn is not None:
            body["JobArn"] = self._job_arn
        return body

    def _post(self, operation: str, path: str, body: JSON, deadline: Deadline) -> None:
        timeout = min(REQUEST_TIMEOUT_S, max(0.1, deadline.remaining()))
        with requests.Session() as session:
            session.trust_env = (
                False  # no netrc in place of our token, no proxy from the environment
            )
            try:
                response = session.post(
                    f"{self._endpoint.root}/{path}",
                    json=body,
                    headers=dict(self._endpoint.headers),
                    auth=self._endpoint.auth,
                    timeout=timeout,
                    allow_redirects=False,
                    verify=ca_bundle(),
                )
            except (
                OSError
            ) as error:  # all of requests' own errors, and a CA bundle that is not there
                raise UnreachableError(
                    f"{operation} got no answer: {type(error).__name__}: {error}",
                    operation=operation,
                ) from error
        if not 200 <= response.status_code < 300:
            raise _error(operation, response)


def _backoff(attempt: int) -> float:
    """Return a jittered pause after the n-th attempt, in seconds."""
    cap: float = min(_BACKOFF_CAP_S, 0.5 * 2 ** min(attempt, 8))
    return random.uniform(0.2, 1) * cap  # noqa: S311


def _error(operation: str, response: requests.Response) -> JobRuntimeError:
    """Turn a reply into a typed error: by the service's own type if it names one, else by its status."""
    try:
        reply: Any = response.json()
    except (ValueError, RecursionError):
        reply = {}
    reply = reply if isinstance(reply, dict) else {}
    inner = reply.get("error")
    body = inner if isinstance(inner, dict) else reply
    text = body.get("Message") or body.get("message") or inner
    code = response.headers.get("x-amzn-errortype") or reply.get("__type") or body.get("code")
    name = code.split(":")[0].split("#")[-1][:100] if isinstance(code, str) and code else None
    status = response.status_code
    by_status = _BY_STATUS.get(status, ServerError if status >= 500 else JobRuntimeError)
    kind = _BY_CODE.get(name or "", by_status)
    return kind(
        f"{operation} answered {status}{f' {name}' if name else ''}: {str(text or response.reason)[:500]}",
        operation=operation,
        status=status,
        code=name,
        retry_after_s=_retry_after(response.headers.get("retry-after", "")),
    )


def _retry_after(value: str) -> float | None:
    """Read a `Retry-After` header, a number of seconds or a date; `None` for anything else."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
