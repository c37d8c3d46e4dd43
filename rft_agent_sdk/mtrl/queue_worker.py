"""Rollouts taken from an SQS queue: the other end of the forwarder, for an agent that nothing can call.

A message is a rollout's payload. It is deleted once its reward was accepted; until then it is kept from other
workers, and comes back by itself should this one die. Whoever plays it is told by the payload where to report.

Give the queue a dead-letter queue, and a retention not far over the job's rollout timeout: what is older nobody
waits for any more.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rft_agent_sdk.admission import Admission, Answer
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

MAX_ROLLOUTS = 96
"""Rollouts played at once, unless told otherwise: as many as a managed job starts."""
HIDDEN_S = 120
"""Seconds for which a message is kept from other workers at a time; renewed while its rollout plays."""
POLL_S = 5
"""Seconds that one request for messages waits for some."""
MAX_RECEIVES = 3
"""Times a rollout is played whose reward is accepted nowhere; then its message is dropped."""
_QUEUE_URL = re.compile(r"https?://(?:sqs\.(?P<region>[a-z0-9-]+)\.)?[^/]+/.+")


class QueueWorker:
    """Plays the rollouts of one queue until it is stopped."""

    def __init__(
        self,
        entrypoint: Callable[[Any], Awaitable[JSON]],
        queue_url: str,
        *,
        max_rollouts: int = MAX_ROLLOUTS,
        hidden_s: int = HIDDEN_S,
        poll_s: int = POLL_S,
        client: Any = None,
    ) -> None:
        """Describe the worker; nothing is called yet.

        Args:
            entrypoint: A function under `@rft_handler`.
            queue_url: The queue's URL.
            max_rollouts: Rollouts played at once.
            hidden_s: Seconds for which a message is kept from others at a time.
            poll_s: Seconds that one request for messages waits, 0 to 20.
            client: A botocore client of SQS; `None` makes one, of the URL's region.

        Raises:
            UsageError: No queue's URL, or a number that makes no sense.
        """
        place = _QUEUE_URL.fullmatch(queue_url)
        if place is None:
            raise UsageError(
                f"a queue's URL is https://sqs.<region>…/<account>/<name>, got {queue_url!r}"
            )
        if max_rollouts < 1 or hidden_s < 1 or not 0 <= poll_s <= 20:
            raise UsageError(
                "wanted max_rollouts and hidden_s of at least 1 and poll_s of 0 to 20, got "
                f"{max_rollouts!r}, {hidden_s!r} and {poll_s!r}"
            )
        self.admission = Admission(max_rollouts)
        """Counts what is in flight; `drain` it to take nothing more from the queue."""
        self._entrypoint = entrypoint
        self._queue_url = queue_url
        self._hidden_s = hidden_s
        self._poll_s = poll_s
        self._client = client or _client(place["region"])
        self._tasks: set[asyncio.Task[None]] = set()
        self._place = asyncio.Event()
        # One waits for messages, the others speak of those in hand.
        self._threads = ThreadPoolExecutor(5, "rft-queue")

    async def run(self) -> None:
        """Take messages and play them until drained; return when what was taken has ended.

        Raises:
            UsageError: The queue is not there, or may not be read.
        """
        pause_s = 1.0
        try:
            while not self.admission.is_draining:
                self._place.clear()
                if (room := self.admission.limit - len(self._tasks)) <= 0:
                    await self._place.wait()
                    continue
                try:
                    messages = await self._receive(min(10, room))
                except OSError as error:
                    logger.warning("queue=<%s> | not reached: %s", self._queue_url, error)
                    await self._pause(pause_s)
                    pause_s = min(30.0, 2 * pause_s)
                    continue
                pause_s = 1.0
                for message in messages:
                    self._start(message)
        finally:
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._threads.shutdown(wait=False)

    async def _pause(self, seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            if self.admission.is_draining:
                return
            await asyncio.sleep(0.1)

    def _start(self, message: JSON) -> None:
        task = asyncio.create_task(self._handle(message))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._place.set()

        task.add_done_callback(done)

    async def _handle(self, message: JSON) -> None:
        """Play one message and settle it; a failure is logged and leaves it to come again."""
        receipt = str(message["ReceiptHandle"])
        name = str(message.get("MessageId"))
        try:
            if self.admission.is_draining:  # it came with the last answer
                await self._hide(receipt, 0)
                return
            if await self._is_settled(message, receipt):
                await self._call("delete_message", ReceiptHandle=receipt)
        except OSError as error:
            logger.warning("message=<%s> | not settled, it will come again: %s", name, error)

    async def _is_settled(self, message: JSON, receipt: str) -> bool:
        """Play a message's rollout; return whether the message is done with."""
        attributes = message.get("MessageAttributes") or {}
        key = str((attributes.get("IdempotencyKey") or {}).get("StringValue") or "")
        known = self.admission.known(key)
        if known is not None:
            return known.done()  # one in flight is settled by its own message
        renewing = asyncio.create_task(self._keep(receipt))
        try:
            play = functools.partial(self._play, str(message.get("Body")))
            status, body = await self.admission.begin(key, play)
        finally:
            renewing.cancel()
        ours = body.get("_rft")
        if status == 200 and isinstance(ours, dict) and ours.get("reported") is True:
            return True
        received = int((message.get("Attributes") or {}).get("ApproximateReceiveCount") or 1)
        logger.warning(
            "message=<%s> received=<%d> | its reward was accepted nowhere%s",
            message.get("MessageId"),
            received,
            "; dropped" if received >= MAX_RECEIVES else "; it will come again",
        )
        return received >= MAX_RECEIVES

    async def _play(self, text: str) -> Answer:
        try:
            found: Any = await self._entrypoint(json.loads(text))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - an exit would end every other rollout; it was reported
            logger.error("the rollout's function raised %s", type(error).__name__)
            return 500, {}
        if not isinstance(found, dict):  # nothing makes it one
            logger.error("the rollout's function returned a %s", type(found).__name__)
            return 500, {}
        return 200, found

    async def _keep(self, receipt: str) -> None:
        """Keep a message from other workers for as long as this runs."""
        while True:
            await asyncio.sleep(self._hidden_s / 3)
            try:
                await self._hide(receipt, self._hidden_s)
            except OSError as error:
                logger.warning("a message may be taken by others too: %s", error)

    async def _hide(self, receipt: str, seconds: int) -> None:
        await self._call(
            "change_message_visibility", ReceiptHandle=receipt, VisibilityTimeout=seconds
        )

    async def _receive(self, count: int) -> list[JSON]:
        reply = await self._call(
            "receive_message",
            MaxNumberOfMessages=count,
            WaitTimeSeconds=self._poll_s,
            VisibilityTimeout=self._hidden_s,
            MessageAttributeNames=["IdempotencyKey"],
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        messages: list[JSON] = reply.get("Messages") or []
        return messages

    async def _call(self, operation: str, **arguments: Any) -> JSON:
        """Call the service on a thread.

        Raises:
            UsageError: It says that the call can never succeed.
            OSError: It may succeed later.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        call = functools.partial(getattr(self._client, operation), QueueUrl=self._queue_url)
        work = functools.partial(call, **arguments)
        try:
            reply: JSON = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error.response.get("Error", {}).get("Code")
            said = f"{operation} answered {status} {code}"
            if operation == "receive_message" and 400 <= status < 500 and status != 429:
                raise UsageError(f"queue {self._queue_url!r} cannot be read: {said}") from None
            raise OSError(said) from None
        except BotoCoreError as error:
            raise OSError(f"{operation} failed: {type(error).__name__}") from None
        return reply


def _client(region: str | None) -> Any:
    """Return a client of SQS.

    Raises:
        UsageError: Neither the queue's URL nor the environment names a region.
    """
    import os

    import botocore.session
    from botocore.config import Config

    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise UsageError("the queue's URL names no region: set AWS_REGION")
    config = Config(connect_timeout=5, read_timeout=40, retries={"mode": "standard"})
    return botocore.session.Session().create_client("sqs", region_name=region, config=config)
