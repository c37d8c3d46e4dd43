"""SageMaker training sessions seen from outside: which there are, what they used, and stopping them.

A process that is killed outright leaves its session running, and billed, until the service's own inactivity
limit. This needs botocore only, so that any machine with the account's credentials can look and stop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

from rft_agent_sdk.errors import EngineError, UsageError

ACTIVE = frozenset({"Created", "Scheduled", "Running", "Blocked"})
"""States of a session that nobody has begun to stop."""
_ENDPOINT = "SAGEMAKER_TRAINING_SESSION_ENDPOINT"
"""The variable that `sagemaker-train` reads too."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One training session as the service describes it."""

    name: str
    """Its name, unique in the account and region."""
    status: str
    """The service's word, such as `Running`."""
    created: datetime
    """When it was created, with its time zone."""
    last_sequence_number: int = 0
    """Largest number of a training operation received."""
    tokens: Mapping[str, int] | None = None
    """Billable tokens by kind; `None` where the service tells none."""


def control_plane(region: str | None = None) -> Any:
    """Return a botocore client of the control plane.

    Args:
        region: AWS region; `None` takes the environment's or the profile's.

    Raises:
        UsageError: No region can be told.
    """
    region = region or os.environ.get("AWS_REGION")
    try:
        return botocore.session.Session().create_client(
            "sagemaker",
            region_name=region,
            endpoint_url=os.environ.get(_ENDPOINT) or None,
            config=Config(
                retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10, read_timeout=60
            ),
        )
    except NoRegionError as error:
        raise UsageError("no AWS region: say --region or set AWS_REGION") from error


def describe_session(client: Any, name: str) -> SessionInfo:
    """Return a session by its name.

    Raises:
        EngineError: The service refused, or there is none of that name.
    """
    with _told(f"training session {name!r} cannot be described"):
        detail = client.describe_training_session(TrainingSessionName=name)["TrainingSessionDetail"]
    return SessionInfo(
        name,
        detail["TrainingSessionStatus"],
        detail["CreationTime"],
        detail.get("LastReceivedSequenceNumber") or 0,
        detail.get("BillableTokenUsage"),
    )


def list_sessions(
    client: Any, *, name_contains: str = "", include_ended: bool = False
) -> list[SessionInfo]:
    """Return sessions, newest first as the service lists them.

    Args:
        client: Of `control_plane`.
        name_contains: Only those whose name has this in it.
        include_ended: Those too that are stopping, stopped, failed or expired.

    Raises:
        EngineError: The service refused.
    """
    filters = {"NameContains": name_contains} if name_contains else {}
    with _told("training sessions cannot be listed"):
        pages = client.get_paginator("list_training_sessions").paginate(**filters)
        found = [one for page in pages for one in page.get("TrainingSessionSummaries", [])]
    return [
        SessionInfo(
            one["TrainingSessionArn"].rpartition("/")[2],
            one["TrainingSessionStatus"],
            one["CreationTime"],
        )
        for one in found
        if include_ended or one["TrainingSessionStatus"] in ACTIVE
    ]


def stop_session(client: Any, name: str) -> bool:
    """Stop a session; return whether there was anything to stop.

    Raises:
        EngineError: The service refused, and the session has not ended either.
    """
    with _told(f"training session {name!r} cannot be stopped"):
        try:
            client.stop_training_session(TrainingSessionName=name)
        except ClientError as error:
            # A stop of what has ended is answered with this; whether it has is asked, not read from the text.
            if error.response.get("Error", {}).get("Code") != "ValidationException":
                raise
            if describe_session(client, name).status in ACTIVE:
                raise
            return False
    return True


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise EngineError(f"{what}: {error}", usable=True) from error
