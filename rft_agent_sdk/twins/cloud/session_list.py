"""Training sessions as a list that can be stopped: what a clean-up asks for.

`twins/training_sessions.py` is the server that trains.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.paging import is_between
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.types import JSON

_OVER = {"Stopped", "Failed", "Expired"}


@dataclass(slots=True)
class SessionEntry:
    """A training session, seen from outside."""

    status: str = "Running"
    created: datetime.datetime = field(default_factory=now)


class SessionList:
    """The operations on training sessions that need no trainer."""

    def __init__(self, account: Account, tags: Tags) -> None:
        self._account = account
        self._tags = tags
        self.sessions: dict[str, SessionEntry] = {}
        """By name."""
        self.operations: dict[str, Handler] = {
            "ListTrainingSessions": self._list,
            "DescribeTrainingSession": self._describe,
            "StopTrainingSession": self._stop,
            "DeleteTrainingSession": self._delete,
        }

    def _list(self, body: JSON) -> JSON:
        found = [
            self._summary(name, entry)
            for name, entry in reversed(self.sessions.items())
            if body.get("NameContains", "") in name
            and body.get("StatusEquals") in (None, entry.status)
            and is_between(entry.created, body, "CreationTimeAfter", "CreationTimeBefore")
        ]
        # The model's answer has no token: there is one page.
        return {"TrainingSessionSummaries": found[: body.get("MaxResults", 100)]}

    def _describe(self, body: JSON) -> JSON:
        name, entry = self._entry(body)
        return {
            "TrainingSessionDetail": {
                "TrainingSessionArn": self._arn(name),
                "TrainingSessionName": name,
                "TrainingSessionStatus": entry.status,
                "CreationTime": entry.created,
                "Tags": self._tags.listed(self._arn(name)),
            }
        }

    def _stop(self, body: JSON) -> JSON:
        name, entry = self._entry(body)
        if entry.status in _OVER:
            raise invalid(f"invalid session state transition of {name} from {entry.status}")
        entry.status = "Stopped"
        return {}

    def _delete(self, body: JSON) -> JSON:
        name, entry = self._entry(body)
        if entry.status not in _OVER:
            raise invalid(f"invalid session state transition of {name} from {entry.status}")
        del self.sessions[name]
        return {}

    def _summary(self, name: str, entry: SessionEntry) -> JSON:
        return {
            "TrainingSessionArn": self._arn(name),
            "TrainingSessionStatus": entry.status,
            "CreationTime": entry.created,
        }

    def _arn(self, name: str) -> str:
        return self._account.arn("sagemaker", f"training-session/{name}")

    def _entry(self, body: JSON) -> tuple[str, SessionEntry]:
        name = body["TrainingSessionName"]
        entry = self.sessions.get(name)
        if entry is None:
            raise Refusal(400, "ResourceNotFound", f"training session {name} does not exist")
        return name, entry
