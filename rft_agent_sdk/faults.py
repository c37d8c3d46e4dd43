"""Whose doing was it: an exception → an `Outcome`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rft_agent_sdk.errors import (
    CredentialsError,
    EndpointError,
    EnvironmentFault,
    JobRuntimeError,
    RftError,
    RolloutCancelled,
    RolloutOver,
    TaskError,
)
from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.types import Outcome

_CLIENT_LIBRARIES = ("openai", "httpx", "httpcore", "requests", "urllib3", "botocore")
"""Libraries that talk to the policy endpoint: what they raise is the endpoint's doing, or the network's."""


def classify(error: BaseException, rollout: Rollout) -> Outcome:
    """Tell why a rollout ended from what its function raised, looking along the chain of causes."""
    for cause in _chain(error):
        if isinstance(cause, RolloutCancelled):
            return Outcome.CANCELLED
        if isinstance(cause, RolloutOver):
            failing = rollout.calls.failing
            return Outcome.INFRASTRUCTURE_ERROR if failing else Outcome.TIMEOUT
        if isinstance(cause, TaskError | EnvironmentFault):
            return Outcome.ENVIRONMENT_ERROR
        if isinstance(cause, CredentialsError | EndpointError | JobRuntimeError):
            return Outcome.INFRASTRUCTURE_ERROR
        if type(cause).__module__.partition(".")[0] in _CLIENT_LIBRARIES:
            return Outcome.INFRASTRUCTURE_ERROR
    return Outcome.AGENT_ERROR


@contextmanager
def environment_code(name: str) -> Iterator[None]:
    """Attribute what the block raises to the environment `name`.

    Raises:
        EnvironmentFault: The block raised something that is not this package's own.
    """
    try:
        yield
    except RftError:
        raise
    except Exception as error:
        raise EnvironmentFault(
            f"environment {name!r} raised {type(error).__name__}: {error}"
        ) from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
