"""The S3 endpoint of a node as boto3 sees it: every operation, every refusal, names and checksums of all kinds."""

from __future__ import annotations

import base64
import hashlib
import random
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.testbed.s3_face import ACCESS_KEY, REGION, SECRET_KEY, S3Face
from tests.testbed.waiting import wait_until

MIB = 1 << 20
ODD_KEYS = (
    "plain",
    "two words",
    "a+b&c=d?e#f",
    "100%41%",
    "größe/日本/🙂",
    "dir/",
    "dir/.",
    "a//b",
    "../up",
    'it\'s "so" <x>',
    "tab\there\x01",
    "x" * 1024,
    "é" * 512,
)


@pytest.fixture(scope="module")
def face(session_dir: Any) -> Iterator[S3Face]:
    face = S3Face(session_dir / "face")
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


def refused(call: Any, **said: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call(**said)
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_buckets(s3: Any, bucket: str) -> None:
    assert bucket in [found["Name"] for found in s3.list_buckets()["Buckets"]]
    assert refused(s3.create_bucket, Bucket=bucket) == ("BucketAlreadyOwnedByYou", 409)
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert refused(s3.delete_bucket, Bucket=bucket) == ("BucketNotEmpty", 409)
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    assert refused(s3.head_bucket, Bucket=bucket)[1] == 404
    for call, said in ((s3.put_object, {"Body": b"x"}), (s3.get_object, {}), (s3.delete_object, {})):
        assert refused(call, Bucket=bucket, Key="k", **said)[0] == "NoSuchBucket"


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3 * MIB + 7])
def test_contents_of_all_sizes_and_their_ranges(s3: Any, bucket: str, size: int) -> None:
    body = noise(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body)
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    found = s3.get_object(Bucket=bucket, Key="k")
    assert found["Body"].read() == body and found["ContentLength"] == size and found["ETag"] == put["ETag"]
    for first, last in ((0, 0), (size // 2, size // 2 + 4000), (max(0, size - 5), size + 10)) if size else ():
        part = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={first}-{last}")
        assert part["Body"].read() == body[first : last + 1]
        assert part["ContentRange"] == f"bytes {first}-{min(last, size - 1)}/{size}" and part["ResponseMetadata"]["HTTPStatusCode"] == 206
    if size:
        assert s3.get_object(Bucket=bucket, Key="k", Range="bytes=-7")["Body"].read() == body[-7:]
        assert s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={size // 2}-")["Body"].read() == body[size // 2 :]
    assert refused(s3.get_object, Bucket=bucket, Key="k", Range=f"bytes={size}-") == ("InvalidRange", 416)


def test_what_is_said_of_an_object_comes_back(s3: Any, bucket: str) -> None:
    expires = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    said = {
        "ContentType": "text/x",
        "CacheControl": "no-store",
        "ContentDisposition": "inline",
        "ContentEncoding": "gzip",
        "ContentLanguage": "la",
    }
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, Metadata={"one": "1", "two": "b c"}, **said)
    for found in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: found[name] for name in said} == said and found["Metadata"] == {"one": "1", "two": "b c"}
        assert found["ExpiresString"] == "Wed, 02 Jan 2030 03:04:05 GMT"
        assert abs(found["LastModified"] - datetime.now(UTC)) < timedelta(minutes=2)
    other = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="a/b", ResponseContentDisposition="attachment")
    assert (other["ContentType"], other["ContentDisposition"]) == ("a/b", "attachment")
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"", Metadata={"k": "v" * 3000})[0] == "MetadataTooLarge"


@pytest.mark.parametrize(
    "said",
    [{"ACL": "public-read"}, {"ServerSideEncryption": "AES256"}, {"WebsiteRedirectLocation": "/k"}, {"ObjectLockLegalHoldStatus": "ON"}],
)
def test_what_is_not_offered_is_refused_by_name(s3: Any, bucket: str, said: dict[str, str]) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **said) == ("NotImplemented", 501)
    assert refused(s3.create_multipart_upload, Bucket=bucket, Key="k", **said) == ("NotImplemented", 501)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_names_of_any_bytes(s3: Any, bucket: str) -> None:
    for key in ODD_KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for list_all in (s3.list_objects_v2, s3.list_objects):
        assert [found["Key"] for found in list_all(Bucket=bucket)["Contents"]] == sorted(ODD_KEYS, key=str.encode)
    for key in ODD_KEYS:
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
        copied = s3.copy_object(Bucket=bucket, Key="c" + key[1:], CopySource={"Bucket": bucket, "Key": key})
        assert copied["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(key.encode()).hexdigest()}"'
    # The answer to a batch has no encoding of names: XML cannot say the one with a control character.
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in ODD_KEYS], "Quiet": True})
    assert "Deleted" not in gone and "Errors" not in gone
    s3.put_object(Bucket=bucket, Key="again", Body=b"")
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "again"}, {"Key": "never there"}]})
    assert {found["Key"] for found in gone["Deleted"]} == {"again", "never there"} and "Errors" not in gone
    left = {found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert left == {"c" + key[1:] for key in ODD_KEYS}
    assert refused(s3.put_object, Bucket=bucket, Key="x" * 1025, Body=b"")[0] == "KeyTooLongError"


def test_a_thousand_deletes_at_once_and_no_more(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="0", Body=b"")
    keys = [{"Key": str(number)} for number in range(1001)]
    assert refused(s3.delete_objects, Bucket=bucket, Delete={"Objects": keys}) == ("MalformedXML", 400)
    assert s3.head_object(Bucket=bucket, Key="0")["ContentLength"] == 0, "nothing was deleted"
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[:1000]})["Deleted"]) == 1000


def test_conditions(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"one", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"two", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"two", IfMatch='"0123"') == ("PreconditionFailed", 412)
    assert refused(s3.put_object, Bucket=bucket, Key="none", Body=b"two", IfMatch=etag) == ("NoSuchKey", 404)
    assert refused(s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag)[1] == 304
    assert refused(s3.head_object, Bucket=bucket, Key="k", IfMatch='"0123"')[1] == 412
    hour = timedelta(hours=1)
    assert refused(s3.get_object, Bucket=bucket, Key="k", IfModifiedSince=datetime.now(UTC) - timedelta(seconds=-1))[1] == 304
    assert refused(s3.get_object, Bucket=bucket, Key="k", IfUnmodifiedSince=datetime.now(UTC) - hour)[1] == 412
    assert s3.get_object(Bucket=bucket, Key="k", IfModifiedSince=datetime.now(UTC) - hour)["Body"].read() == b"one"
    told = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    assert refused(s3.get_object, Bucket=bucket, Key="k", IfModifiedSince=told)[1] == 304
    assert s3.get_object(Bucket=bucket, Key="k", IfUnmodifiedSince=told)["Body"].read() == b"one"
    s3.put_object(Bucket=bucket, Key="k", Body=b"two", IfMatch=etag)
    assert refused(s3.delete_object, Bucket=bucket, Key="k", IfMatch=etag)[0] == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"two"


@pytest.mark.parametrize("size", [100, MIB])
@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_are_compared_kept_and_told(s3: Any, bucket: str, algorithm: str, size: int) -> None:
    body = noise(size)
    values = {
        "CRC32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode(),
        "SHA1": base64.b64encode(hashlib.sha1(body).digest()).decode(),
        "SHA256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
    }
    name = f"Checksum{algorithm}"
    assert s3.put_object(Bucket=bucket, Key="asked", Body=body, ChecksumAlgorithm=algorithm)[name] == values[algorithm]
    assert s3.put_object(Bucket=bucket, Key="given", Body=body, **{name: values[algorithm]})[name] == values[algorithm]
    wrong = base64.b64encode(bytes(len(base64.b64decode(values[algorithm])))).decode()
    assert refused(s3.put_object, Bucket=bucket, Key="wrong", Body=body, **{name: wrong}) == ("BadDigest", 400)
    found = s3.get_object(Bucket=bucket, Key="asked", ChecksumMode="ENABLED")
    assert (found[name], found["ChecksumType"]) == (values[algorithm], "FULL_OBJECT") and found["Body"].read() == body
    assert name not in s3.head_object(Bucket=bucket, Key="asked")
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["asked", "given"]


def test_a_wrong_md5_is_refused_and_crc64nvme_is_there_without_asking(face: S3Face, bucket: str) -> None:
    plain = face.client(request_checksum_calculation="when_required")
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    assert refused(plain.put_object, Bucket=bucket, Key="k", Body=b"x", ContentMD5=wrong) == ("BadDigest", 400)
    plain.put_object(Bucket=bucket, Key="k", Body=b"123456789")
    assert plain.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["ChecksumCRC64NVME"] == "rosUhgp5mIg="


def put_with_trailer(face: S3Face, path: str, body: bytes, trailer: bytes) -> tuple[int, bytes]:
    """As SDKs send it over TLS, where the body is not signed; `trailer` is what comes of the promised checksum."""
    asked = AWSRequest("PUT", face.endpoint + path, {"X-Amz-Trailer": "x-amz-checksum-crc32", "Content-Encoding": "aws-chunked"})
    asked.headers["X-Amz-Decoded-Content-Length"] = str(len(body))
    asked.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(asked)
    chunks = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailer)
    return fetched(asked.url, "PUT", chunks, dict(asked.headers.items()))


def test_a_checksum_promised_as_a_trailer_comes_and_is_right(face: S3Face, s3: Any, bucket: str) -> None:
    body = noise(100_000)
    trailer = b"x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(body).to_bytes(4, "big")) + b"\r\n"
    assert put_with_trailer(face, f"/{bucket}/right", body, trailer) == (200, b"")
    for key, wrong, code in (("wrong", b"x-amz-checksum-crc32:AAAAAA==\r\n", b"BadDigest"), ("none", b"", b"InvalidRequest")):
        status, answer = put_with_trailer(face, f"/{bucket}/{key}", body, wrong)
        assert status == 400 and b"<Code>" + code in answer, answer
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["right"]
    assert s3.get_object(Bucket=bucket, Key="right")["Body"].read() == body


def upload(s3: Any, bucket: str, key: str, parts: list[bytes], **said: Any) -> dict[str, Any]:
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key, **said)["UploadId"]
    done = []
    for number, body in enumerate(parts, 1):
        part = s3.upload_part(Bucket=bucket, Key=key, UploadId=begun, PartNumber=number, Body=body)
        done.append(
            {"PartNumber": number} | {name: value for name, value in part.items() if name == "ETag" or name.startswith("ChecksumC")}
        )
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=begun, MultipartUpload={"Parts": done})


@pytest.mark.parametrize("said", [{}, {"ChecksumAlgorithm": "CRC32"}, {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}])
def test_uploads_in_parts(s3: Any, bucket: str, said: dict[str, str]) -> None:
    parts = [noise(5 * MIB, 1), noise(5 * MIB, 2), noise(77, 3)]
    body = b"".join(parts)
    done = upload(s3, bucket, "k", parts, Metadata={"a": "b"}, **said)
    md5s = b"".join(hashlib.md5(part).digest() for part in parts)
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-3"'
    found = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert found["Body"].read() == body and found["Metadata"] == {"a": "b"}
    if said:
        crcs = [zlib.crc32(part).to_bytes(4, "big") for part in parts]
        full = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        composite = base64.b64encode(zlib.crc32(b"".join(crcs)).to_bytes(4, "big")).decode() + "-3"
        assert found["ChecksumCRC32"] == (full if "ChecksumType" in said else composite)
    second = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert second["Body"].read() == parts[1] and second["PartsCount"] == 3
    edge = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}")
    assert edge["Body"].read() == body[5 * MIB - 2 : 5 * MIB + 2]


def test_uploads_are_listed_and_aborted(s3: Any, bucket: str) -> None:
    begun = [s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in ("a b", "é")]
    s3.upload_part(Bucket=bucket, Key="é", UploadId=begun[1], PartNumber=7, Body=b"x")
    listed = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=1)
    assert [found["Key"] for found in listed["Uploads"]] == ["a b"] and listed["IsTruncated"]
    markers = {"KeyMarker": listed["NextKeyMarker"], "UploadIdMarker": listed["NextUploadIdMarker"]}
    assert [found["Key"] for found in s3.list_multipart_uploads(Bucket=bucket, **markers)["Uploads"]] == ["é"]
    parts = s3.list_parts(Bucket=bucket, Key="é", UploadId=begun[1])["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in parts] == [(7, 1)]
    s3.abort_multipart_upload(Bucket=bucket, Key="é", UploadId=begun[1])
    assert refused(s3.list_parts, Bucket=bucket, Key="é", UploadId=begun[1])[0] == "NoSuchUpload"
    assert refused(s3.upload_part, Bucket=bucket, Key="é", UploadId=begun[1], PartNumber=1, Body=b"")[0] == "NoSuchUpload"
    assert refused(s3.abort_multipart_upload, Bucket=bucket, Key="é", UploadId="nonsense")[0] == "NoSuchUpload"


def test_copies(s3: Any, bucket: str) -> None:
    for key, size in (("small", 100), ("large", 6 * MIB)):
        source = {"Bucket": bucket, "Key": key}
        etag = s3.put_object(Bucket=bucket, Key=key, Body=noise(size), ContentType="a/b", Metadata={"x": "1"})["ETag"]
        s3.copy_object(Bucket=bucket, Key=f"{key}2", CopySource=source)
        s3.copy_object(Bucket=bucket, Key=f"{key}3", CopySource=source, MetadataDirective="REPLACE", Metadata={"y": "2"})
        s3.delete_object(Bucket=bucket, Key=key)
        two, three = (s3.get_object(Bucket=bucket, Key=f"{key}{number}") for number in (2, 3))
        assert two["Body"].read() == three["Body"].read() == noise(size)
        assert (two["ETag"], two["ContentType"], two["Metadata"], three["Metadata"]) == (etag, "a/b", {"x": "1"}, {"y": "2"})
        again = {"Bucket": bucket, "Key": f"{key}2"}
        assert refused(s3.copy_object, **again, CopySource=again)[0] == "InvalidRequest"
        assert refused(s3.copy_object, **again, CopySource=again | {"Key": f"{key}3"}, CopySourceIfNoneMatch=etag)[1] == 412
    begun = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    done = []
    for number, said in enumerate(({"CopySourceRange": f"bytes=0-{5 * MIB - 1}"}, {"CopySourceRange": "bytes=1-9"}), 1):
        source = {"Bucket": bucket, "Key": "large2"}
        part = s3.upload_part_copy(Bucket=bucket, Key="joined", UploadId=begun, PartNumber=number, CopySource=source, **said)
        done.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(Bucket=bucket, Key="joined", UploadId=begun, MultipartUpload={"Parts": done})
    large = noise(6 * MIB)
    assert s3.get_object(Bucket=bucket, Key="joined")["Body"].read() == large[: 5 * MIB] + large[1:10]


def fetched(url: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}, method=method), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_presigned_urls_work_until_they_expire(face: S3Face, s3: Any, bucket: str) -> None:
    signed = face.client(signature_version="s3v4")

    def url(what: str, seconds: int) -> str:
        return str(signed.generate_presigned_url(what, Params={"Bucket": bucket, "Key": "a b+ü"}, ExpiresIn=seconds))

    assert fetched(url("put_object", 60), "PUT", b"body")[0] == 200
    assert fetched(url("get_object", 60)) == (200, b"body")
    assert fetched(url("get_object", 60), "DELETE")[0] == 403
    assert fetched(url("get_object", 60).replace("X-Amz-Expires=60", "X-Amz-Expires=600"))[0] == 403
    short = url("get_object", 1)
    wait_until(lambda: fetched(short)[0] == 403, "the address to expire")
    assert b"expired" in fetched(short)[1]


def test_only_who_has_the_key_comes_in(face: S3Face, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    assert refused(face.client(secret="not-the-secret-at-all").get_object, Bucket=bucket, Key="k") == ("SignatureDoesNotMatch", 403)
    assert refused(face.client(access="somebody").get_object, Bucket=bucket, Key="k") == ("InvalidAccessKeyId", 403)
    old = face.client(signature_version="s3")
    assert refused(old.get_object, Bucket=bucket, Key="k") == ("AccessDenied", 403)
    assert fetched(old.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}))[0] == 403
    for path in ("/", f"/{bucket}", f"/{bucket}/k", f"/{bucket}?list-type=2"):
        assert fetched(face.endpoint + path)[0] == 403
    assert fetched(f"{face.endpoint}/{bucket}/k", "PUT", b"x")[0] == 403
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"secret"
    log = face.node.log_text()
    assert face.key_file.read_text().split('"')[-2] not in log and "Signature=" not in log


def test_a_clock_that_is_far_off_is_told(face: S3Face, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.auth

    client = face.client()
    far = datetime.now(UTC) - timedelta(minutes=20)
    monkeypatch.setattr(
        botocore.auth, "get_current_datetime", lambda remove_tzinfo=True: far.replace(tzinfo=None) if remove_tzinfo else far
    )
    assert refused(client.list_objects_v2, Bucket=bucket) == ("RequestTimeTooSkewed", 403)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_500, pytest.param(20_000, marks=pytest.mark.heavy)])
def test_a_long_list_in_pages_with_delimiters(face: S3Face, s3: Any, bucket: str, count: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    keys = [f"d{number % 7}/{number % 97:02d}/{number:05d}" for number in range(count)]
    clients = [face.client() for _ in range(4)]

    def put(at: int) -> None:
        for key in keys[at::4]:
            clients[at].put_object(Bucket=bucket, Key=key, Body=b"")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    for operation in ("list_objects_v2", "list_objects"):
        pages = list(s3.get_paginator(operation).paginate(Bucket=bucket))
        assert len(pages) == -(-count // 1000)
        assert [found["Key"] for page in pages for found in page["Contents"]] == sorted(keys)
    pages = list(
        s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="d3/", Delimiter="/", PaginationConfig={"PageSize": 10})
    )
    found = [prefix["Prefix"] for page in pages for prefix in page.get("CommonPrefixes", ())]
    assert found == sorted({key[:6] for key in keys if key.startswith("d3/")}) and not any("Contents" in page for page in pages)
    top = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [prefix["Prefix"] for prefix in top["CommonPrefixes"]] == [f"d{number}/" for number in range(7)] and top["KeyCount"] == 7
    after = s3.list_objects_v2(Bucket=bucket, StartAfter="d6/96/", MaxKeys=3)["Contents"]
    assert [found["Key"] for found in after] == sorted(key for key in keys if key > "d6/96/")[:3]
