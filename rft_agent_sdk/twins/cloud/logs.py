"""CloudWatch Logs: groups, streams and events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line."""

    time_ms: int
    message: str


@dataclass(slots=True)
class _Group:
    created_ms: int
    streams: dict[str, list[LogEvent]] = field(default_factory=dict)


class Logs:
    """The operations on logs."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.groups: dict[str, _Group] = {}
        self.operations: dict[str, Handler] = {
            "CreateLogGroup": self._create_group,
            "CreateLogStream": self._create_stream,
            "PutLogEvents": self._put,
            "DescribeLogGroups": self._describe_groups,
            "DescribeLogStreams": self._describe_streams,
            "DeleteLogGroup": self._delete_group,
            "GetLogEvents": self._get,
            "FilterLogEvents": self._filter,
        }

    def add(self, group: str, stream: str, message: str, time_ms: int | None = None) -> None:
        """Write a line; group and stream are made where they are missing.

        Args:
            group: Log group.
            stream: Log stream.
            message: The line.
            time_ms: Its time in milliseconds since the epoch; `None` is now.
        """
        with self._account.lock:
            found = self.groups.setdefault(group, _Group(_now_ms()))
            event = LogEvent(_now_ms() if time_ms is None else time_ms, message)
            found.streams.setdefault(stream, []).append(event)

    def lines(self, group: str, stream: str) -> list[str]:
        """Return a stream's lines, none where there is no such stream."""
        with self._account.lock:
            found = self.groups.get(group)
            events = found.streams.get(stream, []) if found else []
            return [event.message for event in events]

    def _create_group(self, body: JSON) -> JSON:
        name = body["logGroupName"]
        if name in self.groups:
            raise _exists("The specified log group already exists")
        self.groups[name] = _Group(_now_ms())
        return {}

    def _create_stream(self, body: JSON) -> JSON:
        streams = self._group(body).streams
        if body["logStreamName"] in streams:
            raise _exists("The specified log stream already exists")
        streams[body["logStreamName"]] = []
        return {}

    def _put(self, body: JSON) -> JSON:
        self._stream(body).extend(
            LogEvent(event["timestamp"], event["message"]) for event in body["logEvents"]
        )
        return {}

    def _describe_groups(self, body: JSON) -> JSON:
        prefix, pattern = body.get("logGroupNamePrefix", ""), body.get("logGroupNamePattern", "")
        found = [
            {
                "logGroupName": name,
                "creationTime": group.created_ms,
                "arn": f"{self._arn(name)}:*",
                "logGroupArn": self._arn(name),
                "storedBytes": 0,
            }
            for name, group in sorted(self.groups.items())
            if name.startswith(prefix) and pattern.lower() in name.lower()
        ]
        return _page(found, "logGroups", body)

    def _describe_streams(self, body: JSON) -> JSON:
        prefix = body.get("logStreamNamePrefix", "")
        name = body.get("logGroupName", "")
        found = [
            self._described(name, stream, events)
            for stream, events in sorted(self._group(body).streams.items())
            if stream.startswith(prefix)
        ]
        if body.get("orderBy") == "LastEventTime":
            found.sort(key=lambda entry: entry.get("lastEventTimestamp", 0))
        if body.get("descending"):
            found.reverse()
        return _page(found, "logStreams", body)

    def _described(self, group: str, stream: str, events: list[LogEvent]) -> JSON:
        entry: JSON = {
            "logStreamName": stream,
            "creationTime": events[0].time_ms if events else _now_ms(),
            "arn": f"{self._arn(group)}:log-stream:{stream}",
            "storedBytes": 0,
        }
        if events:
            entry |= {
                "firstEventTimestamp": events[0].time_ms,
                "lastEventTimestamp": events[-1].time_ms,
                "lastIngestionTime": events[-1].time_ms,
            }
        return entry

    def _delete_group(self, body: JSON) -> JSON:
        self._group(body)
        del self.groups[body["logGroupName"]]
        return {}

    def _get(self, body: JSON) -> JSON:
        events = list(_within(self._stream(body), body))
        limit = body.get("limit", 10_000)
        token = body.get("nextToken", "")
        place = int(token[2:]) if token[2:].isdecimal() else None
        if token.startswith("b/") and place is not None:
            start, end = max(0, place - limit), place
        elif place is not None or body.get("startFromHead"):
            start = place or 0
            end = start + limit
        else:
            start, end = max(0, len(events) - limit), len(events)
        page = events[start:end]
        # At the end the token stays what it was: that is how a reader knows.
        return {
            "events": [_event(event) for event in page],
            "nextForwardToken": f"f/{start + len(page)}",
            "nextBackwardToken": f"b/{start}",
        }

    def _filter(self, body: JSON) -> JSON:
        names, prefix = body.get("logStreamNames"), body.get("logStreamNamePrefix", "")
        terms = body.get("filterPattern", "").replace('"', " ").split()
        found = [
            {**_event(event), "logStreamName": stream, "eventId": f"{stream}/{number}"}
            for stream, events in sorted(self._group(body).streams.items())
            if (names is None or stream in names) and stream.startswith(prefix)
            for number, event in enumerate(_within(events, body))
            if all(term in event.message for term in terms)
        ]
        found.sort(key=lambda entry: entry["timestamp"])
        return _page(found, "events", body, limit=body.get("limit", 10_000))

    def _group(self, body: JSON) -> _Group:
        name = body.get("logGroupName") or body.get("logGroupIdentifier", "").rpartition(":")[2]
        group = self.groups.get(name)
        if group is None:
            raise Refusal(
                400, "ResourceNotFoundException", "The specified log group does not exist."
            )
        return group

    def _stream(self, body: JSON) -> list[LogEvent]:
        events = self._group(body).streams.get(body["logStreamName"])
        if events is None:
            raise Refusal(
                400, "ResourceNotFoundException", "The specified log stream does not exist."
            )
        return events

    def _arn(self, group: str) -> str:
        return self._account.arn("logs", f"log-group:{group}")


def _within(events: Iterable[LogEvent], body: JSON) -> Iterable[LogEvent]:
    start, end = body.get("startTime", 0), body.get("endTime")
    return (
        event
        for event in sorted(events, key=lambda event: event.time_ms)
        if start <= event.time_ms and (end is None or event.time_ms < end)
    )


def _event(event: LogEvent) -> JSON:
    return {"timestamp": event.time_ms, "message": event.message, "ingestionTime": event.time_ms}


def _page(found: list[JSON], key: str, body: JSON, limit: int | None = None) -> JSON:
    token = body.get("nextToken", "0")
    if not token.isdecimal():
        raise Refusal(400, "InvalidParameterException", "nextToken is not one of ours")
    start = int(token)
    end = start + (limit or body.get("limit", 50))
    return {key: found[start:end], **({"nextToken": str(end)} if end < len(found) else {})}


def _exists(message: str) -> Refusal:
    return Refusal(400, "ResourceAlreadyExistsException", message)


def _now_ms() -> int:
    return int(now().timestamp() * 1000)
