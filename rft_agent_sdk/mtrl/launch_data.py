"""A dataset of a launch, as somebody else has read it, and where it goes: under its content's hash, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.findings import Finding

KINDS = (".jsonl", ".json", ".parquet", ".csv")
"""File names that the service reads."""

_LARGEST = 256 * 2**20


@dataclass(frozen=True, slots=True)
class LaunchData:
    """A training or validation dataset."""

    name: str
    """As the launch calls it."""
    uri: str
    """What the job is told: an S3 URI, or the ARN of a dataset."""
    rows: int | None = None
    """`None` where it cannot be read from here."""
    path: Path | None = None
    """The file to upload; `None` where nothing is uploaded."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with its rows."""

    @property
    def channel(self) -> dict[str, Any]:
        """The `DataSource` of its channel in a job's document."""
        if self.uri.startswith("s3://"):
            return {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": self.uri}}
        return {"DatasetSource": {"DatasetArn": self.uri}}


def upload_uri(prefix: str, digest: str, file: str) -> str:
    """Return where a file of a content goes: launching again uploads nothing twice, and changes nothing there.

    A job reads every object whose key begins with what it is told, so the hash is a folder of its own.

    Args:
        prefix: S3 URI, without a slash at its end.
        digest: SHA-256 of the content, in hex.
        file: The file's name.
    """
    return f"{prefix}/{digest}/{re.sub('[^A-Za-z0-9._-]', '-', file)}"


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Return the two parts of an S3 URI."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def is_uploaded(s3: Any, data: LaunchData, account: str) -> bool:
    """Whether the file's content is there already.

    Raises:
        CloudError: S3 refused.
    """
    bucket, key = bucket_and_key(data.uri)
    with told(f"{data.uri} cannot be looked for"):
        found = s3.list_objects_v2(
            Bucket=bucket, Prefix=key, MaxKeys=1, ExpectedBucketOwner=account
        )
    size = data.path.stat().st_size if data.path else -1
    return any(one["Key"] == key and one["Size"] == size for one in found.get("Contents", []))


def upload(s3: Any, data: LaunchData, account: str) -> bool:
    """Upload a dataset's file, byte for byte, unless it is there; return whether it was uploaded.

    Args:
        s3: The client.
        data: A dataset; one without a file is left alone.
        account: Whose bucket it must be.

    Raises:
        CloudError: S3 refused.
    """
    if data.path is None or is_uploaded(s3, data, account):
        return False
    bucket, key = bucket_and_key(data.uri)
    with told(f"{data.path} cannot be uploaded to {data.uri}"), data.path.open("rb") as body:
        s3.put_object(Bucket=bucket, Key=key, Body=body, ExpectedBucketOwner=account)
    return True


def download(s3: Any, uri: str, folder: Path) -> Path | None:
    """Return a copy of one dataset file in S3; `None` for a prefix of several, or a file too large to look into.

    Raises:
        CloudError: S3 refused, or there is nothing there.
    """
    bucket, key = bucket_and_key(uri)
    if not key.lower().endswith(KINDS):
        return None
    with told(f"{uri} cannot be read"):
        found = s3.get_object(Bucket=bucket, Key=key)
        if found["ContentLength"] > _LARGEST:
            return None
        path = folder / key.rpartition("/")[2]
        path.write_bytes(found["Body"].read())
    return path


def all_findings(*datasets: LaunchData | None) -> Iterator[Finding]:
    """Yield what is wrong with the rows of datasets."""
    for data in datasets:
        yield from data.findings if data else ()
