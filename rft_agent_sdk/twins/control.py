"""The control plane of training sessions: create, describe, list, stop, delete, and the hub's model document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.twins.session import TrainingSession
from rft_agent_sdk.twins.session_wire import text
from rft_agent_sdk.types import JSON

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_BASE_MODEL = re.compile(r"arn:[a-z0-9-.]+:sagemaker:[a-z0-9-]+:(\d{12}|aws):hub-content/\S+")
_PAGE = 100


class ControlPlane:
    """Answers JSON 1.1 calls by name."""

    def __init__(
        self,
        region: str,
        account: str,
        make_session: Callable[[JSON], TrainingSession],
        tokenizer: str | None,
    ) -> None:
        self.sessions: dict[str, TrainingSession] = {}
        """By name, oldest first."""
        self._prefix = f"arn:aws:sagemaker:{region}:{account}:training-session/"
        self._hub = f"arn:aws:sagemaker:{region}:aws:hub/"
        self._make_session = make_session
        self._tokenizer = tokenizer
        self._answers: dict[str, Callable[[JSON], JSON]] = {
            "CreateTrainingSession": self._create,
            "DescribeTrainingSession": self._describe,
            "ListTrainingSessions": self._list,
            "StopTrainingSession": self._stop,
            "DeleteTrainingSession": self._delete,
            "DescribeHubContent": self._describe_hub_content,
        }

    def answer(self, operation: str, body: JSON) -> JSON:
        """Return the reply to a call.

        Raises:
            Refusal: The call is unknown, or cannot be done.
        """
        answer = self._answers.get(operation)
        if answer is None:
            raise Refusal(400, "UnknownOperationException", f"{operation!r} is not served here")
        return answer(body)

    def _create(self, body: JSON) -> JSON:
        name = text(body, "TrainingSessionName")
        if not _NAME.fullmatch(name):
            raise invalid(f"TrainingSessionName {name!r} is not a name")
        text(body, "RoleArn")
        base = text(_part(body, "ModelConfig"), "BaseModelArn")
        if not _BASE_MODEL.fullmatch(base):
            raise invalid(f"ModelConfig.BaseModelArn {base!r} is not the ARN of a hub's model")
        text(_part(_part(body, "OutputConfig"), "S3Location"), "Path")
        lora = _part(body, "LoraConfig")
        if not 1 <= lora.get("Rank", 0) <= 256 or lora.get("Alpha", 0) < 1:
            raise invalid("LoraConfig needs a Rank from 1 to 256 and an Alpha of at least 1")
        if name in self.sessions:
            raise Refusal(400, "ResourceInUse", f"training session {name} exists already")
        self.sessions[name] = self._make_session(body)
        return {"TrainingSessionArn": self._prefix + name}

    def _describe(self, body: JSON) -> JSON:
        session = self._find(body)
        return {"TrainingSessionDetail": session.detail(self._prefix + session.name)}

    def _list(self, body: JSON) -> JSON:
        after, before = body.get("CreationTimeAfter"), body.get("CreationTimeBefore")
        chosen = [
            session
            for session in reversed(self.sessions.values())
            if body.get("NameContains", "") in session.name
            and body.get("StatusEquals") in (None, session.status)
            and (after is None or session.created_s > after)
            and (before is None or session.created_s < before)
        ]
        try:
            start = int(body.get("NextToken", 0))
        except ValueError:
            raise invalid("NextToken is not one of ours") from None
        end = start + min(body.get("MaxResults", _PAGE), _PAGE)
        page = [session.summary(self._prefix + session.name) for session in chosen[start:end]]
        more = {"NextToken": str(end)} if end < len(chosen) else {}
        return {"TrainingSessionSummaries": page, **more}

    def _stop(self, body: JSON) -> JSON:
        self._find(body).stop()
        return {}

    def _delete(self, body: JSON) -> JSON:
        session = self._find(body)
        if session.status not in ("Stopped", "Failed"):
            raise invalid(f"invalid session state transition from {session.status} to Deleting")
        del self.sessions[session.name]
        session.backend.close()
        return {}

    def _describe_hub_content(self, body: JSON) -> JSON:
        hub, kind = text(body, "HubName"), text(body, "HubContentType")
        name = text(body, "HubContentName")
        version = body.get("HubContentVersion") or "1.0.0"
        document = {"HuggingfaceId": self._tokenizer} if self._tokenizer else {}
        return {
            "HubName": hub.rpartition("/")[2],
            "HubArn": self._hub + hub.rpartition("/")[2],
            "HubContentName": name,
            "HubContentArn": f"{self._hub.replace(':hub/', ':hub-content/')}{hub.rpartition('/')[2]}/{kind}/{name}/{version}",
            "HubContentVersion": version,
            "HubContentType": kind,
            "DocumentSchemaVersion": "2.0.0",
            "HubContentDocument": json.dumps(document),
            "HubContentStatus": "Available",
            "CreationTime": 0,
        }

    def _find(self, body: JSON) -> TrainingSession:
        name = text(body, "TrainingSessionName")
        session = self.sessions.get(name)
        if session is None:
            raise Refusal(400, "ResourceNotFound", f"training session {name} does not exist")
        return session


def _part(body: JSON, key: str) -> JSON:
    value = body.get(key)
    if not isinstance(value, dict):
        raise invalid(f"{key} is required")
    return value
