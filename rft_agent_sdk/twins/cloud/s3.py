"""S3, path-style and in memory: buckets, objects, multipart uploads."""

from __future__ import annotations

import datetime
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was put."""

    body: bytes
    content_type: str = "binary/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    modified: datetime.datetime = field(default_factory=now)

    @property
    def etag(self) -> str:
        """Its entity tag, quotes included."""
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass(slots=True)
class Bucket:
    """A bucket and its objects."""

    owner: str
    """Account id."""
    region: str
    is_public: bool = False
    """Whether other accounts may read it."""
    objects: dict[str, StoredObject] = field(default_factory=dict)
    """By key; insert with `bucket[key] = b"..."`."""
    created: datetime.datetime = field(default_factory=now)

    def __setitem__(self, key: str, body: bytes) -> None:
        self.objects[key] = StoredObject(body)

    def __getitem__(self, key: str) -> bytes:
        return self.objects[key].body

    def __contains__(self, key: object) -> bool:
        return key in self.objects


@dataclass(slots=True)
class _Upload:
    bucket: str
    key: str
    content_type: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class S3:
    """The operations on buckets and objects."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.buckets: dict[str, Bucket] = {}
        self._uploads: dict[str, _Upload] = {}
        self.operations: dict[str, Handler] = {
            "CreateBucket": self._create_bucket,
            "HeadBucket": self._head_bucket,
            "ListBuckets": self._list_buckets,
            "DeleteBucket": self._delete_bucket,
            "GetBucketLocation": self._get_bucket_location,
            "PutObject": self._put,
            "GetObject": self._get,
            "HeadObject": self._head,
            "CopyObject": self._copy,
            "DeleteObject": self._delete,
            "DeleteObjects": self._delete_many,
            "ListObjectsV2": self._list,
            "CreateMultipartUpload": self._create_upload,
            "UploadPart": self._upload_part,
            "CompleteMultipartUpload": self._complete_upload,
            "AbortMultipartUpload": self._abort_upload,
        }

    def make_bucket(
        self, name: str, *, owner: str | None = None, is_public: bool = False
    ) -> Bucket:
        """Return the bucket of a name, made where there is none; another account may own it."""
        made = Bucket(owner or self._account.id, self._account.region, is_public)
        return self.buckets.setdefault(name, made)

    def holds(self, uri: str) -> bool:
        """Return whether `s3://bucket/key-or-prefix` names at least one object that is not empty."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        found = self.buckets.get(bucket)
        return found is not None and any(
            key.startswith(prefix) and stored.body for key, stored in found.objects.items()
        )

    def _create_bucket(self, body: JSON) -> JSON:
        name = body["Bucket"]
        if not _NAME.fullmatch(name):
            _refuse(400, "InvalidBucketName", f"the bucket name {name!r} is not valid")
        constraint = body.get("CreateBucketConfiguration", {}).get("LocationConstraint")
        region = self._account.region
        # us-east-1 is the Region that is never written down.
        if (constraint or "us-east-1") != region:
            _refuse(
                400,
                "IllegalLocationConstraintException",
                f"the location constraint {constraint!r} is not of the Region {region}",
            )
        existing = self.buckets.get(name)
        if existing is not None:
            mine = existing.owner == self._account.id
            code = "BucketAlreadyOwnedByYou" if mine else "BucketAlreadyExists"
            _refuse(409, code, f"the bucket {name!r} exists already")
        self.buckets[name] = Bucket(self._account.id, region)
        return {"Location": f"/{name}"}

    def _head_bucket(self, body: JSON) -> JSON:
        return {"BucketRegion": self._bucket(body).region}

    def _list_buckets(self, body: JSON) -> JSON:
        return {
            "Buckets": [
                {"Name": name, "CreationDate": bucket.created}
                for name, bucket in sorted(self.buckets.items())
                if bucket.owner == self._account.id and name.startswith(body.get("Prefix", ""))
            ],
            "Owner": {"ID": self._account.id},
        }

    def _delete_bucket(self, body: JSON) -> JSON:
        if self._bucket(body).objects:
            _refuse(409, "BucketNotEmpty", f"the bucket {body['Bucket']!r} is not empty")
        del self.buckets[body["Bucket"]]
        return {}

    def _get_bucket_location(self, body: JSON) -> JSON:
        region = self._bucket(body).region
        return {"LocationConstraint": region} if region != "us-east-1" else {}

    def _put(self, body: JSON) -> JSON:
        bucket = self._bucket(body)
        if body.get("IfNoneMatch") == "*" and body["Key"] in bucket.objects:
            _refuse(412, "PreconditionFailed", "the object exists already")
        stored = StoredObject(
            body.get("Body", b""),
            body.get("ContentType", "binary/octet-stream"),
            body.get("Metadata", {}),
        )
        bucket.objects[body["Key"]] = stored
        return {"ETag": stored.etag}

    def _head(self, body: JSON) -> JSON:
        stored = self._object(body)
        return {**_described(stored), "ContentLength": len(stored.body)}

    def _get(self, body: JSON) -> JSON:
        stored = self._object(body)
        answer = {**_described(stored), "AcceptRanges": "bytes"}
        asked = body.get("Range")
        if asked is None:
            return {**answer, "Body": stored.body, "ContentLength": len(stored.body)}
        first, last = _bounds(asked, len(stored.body))
        part = stored.body[first : last + 1]
        return {
            **answer,
            "Body": part,
            "ContentLength": len(part),
            "ContentRange": f"bytes {first}-{last}/{len(stored.body)}",
        }

    def _copy(self, body: JSON) -> JSON:
        bucket, _, key = unquote(body["CopySource"]).lstrip("/").partition("/")
        stored = self._object({"Bucket": bucket, "Key": key})
        self._bucket(body).objects[body["Key"]] = stored
        return {"CopyObjectResult": {"ETag": stored.etag, "LastModified": now()}}

    def _delete(self, body: JSON) -> JSON:
        self._bucket(body).objects.pop(body["Key"], None)
        return {}

    def _delete_many(self, body: JSON) -> JSON:
        bucket = self._bucket(body)
        keys = [item["Key"] for item in body["Delete"]["Objects"]]
        for key in keys:
            bucket.objects.pop(key, None)
        quiet = body["Delete"].get("Quiet", False)
        return {} if quiet else {"Deleted": [{"Key": key} for key in keys]}

    def _list(self, body: JSON) -> JSON:
        bucket = self._bucket(body, reads=True)
        prefix, delimiter = body.get("Prefix", ""), body.get("Delimiter", "")
        after = body.get("ContinuationToken") or body.get("StartAfter", "")
        limit = min(body.get("MaxKeys", _PAGE), _PAGE)
        entries: dict[str, StoredObject | None] = {}
        for key, stored in sorted(bucket.objects.items()):
            if not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            entries[f"{prefix}{head}{delimiter}" if found else key] = None if found else stored
        names = [name for name in entries if name > after]
        page = names[:limit]
        answer = {
            "Name": body["Bucket"],
            "Prefix": prefix,
            "MaxKeys": limit,
            "KeyCount": len(page),
            "IsTruncated": len(names) > limit,
            "Contents": [_listed(name, put) for name in page if (put := entries[name])],
            "CommonPrefixes": [{"Prefix": name} for name in page if entries[name] is None],
        }
        if delimiter:
            answer["Delimiter"] = delimiter
        if len(names) > limit:
            answer["NextContinuationToken"] = page[-1]
        return answer

    def _create_upload(self, body: JSON) -> JSON:
        self._bucket(body)
        upload_id = secrets.token_hex(16)
        self._uploads[upload_id] = _Upload(
            body["Bucket"],
            body["Key"],
            body.get("ContentType", "binary/octet-stream"),
            body.get("Metadata", {}),
        )
        return {"Bucket": body["Bucket"], "Key": body["Key"], "UploadId": upload_id}

    def _upload_part(self, body: JSON) -> JSON:
        part = StoredObject(body.get("Body", b""))
        self._upload(body).parts[body["PartNumber"]] = part.body
        return {"ETag": part.etag}

    def _complete_upload(self, body: JSON) -> JSON:
        upload = self._upload(body)
        numbers = [part["PartNumber"] for part in body.get("MultipartUpload", {}).get("Parts", ())]
        if not numbers or numbers != sorted(set(numbers)):
            _refuse(400, "InvalidPartOrder", f"the parts {numbers} are not in ascending order")
        if not set(numbers) <= set(upload.parts):
            _refuse(400, "InvalidPart", f"of the parts {numbers}, some were never uploaded")
        whole = b"".join(upload.parts[number] for number in numbers)
        stored = StoredObject(whole, upload.content_type, upload.metadata)
        self._bucket(body).objects[upload.key] = stored
        del self._uploads[body["UploadId"]]
        return {
            "Bucket": upload.bucket,
            "Key": upload.key,
            "Location": f"/{upload.bucket}/{upload.key}",
            "ETag": stored.etag,
        }

    def _abort_upload(self, body: JSON) -> JSON:
        self._upload(body)
        del self._uploads[body["UploadId"]]
        return {}

    def _upload(self, body: JSON) -> _Upload:
        upload = self._uploads.get(body["UploadId"])
        if upload is None or (upload.bucket, upload.key) != (body["Bucket"], body["Key"]):
            _refuse(404, "NoSuchUpload", "the upload does not exist")
        return upload

    def _bucket(self, body: JSON, *, reads: bool = False) -> Bucket:
        name = body["Bucket"]
        bucket = self.buckets.get(name)
        if bucket is None:
            _refuse(404, "NoSuchBucket", f"the bucket {name!r} does not exist")
        may = bucket.owner == self._account.id or (reads and bucket.is_public)
        if not may or body.get("ExpectedBucketOwner", bucket.owner) != bucket.owner:
            _refuse(403, "AccessDenied", "Access Denied")
        return bucket

    def _object(self, body: JSON) -> StoredObject:
        stored = self._bucket(body, reads=True).objects.get(body["Key"])
        if stored is None:
            _refuse(404, "NoSuchKey", f"the key {body['Key']!r} does not exist")
        return stored


def _described(stored: StoredObject) -> JSON:
    return {
        "ETag": stored.etag,
        "ContentType": stored.content_type,
        "LastModified": stored.modified,
        "Metadata": dict(stored.metadata),
    }


def _listed(key: str, stored: StoredObject) -> JSON:
    return {
        "Key": key,
        "Size": len(stored.body),
        "ETag": stored.etag,
        "LastModified": stored.modified,
        "StorageClass": "STANDARD",
    }


def _bounds(asked: str, size: int) -> tuple[int, int]:
    match = _RANGE.fullmatch(asked)
    if match is None or match[0] == "bytes=-":
        return 0, size - 1
    if not match[1]:
        return max(0, size - int(match[2])), size - 1
    first = int(match[1])
    if first >= size:
        _refuse(416, "InvalidRange", f"the range {asked!r} starts after {size} bytes")
    return first, min(int(match[2] or size), size - 1)


def _refuse(status: int, code: str, message: str) -> NoReturn:
    raise Refusal(status, code, message)
