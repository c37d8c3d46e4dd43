"""Whether a job of a chosen name is the one that was asked for: after an answer of CreateJob that never came.

botocore repeats a call whose answer is lost, and the repetition is refused because the job is there by then. So a
refusal says nothing about whether a job runs; the name says it, and the document says whose job it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.mtrl.document import json_object
from rft_agent_sdk.mtrl.job import Job
from rft_agent_sdk.types import JSON

IN_USE = "ResourceInUse"
"""What CreateJob says of a name that a job has already."""
TOKEN_LENGTH = 4


def name_token() -> str:
    """Return a random part of a name: two jobs of one second are then two names."""
    return secrets.token_hex(TOKEN_LENGTH // 2)


def is_asked_for(job: Job, request: Mapping[str, Any]) -> bool:
    """Whether a job is what a CreateJob request asked for, whatever the service has added to it since."""
    return job.role == request["RoleArn"] and _holds(
        job.document, json_object(request["JobConfigDocument"])
    )


def _holds(found: Any, asked: Any) -> bool:
    if isinstance(asked, dict):
        return isinstance(found, dict) and all(
            name in found and _holds(found[name], value) for name, value in asked.items()
        )
    if isinstance(asked, list):
        return (
            isinstance(found, list) and len(found) == len(asked) and all(map(_holds, found, asked))
        )
    return bool(found == asked)


@dataclass(slots=True)
class Sent:
    """What is known of a CreateJob call that somebody else makes with a client."""

    request: JSON | None = None
    """Its parameters; `None` before it is made."""
    tries: int = 0
    """How often it was sent: more than once where botocore repeated it."""
    arn: str = ""
    """Of the job, by the service's answer; empty without one."""


@contextmanager
def watching(client: Any, note: Any) -> Iterator[Sent]:
    """Look on while a client's CreateJob is called.

    Args:
        client: botocore's, of `sagemaker`.
        note: Takes the job's name, just before the call.
    """
    sent = Sent()

    def asked(params: JSON, **_: Any) -> None:
        sent.request = dict(params)
        note(params["JobName"])

    def tried(**_: Any) -> None:
        sent.tries += 1

    def answered(parsed: JSON, **_: Any) -> None:
        sent.arn = parsed.get("JobArn") or ""

    hooks = (("provide-client-params", asked), ("before-send", tried), ("after-call", answered))
    events = client.meta.events
    for name, hook in hooks:
        events.register(f"{name}.sagemaker.CreateJob", hook)
    try:
        yield sent
    finally:
        for name, hook in hooks:
            events.unregister(f"{name}.sagemaker.CreateJob", hook)
