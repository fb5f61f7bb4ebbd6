"""What a signature of the S3 endpoint covers: whoever has a signed address or request can change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.e2e.test_s3_face import fetched
from tests.testbed.s3_face import ACCESS_KEY, REGION, SECRET_KEY, S3Face

WEEK_S = 7 * 24 * 3600


@pytest.fixture(scope="module")
def face(session_dir: Path) -> Iterator[S3Face]:
    face = S3Face(session_dir / "signed")
    face.start()
    s3 = face.client()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="secret", Body=b"secret")
    yield face
    face.stop()


def key() -> Credentials:
    return Credentials(ACCESS_KEY, SECRET_KEY)


def presigned(face: S3Face, what: str, seconds: int = 60, **said: Any) -> str:
    client = face.client(signature_version="s3v4")
    return str(client.generate_presigned_url(what, Params={"Bucket": "bucket"} | said, ExpiresIn=seconds))


def signed_headers(face: S3Face, method: str, path: str, body: bytes = b"", more: Mapping[str, str] | None = None) -> dict[str, str]:
    request = AWSRequest(method=method, url=face.endpoint + path, data=body, headers=dict(more or {}))
    S3SigV4Auth(key(), "s3", REGION).add_auth(request)
    return dict(request.headers.items())


COPY = {"x-amz-copy-source": "/bucket/secret"}


def test_nothing_can_be_added_to_a_presigned_address(face: S3Face) -> None:
    s3 = face.client()
    for said in (COPY, {"X-AMZ-Copy-Source": "/bucket/secret"}, {"x-amz-meta-by": "me"}, {"x-amz-acl": "private"}):
        status, answer = fetched(presigned(face, "put_object", Key="target"), "PUT", b"", said)
        assert (status, b"<Code>AccessDenied</Code>" in answer) == (403, True), answer
        assert next(iter(said)).lower().encode() in answer
    part = s3.create_multipart_upload(Bucket="bucket", Key="target")["UploadId"]
    url = presigned(face, "upload_part", Key="target", UploadId=part, PartNumber=1)
    assert fetched(url, "PUT", b"", COPY)[0] == 403
    assert "Parts" not in s3.list_parts(Bucket="bucket", Key="target", UploadId=part)
    assert fetched(url, "PUT", b"part")[0] == 200
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="bucket")["Contents"]] == ["secret"]


def test_what_was_signed_with_an_address_has_to_come_with_it(face: S3Face) -> None:
    url = presigned(face, "put_object", Key="with meta", Metadata={"by": "me"})
    assert fetched(url, "PUT", b"x")[0] == 403
    assert fetched(url, "PUT", b"x", {"x-amz-meta-by": "you"})[0] == 403
    assert fetched(url, "PUT", b"x", {"x-amz-meta-by": "me"})[0] == 200
    assert face.client().head_object(Bucket="bucket", Key="with meta")["Metadata"] == {"by": "me"}
    face.client().delete_object(Bucket="bucket", Key="with meta")


def test_nothing_can_be_added_to_a_request_that_is_signed_in_its_header(face: S3Face) -> None:
    headers = signed_headers(face, "PUT", "/bucket/target")
    for said in (COPY, {"x-amz-meta-by": "me"}, {"x-amz-storage-class": "STANDARD"}):
        status, answer = fetched(f"{face.endpoint}/bucket/target", "PUT", b"", headers | said)
        assert (status, b"<Code>AccessDenied</Code>" in answer) == (403, True), answer
    assert fetched(f"{face.endpoint}/bucket/target", "PUT", b"", headers)[0] == 200
    face.client().delete_object(Bucket="bucket", Key="target")


def test_the_host_has_to_be_signed(face: S3Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a request for another server that has the same key would be good here, too."""
    monkeypatch.setattr(SigV4Auth, "headers_to_sign", _all_but_host)
    assert fetched(f"{face.endpoint}/bucket/secret", headers=signed_headers(face, "GET", "/bucket/secret"))[0] == 403
    request = AWSRequest(method="GET", url=f"{face.endpoint}/bucket/secret")
    S3SigV4QueryAuth(key(), "s3", REGION, expires=60).add_auth(request)
    assert fetched(str(request.url))[0] == 403


def _all_but_host(self: SigV4Auth, request: Any) -> Any:
    from http.client import HTTPMessage

    kept = HTTPMessage()
    for name, value in request.headers.items():
        if name.lower().startswith("x-amz-"):
            kept[name.lower()] = value
    return kept


def test_an_address_is_good_for_a_week_at_most(face: S3Face) -> None:
    assert fetched(presigned(face, "get_object", WEEK_S, Key="secret")) == (200, b"secret")
    for seconds in (WEEK_S + 1, 4_000_000_000, 99_999_999_999_999):
        request = AWSRequest(method="GET", url=f"{face.endpoint}/bucket/secret")
        S3SigV4QueryAuth(key(), "s3", REGION, expires=seconds).add_auth(request)
        status, answer = fetched(str(request.url))
        assert (status, b"<Code>AuthorizationQueryParametersError</Code>" in answer) == (400, True), answer


def test_a_request_is_signed_once_and_by_version_4(face: S3Face) -> None:
    url = presigned(face, "get_object", Key="secret")
    assert fetched(url, headers=signed_headers(face, "GET", "/bucket/secret"))[0] == 400
    old = face.client(signature_version="s3").generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "secret"})
    for spelled in ("Signature=", "%53ignature=", "%53%69gnature="):
        for more in ("", "&X-Amz-Signature=x", "&X%2DAmz-Signature=x"):
            status, answer = fetched(old.replace("Signature=", spelled) + more)
            assert (status, b"version 4" in answer) == (403, True), answer
    # Written otherwise it is the same name.
    assert fetched(url.replace("X-Amz-Signature=", "X-Amz-%53ignature=")) == (200, b"secret")


def test_a_query_says_each_thing_once(face: S3Face) -> None:
    path = "/bucket?list-type=2&prefix=a&prefix=s"
    status, answer = fetched(face.endpoint + path, headers=signed_headers(face, "GET", path))
    assert (status, b"<Code>InvalidArgument</Code>" in answer, b"prefix" in answer) == (400, True, True), answer


def test_a_session_token_is_refused_not_ignored(face: S3Face) -> None:
    headers = signed_headers(face, "GET", "/bucket/secret", more={"x-amz-security-token": "a-token-of-somewhere-else"})
    status, answer = fetched(f"{face.endpoint}/bucket/secret", headers=headers)
    assert (status, b"<Code>InvalidToken</Code>" in answer) == (400, True), answer
    assert b"a-token-of" not in answer and "a-token-of" not in face.node.log_text()


def test_a_signature_for_another_service_is_none(face: S3Face) -> None:
    request = AWSRequest(method="GET", url=f"{face.endpoint}/bucket/secret")
    SigV4Auth(key(), "sts", REGION).add_auth(request)
    assert fetched(str(request.url), headers=dict(request.headers.items()))[0] == 400
