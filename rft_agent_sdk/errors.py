"""Every exception this package raises.

    RftError
    ├── UsageError                    you can fix it: an argument, a file, an environment variable
    │   ├── PayloadError              a request this SDK cannot read
    │   ├── EndpointError             no endpoint, or one a bearer token may not be sent to
    │   ├── RewardError               a value that is not a reward, or tiers that could overlap
    │   ├── TaskError                 the environment cannot read the task string
    │   ├── UnknownEnvironmentError   no environment of that name
    │   └── ChatTemplateError         a chat template that cannot be parsed
    ├── EnvironmentFault              the environment's own code raised
    ├── CredentialsError              no AWS credentials, after bounded retries
    ├── NoRolloutError                a policy call was made outside any rollout
    ├── RolloutOver                   the rollout's deadline passed, or it was closed
    │   └── RolloutCancelled          the process or the caller asked it to stop
    ├── RolloutExit                   user code raised what is no Exception, such as SystemExit
    ├── RolloutsFailed                too many rollouts of a training step were nobody's play
    ├── EngineError                   the training engine refused, failed or did not end an operation
    ├── CloudError                    an AWS service refused a call about a job, or could not be reached
    └── JobRuntimeError               the Job Runtime (or gateway) refused or failed a report
        ├── ValidationError           400
        ├── AccessDeniedError         401, 403
        ├── NotFoundError             404
        ├── QuotaExceededError        402
        ├── ConflictError             409
        ├── ThrottledError            429
        ├── ServerError               5xx
        └── UnreachableError          no response: connection refused, reset, or timed out

A message says what was wanted, what came, and what to do. No message holds a token or a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rft_agent_sdk.payload import JobAddress


class RftError(Exception):
    """Base of every error raised by this package."""


class UsageError(RftError, ValueError):
    """Something the person running the program can put right; printed without a traceback."""


class PayloadError(UsageError):
    """A rollout request that cannot be read.

    `job` is the address of the rollout when at least that much was readable, so that the rollout
    can still be completed with a reward; otherwise `None`.
    """

    def __init__(self, message: str, *, job: JobAddress | None = None) -> None:
        super().__init__(message)
        self.job = job


class EndpointError(UsageError):
    """No endpoint or region can be told, or a bearer token may not go to the one given."""


class RewardError(UsageError):
    """A value that cannot be a reward, or reward tiers whose order shaping could break."""


class TaskError(UsageError):
    """The environment cannot read the task string of a rollout or a dataset row."""


class UnknownEnvironmentError(UsageError):
    """No environment of the given name; the message lists those that exist."""


class ChatTemplateError(UsageError):
    """A chat template that does not compile, or whose turns nobody here can parse."""


class EnvironmentFault(RftError):
    """The environment's own code raised; the original is its cause."""


class CredentialsError(RftError):
    """AWS credentials could not be loaded, after bounded retries."""


class NoRolloutError(RftError, RuntimeError):
    """A policy call was made outside any rollout, so nobody could say whose turn it is."""


class RolloutOver(RftError, TimeoutError):
    """The rollout's deadline has passed or it was closed; no further policy call may start."""


class RolloutCancelled(RolloutOver):
    """The rollout was asked to stop: SIGTERM, or a cancelled task."""


class RolloutExit(RftError, RuntimeError):
    """User code raised what is no `Exception`, such as `SystemExit` on a server thread.

    Raised in its place, so that neither the server nor the rollout's report is lost to it.
    """


class RolloutsFailed(RftError):
    """More rollouts of a training step failed, for no fault of the policy, than a run may lose.

    `groups` holds all rollouts that were played, those that failed among them.
    """

    def __init__(self, message: str, *, groups: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.groups = groups


class EngineError(RftError):
    """The training engine refused an operation, failed at it, or did not end it in time.

    `usable` says whether the engine can go on: the operation changed nothing, and the next one may be sent. Where
    it is false, what the weights or the accumulated gradient are is not known: start a new engine from the
    last saved state.
    """

    def __init__(self, message: str, *, usable: bool = False) -> None:
        super().__init__(message)
        self.usable = usable


class CloudError(RftError):
    """An AWS service refused a call about a managed job or what belongs to it, or could not be reached.

    `code` is the service's error type (`None` without a response). `is_transient` says whether the same call may
    succeed later, `is_missing` whether the thing that was asked for does not exist.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        is_transient: bool = False,
        is_missing: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.is_transient = is_transient
        self.is_missing = is_missing


class JobRuntimeError(RftError):
    """The Job Runtime, or the gateway in its place, refused or failed a report.

    `status` is the HTTP status (`None` without a response), `code` the service's error type such
    as `ValidationException`, `operation` the call such as `CompleteRollout`, `retry_after_s` the
    pause in seconds that the service asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        status: int | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class ValidationError(JobRuntimeError):
    """400: the request is wrong, or the job does not exist; trying again cannot help."""


class AccessDeniedError(JobRuntimeError):
    """401 or 403, also after one new signature."""


class NotFoundError(JobRuntimeError):
    """404: no such trajectory."""


class QuotaExceededError(JobRuntimeError):
    """402: a service quota of the account is used up."""


class ConflictError(JobRuntimeError):
    """409: the trajectory is past the state this call needs."""


class ThrottledError(JobRuntimeError):
    """429, also after retries inside the deadline."""


class ServerError(JobRuntimeError):
    """5xx, also after retries inside the deadline."""


class UnreachableError(JobRuntimeError):
    """No response: the connection was refused, reset, or timed out."""
