"""What an origin says of its content is compared with what arrived: checksums of S3, a second reading over ssh. Each is seen to fire.

One rule: the damage is made where the check claims to look (on the line, on the server's disk, under the fetch), never in the checksum.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.origin_rig import known_hosts_of
from tests.testbed.ionode import IoNode
from tests.testbed.link import Link
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

SIZE_BYTES = 6_000_000
PART_BYTES = 5 * 2**20


def s3_body(s3: S3, bucket: str, port: int) -> dict[str, Any]:
    said = {"kind": "s3", "bucket": bucket, "prefix": "", "region": s3.region, "endpoint": f"http://127.0.0.1:{port}", "addressing": "path"}
    return said | {"access_key_id": s3.access_key, "secret_access_key": s3.secret_key, "session_token": None, "allow_http": True}


class Fetching:
    """A node, an origin it was told of, and fetches of one path."""

    def __init__(self, node: IoNode, origin: dict[str, Any]) -> None:
        self.node, self.count = node, 0
        node.do("PUT", "/v1/origins/o", origin)

    def begin(self, path: str) -> str:
        (entry,) = self.node.do("POST", "/v1/origins/o/stat", {"paths": [path]})["entries"]
        return self.begin_known(entry, "o")

    def begin_known(self, entry: dict[str, Any], origin: str) -> str:
        self.count += 1
        name, path = f"t{self.count}", entry["path"]
        expected = {"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": None, "sha256": None}
        body = {"kind": "fetch", "file_id": path, "generation": name, "source": {"origin_id": origin, "path": path}}
        self.node.do("PUT", f"/v1/transfers/{name}", body | {"expected": expected, "priority": 5, "executable": False})
        return name

    def fetch_known(self, entry: dict[str, Any], origin: str) -> dict[str, Any]:
        return self.node.event_of(self.begin_known(entry, origin))

    def fetch(self, path: str) -> dict[str, Any]:
        return self.node.event_of(self.begin(path))


def is_damage(event: dict[str, Any], word: str) -> bool:
    error = event.get("error", {})
    return (event["kind"], error.get("class"), error.get("code")) == ("transfer_failed", "corrupt", "checksum_mismatch") and word in error[
        "message"
    ]


def put_in_parts(client: Any, bucket: str, key: str, content: bytes, **checksum: str) -> None:
    """Its ETag is no MD5, so only a checksum of the whole can tell of it."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=key, **checksum)["UploadId"]
    algorithm = checksum.get("ChecksumAlgorithm", "")
    parts = []
    for number, start in enumerate(range(0, len(content), PART_BYTES), 1):
        more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
        done = client.upload_part(
            Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=content[start : start + PART_BYTES], **more
        )
        said = {f"Checksum{algorithm}": done[f"Checksum{algorithm}"]} if algorithm else {}
        parts.append({"PartNumber": number, "ETag": done["ETag"]} | said)
    more = {"ChecksumType": checksum["ChecksumType"]} if "ChecksumType" in checksum else {}
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, **more)


@pytest.fixture
def over_a_line(s3: S3, bucket: str, link: Callable[..., Link], ionode: Callable[..., IoNode]) -> tuple[Any, Link, Fetching]:
    if s3.kind != "versitygw":
        pytest.skip("checksums of objects need versitygw")
    line = link(s3.port)
    return s3.client(), line, Fetching(ionode(), s3_body(s3, bucket, line.port))


@pytest.mark.parametrize("kind", ["SHA256", "CRC32 in parts", "CRC64NVME"])
def test_a_bit_turned_on_the_line_from_s3_is_found_by_the_objects_checksum(
    bucket: str, over_a_line: tuple[Any, Link, Fetching], kind: str
) -> None:
    client, line, fetching = over_a_line
    content = os.urandom(SIZE_BYTES)
    if kind == "CRC32 in parts":
        put_in_parts(client, bucket, "in.bin", content, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    elif kind == "SHA256":
        client.put_object(Bucket=bucket, Key="in.bin", Body=content, ChecksumAlgorithm="SHA256")
    else:
        client.put_object(Bucket=bucket, Key="in.bin", Body=content)
        crc = base64.b64encode(bytes.fromhex(fetching.fetch("in.bin")["crc64nvme"])).decode()
        client.put_object(Bucket=bucket, Key="in.bin", Body=content, ChecksumCRC64NVME=crc)
    line.flip_after(SIZE_BYTES // 2)
    event = fetching.fetch("in.bin")
    assert line.down.flipped == 1, "nothing was damaged: this proves nothing"
    assert is_damage(event, {"SHA256": "SHA-256", "CRC32 in parts": "CRC32", "CRC64NVME": "CRC64NVME"}[kind]), event
    event = fetching.fetch("in.bin")
    assert (event["kind"], event["verified"]) == ("transfer_done", "origin_checksum"), event
    generation = event["generation"]
    assert fetching.node.call("GET", f"/v1/replicas/in.bin/{generation}/content").content == content


def test_a_small_object_is_checked_by_the_checksum_of_the_answer_that_brings_it(
    s3: S3, bucket: str, over_a_line: tuple[Any, Link, Fetching]
) -> None:
    """An origin that has not looked at it before has nothing else to compare it with: its ETag is no MD5."""
    client, line, fetching = over_a_line
    content = os.urandom(50_000)
    put_in_parts(client, bucket, "in.bin", content, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    (entry,) = fetching.node.do("POST", "/v1/origins/o/stat", {"paths": ["in.bin"]})["entries"]
    for flipped in (1, 0):
        fetching.node.do("PUT", f"/v1/origins/fresh{flipped}", s3_body(s3, bucket, line.port))
        if flipped:
            line.flip_after(len(content) // 2)
        event = fetching.fetch_known(entry, f"fresh{flipped}")
        if flipped:
            assert line.down.flipped == 1, "nothing was damaged: this proves nothing"
            assert is_damage(event, "CRC32"), event
    assert (event["kind"], event["verified"]) == ("transfer_done", "origin_checksum"), event


def test_what_rots_on_the_s3_servers_disk_is_found_by_the_objects_checksum(
    s3: S3, bucket: str, over_a_line: tuple[Any, Link, Fetching]
) -> None:
    """It comes the same each time, so a second reading would believe it."""
    client, _, fetching = over_a_line
    content = os.urandom(SIZE_BYTES)
    client.put_object(Bucket=bucket, Key="in.bin", Body=content, ChecksumAlgorithm="SHA256")
    assert fetching.fetch("in.bin")["verified"] == "origin_checksum"
    assert s3.data is not None
    with (s3.data / bucket / "in.bin").open("r+b") as file:
        file.seek(1000)
        file.write(bytes([content[1000] ^ 1]))
    for _ in range(2):
        assert is_damage(fetching.fetch("in.bin"), "SHA-256")


def test_an_object_in_parts_without_a_checksum_of_the_whole_has_no_origin_checksum(
    bucket: str, over_a_line: tuple[Any, Link, Fetching]
) -> None:
    """Nothing is claimed for it; docs/semantics.md says so."""
    client, _, fetching = over_a_line
    put_in_parts(client, bucket, "in.bin", os.urandom(SIZE_BYTES), ChecksumAlgorithm="SHA256", ChecksumType="COMPOSITE")
    event = fetching.fetch("in.bin")
    assert (event["kind"], event["verified"]) == ("transfer_done", None), event


def source(server: Sshd, content: bytes) -> Path:
    path = server.data / "in.bin"
    path.write_bytes(content)
    os.utime(path, (time.time() - 100, time.time() - 100))
    return path


@pytest.mark.parametrize(("asked", "verified"), [(True, "remote_checksum"), (False, None)])
def test_a_second_look_over_ssh_is_by_the_shell_where_there_is_one(
    sshd: Sshd, ionode: Callable[..., IoNode], asked: bool, verified: str | None
) -> None:
    source(sshd, os.urandom(SIZE_BYTES))
    assert Fetching(ionode(), sshd.origin(verify_source=asked)).fetch("in.bin")["verified"] == verified


def test_a_second_look_over_ssh_reads_again_where_there_is_no_shell(sftp_only: Sshd, ionode: Callable[..., IoNode]) -> None:
    source(sftp_only, os.urandom(SIZE_BYTES))
    assert Fetching(ionode(), sftp_only.origin(verify_source=True, shell_checksum=True)).fetch("in.bin")["verified"] == "readback"


@pytest.mark.parametrize("shell", [True, False])
def test_a_source_that_changes_behind_its_token_is_found_by_a_second_reading(
    sshd: Sshd, link: Callable[..., Link], ionode: Callable[..., IoNode], short_dir: Path, shell: bool
) -> None:
    """Same size, same second of mtime: to its token it is the same content."""
    content = os.urandom(SIZE_BYTES)
    path = source(sshd, content)
    # All of it takes twelve seconds, until the line is let go.
    line = link(sshd.port, bytes_per_s=500_000)
    known_hosts = [str(known_hosts_of(sshd, line.port, short_dir / "known_hosts"))]
    fetching = Fetching(ionode(), sshd.origin(verify_source=True, shell_checksum=shell, port=line.port, known_hosts=known_hosts))
    name = fetching.begin("in.bin")
    done = lambda: fetching.node.get("/v1/transfers")["transfers"][0]["bytes_done"]  # noqa: E731
    wait_until(lambda: done() > SIZE_BYTES // 3, "the fetch to be under way")
    before = path.stat()
    with path.open("r+b") as file:
        file.write(bytes([content[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert done() < SIZE_BYTES, "too late: this proves nothing"
    line.bytes_per_s = None
    assert is_damage(fetching.node.event_of(name), "in.bin")
