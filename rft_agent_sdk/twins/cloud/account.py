"""What every service of the twin shares: whose account it is, in which Region, and one lock."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from rft_agent_sdk.types import JSON

Handler = Callable[[JSON], JSON]
"""Answers one operation: boto3's parameters in, boto3's answer out."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account in a Region."""

    region: str
    id: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held by whoever reads or changes the state of a service."""

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and Region."""
        return f"arn:aws:{service}:{self.region}:{self.id}:{resource}"

    def global_arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource that belongs to no Region, such as a role."""
        return f"arn:aws:{service}::{self.id}:{resource}"


def now() -> datetime.datetime:
    """Return the time as the services keep it: UTC, to the millisecond."""
    moment = datetime.datetime.now(datetime.UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
