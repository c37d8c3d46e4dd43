"""The logs of a job and of the agent that plays it, read from CloudWatch in order, each event once.

A job's few streams are read each with its own token, which is exact: an event is neither skipped nor repeated,
however long one follows. An agent has a stream for every session, far too many for that; its group is searched by
time, each search beginning somewhat before the last one ended, since an event can arrive late, and what was seen
already is left out.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.agent_arn import Agent
from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.job import Job

logger = logging.getLogger(__name__)

_OVERLAP_MS = 60_000
"""How late an event of the agent may arrive and still be read by who follows."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of a log."""

    at_ms: int
    """Milliseconds since the epoch."""
    stream: str
    message: str

    @property
    def at(self) -> datetime:
        """When it was logged."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


class LogReader(Protocol):
    """Reads a log on and on."""

    group: str

    def read(self) -> Iterator[LogEvent]:
        """Yield the events that were not read yet, oldest first; none where there is no log yet.

        Raises:
            CloudError: The service refused. What was yielded before is not yielded again.
        """


def job_log(client: Any, job: Job, *, since: datetime | None = None) -> LogReader:
    """Return a reader of the job's own log.

    Args:
        client: Of `logs`.
        job: Whose log.
        since: Leave out what was logged before.
    """
    return JobLog(client, f"/aws/sagemaker/Job/{job.category}", f"{job.name}/", _ms(since))


def agent_log(client: Any, job: Job, agent: Agent, *, since: datetime | None = None) -> LogReader:
    """Return a reader of the log of who plays the job's rollouts, from the job's start to its end.

    Other jobs and callers of the same agent log there too.

    Args:
        client: Of `logs`.
        job: Which gives the times.
        agent: A runtime, or a function.
        since: Leave out what was logged before; the job's start where that is later.
    """
    start = _ms(max(job.created, since) if since else job.created)
    return AgentLog(client, agent_log_group(agent), start or 0, end_ms=_ms(job.ended))


def agent_log_group(agent: Agent) -> str:
    """Return the name of the log group that an agent logs to."""
    if agent.is_lambda:
        return f"/aws/lambda/{agent.name}"
    return f"/aws/bedrock-agentcore/runtimes/{agent.name}-{agent.qualifier}"


@dataclass(slots=True)
class _Stream:
    """Where the reading of one stream stands."""

    token: str | None = None
    """Of the next page; `None` before the first."""
    events: deque[LogEvent] = field(default_factory=deque)
    """Received and not yet passed on, oldest first."""
    is_read: bool = False
    """Whether there was nothing more when it was last asked."""


@dataclass(slots=True)
class JobLog:
    """Streams below a prefix, each read on from its own token."""

    client: Any
    group: str
    prefix: str
    start_ms: int | None = None
    _streams: dict[str, _Stream] = field(default_factory=dict)

    def read(self) -> Iterator[LogEvent]:
        """Yield what is new, ordered by time over the streams that there are now."""
        asked = {"logGroupName": self.group, "logStreamNamePrefix": self.prefix}
        for page in _pages(self.client.describe_log_streams, self.group, **asked):
            for one in page["logStreams"]:
                self._streams.setdefault(one["logStreamName"], _Stream())
        for stream in self._streams.values():
            stream.is_read = False
        # An event leaves its queue only to be yielded: whatever fails in between, nothing is lost or told twice.
        while True:
            for name, stream in self._streams.items():
                while not stream.events and not stream.is_read:
                    self._fill(name, stream)
            waiting = [stream.events for stream in self._streams.values() if stream.events]
            if not waiting:
                return
            yield min(waiting, key=lambda events: events[0].at_ms).popleft()

    def _fill(self, name: str, stream: _Stream) -> None:
        asked: dict[str, Any] = {
            "logGroupName": self.group,
            "logStreamName": name,
            "startFromHead": True,
        }
        if self.start_ms is not None:
            asked["startTime"] = self.start_ms
        if stream.token is not None:
            asked["nextToken"] = stream.token
        with told(f"log stream {name!r} of {self.group!r} cannot be read"):
            page = self.client.get_log_events(**asked)
        stream.events.extend(
            LogEvent(one["timestamp"], name, one["message"]) for one in page["events"]
        )
        # The same token again is the end for now; a page without events and with another token is not.
        stream.is_read = page["nextForwardToken"] == stream.token
        stream.token = page["nextForwardToken"]


@dataclass(slots=True)
class AgentLog:
    """A whole group searched by time, the last minute of it again each time."""

    client: Any
    group: str
    start_ms: int
    end_ms: int | None = None
    _seen: dict[str, int] = field(default_factory=dict)
    """When each event was logged that another search may find again, by its id."""

    def read(self) -> Iterator[LogEvent]:
        """Yield what is new; what arrives late comes late."""
        asked: dict[str, Any] = {"logGroupName": self.group, "startTime": self.start_ms}
        if self.end_ms is not None:
            asked["endTime"] = self.end_ms + _OVERLAP_MS
        for page in _pages(self.client.filter_log_events, self.group, **asked):
            for one in page["events"]:
                if one["eventId"] in self._seen:
                    continue
                self._seen[one["eventId"]] = one["timestamp"]
                yield LogEvent(one["timestamp"], one["logStreamName"], one["message"])
            # The service sorts by time, so that what is older than the overlap need not be remembered.
            latest = max(self._seen.values(), default=self.start_ms)
            self.start_ms = max(self.start_ms, latest - _OVERLAP_MS)
            self._seen = {id_: at for id_, at in self._seen.items() if at >= self.start_ms}


def follow(
    reader: LogReader,
    has_ended: Callable[[], bool],
    *,
    poll_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LogEvent]:
    """Yield events until the job has ended, and once more after that, for what arrives last.

    Args:
        reader: Of the log.
        has_ended: Whether the job has.
        poll_s: Seconds between two readings.
        sleep: Waits so many seconds.

    Raises:
        CloudError: The service refused for good. Throttling and a lost connection are waited out.
    """
    readings_left = 2
    while readings_left:
        try:
            is_over = has_ended()
            yield from reader.read()
        except CloudError as error:
            if not error.is_transient:
                raise
            logger.warning("error=<%s> | not read; trying again in %s s", error, poll_s)
        else:
            readings_left -= is_over
        if readings_left:
            sleep(poll_s)


def _pages(call: Any, group: str, **asked: Any) -> Iterator[dict[str, Any]]:
    """Yield the pages of a call's answer; none where the group does not exist, or not yet."""
    while True:
        try:
            with told(f"log group {group!r} cannot be read"):
                page = call(**asked)
        except CloudError as error:
            if error.is_missing:
                return
            raise
        yield page
        if not page.get("nextToken"):
            return
        asked["nextToken"] = page["nextToken"]


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)
