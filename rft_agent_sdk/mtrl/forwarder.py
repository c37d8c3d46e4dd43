"""A Lambda function between a managed job and an agent on infrastructure of one's own.

The job invokes it once a rollout; it hands the payload on and returns. This file is the whole function: zip it
alone, name `forwarder.handler` its handler, and set one of

- `RFT_AGENT_URL`, where the agent serves `POST /rollout`. By default the function waits for the rollout's end as
  long as it may, and leaves it playing on after that; `RFT_FORWARD=accept` returns as soon as the agent has taken
  it up. Whatever happens then, the agent reports to the job by itself.
- `RFT_QUEUE_URL`, an SQS queue that agents take rollouts from. Of its own, the function then needs
  `sqs:SendMessage` on it.

It returns `{}`, or `{"errorType", "errorMessage"}` in the words the service knows. Neither those nor the log
hold anything of a prompt.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import os
import random
import socket
import threading
import time
import urllib.parse
from contextlib import suppress
from typing import Any

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # Lambda's root logger is at WARNING

MAX_MESSAGE_BYTES = 256 * 1024 - 256
"""Longest payload put in a queue: what every SQS queue takes, less the message's attribute."""
MARGIN_S = 2.0
"""Seconds of the function's own time that are kept back to return in."""
CONNECT_S = 5.0
USUAL_S = 60.0
"""Seconds to take where nobody says how many are left: outside Lambda."""
ATTEMPTS = 6
MAX_ANSWER_BYTES = 1 << 20
"""As much of an agent's answer as is read: what it reported stands in a few hundred bytes."""
_JOB_ARN = ("jobArn", "job_arn", "JobArn")
_ROLLOUT_ID = ("rolloutId", "rollout_id", "trajectoryId", "trajectory_id", "TrajectoryId")
_AGAIN = (429, 502, 503, 504)
"""Statuses of an agent, or of a balancer before it, that has no room now or is being replaced."""


class Failure(Exception):
    """Why a rollout was not handed on, by an error type that the service knows."""

    def __init__(self, kind: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s
        """Seconds to wait before another attempt; `None` where none can help."""


def handler(event: Any, context: Any = None) -> dict[str, str]:
    """Hand one rollout on; what Lambda calls."""
    began = time.monotonic()
    rollout_id = "unknown"
    try:
        body, job_arn, rollout_id = read_event(event)
        # The same however often the job or this function tries, so that nothing is played twice at a time.
        key = hashlib.sha256(f"{job_arn}\0{rollout_id}".encode()).hexdigest()
        if queue_url := os.environ.get("RFT_QUEUE_URL", "").strip():
            how = _enqueue(queue_url, body, key, context)
        elif agent_url := os.environ.get("RFT_AGENT_URL", "").strip():
            how = _deliver(agent_url, body, key, began + _time_left(context))
        else:
            raise Failure("InternalServerError", "neither RFT_AGENT_URL nor RFT_QUEUE_URL is set")
    except Failure as failure:
        took_s = time.monotonic() - began
        logger.error(
            "rollout=<%s> took_s=<%.1f> | %s: %s", rollout_id, took_s, failure.kind, failure
        )
        return {"errorType": failure.kind, "errorMessage": str(failure)}
    logger.info("rollout=<%s> took_s=<%.1f> | %s", rollout_id, time.monotonic() - began, how)
    return {}


def read_event(event: Any) -> tuple[bytes, str, str]:
    """Return a payload as JSON, the job's ARN and the rollout's id.

    Takes the payload itself, or an API-Gateway-like event that carries it as text in `body`.

    Raises:
        Failure: `ValidationError`, it is none.
    """
    payload = event
    if isinstance(event, dict) and "prompt" not in event and isinstance(event.get("body"), str):
        try:
            text = event["body"]
            payload = json.loads(base64.b64decode(text) if event.get("isBase64Encoded") else text)
        except (ValueError, RecursionError):
            raise _invalid("the event's body is not JSON") from None
    if not isinstance(payload, dict):
        raise _invalid(f"the payload is a {type(payload).__name__}, not an object")
    if not isinstance(payload.get("prompt"), str):
        raise _invalid("prompt must be a string")
    metadata = payload.get("metadata")
    if not isinstance(metadata, dict):
        raise _invalid("metadata must be an object")
    parameters = payload.get("inferenceParams", payload.get("inference_params", {}))
    if not isinstance(parameters, dict):
        raise _invalid("inferenceParams must be an object")
    job_arn, rollout_id = _id(metadata, _JOB_ARN), _id(metadata, _ROLLOUT_ID)
    try:
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
        return text.encode(), job_arn, rollout_id
    except (TypeError, ValueError, RecursionError):
        raise _invalid("the payload cannot be written as JSON") from None


def _id(metadata: dict[str, Any], names: tuple[str, ...]) -> str:
    value = next((metadata[name] for name in names if metadata.get(name) is not None), None)
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
        raise _invalid(f"metadata.{names[0]} must be 1 to 256 printable characters")
    if not value.isascii() or value != value.strip():
        raise _invalid(f"metadata.{names[0]} must be ASCII without white space around it")
    return value


def _invalid(message: str) -> Failure:
    return Failure("ValidationError", message)


def _time_left(context: Any) -> float:
    """Return the seconds that may be spent."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return max(0.0, (remaining() / 1000 if callable(remaining) else USUAL_S) - MARGIN_S)


def _deliver(url: str, body: bytes, key: str, until: float) -> str:
    """Post a payload until the agent has it; return what came of it.

    Raises:
        Failure: The agent refused it, could not report, or was not there in time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _post(url, body, key, until)
        except Failure as failure:
            if failure.retry_after_s is None or attempt == ATTEMPTS:
                raise
            jitter = random.uniform(0.5, 1.5)  # noqa: S311
            pause_s = max(failure.retry_after_s, min(8.0, 0.25 * 2**attempt) * jitter)
            if time.monotonic() + pause_s > until:
                raise
            logger.warning("attempt=<%d> pause_s=<%.1f> | %s", attempt, pause_s, failure)
            time.sleep(pause_s)
    raise AssertionError("the last attempt returns or raises")


def _post(url: str, body: bytes, key: str, until: float) -> str:
    connection, target = _connection(url, until)
    watch: threading.Timer | None = None
    try:
        connection.connect()
        left_s = until - time.monotonic()
        connection.sock.settimeout(max(0.1, left_s))
        # A socket's timeout is one of each read: an agent that sends a byte now and then outlives any.
        watch = threading.Timer(left_s, _cut, (connection.sock,))
        watch.daemon = True
        watch.start()
        connection.request("POST", target, body, _headers(key, left_s))
        response = connection.getresponse()
        content = response.read(MAX_ANSWER_BYTES)
        if response.length and len(content) < MAX_ANSWER_BYTES:
            raise http.client.IncompleteRead(content)
        return _answered(response.status, response.getheader("Retry-After", ""), content)
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= until - 0.1:
            raise Failure("InternalServerError", "the agent gave no answer in time") from None
        message = f"the agent was not reached: {type(error).__name__}"
        raise Failure("InternalServerError", message, retry_after_s=0.0) from None
    finally:
        if watch is not None:
            watch.cancel()
        connection.close()


def _connection(url: str, until: float) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to make, and the path to post to."""
    try:
        place = urllib.parse.urlsplit(url)
        port = place.port
    except ValueError:
        raise Failure("InternalServerError", "RFT_AGENT_URL is no URL") from None
    if place.scheme not in ("http", "https") or not place.hostname:
        raise Failure("InternalServerError", "RFT_AGENT_URL is no http or https URL")
    if place.query or place.fragment or not url.isascii() or not url.isprintable() or " " in url:
        # Nothing of it may be lost on the way, nor be sent as something else.
        raise Failure(
            "InternalServerError",
            "RFT_AGENT_URL must be an address and a path, without a query: name the agent itself",
        )
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise Failure("InternalServerError", "no time is left to reach the agent in")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    path = place.path.rstrip("/")
    target = path if path.endswith(("/rollout", "/invocations")) else f"{path}/rollout"
    return kind(place.hostname, port, timeout=min(CONNECT_S, left_s)), target


def _headers(key: str, left_s: float) -> dict[str, str]:
    waits = os.environ.get("RFT_FORWARD", "").strip().lower() != "accept"
    # The agent answers a second before this side gives up, so that one which does not is known to be broken.
    wait_s = int(max(0.0, left_s - 1)) if waits else 0
    return {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "Prefer": f"respond-async, wait={wait_s}",
    }


def _cut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _answered(status: int, retry_after: str, content: bytes) -> str:
    """Return what an answer says; its text stays where it is, since it may quote the prompt."""
    if status in _AGAIN:
        kind = "Throttling" if status == 429 else "InternalServerError"
        pause_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
        raise Failure(kind, f"the agent answered {status}", retry_after_s=pause_s)
    if status in (401, 403):
        raise Failure("AccessDenied", f"the agent answered {status}")
    if status in (400, 413, 422):
        raise _invalid(f"the agent answered {status}")
    if status == 202:
        return "taken up; the agent plays on and reports"
    if status != 200:
        raise Failure("InternalServerError", f"the agent answered {status}")
    try:
        ours = json.loads(content)["_rft"]
        outcome, reported = str(ours["outcome"]), ours["reported"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "answered by an agent that does not say what it reported"
    if reported is not True:
        raise Failure(
            "InternalServerError", f"the agent's reward was not accepted; outcome {outcome[:40]}"
        )
    return f"played and reported; outcome {outcome[:40]}"


def _enqueue(queue_url: str, body: bytes, key: str, context: Any) -> str:
    """Send a payload to an SQS queue.

    Raises:
        Failure: It is too long, or was not taken.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if len(body) > MAX_MESSAGE_BYTES:
        raise _invalid(f"the payload has {len(body)} bytes, a message at most {MAX_MESSAGE_BYTES}")
    message: dict[str, Any] = {
        "QueueUrl": queue_url,
        "MessageBody": body.decode(),
        "MessageAttributes": {"IdempotencyKey": {"DataType": "String", "StringValue": key}},
    }
    if queue_url.endswith(".fifo"):
        # Of this invocation: should the job ask anew for a rollout that was lost, it must not be dropped.
        invocation = f"{key}{getattr(context, 'aws_request_id', '')}"
        once = hashlib.sha256(invocation.encode()).hexdigest()
        message |= {"MessageDeduplicationId": once, "MessageGroupId": key}
    try:
        client = boto3.client("sqs", config=_queue_config(_time_left(context)))
        client.send_message(**message)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise Failure(_kind(code, status), f"the queue answered {status} {code}") from None
    except BotoCoreError as error:
        lost = f"the queue was not reached: {type(error).__name__}"
        raise Failure("InternalServerError", lost) from None
    return "queued"


def _queue_config(left_s: float) -> Any:
    """Return botocore's settings for a call that ends in time, retries included."""
    from botocore.config import Config

    attempts = 3
    timeout_s = max(0.5, left_s / attempts - 1)
    return Config(
        region_name=os.environ.get("AWS_REGION"),
        connect_timeout=min(CONNECT_S, timeout_s),
        read_timeout=timeout_s,
        retries={"total_max_attempts": attempts, "mode": "standard"},
    )


def _kind(code: str, status: int) -> str:
    if "Throttl" in code or status == 429:
        return "Throttling"
    return "AccessDenied" if status in (401, 403) else "InternalServerError"
