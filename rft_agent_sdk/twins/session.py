"""One training session: operations in strict order, and its counters. Lives on the server's event loop."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Literal

from rft_agent_sdk.twins.backend import OperationFailed, TrainingBackend
from rft_agent_sdk.twins.operations import Package, Packages, Usage, sampling_work, training_work
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.twins.session_wire import SAMPLING, TRAINING, check_training, operation_of
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

Status = Literal["Running", "Stopping", "Stopped", "Failed"]
RequestStatus = Literal["Pending", "InProgress", "Completed", "Failed", "Skipped"]


@dataclass
class Operation:
    """One operation, from its submission to its result."""

    name: str
    """Member of the union, such as `forwardBackward`."""
    fields: JSON
    """Its configuration."""
    client_token: str | None = None
    """The same token and number again: the same operation."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """What a client polls."""
    status: RequestStatus = "Pending"
    """Where it is."""
    result: JSON | None = None
    """Once completed."""
    training_tokens: int | None = None
    """Tokens billed for training, once completed."""
    error: str | None = None
    """Why it failed, or was skipped."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is completed, failed or skipped."""

    def settle(self, status: RequestStatus, error: str | None = None) -> None:
        """End it."""
        self.status, self.error = status, error
        self.settled.set()


class TrainingSession:
    """Runs training operations one by one in the order of their numbers, sampling ones side by side.

    A training operation that fails fails the session: whatever came after it is skipped, since it was meant for
    other weights. A number that never comes blocks all later ones.
    """

    def __init__(
        self, request: JSON, backend: TrainingBackend, packages: Packages, executor: Executor
    ) -> None:
        self.request = request
        """What it was created with."""
        self.name: str = request["TrainingSessionName"]
        self.status: Status = "Running"
        self.created_s = self.modified_s = time.time()
        self.ended_s: float | None = None
        self.error: str | None = None
        self.last_sequence_number: int | None = None
        """The largest one received."""
        self.usage = Usage()
        """Tokens that would be billed."""
        self.backend = backend
        self.sampled: Package | None = None
        """What is sampled where a request names no package."""
        self._packages = packages
        self._executor = executor
        self._training: dict[int, Operation] = {}
        self._sampling: dict[str, Operation] = {}
        self._by_id: dict[str, Operation] = {}
        self._next = 1
        self._runner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def submit_training(self, body: JSON) -> Operation:
        """Queue a training operation.

        Raises:
            Refusal: 400, it is wrong or its number was taken; 409, the session takes no more.
        """
        number, token = body.get("sequenceNumber"), body.get("clientToken")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise invalid(f"sequenceNumber must be at least 1, got {number!r}")
        known = self._training.get(number)
        if known is not None and token is not None and known.client_token == token:
            return known
        self._check_running()
        name, fields = operation_of(body.get("operationConfig"), TRAINING)
        check_training(name, fields)
        if known is not None:
            raise invalid(f"sequence number {number} was received already")
        operation = self._training[number] = Operation(name, fields, token)
        self._by_id[operation.id] = operation
        self.last_sequence_number = max(number, self.last_sequence_number or 0)
        self._go_on()
        return operation

    def submit_sampling(self, body: JSON) -> Operation:
        """Start a sampling operation.

        Raises:
            Refusal: 400, it is wrong; 409, the session takes no more.
        """
        self._check_running()
        name, fields = operation_of(body.get("operationConfig"), SAMPLING)
        work = sampling_work(self, name, fields, self._packages)
        operation = Operation(name, fields)
        self._sampling[operation.id] = operation
        task = asyncio.get_running_loop().create_task(self._run(operation, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    def training_operation(self, operation_id: str) -> Operation | None:
        """Return a training operation by its id."""
        return self._by_id.get(operation_id)

    def sampling_operation(self, operation_id: str) -> Operation | None:
        """Return a sampling operation by its id."""
        return self._sampling.get(operation_id)

    def stop(self) -> None:
        """Skip what waits; what runs may end.

        Raises:
            Refusal: 400, it is not running.
        """
        if self.status != "Running":
            raise invalid(f"invalid session state transition from {self.status} to Stopping")
        self._become("Stopping")
        self._skip("the session was stopped")
        if self._runner is None or self._runner.done():
            self._become("Stopped")

    def _check_running(self) -> None:
        if self.status != "Running":
            raise Refusal(
                409, "ConflictException", f"training session {self.name} is {self.status}"
            )

    def _go_on(self) -> None:
        if self._next in self._training and (self._runner is None or self._runner.done()):
            self._runner = asyncio.get_running_loop().create_task(self._run_in_order())

    async def _run_in_order(self) -> None:
        while self.status == "Running" and self._next in self._training:
            operation = self._training[self._next]
            self._next += 1
            work = training_work(self, operation.name, operation.fields, self._packages)
            await self._run(operation, work)
            if operation.status == "Failed" and self.status == "Running":
                self.error = f"operation {operation.id} failed: {operation.error}"
                self._become("Failed")
                self._skip("the session failed")
        if self.status == "Stopping":
            self._become("Stopped")

    async def _run(self, operation: Operation, work: Callable[[], tuple[JSON, Usage]]) -> None:
        operation.status = "InProgress"
        try:
            loop = asyncio.get_running_loop()
            result, usage = await loop.run_in_executor(self._executor, work)
        except OperationFailed as error:
            operation.settle("Failed", str(error))
            return
        except Exception:
            logger.exception("operation=<%s> | the backend failed", operation.name)
            operation.settle("Failed", "internal failure; the server's log says why")
            return
        self.usage = self.usage.plus(usage)
        operation.result = {operation.name: result}
        operation.training_tokens = usage.training
        operation.settle("Completed")

    def _skip(self, why: str) -> None:
        for operation in self._training.values():
            if operation.status == "Pending":
                operation.settle("Skipped", why)

    def _become(self, status: Status) -> None:
        self.status, self.modified_s = status, time.time()
        if status in ("Stopped", "Failed"):
            self.ended_s = self.modified_s

    def detail(self, arn: str) -> dict[str, Any]:
        """Return it as DescribeTrainingSession does."""
        optional = {
            "EndTime": self.ended_s,
            "ErrorDetails": self.error,
            "LastReceivedSequenceNumber": self.last_sequence_number,
        }
        return {
            **self.request,
            **self.summary(arn),
            "TrainingSessionName": self.name,
            "BillableTokenUsage": self.usage.billable(),
            **{key: value for key, value in optional.items() if value is not None},
        }

    def summary(self, arn: str) -> dict[str, Any]:
        """Return it as ListTrainingSessions does."""
        return {
            "TrainingSessionArn": arn,
            "TrainingSessionStatus": self.status,
            "CreationTime": self.created_s,
            "LastModifiedTime": self.modified_s,
        }
