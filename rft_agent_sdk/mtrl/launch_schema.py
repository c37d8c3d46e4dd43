"""A job's document against the schema that the service publishes for it: a warning before, not a refusal after.

The client's document and the documentation differ in places, and only the service's schema tells who is right.
Of JSON Schema just what places fields is read: properties, required, additionalProperties, items and $ref.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.hub import ClientOf
from rft_agent_sdk.mtrl.launch_checks import warning
from rft_agent_sdk.mtrl.launch_document import JOB_CATEGORY, SCHEMA_VERSION


def read_schema(clients: ClientOf) -> dict[str, Any]:
    """Return the schema of a training job's document, by a reading call.

    Raises:
        CloudError: The service refused.
    """
    with told("the schema of a job's document cannot be read"):
        found = clients("sagemaker").describe_job_schema_version(
            JobCategory=JOB_CATEGORY, JobConfigSchemaVersion=SCHEMA_VERSION
        )
    schema = json.loads(found["JobConfigSchema"])
    return schema if isinstance(schema, dict) else {}


def check_document(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield where a document lacks a field that the schema requires, or has one that it does not know.

    What was said for a job and is left to its default counts as present only where it is sent.
    """
    yield from _check(document, schema, "", schema)


def _check(
    value: Any, schema: Mapping[str, Any], path: str, root: Mapping[str, Any]
) -> Iterator[Finding]:
    schema = _followed(schema, root)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{number}]", root)
    if not isinstance(value, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return
    known = schema["properties"]
    for key in schema.get("required", []):
        if key not in value:
            yield _told(f"{path}.{key}".lstrip("."), "is required by the service's schema")
    for key, below in value.items():
        place = f"{path}.{key}".lstrip(".")
        if isinstance(known.get(key), Mapping):
            yield from _check(below, known[key], place, root)
        elif schema.get("additionalProperties") is False and key not in known:
            yield _told(place, "is not known to the service's schema there")


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference inside the schema points at; a chain of them is followed a little."""
    for _ in range(8):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for part in reference[2:].split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            return {}
        schema = found
    return schema


def _told(place: str, message: str) -> Finding:
    return warning(
        "document-schema",
        f"the job's document: {place}",
        message,
        "The client sends it so; see `aws sagemaker describe-job-schema-version`, and expect a refusal.",
    )
