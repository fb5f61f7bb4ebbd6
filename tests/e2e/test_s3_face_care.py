"""What the S3 endpoint of a node makes of requests that SDKs of ours do not send: nothing a client says is dropped in silence."""

from __future__ import annotations

import base64
import hashlib
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.testbed.s3_face import ACCESS_KEY, REGION, SECRET_KEY, Answered, S3Face

MIB = 1 << 20
XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@pytest.fixture(scope="module")
def face(session_dir: Any) -> Iterator[S3Face]:
    face = S3Face(session_dir / "care")
    face.start()
    yield face
    face.stop()


@pytest.fixture(scope="module")
def s3(face: S3Face) -> Any:
    return face.client()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(zlib.crc32(request.node.name.encode()))}"
    s3.create_bucket(Bucket=name)
    return name


def in_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def keys_of(s3: Any, bucket: str) -> list[str]:
    return [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_a_resumed_download_never_joins_two_versions(face: S3Face, s3: Any, bucket: str) -> None:
    old = s3.put_object(Bucket=bucket, Key="k", Body=b"old old old")

    def resumed(if_range: str) -> tuple[int, bytes]:
        answer = face.asked("GET", f"/{bucket}/k", headers={"Range": "bytes=4-", "If-Range": if_range})
        return answer.status, answer.body

    assert resumed(old["ETag"]) == (206, b"old old")
    told = s3.head_object(Bucket=bucket, Key="k")["ResponseMetadata"]["HTTPHeaders"]["last-modified"]
    new = s3.put_object(Bucket=bucket, Key="k", Body=b"new new new")
    assert resumed(new["ETag"]) == (206, b"new new")
    # A date is of both versions, where they are of one second; a weak ETag says nothing of bytes.
    for said in (old["ETag"], told, f"W/{new['ETag']}", "nonsense"):
        assert resumed(said) == (200, b"new new new"), said


def test_the_head_of_another_version_is_that_of_the_whole(face: S3Face, s3: Any, bucket: str) -> None:
    old = s3.put_object(Bucket=bucket, Key="k", Body=b"old old old")
    s3.put_object(Bucket=bucket, Key="k", Body=b"new new new!")
    answer = face.asked("HEAD", f"/{bucket}/k", headers={"Range": "bytes=4-", "If-Range": old["ETag"]})
    assert (answer.status, answer.headers["content-length"]) == (200, "12")


def test_a_checksum_that_is_announced_and_cannot_come_refuses_the_request(face: S3Face, s3: Any, bucket: str) -> None:
    """The library reads trailers of chunked bodies only: this one would be stored without a comparison."""
    answer = face.asked("PUT", f"/{bucket}/k", b"x", {"x-amz-trailer": "x-amz-checksum-crc32"})
    assert (answer.status, answer.code) == (400, "InvalidRequest"), answer
    assert keys_of(s3, bucket) == []


def test_a_bucket_is_made_of_the_document_that_was_sent(face: S3Face, s3: Any) -> None:
    wrong = {"Content-MD5": in_base64(hashlib.md5(b"another").digest())}
    answer = face.asked("PUT", "/of-another-document", b"", wrong)
    assert (answer.status, answer.code) == (400, "BadDigest"), answer
    assert face.asked("PUT", "/of-its-document", b"", {"Content-MD5": in_base64(hashlib.md5(b"").digest())}).status == 200
    names = {found["Name"] for found in s3.list_buckets()["Buckets"]}
    assert "of-its-document" in names and "of-another-document" not in names


def test_what_an_sdk_moved_into_a_presigned_url_is_obeyed(face: S3Face, s3: Any, bucket: str) -> None:
    def put(key: str, **said: str) -> int:
        query = urllib.parse.urlencode({f"x-amz-{name.replace('_', '-')}": value for name, value in said.items()})
        asked = AWSRequest("PUT", f"{face.endpoint}/{bucket}/{key}?{query}")
        S3SigV4QueryAuth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION, expires=60).add_auth(asked)
        try:
            with urllib.request.urlopen(urllib.request.Request(asked.url, b"x", method="PUT"), timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return int(refused.code)

    assert put("k", meta_kind="a b", tagging="t=1", checksum_crc32="AAAAAA==", sdk_checksum_algorithm="CRC32") == 200
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"kind": "a b"}
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "t", "Value": "1"}]
    assert put("other", expected_bucket_owner="111122223333") == 403
    assert put("other", server_side_encryption="aws:kms") == 501
    assert keys_of(s3, bucket) == ["k"]


@pytest.mark.parametrize("in_trailer", [False, True])
@pytest.mark.parametrize("algorithm", ["sha512", "md5", "xxhash64", "xxhash3", "xxhash128", "crc64nvme"])
def test_newer_checksums_are_compared_kept_and_told(face: S3Face, s3: Any, bucket: str, algorithm: str, in_trailer: bool) -> None:
    # Of b"", by the reference implementations.
    of_nothing = {
        "sha512": hashlib.sha512(b"").digest(),
        "md5": hashlib.md5(b"").digest(),
        "xxhash64": bytes.fromhex("ef46db3751d8e999"),
        "xxhash3": bytes.fromhex("2d06800538d394c2"),
        "xxhash128": bytes.fromhex("99aa06d3014798d86001c324468d497f"),
        "crc64nvme": bytes(8),
    }[algorithm]
    header = f"x-amz-checksum-{algorithm}"

    def put(key: str, body: bytes, value: bytes) -> Answered:
        if not in_trailer:
            return face.asked("PUT", f"/{bucket}/{key}", body, {header: in_base64(value)})
        chunks = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n%b:%b\r\n\r\n" % (header.encode(), base64.b64encode(value))
        said = {"X-Amz-Trailer": header, "Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": str(len(body))}
        return face.asked("PUT", f"/{bucket}/{key}", chunks, said)

    stored = put("right", b"", of_nothing)
    assert stored.status == 200 and stored.headers[header] == in_base64(of_nothing), stored
    for key, body, value in (("wrong", b"x", of_nothing), ("short", b"", of_nothing[:-1])):
        answer = put(key, body, value)
        assert (answer.status, answer.code) == (400, "BadDigest"), answer
    assert keys_of(s3, bucket) == ["right"]
    found = face.asked("HEAD", f"/{bucket}/right", headers={"x-amz-checksum-mode": "ENABLED"})
    assert found.headers[header] == in_base64(of_nothing) and found.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    assert header not in face.asked("HEAD", f"/{bucket}/right").headers


def test_a_checksum_that_cannot_be_compared_refuses_the_request(face: S3Face, s3: Any, bucket: str) -> None:
    crc = in_base64(zlib.crc32(b"x").to_bytes(4, "big"))
    for said in (
        {"x-amz-checksum-blake3": crc},
        {"x-amz-checksum-crc32": crc, "x-amz-checksum-sha512": crc},
        {"x-amz-checksum-crc32": crc, "x-amz-sdk-checksum-algorithm": "SHA256"},
        {"x-amz-sdk-checksum-algorithm": "BLAKE3"},
    ):
        assert face.asked("PUT", f"/{bucket}/k", b"x", said).status == 400, said
    chunks = b"1\r\nx\r\n0\r\n"
    for announced, came in (
        ("x-amz-checksum-blake3", b"x-amz-checksum-blake3:" + crc.encode()),
        ("x-amz-checksum-crc32", b"x-amz-checksum-crc32c:" + crc.encode()),
        ("x-amz-checksum-crc32", b"x-amz-checksum-crc32:" + crc.encode() + b"\r\nx-amz-checksum-blake3:" + crc.encode()),
        ("x-amz-checksum-crc32, x-amz-checksum-crc32c", b"x-amz-checksum-crc32:" + crc.encode()),
    ):
        said = {"X-Amz-Trailer": announced, "Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": "1"}
        answer = face.asked("PUT", f"/{bucket}/k", chunks + came + b"\r\n\r\n", said)
        assert answer.status == 400, (announced, came, answer)
    assert keys_of(s3, bucket) == []


DELETE = b"<Delete><Object><Key>k</Key></Object></Delete>"


@pytest.mark.parametrize(
    ("header", "right"),
    [
        ("Content-MD5", hashlib.md5(DELETE).digest()),
        ("x-amz-checksum-crc32", zlib.crc32(DELETE).to_bytes(4, "big")),
        ("x-amz-checksum-sha256", hashlib.sha256(DELETE).digest()),
        ("x-amz-checksum-sha512", hashlib.sha512(DELETE).digest()),
    ],
)
def test_nothing_is_deleted_where_the_list_is_not_what_its_checksum_says(
    face: S3Face, s3: Any, bucket: str, header: str, right: bytes
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    wrong = face.asked("POST", f"/{bucket}?delete", DELETE, {header: in_base64(bytes(len(right)))})
    assert (wrong.status, wrong.code) == (400, "BadDigest") and keys_of(s3, bucket) == ["k"]
    unknown = face.asked("POST", f"/{bucket}?delete", DELETE, {header: in_base64(right), "x-amz-checksum-blake3": "AAAA"})
    assert unknown.status == 400 and keys_of(s3, bucket) == ["k"]
    assert face.asked("POST", f"/{bucket}?delete", DELETE, {header: in_base64(right)}).status == 200
    assert keys_of(s3, bucket) == []


def test_the_parts_together_are_what_the_completion_says(face: S3Face, s3: Any, bucket: str) -> None:
    body = b"part"
    crc = zlib.crc32(body).to_bytes(4, "big")
    composite = in_base64(zlib.crc32(crc).to_bytes(4, "big"))
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=1, Body=body)
    named = "".join(f"<{name}>{value}</{name}>" for name, value in (("PartNumber", 1), ("ETag", part["ETag"])))
    document = f"<CompleteMultipartUpload><Part>{named}</Part></CompleteMultipartUpload>".encode()

    def complete(said: dict[str, str], document: bytes = document) -> Answered:
        return face.asked("POST", f"/{bucket}/k?uploadId={begun}", document, said)

    other = document.replace(b"</ETag>", b"</ETag><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>")
    assert complete({}, other).code == "InvalidPart"
    for said, code in (
        ({"x-amz-checksum-crc32": in_base64(crc)}, "BadDigest"),
        ({"x-amz-checksum-crc32": composite + "-2"}, "BadDigest"),
        ({"x-amz-checksum-crc32c": composite}, "BadDigest"),
        ({"x-amz-checksum-blake3": composite}, "InvalidRequest"),
        ({"x-amz-checksum-type": "FULL_OBJECT"}, "InvalidRequest"),
        ({"x-amz-mp-object-size": "5"}, "InvalidRequest"),
        ({"Content-MD5": in_base64(bytes(16))}, "BadDigest"),
    ):
        answer = complete(said)
        assert (answer.status, answer.code) == (400, code), (said, answer)
    assert keys_of(s3, bucket) == []
    right = {"x-amz-checksum-crc32": composite + "-1", "x-amz-checksum-type": "COMPOSITE", "x-amz-mp-object-size": "4"}
    assert complete(right | {"Content-MD5": in_base64(hashlib.md5(document).digest())}).status == 200
    assert keys_of(s3, bucket) == ["k"]


def test_a_part_is_copied_whole_or_not_at_all(face: S3Face, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="source", Body=b"0123456789")
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]

    def copied(said: str) -> tuple[int, str]:
        headers = {"x-amz-copy-source": f"{bucket}/source", "x-amz-copy-source-range": said}
        answer = face.asked("PUT", f"/{bucket}/k?partNumber=1&uploadId={begun}", headers=headers)
        return answer.status, answer.code

    for said in ("bytes=0-10", "bytes=5-21", "bytes=10-10"):
        assert copied(said) == (416, "InvalidRange"), said
    for said in ("bytes=5-", "bytes=-5", "0-2", "bytes=0", "bytes=4-2", "bytes=0-1,3-5", "bytes=a-b"):
        assert copied(said) == (400, "InvalidArgument"), said
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="k", UploadId=begun)
    assert copied("bytes=2-9") == (200, "")
    assert s3.list_parts(Bucket=bucket, Key="k", UploadId=begun)["Parts"][0]["Size"] == 8


def test_names_that_xml_cannot_say_never_break_an_answer(face: S3Face, s3: Any, bucket: str) -> None:
    begun = [s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in ("up\x01", "up")]
    for key in ("dir%0D/x", "k%01"):
        assert face.asked("PUT", f"/{bucket}/{key}", b"x").status == 200
    for query in ("list-type=2", "", "versions", "delimiter=%2F", "prefix=%02", "prefix=dir"):
        answer = face.asked("GET", f"/{bucket}?{query}")
        root = ElementTree.fromstring(answer.body)
        assert answer.status == 200 and root.findtext(f"{XML}EncodingType") == "url", answer
        if query in ("list-type=2", "", "versions"):
            assert [found.text for found in root.iter(f"{XML}Key")] == ["dir%0D/x", "k%01"]
    assert face.asked("GET", f"/{bucket}/gone%02").code == "NoSuchKey"
    uploads = ElementTree.fromstring(face.asked("GET", f"/{bucket}?uploads").body)
    assert [found.text for found in uploads.iter(f"{XML}Key")] == ["up", "up%01"] and uploads.findtext(f"{XML}EncodingType") == "url"
    assert ElementTree.fromstring(face.asked("GET", f"/{bucket}/up%01?uploadId={begun[0]}").body).findtext(f"{XML}UploadId") == begun[0]
    told = face.asked("POST", f"/{bucket}?delete", b"<Delete><Object><Key>k\x01</Key></Object></Delete>")
    assert (told.status, told.code) == (400, "InvalidRequest")
    quiet = face.asked("POST", f"/{bucket}?delete", b"<Delete><Quiet>true</Quiet><Object><Key>k\x01</Key></Object></Delete>")
    assert quiet.status == 200 and keys_of(s3, bucket) == ["dir\r/x"]
    plain_list = face.asked("GET", f"/{bucket}?prefix=nothing")
    assert b"EncodingType" not in plain_list.body


@pytest.mark.parametrize("key", ["content", "empty"])
def test_a_body_in_chunks_needs_no_content_length(face: S3Face, s3: Any, bucket: str, key: str) -> None:
    body = b"x" * 100 if key == "content" else b""
    crc = in_base64(zlib.crc32(body).to_bytes(4, "big")).encode()
    chunks = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\nx-amz-checksum-crc32:%b\r\n\r\n" % crc
    said = {"X-Amz-Trailer": "x-amz-checksum-crc32", "Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": str(len(body))}
    answer = face.asked("PUT", f"/{bucket}/{key}", chunks, said | {"Transfer-Encoding": "chunked"}, chunked=True)
    assert answer.status == 200, answer
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    part = f"/{bucket}/{key}?partNumber=1&uploadId={begun}"
    assert face.asked("PUT", part, chunks, said | {"Transfer-Encoding": "chunked"}, chunked=True).status == 200
    del said["X-Amz-Decoded-Content-Length"]
    unknown = face.asked("PUT", f"/{bucket}/{key}", chunks, said | {"Transfer-Encoding": "chunked"}, chunked=True)
    assert (unknown.status, unknown.code) == (411, "MissingContentLength")


def test_an_answer_says_what_s3_says(face: S3Face, s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"0123")["ETag"]
    unchanged = face.asked("GET", f"/{bucket}/k", headers={"If-None-Match": etag})
    assert (unchanged.status, unchanged.headers["etag"], unchanged.body) == (304, etag, b"")
    assert unchanged.headers["last-modified"] == face.asked("HEAD", f"/{bucket}/k").headers["last-modified"]
    past = face.asked("GET", f"/{bucket}/k", headers={"Range": "bytes=9-"})
    assert (past.status, past.headers["content-range"]) == (416, "bytes */4")
    other = {"If-Match": '"0123"'}
    copied = {"x-amz-copy-source": f"{bucket}/k", "x-amz-copy-source-if-none-match": etag}
    for method, key, said, condition in (
        ("PUT", "k", {"If-None-Match": "*"}, "If-None-Match"),
        ("PUT", "k", other, "If-Match"),
        ("GET", "k", other, "If-Match"),
        ("DELETE", "k", other, "If-Match"),
        ("GET", "k", {"If-Unmodified-Since": "Wed, 02 Jan 2019 03:04:05 GMT"}, "If-Unmodified-Since"),
        ("PUT", "copy", copied, "x-amz-copy-source-If-None-Match"),
    ):
        failed = face.asked(method, f"/{bucket}/{key}", headers=said)
        root = ElementTree.fromstring(failed.body)
        assert (failed.status, root.findtext("Code"), root.findtext("Condition")) == (412, "PreconditionFailed", condition)
        assert root.findtext("RequestId") == failed.headers["x-amz-request-id"] and root.findtext("Resource") == f"/{bucket}/{key}"
        assert root.findtext("Message")
    answers = [face.asked("GET", f"/{bucket}/k"), unchanged, failed, face.asked("HEAD", "/gone")]
    assert len({answer.headers["x-amz-request-id"] for answer in answers}) == 4
    wrong = face.asked("GET", f"/{bucket}/k", change=lambda asked: asked.headers.replace_header("X-Amz-Date", later(asked)))
    assert wrong.code == "SignatureDoesNotMatch" and b"secret key" in wrong.body
    malformed = face.asked("POST", f"/{bucket}?delete", b"<Delete><Object>")
    assert malformed.code == "MalformedXML" and b"<Message>" in malformed.body


def later(asked: Any) -> str:
    """Of the same day, or of a minute of it that is as near."""
    date = str(asked.headers["X-Amz-Date"])
    minute = int(date[11:13])
    return date[:11] + f"{minute - 1 if minute else 1:02d}" + date[13:]


@pytest.mark.parametrize("region", ["US", "eu_central.1", "", "Elsewhere 7"])
def test_any_region_will_do(face: S3Face, s3: Any, bucket: str, region: str) -> None:
    assert face.asked("PUT", f"/{bucket}/a%20b%2B", b"x", {"x-amz-meta-one": "1"}, region=region).status == 200
    assert face.asked("GET", f"/{bucket}?list-type=2&prefix=a%20b&delimiter=%2F", region=region).body.count(b"<Key>") == 1
    assert face.asked("GET", f"/{bucket}/a%20b%2B", region=region).body == b"x"

    def other(asked: Any) -> None:
        asked.headers.replace_header("Authorization", asked.headers["Authorization"][:-4] + "0000")

    refused = face.asked("GET", f"/{bucket}/a%20b%2B", region=region, change=other)
    assert (refused.status, refused.code) == (403, "SignatureDoesNotMatch")


def test_a_presigned_url_of_any_region(face: S3Face, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a b", Body=b"x")
    asked = AWSRequest("GET", f"{face.endpoint}/{bucket}/a%20b")
    S3SigV4QueryAuth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "US", expires=60).add_auth(asked)
    with urllib.request.urlopen(asked.url, timeout=60) as answer:
        assert answer.read() == b"x"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked.url.replace("Expires=60", "Expires=61"), timeout=60)
    assert refused.value.code == 403


def test_what_is_expected_of_a_bucket_holds_or_is_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ExpectedBucketOwner="stager")
    for call, said in ((s3.put_object, {"Key": "k", "Body": b"y"}), (s3.delete_object, {"Key": "k"}), (s3.head_bucket, {})):
        with pytest.raises(ClientError) as refused:
            call(Bucket=bucket, ExpectedBucketOwner="111122223333", **said)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    source = {"Bucket": bucket, "Key": "k"}
    with pytest.raises(ClientError, match="expects"):
        s3.copy_object(Bucket=bucket, Key="copy", CopySource=source, ExpectedSourceBucketOwner="111122223333")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x" and keys_of(s3, bucket) == ["k"]


def test_buckets_are_listed_in_pages(s3: Any, bucket: str) -> None:
    for number in range(3):
        s3.create_bucket(Bucket=f"{bucket}-{number}")
    pages = list(s3.get_paginator("list_buckets").paginate(Prefix=bucket, PaginationConfig={"PageSize": 3}))
    assert [len(page["Buckets"]) for page in pages] == [3, 1]
    assert [found["Name"] for page in pages for found in page["Buckets"]] == [bucket, *(f"{bucket}-{number}" for number in range(3))]
    with pytest.raises(ClientError, match="NotImplemented"):
        s3.list_buckets(BucketRegion="us-east-1")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("said", ["bytes=a-b", "bytes=5-2", "bytes=0-1,4-5", "lines=1-2", "bytes"])
def test_what_is_no_range_is_as_if_it_were_not_there(face: S3Face, s3: Any, bucket: str, method: str, said: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    for signed in (True, False):
        # botocore signs the headers it is given; one that is added afterwards is not signed.
        headers = {"Range": said} if signed else {}
        add = (lambda asked: None) if signed else (lambda asked: asked.headers.add_header("Range", said))
        answer = face.asked(method, f"/{bucket}/k", headers=headers, change=add)
        assert (answer.status, answer.headers["content-length"]) == (200, "10"), answer
        assert answer.body == (b"0123456789" if method == "GET" else b"")


def test_the_head_of_a_range(face: S3Face, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    part = face.asked("HEAD", f"/{bucket}/k", headers={"Range": "bytes=2-4"})
    assert (part.status, part.headers["content-length"], part.headers["content-range"]) == (206, "3", "bytes 2-4/10")
    assert face.asked("HEAD", f"/{bucket}/k", headers={"Range": "bytes=10-"}).status == 416


def test_a_date_may_stand_in_its_own_header(face: S3Face, s3: Any, bucket: str) -> None:
    class Dated(S3SigV4Auth):
        """As SigV4 may be signed: the time stands in Date alone."""

        def _modify_request_before_signing(self, request: Any) -> None:
            super()._modify_request_before_signing(request)
            del request.headers["X-Amz-Date"]
            when = datetime.strptime(request.context["timestamp"] + "+0000", "%Y%m%dT%H%M%SZ%z")
            request.headers["Date"] = when.strftime("%a, %d %b %Y %H:%M:%S GMT")

    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert face.asked("GET", f"/{bucket}/k", auth=Dated).body == b"x"


def test_encodings_and_delimiters_are_as_they_were_said(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/k", Body=b"x", ContentEncoding="deflate, gzip")
    assert s3.head_object(Bucket=bucket, Key="a/k")["ContentEncoding"] == "deflate, gzip"
    for list_all in (s3.list_objects_v2, s3.list_objects):
        assert [found["Key"] for found in list_all(Bucket=bucket, Delimiter="")["Contents"]] == ["a/k"]


def test_tags(face: S3Face, s3: Any, bucket: str) -> None:
    def tags(key: str) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}

    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1&b=%20c")["ETag"]
    assert tags("k") == {"a": "1", "b": " c"}
    assert face.asked("HEAD", f"/{bucket}/k").headers["x-amz-tagging-count"] == "2"
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "new", "Value": "ü"}]})
    found = s3.get_object(Bucket=bucket, Key="k")
    assert (tags("k"), found["TagCount"], found["ETag"], found["Body"].read()) == ({"new": "ü"}, 1, etag, b"x")
    source = {"Bucket": bucket, "Key": "k"}
    s3.copy_object(Bucket=bucket, Key="same", CopySource=source)
    s3.copy_object(Bucket=bucket, Key="other", CopySource=source, TaggingDirective="REPLACE", Tagging="x=y")
    assert (tags("same"), tags("other")) == ({"new": "ü"}, {"x": "y"})
    begun = s3.create_multipart_upload(Bucket=bucket, Key="parts", Tagging="in=parts")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="parts", UploadId=begun, PartNumber=1, Body=b"x")
    done = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=begun, MultipartUpload=done)
    assert tags("parts") == {"in": "parts"}
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert tags("k") == {} and "TagCount" not in s3.get_object(Bucket=bucket, Key="k")
    many = {"TagSet": [{"Key": f"t{number}", "Value": ""} for number in range(11)]}
    with pytest.raises(ClientError, match="InvalidTag"):
        s3.put_object_tagging(Bucket=bucket, Key="other", Tagging=many)
    document = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
    wrong = face.asked("PUT", f"/{bucket}/other?tagging", document, {"Content-MD5": in_base64(bytes(16))})
    assert wrong.code == "BadDigest" and tags("other") == {"x": "y"}


def test_attributes_and_versions(face: S3Face, s3: Any, bucket: str) -> None:
    asked = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    plain = face.client(request_checksum_calculation="when_required")
    etag = plain.put_object(Bucket=bucket, Key="d/one", Body=b"123456789")["ETag"]
    one = s3.get_object_attributes(Bucket=bucket, Key="d/one", ObjectAttributes=asked)
    assert (one["ETag"].strip('"'), one["ObjectSize"], one["StorageClass"]) == (etag.strip('"'), 9, "STANDARD")
    assert one["Checksum"] == {"ChecksumCRC64NVME": "rosUhgp5mIg=", "ChecksumType": "FULL_OBJECT"} and "ObjectParts" not in one
    begun = s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    bodies = [bytes(5 * MIB), b"x"]
    sent = [s3.upload_part(Bucket=bucket, Key="parts", UploadId=begun, PartNumber=at, Body=body) for at, body in enumerate(bodies, 1)]
    done = {"Parts": [{"PartNumber": at, "ETag": part["ETag"]} for at, part in enumerate(sent, 1)]}
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=begun, MultipartUpload=done)
    parts = s3.get_object_attributes(Bucket=bucket, Key="parts", ObjectAttributes=["ObjectParts"], MaxParts=1)["ObjectParts"]
    assert (parts["TotalPartsCount"], parts["IsTruncated"], parts["Parts"]) == (2, True, [{"PartNumber": 1, "Size": 5 * MIB}])
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object_attributes(Bucket=bucket, Key="none", ObjectAttributes=asked)

    pages = list(s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1}))
    found = [version for page in pages for version in page["Versions"]]
    assert [(version["Key"], version["VersionId"], version["IsLatest"]) for version in found] == [
        ("d/one", "null", True),
        ("parts", "null", True),
    ]
    top = s3.list_object_versions(Bucket=bucket, Delimiter="/")
    assert [prefix["Prefix"] for prefix in top["CommonPrefixes"]] == ["d/"] and len(top["Versions"]) == 1
    assert s3.get_object(Bucket=bucket, Key="d/one", VersionId="null")["ContentLength"] == 9
    assert face.asked("GET", f"/{bucket}?versions&version-id-marker=7").code == "InvalidArgument"
