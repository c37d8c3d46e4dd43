"""What arrived, and which calls are to fail."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rft_agent_sdk.twins.cloud.wire.models import error_status
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

_READS = ("Describe", "List", "Get", "Head", "Filter", "Simulate", "CreatePresigned", "AssumeRole")


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived, also where it was refused."""

    service: str
    """botocore's name of the service, such as `bedrock-agentcore-control`."""
    operation: str
    """Name in the service model, such as `CreateJob`."""
    body: JSON
    """The parameters, named as boto3's caller names them."""

    @property
    def is_mutation(self) -> bool:
        """Whether it changes something or makes something run; a read does neither."""
        return not self.operation.startswith(_READS)


@dataclass(slots=True)
class Fault:
    """Calls that are to fail."""

    service: str
    operation: str
    """`*` for every operation of the service."""
    refusal: Refusal
    times: int | None
    """Calls still to fail; `None` is all of them."""
    after: bool
    """Whether the call takes effect first, as when an answer is lost on its way."""

    def is_for(self, service: str, operation: str) -> bool:
        """Whether that call is to fail."""
        return self.service == service and self.operation in ("*", operation)


class Faults:
    """The faults of a cloud: `cloud.faults.add("sagemaker", "CreateJob", "ThrottlingException")`."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(
        self,
        service: str,
        operation: str,
        error: str,
        *,
        times: int | None = 1,
        status: int | None = None,
        message: str = "told to fail",
        after: bool = False,
    ) -> None:
        """Let the next calls of an operation fail.

        Args:
            service: botocore's name of the service, such as `logs`.
            operation: Name in the service model; `*` for all of the service's.
            error: The error's name, such as `ThrottlingException`.
            times: How many calls fail; `None` lets all of them fail.
            status: HTTP status; `None` takes the model's, else 400.
            message: What the error says.
            after: Let the call take effect before its answer turns into the error.
        """
        chosen = status or error_status(service, error) or 400
        fault = Fault(service, operation, Refusal(chosen, error, message), times, after)
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Let nothing fail any more."""
        with self._lock:
            self._faults.clear()

    def take(self, service: str, operation: str, *, after: bool) -> None:
        """Count a call down; nothing happens where none is to fail.

        Raises:
            Refusal: This call is to fail.
        """
        with self._lock:
            for fault in self._faults:
                if fault.after is after and fault.is_for(service, operation):
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times <= 0:
                            self._faults.remove(fault)
                    raise Refusal(fault.refusal.status, fault.refusal.code, fault.refusal.message)
