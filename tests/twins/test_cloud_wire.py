"""The wire of the local cloud below its services: shapes, routes, chunks."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.twins.cloud.wire.check import faults_of
from rft_agent_sdk.twins.cloud.wire.chunks import unchunk
from rft_agent_sdk.twins.cloud.wire.decode import Undecodable, decode
from rft_agent_sdk.twins.cloud.wire.encode import encode
from rft_agent_sdk.twins.cloud.wire.models import error_status, operation_model
from rft_agent_sdk.twins.cloud.wire.received import Received
from rft_agent_sdk.twins.cloud.wire.routes import find_operation

S3 = (
    "GetObject",
    "PutObject",
    "UploadPart",
    "CopyObject",
    "ListObjectsV2",
    "ListBuckets",
    "GetBucketLocation",
    "CreateMultipartUpload",
    "CompleteMultipartUpload",
    "DeleteObjects",
    "DeleteObject",
    "AbortMultipartUpload",
)


def received(method, path, query="", headers=None, body=b""):
    return Received(method, path, query, headers or {}, body)


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "operation"),
    [
        ("GET", "/", "", {}, "ListBuckets"),
        ("GET", "/b", "list-type=2&prefix=x", {}, "ListObjectsV2"),
        ("GET", "/b", "location", {}, "GetBucketLocation"),
        ("GET", "/b/k/k", "", {}, "GetObject"),
        ("PUT", "/b/k", "", {}, "PutObject"),
        ("PUT", "/b/k", "", {"x-amz-copy-source": "b/o"}, "CopyObject"),
        ("PUT", "/b/k", "partNumber=1&uploadId=u", {}, "UploadPart"),
        ("POST", "/b/k", "uploads", {}, "CreateMultipartUpload"),
        ("POST", "/b/k", "uploadId=u", {}, "CompleteMultipartUpload"),
        ("POST", "/b", "delete", {}, "DeleteObjects"),
        ("DELETE", "/b/k", "", {}, "DeleteObject"),
        ("DELETE", "/b/k", "uploadId=u", {}, "AbortMultipartUpload"),
        ("PATCH", "/b/k", "", {}, None),
    ],
)
def test_siblings_are_told_apart_by_what_they_require(method, path, query, headers, operation):
    assert find_operation("s3", S3, received(method, path, query, headers)) == operation


def test_a_value_is_checked_to_its_last_member():
    shape = operation_model("sagemaker", "CreateJob").input_shape
    value = {
        "JobName": "-",
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "JobCategory": "Other",
        "JobConfigDocument": "",
        "Tags": [{"Key": "k"}, 5],
        "Extra": None,
    }
    assert [fault.split("'")[1] for fault in faults_of(shape, value) if fault.startswith("'")] == [
        "JobConfigSchemaVersion",
        "JobConfigDocument",
        "Tags.1.Value",
        "Tags.2",
        "Extra",
    ]
    assert sum(fault.startswith("Value") for fault in faults_of(shape, value)) == 2


def test_a_long_value_is_not_repeated_whole():
    shape = operation_model("sagemaker", "DescribeJob").input_shape
    faults = faults_of(shape, {"JobName": "_" * 1000, "JobCategory": "AgentRFT"})
    assert all(len(fault) < 250 for fault in faults)


def test_a_query_request_is_nested_again():
    body = (
        b"Action=SimulatePrincipalPolicy&Version=2010-05-08&PolicySourceArn=arn%3Aaws"
        b"&ActionNames.member.1=a%3Ab&ActionNames.member.2=c%3Ad&MaxItems=5"
        b"&ContextEntries.member.1.ContextKeyName=k&ContextEntries.member.1.ContextKeyValues.member.1=v"
    )
    model = operation_model("iam", "SimulatePrincipalPolicy")
    assert decode(model, received("POST", "/", body=body)) == {
        "PolicySourceArn": "arn:aws",
        "ActionNames": ["a:b", "c:d"],
        "MaxItems": 5,
        "ContextEntries": [{"ContextKeyName": "k", "ContextKeyValues": ["v"]}],
    }


@pytest.mark.parametrize(
    ("service", "operation", "request_"),
    [
        ("iam", "ListRoles", received("POST", "/", body=b"Action=ListRoles&MaxItems=many")),
        ("s3", "DeleteObjects", received("POST", "/b", "delete", {}, b"<Delete>")),
        (
            "lambda",
            "UpdateFunctionCode",
            received("PUT", "/2015-03-31/functions/f/code", body=b"["),
        ),
        (
            "lambda",
            "UpdateFunctionCode",
            received("PUT", "/2015-03-31/functions/f/code", body=b'{"ZipFile": "?"}'),
        ),
    ],
)
def test_what_is_not_of_its_protocol_cannot_be_decoded(service, operation, request_):
    with pytest.raises(Undecodable):
        decode(operation_model(service, operation), request_)


def test_moments_are_written_as_each_protocol_writes_them():
    moment = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
    job = encode(
        operation_model("sagemaker", "ListHubContents"),
        {"HubContentSummaries": [{"CreationTime": moment}]},
    )
    assert str(moment.timestamp()).encode() in job.body
    role = encode(
        operation_model("iam", "GetRole"),
        {"Role": {"CreateDate": moment, "Path": "<&>"}},
    )
    assert b"<CreateDate>2026-03-04T05:06:07.000Z</CreateDate>" in role.body
    assert b"<Path>&lt;&amp;&gt;</Path>" in role.body
    head = encode(operation_model("s3", "HeadObject"), {"LastModified": moment})
    assert head.headers["Last-Modified"] == "Wed, 04 Mar 2026 05:06:07 GMT"


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5))
def test_chunks_are_joined_and_trailers_dropped(parts):
    body = b"".join(b"%x;chunk-signature=0\r\n%s\r\n" % (len(part), part) for part in parts)
    assert unchunk(body + b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n") == b"".join(parts)


def test_an_upload_in_chunks_arrives_whole():
    body = b"3\r\nabc\r\n0\r\n\r\n"
    found = decode(
        operation_model("s3", "PutObject"),
        received("PUT", "/b/k%2Fk", "", {"content-encoding": "aws-chunked"}, body),
    )
    assert (found["Body"], found["Bucket"], found["Key"]) == (b"abc", "b", "k/k")


def test_the_status_of_an_error_is_the_models():
    assert error_status("bedrock-agentcore", "ThrottlingException") == 429
    assert error_status("sagemaker", "ResourceInUse") is None
    assert error_status("sagemaker", "NoSuchThing") is None
