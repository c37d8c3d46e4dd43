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

_TRUNCATIONS = frozenset(
    {
        ("strands", "MaxTokensReachedException"),
        ("strands", "ContextWindowOverflowException"),
        ("openai", "LengthFinishReasonError"),
    }
)
"""How agent frameworks say that the model ran into a limit of its own; by name, to import none of them."""
_CLIENT_LIBRARIES = ("openai", "httpx", "httpcore", "requests", "urllib3", "botocore")
"""Libraries that talk to the policy endpoint: what they raise is the endpoint's doing, or the network's."""


def classify(error: BaseException, rollout: Rollout) -> Outcome:
    """Tell why a rollout ended from what its function raised, looking along the chain of causes."""
    for cause in _chain(error):
        library = type(cause).__module__.partition(".")[0]
        if isinstance(cause, RolloutCancelled):
            return Outcome.CANCELLED
        if isinstance(cause, RolloutOver):
            return _timeout(rollout)
        if isinstance(cause, TaskError | EnvironmentFault):
            return Outcome.ENVIRONMENT_ERROR
        if isinstance(cause, CredentialsError | EndpointError | JobRuntimeError):
            return Outcome.INFRASTRUCTURE_ERROR
        if (library, type(cause).__name__) in _TRUNCATIONS:
            return Outcome.TRUNCATED
        if library in _CLIENT_LIBRARIES:
            # A client that gave up because the rollout's own time was up may be the first to say so.
            expired = rollout.deadline.expired
            return _timeout(rollout) if expired else Outcome.INFRASTRUCTURE_ERROR
    return Outcome.AGENT_ERROR


def broke_off(error: BaseException) -> bool:
    """Whether a reply that had begun did not come to its end: a lost connection, an error event.

    What the OpenAI client raises before a reply begins has been retried by it already.
    """
    names = [(type(c).__module__.partition(".")[0], type(c).__name__) for c in _chain(error)]
    if ("openai", "APIConnectionError") in names or ("openai", "APITimeoutError") in names:
        return False
    return ("openai", "APIError") in names or any(
        library in ("httpx", "httpcore") for library, _ in names
    )


def _timeout(rollout: Rollout) -> Outcome:
    """Tell whose doing it is that the time is up."""
    return Outcome.INFRASTRUCTURE_ERROR if rollout.calls.failing else Outcome.TIMEOUT


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
