"""An SQS endpoint on loopback: one queue, as much of the JSON protocol as a worker and a sender speak."""

import hashlib
import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.servers import Answer, ScriptedServer, Seen

TARGET = "AmazonSQS."


@dataclass
class Message:
    """One message of the queue."""

    body: str
    attributes: dict[str, Any]
    id: str
    hidden_until: float = 0.0
    receives: int = 0
    receipts: list[str] = field(default_factory=list)


class Queue:
    """`with Queue() as queue: ... queue.environment() ...`; refusals may be planned per operation."""

    def __init__(self, name: str = "SageMakerRollouts") -> None:
        self.name = name
        self.messages: list[Message] = []
        self.deleted: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.refusals: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._server = ScriptedServer(self._answer)

    @property
    def url(self) -> str:
        return f"{self._server.url}/123456789012/{self.name}"

    def environment(self) -> dict[str, str]:
        """What makes a real client call this endpoint."""
        return {
            "AWS_ENDPOINT_URL_SQS": self._server.url,
            "AWS_REGION": "us-west-2",
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "RFT_QUEUE_URL": self.url,
        }

    def put(self, body: Any, key: str = "") -> None:
        """Put a message into the queue."""
        attributes = {"IdempotencyKey": {"DataType": "String", "StringValue": key}} if key else {}
        text = body if isinstance(body, str) else json.dumps(body)
        with self._lock:
            self.messages.append(Message(text, attributes, f"m{next(self._numbers)}"))

    def __enter__(self) -> "Queue":
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def _answer(self, seen: Seen, count: int) -> Answer:
        operation = seen.headers["x-amz-target"].removeprefix(TARGET)
        with self._lock:
            self.calls.append(operation)
            if self.refusals.get(operation):
                return self.refusals[operation].pop(0)
        assert seen.json["QueueUrl"] == self.url
        return Answer(body=getattr(self, f"_{operation}")(seen.json))

    def _SendMessage(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["MessageBody"]
        with self._lock:
            self.sent.append(body)
        self.put(text, body["MessageAttributes"]["IdempotencyKey"]["StringValue"])
        digest = hashlib.md5(text.encode()).hexdigest()
        return {"MessageId": self.messages[-1].id, "MD5OfMessageBody": digest}

    def _ReceiveMessage(self, body: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + body["WaitTimeSeconds"]
        while True:
            with self._lock:
                now = time.monotonic()
                ready = [one for one in self.messages if one.hidden_until <= now]
                taken = [
                    self._taken(one, now + body["VisibilityTimeout"])
                    for one in ready[: body["MaxNumberOfMessages"]]
                ]
            if taken or time.monotonic() >= until:
                return {"Messages": taken} if taken else {}
            time.sleep(0.02)

    def _taken(self, message: Message, hidden_until: float) -> dict[str, Any]:
        message.hidden_until = hidden_until
        message.receives += 1
        message.receipts.append(f"{message.id}/{message.receives}")
        return {
            "MessageId": message.id,
            "ReceiptHandle": message.receipts[-1],
            "Body": message.body,
            "MD5OfBody": hashlib.md5(message.body.encode()).hexdigest(),
            "Attributes": {"ApproximateReceiveCount": str(message.receives)},
            "MessageAttributes": message.attributes,
        }

    def _DeleteMessage(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            message = self._of(body["ReceiptHandle"])
            if message is not None:
                self.messages.remove(message)
                self.deleted.append(message.id)
        return {}

    def _ChangeMessageVisibility(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            message = self._of(body["ReceiptHandle"])
            if message is not None:
                message.hidden_until = time.monotonic() + body["VisibilityTimeout"]
        return {}

    def _of(self, receipt: str) -> Message | None:
        return next((one for one in self.messages if receipt in one.receipts), None)
