"""The objects of a service's tenants: each reaches its own and no other's, by keys that end; what was stored is there after every kill."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from stager import rest
from stager.adapters.storage_keys import KeyIssuer, secret_of
from stager.client import RestClient
from stager.fs import StagerFileSystem
from stager.fs.listing import quoted, signed
from stager.model.errors import Denied, Refused
from tests.e2e.serve_rig import Service, call, problem
from tests.e2e.test_s3_face import fetched
from tests.testbed.processes import free_port
from tests.testbed.waiting import wait_until

MB = 1_000_000
TENANTS = "[tenants.alice]\n[tenants.bob]\n"
READS = (
    ("head_object", {"Key": "x"}),
    ("get_object", {"Key": "x"}),
    ("list_objects_v2", {}),
    ("list_objects", {}),
    ("head_bucket", {}),
    ("get_bucket_location", {}),
    ("list_multipart_uploads", {}),
    ("get_object_tagging", {"Key": "x"}),
)
WRITES = (
    ("put_object", {"Key": "x", "Body": b"other"}),
    ("delete_object", {"Key": "x"}),
    ("delete_objects", {"Delete": {"Objects": [{"Key": "x"}]}}),
    ("copy_object", {"Key": "y", "CopySource": {"Bucket": "data", "Key": "x"}}),
    ("create_multipart_upload", {"Key": "y"}),
    ("delete_bucket", {}),
)


def started(place: Path, *words: str) -> Service:
    place.mkdir(exist_ok=True)
    return Service(place, TENANTS, ("--storage-listen", "127.0.0.1:0", *words)).start()


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    service = started(session_dir / "storage")
    yield service
    service.end()


def storage_of(service: Service, tenant: str, scope: str = "submit") -> dict[str, Any]:
    answer = service.client(service.token(tenant, scope)).get("/storage")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store", answer.text
    return dict(answer.json())


def s3(said: dict[str, Any], access: str = "", secret: str = "") -> Any:
    keys = {"aws_access_key_id": access or said["access_key_id"], "aws_secret_access_key": secret or said["secret_access_key"]}
    config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=said["endpoint"], region_name=said["region"], config=config, **keys)


def refused(call: Any, **said: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call(**said)
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_a_tenant_sees_its_own_buckets_and_no_others_whatever_it_asks(service: Service) -> None:
    alice, bob = (s3(storage_of(service, tenant)) for tenant in ("alice", "bob"))
    alice.create_bucket(Bucket="data")
    alice.put_object(Bucket="data", Key="x", Body=b"of alice")
    upload = alice.create_multipart_upload(Bucket="data", Key="large")["UploadId"]
    alice.upload_part(Bucket="data", Key="large", UploadId=upload, PartNumber=1, Body=b"of alice")
    # Before bob has a bucket of that name, and after.
    for names in ([], ["data"]):
        assert [each["Name"] for each in bob.list_buckets()["Buckets"]] == names
        for name, said in READS + WRITES[:-1]:
            if not names:
                assert refused(getattr(bob, name), Bucket="data", **said)[1] == 404, name
        assert refused(bob.list_parts, Bucket="data", Key="large", UploadId=upload) == ("NoSuchUpload", 404)
        for name, said in (("abort_multipart_upload", {}), ("upload_part", {"PartNumber": 1, "Body": b""})):
            assert refused(getattr(bob, name), Bucket="data", Key="large", UploadId=upload, **said)[1] == 404, name
        if not names:
            bob.create_bucket(Bucket="data")
    assert "Contents" not in bob.list_objects_v2(Bucket="data") and "Uploads" not in bob.list_multipart_uploads(Bucket="data")
    bob.create_bucket(Bucket="own")
    for source in ("data/x", "alice/data/x", "/alice%2Fdata/x", "own/../alice/data/x"):
        assert refused(bob.copy_object, Bucket="own", Key="stolen", CopySource=source)[1] in (400, 404), source
    for bucket in ("alice%2Fdata", "alice/data"):
        url = bob.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "x"}).replace("/data/", f"/{bucket}/")
        answer = call("GET", url)
        assert answer.status_code in (400, 403, 404) and b"of alice" not in answer.content
    bob.put_object(Bucket="data", Key="x", Body=b"of bob")
    bob.delete_object(Bucket="data", Key="x")
    bob.delete_bucket(Bucket="data")
    assert alice.get_object(Bucket="data", Key="x")["Body"].read() == b"of alice"
    assert [each["Key"] for each in alice.list_multipart_uploads(Bucket="data")["Uploads"]] == ["large"]
    assert alice.list_objects_v2(Bucket="data")["Name"] == "data"


def test_a_key_that_may_read_changes_nothing(service: Service) -> None:
    owner = s3(storage_of(service, "alice"))
    if "data" not in [each["Name"] for each in owner.list_buckets()["Buckets"]]:
        owner.create_bucket(Bucket="data")
    owner.put_object(Bucket="data", Key="x", Body=b"kept")
    said = storage_of(service, "alice", "read")
    reader = s3(said)
    assert said["may_write"] is False
    for name, words in READS:
        assert getattr(reader, name)(Bucket="data", **words)["ResponseMetadata"]["HTTPStatusCode"] == 200, name
    for name, words in WRITES:
        assert refused(getattr(reader, name), Bucket="data", **words) == ("AccessDenied", 403), name
    assert refused(reader.create_bucket, Bucket="more") == ("AccessDenied", 403)
    files = StagerFileSystem(service.url, service.token("alice", "read"))
    assert files.cat_file("data/x") == b"kept"
    for write in (lambda: files.pipe_file("data/x", b"other"), lambda: files.rm("data/x"), lambda: files.rm("data", recursive=True)):
        with pytest.raises(PermissionError):
            write()
    assert owner.get_object(Bucket="data", Key="x")["Body"].read() == b"kept"


def test_only_what_was_issued_is_a_key_and_only_until_its_end(service: Service) -> None:
    said = storage_of(service, "bob")
    tenant, right, end, token = said["access_key_id"].split(".")
    assert (tenant, right) == ("bob", "w") and 0 < int(end) - time.time() <= 3600 == said["expires_in_s"]
    for access in (f"alice.w.{end}.{token}", f"bob.w.{int(end) + 1}.{token}", f"bob.w.9999999999.{token}"):
        assert refused(s3(said, access).list_buckets) == ("SignatureDoesNotMatch", 403), access
    reading = storage_of(service, "bob", "read")
    assert refused(s3(reading, reading["access_key_id"].replace(".r.", ".w.")).list_buckets)[0] == "SignatureDoesNotMatch"
    for access in (
        "bob",
        "root",
        f"bob.w.{end}",
        f"bob.x.{end}.{token}",
        f".w.{end}.{token}",
        f"bob/x.w.{end}.{token}",
        f"bob.w.{end}.00000000",
    ):
        assert refused(s3(said, access).list_buckets)[1] in (400, 403), access
    # What only the service can make: a key of yesterday.
    issuer = KeyIssuer(service.stager.state_dir / "storage-key.json")
    old = issuer.issue("bob", token, may_write=True, now=time.time() - 86_400)
    assert refused(s3(said, old.access_key_id, old.secret_access_key).list_buckets) == ("ExpiredToken", 400)
    assert call("GET", said["endpoint"]).status_code == 403


def test_a_key_ends_with_its_token_and_with_its_tenant(service: Service) -> None:
    made = service.stager.json("token", "create", "--tenant", "bob", "--scope", "submit", "--expires", "600s")
    other = storage_of(service, "bob")
    said = service.client(made["token"]).get("/storage").json()
    assert 0 < said["expires_in_s"] <= 600, "no longer than the token"
    mine, theirs = s3(said), s3(other)
    mine.list_buckets()
    service.stager.run("token", "revoke", made["id"])
    assert refused(mine.list_buckets) == ("InvalidAccessKeyId", 403)
    theirs.list_buckets()
    # Given in the same moment in which the token was revoked.
    late = KeyIssuer(service.stager.state_dir / "storage-key.json").issue("bob", made["id"], may_write=True, now=time.time())
    wait_until(lambda: not lists(s3(said, late.access_key_id, late.secret_access_key)), "the service to take that key back")
    try:
        service.write_tenants("[tenants.alice]\n")
        wait_until(lambda: not lists(theirs), "the service to see that the tenant is gone")
    finally:
        service.write_tenants(TENANTS)
    s3(storage_of(service, "bob")).list_buckets()


def test_a_file_system_is_told_that_its_token_is_revoked_and_goes_on_when_its_tenant_is_back(service: Service) -> None:
    made = service.stager.json("token", "create", "--tenant", "bob", "--scope", "submit")
    files = StagerFileSystem(service.url, made["token"])
    files.pipe_file("kept-by-bob/x", b"x")
    key = service.stager.state_dir / "storage-key.tokens" / made["id"]
    try:
        service.write_tenants("[tenants.alice]\n")
        wait_until(lambda: not key.exists(), "the key to be taken back")
        with pytest.raises(PermissionError, match="does not know its tenant"):
            files.cat_file("kept-by-bob/x")
    finally:
        service.write_tenants(TENANTS)
    assert files.cat_file("kept-by-bob/x") == b"x"
    service.stager.run("token", "revoke", made["id"])
    with pytest.raises(PermissionError, match="revoked"):
        files.cat_file("kept-by-bob/x")
    for look in (lambda: files.cat_file("kept-by-bob/x"), lambda: files.ls("")):
        with pytest.raises(PermissionError, match="token is not good"):
            look()


def test_a_url_of_an_object_does_what_was_signed_and_ends_with_its_key(service: Service) -> None:
    made = service.stager.json("token", "create", "--tenant", "bob", "--scope", "submit", "--expires", "600s")
    files = StagerFileSystem(service.url, made["token"])
    name = "signed-by-bob/a b+c=%2F&ü(1)'~.csv"
    files.pipe_file(name, b"x")
    assert fetched(files.sign(name)) == (200, b"x") and fetched(files.sign(name), "PUT", b"y")[0] == 403
    assert fetched(files.sign(f"stager://{name}", 300, method="PUT"), "PUT", b"new")[0] == 200
    assert files.cat_file(name) == b"new" and fetched(files.sign(name, method="HEAD"), "HEAD")[0] == 200
    assert fetched(files.sign(name).replace("signed-by-bob", "kept-by-bob"))[0] == 403
    for seconds in (601, 3600, 8 * 86_400, 0, -1):
        with pytest.raises(ValueError, match="the key that signs it ends in"):
            files.sign(name, seconds)
    for path, method in (("signed-by-bob", "GET"), (name, "DELETE")):
        with pytest.raises((IsADirectoryError, ValueError)):
            files.sign(path, method=method)
    reading = StagerFileSystem(service.url, service.token("bob", "read"))
    assert fetched(reading.sign(name)) == (200, b"new") and fetched(reading.sign(name, method="PUT"), "PUT", b"z")[0] == 403
    # A URL that says it is good for longer than its key.
    issuer = KeyIssuer(service.stager.state_dir / "storage-key.json")
    old = issuer.issue("bob", made["id"], may_write=True, now=time.time(), until=time.time() + 1)
    given = rest.Storage.model_validate(storage_of(service, "bob")).model_copy(
        update={"access_key_id": old.access_key_id, "secret_access_key": old.secret_access_key}
    )
    url = signed(f"{given.endpoint}/{quoted(name)}", {}, given, seconds=600)
    wait_until(lambda: b"ExpiredToken" in fetched(url)[1], "the key to end")
    url = files.sign(name)
    service.stager.run("token", "revoke", made["id"])
    assert fetched(url)[0] == 403


def lists(client: Any) -> bool:
    try:
        client.list_buckets()
    except ClientError as problem:
        assert problem.response["Error"]["Code"] == "InvalidAccessKeyId"
        return False
    return True


def test_the_secret_of_a_key_follows_from_its_id_on_both_sides() -> None:
    """The other side has the same one: ionode/s3/src/issued.rs."""
    assert secret_of("0123456789abcdef", "alice.w.4000000000.0123abcd") == "fDaVkgPbKERuDNKFCiXm3sxuNT6vycwsVJUTd_9iPgc"


def test_a_key_is_in_no_log_and_its_issuers_file_is_closed(service: Service) -> None:
    said = storage_of(service, "alice")
    files = StagerFileSystem(service.url, service.token("alice", "submit"))
    files.pipe_file("logged/x", b"x")
    with pytest.raises(FileNotFoundError):
        files.cat_file("logged/none")
    issuer = service.stager.state_dir / "storage-key.json"
    assert issuer.stat().st_mode & 0o777 == 0o600
    secrets = (said["secret_access_key"], json.loads(issuer.read_text())["issuer_secret"])
    for log in (service.log, service.stager.state_dir / "node.log"):
        assert not [secret for secret in secrets if secret in log.read_text(errors="replace")]
    issuer.chmod(0o644)
    with pytest.raises(Refused, match="read by others"):
        KeyIssuer(issuer)
    issuer.chmod(0o600)


def test_without_a_token_or_without_storage_there_is_no_key(service: Service, short_dir: Path) -> None:
    problem(service.client("").get("/storage"), 401, "token")
    with pytest.raises(PermissionError, match="token"):
        StagerFileSystem(service.url, "stg_wrong").ls("")
    with RestClient(service.url, "stg_wrong") as client, pytest.raises(Denied):
        client.storage()
    off = started(short_dir / "off", "--storage", "0")
    try:
        problem(off.client(off.token("alice", "submit")).get("/storage"), 409, "storage_off")
        with pytest.raises(OSError, match="--storage"):
            StagerFileSystem(off.url, off.token("alice", "submit")).ls("")
    finally:
        off.end()


def node_of(service: Service) -> dict[str, Any]:
    try:
        return dict(json.loads((service.stager.state_dir / "node" / "rendezvous.json").read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def test_what_was_stored_is_there_after_every_kill(service: Service, short_dir: Path) -> None:
    taken = node_of(service)["s3"]["address"]
    # The last that is said counts: a port that another has.
    service = started(short_dir / "killed", "--storage", "60 MB", "--storage-listen", taken)
    try:
        assert node_of(service)["s3"]["address"] not in ("", taken)
        service.stop()
        # One that is nobody else's while its node is started again, as one that the system gives out may be.
        service.words = ("--storage", "60 MB", "--storage-listen", f"127.0.0.1:{free_port()}")
        service.start()
        token = service.token("alice", "submit")
        files = StagerFileSystem(service.url, token)
        files.pipe({"kept/small": b"small", "kept/large": b"l" * 20 * MB})
        before = node_of(service)
        with files.open("kept/small") as reading:
            os.kill(before["pid"], signal.SIGKILL)
            # Nobody tells the client: it finds the node where it was.
            assert reading.read() == b"small" and files.cat_file("kept/large", 19 * MB) == b"l" * MB
        after = node_of(service)
        assert after["pid"] != before["pid"] and after["s3"] == before["s3"]
        key = storage_of(service, "alice")
        service.kill()
        os.kill(after["pid"], signal.SIGKILL)
        service.words = ("--storage-listen", before["s3"]["address"], "--storage", "80 MB")
        service.start()
        again = StagerFileSystem(service.url, token)
        assert again.find("kept") == ["kept/large", "kept/small"] and again.cat_file("kept/large") == b"l" * 20 * MB
        # Keys are not bound to a process, and the file system of before finds its way by them.
        assert s3(key).get_object(Bucket="kept", Key="small")["Body"].read() == b"small" and files.cat_file("kept/small") == b"small"
        # A node that lives on from a service without the share that is wanted now is started again.
        lived = node_of(service)
        service.kill()
        service.words = ("--storage-listen", before["s3"]["address"], "--storage", "90 MB")
        service.start()
        wait_until(lambda: node_of(service).get("s3", {}).get("share_bytes") == 90 * MB, "a node with the new share")
        assert node_of(service)["pid"] != lived["pid"] and again.cat_file("kept/small") == b"small"
    finally:
        service.end()
