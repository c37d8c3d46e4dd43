"""S3 of the local cloud, by boto3."""

import io
from urllib.request import urlopen

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from tests.twins.cloud_play import playing, refused

HERE = {"CreateBucketConfiguration": {"LocationConstraint": "us-west-2"}}


@pytest.fixture
def s3(play):
    return play["s3"]


def test_buckets_live_and_die(play, s3):
    s3.create_bucket(Bucket="fresh", **HERE)
    assert s3.head_bucket(Bucket="fresh")["BucketRegion"] == "us-west-2"
    assert s3.get_bucket_location(Bucket="fresh")["LocationConstraint"] == "us-west-2"
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["data", "fresh"]
    with refused("BucketAlreadyOwnedByYou"):
        s3.create_bucket(Bucket="fresh", **HERE)
    with refused("BucketNotEmpty"):
        s3.delete_bucket(Bucket="data")
    s3.delete_bucket(Bucket="fresh")
    with refused("404"):
        s3.head_bucket(Bucket="fresh")
    with refused("NoSuchBucket", "fresh"):
        s3.list_objects_v2(Bucket="fresh")


def test_a_bucket_is_made_where_its_cloud_is(s3):
    with refused("IllegalLocationConstraintException"):
        s3.create_bucket(Bucket="fresh")
    with refused("InvalidBucketName"):
        s3.create_bucket(Bucket="Fresh_1", **HERE)


def test_us_east_1_is_never_written_down():
    with playing(region="us-east-1") as play:
        play["s3"].create_bucket(Bucket="fresh")
        assert play["s3"].get_bucket_location(Bucket="fresh").get("LocationConstraint") is None


def test_the_bucket_of_another_account_is_closed(play, s3):
    play.cloud.make_bucket("theirs", owner="210987654321")
    with refused("403"):
        s3.head_bucket(Bucket="theirs")
    with refused("BucketAlreadyExists"):
        s3.create_bucket(Bucket="theirs", **HERE)
    with refused("AccessDenied"):
        s3.put_object(Bucket="theirs", Key="x", Body=b"")
    with refused("AccessDenied"):
        s3.list_objects_v2(Bucket="data", ExpectedBucketOwner="210987654321")


def test_an_object_comes_back_as_it_was_put(play, s3):
    key = "folder with spaces/ünïcode+&=?.jsonl"
    put = s3.put_object(
        Bucket="data", Key=key, Body=b"line\n", ContentType="text/plain", Metadata={"run": "7"}
    )
    found = s3.get_object(Bucket="data", Key=key)
    assert found["Body"].read() == play.cloud.buckets["data"][key] == b"line\n"
    head = s3.head_object(Bucket="data", Key=key)
    for answer in (found, head):
        assert answer["ETag"] == put["ETag"]
        assert (answer["ContentType"], answer["ContentLength"]) == ("text/plain", 5)
        assert answer["Metadata"] == {"run": "7"}
    s3.copy_object(Bucket="data", Key="copy", CopySource={"Bucket": "data", "Key": key})
    assert play.cloud.buckets["data"]["copy"] == b"line\n"
    s3.delete_object(Bucket="data", Key=key)
    s3.delete_object(Bucket="data", Key=key)
    with refused("NoSuchKey"):
        s3.get_object(Bucket="data", Key=key)
    with refused("404"):
        s3.head_object(Bucket="data", Key=key)
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="data", Key=key)


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_a_presigned_url_opens_an_object_without_a_header(standing, version):
    client = boto3.client(
        "s3",
        region_name="us-west-2",
        endpoint_url=standing.cloud.url,
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        config=Config(signature_version=version),
    )
    url = client.generate_presigned_url(
        "get_object", Params={"Bucket": "data", "Key": "train.jsonl"}
    )
    with urlopen(url) as answer:
        assert answer.read() == b'{"prompt": "play"}\n'


def test_an_object_may_be_put_only_where_there_is_none(s3):
    with refused("PreconditionFailed"):
        s3.put_object(Bucket="data", Key="train.jsonl", Body=b"", IfNoneMatch="*")


@pytest.mark.parametrize(
    ("asked", "part", "where"),
    [
        ("bytes=2-4", b"cde", "bytes 2-4/10"),
        ("bytes=7-", b"hij", "bytes 7-9/10"),
        ("bytes=-2", b"ij", "bytes 8-9/10"),
        ("bytes=8-99", b"ij", "bytes 8-9/10"),
    ],
)
def test_a_range_of_an_object(standing, asked, part, where):
    s3 = standing["s3"]
    s3.put_object(Bucket="data", Key="letters", Body=b"abcdefghij")
    found = s3.get_object(Bucket="data", Key="letters", Range=asked)
    assert (found["Body"].read(), found["ContentRange"]) == (part, where)
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 206


def test_a_range_behind_the_end_is_refused(s3):
    with refused("InvalidRange"):
        s3.get_object(Bucket="data", Key="train.jsonl", Range="bytes=100-")


def test_objects_are_listed_by_prefix_delimiter_and_page(play, s3):
    bucket = play.cloud.make_bucket("many")
    for number in range(25):
        bucket[f"runs/{number:02}/a.json"] = b"{}"
    bucket["top"] = b""
    one = s3.list_objects_v2(Bucket="many", Prefix="runs/1", MaxKeys=4)
    assert [entry["Key"] for entry in one["Contents"]] == [
        f"runs/1{digit}/a.json" for digit in range(4)
    ]
    assert (one["IsTruncated"], one["KeyCount"]) == (True, 4)
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="many", PaginationConfig={"PageSize": 7}
    )
    assert sum(len(page["Contents"]) for page in pages) == 26
    folders = s3.list_objects_v2(Bucket="many", Delimiter="/")
    assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == ["runs/"]
    assert [entry["Key"] for entry in folders["Contents"]] == ["top"]
    assert s3.list_objects_v2(Bucket="many", StartAfter="runs/24/a.json")["KeyCount"] == 1
    assert s3.list_objects_v2(Bucket="many", Prefix="none")["KeyCount"] == 0


def test_many_objects_are_deleted_at_once(play, s3):
    bucket = play.cloud.make_bucket("many")
    for number in range(3):
        bucket[f"k{number}"] = b""
    asked = [{"Key": "k0"}, {"Key": "k<&2"}, {"Key": "none"}]
    bucket["k<&2"] = b""
    done = s3.delete_objects(Bucket="many", Delete={"Objects": asked})
    assert [entry["Key"] for entry in done["Deleted"]] == ["k0", "k<&2", "none"]
    assert list(bucket.objects) == ["k1", "k2"]
    quiet = s3.delete_objects(Bucket="many", Delete={"Objects": [{"Key": "k1"}], "Quiet": True})
    assert "Deleted" not in quiet


def test_a_large_upload_goes_in_parts(play, s3):
    content = bytes(range(256)) * 50_000
    parts = TransferConfig(
        multipart_threshold=5 << 20, multipart_chunksize=5 << 20, use_threads=False
    )
    s3.upload_fileobj(io.BytesIO(content), "data", "large", Config=parts)
    assert play.cloud.buckets["data"]["large"] == content
    operations = [call.operation for call in play.cloud.calls]
    assert operations == [
        "CreateMultipartUpload",
        *["UploadPart"] * 3,
        "CompleteMultipartUpload",
    ]
    got = io.BytesIO()
    s3.download_fileobj("data", "large", got, Config=parts)
    assert got.getvalue() == content


def test_parts_are_joined_in_order_and_only_what_was_uploaded(s3):
    upload = s3.create_multipart_upload(Bucket="data", Key="big")
    which = {"Bucket": "data", "Key": "big", "UploadId": upload["UploadId"]}
    etag = s3.upload_part(**which, PartNumber=1, Body=b"a")["ETag"]
    one, two = {"PartNumber": 1, "ETag": etag}, {"PartNumber": 2, "ETag": etag}
    with refused("InvalidPart"):
        s3.complete_multipart_upload(**which, MultipartUpload={"Parts": [one, two]})
    with refused("InvalidPartOrder"):
        s3.complete_multipart_upload(**which, MultipartUpload={"Parts": [two, one]})
    s3.abort_multipart_upload(**which)
    with refused("NoSuchUpload"):
        s3.upload_part(**which, PartNumber=1, Body=b"a")
