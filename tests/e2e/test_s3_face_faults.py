"""The S3 endpoint when things go wrong: kills, flipped bits, a full share, clients that go away, writers that race, wrong options."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.testbed.places import ionode_binary
from tests.testbed.s3_face import S3Face
from tests.testbed.s3_writers import FILES, MIB, Writers, noise
from tests.testbed.waiting import wait_until


@pytest.fixture
def face(short_dir: Path) -> Iterator[S3Face]:
    face = S3Face(short_dir / "face", share_bytes=100 * MIB)
    face.start()
    face.client().create_bucket(Bucket="bucket")
    yield face
    face.stop()


def content_files(face: S3Face) -> list[Path]:
    return sorted(path for path in (face.store / "objects").rglob("*") if path.is_file())


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def fsck(face: S3Face, *more: str) -> list[dict[str, str]]:
    """Of a node that does not run."""
    argv = [str(ionode_binary()), "fsck", "--store", str(face.store), "--json", *more]
    problems: list[dict[str, str]] = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout)["problems"]
    return problems


def error_of(call: Any, **said: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call(**said)
    return error.value.response["Error"]["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_killed_while_writing_all_that_was_acked_is_there_and_nothing_is_half(face: S3Face, number: int) -> None:
    writers = Writers(face, "w")
    writers.start(3)
    wait_until(lambda: len(writers.acked) >= 12 + 7 * number, "writes that were acked")
    face.kill()
    writers.join()
    face.start()
    s3 = face.client()
    there = [found["Key"] for found in s3.list_objects_v2(Bucket="bucket").get("Contents", ())]
    assert not set(writers.acked) - set(there)
    assert not writers.deleted & set(there)
    for key in there:
        assert hashlib.sha256(s3.get_object(Bucket="bucket", Key=key)["Body"].read()).hexdigest() == writers.begun[key]
    open_parts = sum(
        len(s3.list_parts(Bucket="bucket", Key=upload["Key"], UploadId=upload["UploadId"]).get("Parts", ()))
        for upload in s3.list_multipart_uploads(Bucket="bucket").get("Uploads", ())
    )
    sizes = [s3.head_object(Bucket="bucket", Key=key)["ContentLength"] for key in there]
    named = sum(FILES[size] for size in sizes) + open_parts
    wait_until(lambda: len(content_files(face)) == named, "the garbage of the killed writes to go")


def test_a_damaged_file_is_told_before_a_wrong_byte_leaves_and_healed_by_a_new_put(face: S3Face) -> None:
    s3, body = face.client(), noise(6 * MIB)
    s3.put_object(Bucket="bucket", Key="k", Body=body)
    (path,) = content_files(face)
    flip(path, 3 * MIB + 17)
    assert s3.get_object(Bucket="bucket", Key="k", Range=f"bytes=0-{3 * MIB - 1}")["Body"].read() == body[: 3 * MIB]
    came = bytearray()
    with pytest.raises(BotoCoreError):
        for piece in s3.get_object(Bucket="bucket", Key="k")["Body"].iter_chunks(100_000):
            came += piece
    assert bytes(came) == body[: len(came)] and len(came) <= 3 * MIB
    assert error_of(s3.get_object, Bucket="bucket", Key="k") == ("ObjectCorrupt", 422)
    assert error_of(s3.head_object, Bucket="bucket", Key="k")[1] == 422
    face.node.wait_for_log("quarantined an object")
    s3.put_object(Bucket="bucket", Key="k", Body=body)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == body


def test_the_scrubber_and_fsck_find_what_nobody_reads(face: S3Face) -> None:
    face.stop()
    face.options = ["--scrub-bytes-per-s", "1000000000", "--scrub-every-s", "0"]
    face.start()
    s3 = face.client()
    for key, size in (("damaged", 3 * MIB), ("small", 1000), ("sound", 3 * MIB + 1)):
        s3.put_object(Bucket="bucket", Key=key, Body=noise(size))
    wait_until(lambda: face.metric("scrub_objects_total", result="sound") >= 6, "the scrubber to see all of them")
    face.kill()
    (path,) = [path for path in content_files(face) if path.stat().st_size < 3 * MIB + 25]
    flip(path, 2 * MIB)
    assert fsck(face) == []
    assert [(problem["kind"], problem["subject"]) for problem in fsck(face, "--content")] == [("object_broken", "bucket/damaged")]
    face.start()
    wait_until(lambda: face.metric("scrub_objects_total", result="corrupt") == 1, "the scrubber to find the damage")
    s3 = face.client()
    assert error_of(s3.head_object, Bucket="bucket", Key="damaged")[1] == 422
    assert s3.get_object(Bucket="bucket", Key="sound")["Body"].read() == noise(3 * MIB + 1)
    face.node.wait_for_log("quarantined an object")


def test_a_full_share_says_so_at_once_and_sdks_do_not_try_again(face: S3Face) -> None:
    s3 = face.client(retries={"max_attempts": 5, "mode": "standard"})
    s3.put_object(Bucket="bucket", Key="one", Body=noise(60 * MIB))
    asked: list[int] = []
    body = noise(60 * MIB)
    s3.meta.events.register("before-send.s3", lambda **_: asked.append(1))
    started = time.monotonic()
    assert error_of(s3.put_object, Bucket="bucket", Key="two", Body=body) == ("InsufficientStorage", 507)
    assert len(asked) == 1 and time.monotonic() - started < 30
    assert len(content_files(face)) == 1
    # Who sends it all before looking for an answer finds one, not a broken line, and the line can be used again.
    url = face.client(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "two"})
    with socket.create_connection(("127.0.0.1", face.port), timeout=60) as line:
        reader = line.makefile("rb")
        for _ in range(2):
            line.sendall(f"PUT {url.split(face.endpoint)[1]} HTTP/1.1\r\nHost: 127.0.0.1:{face.port}\r\n".encode())
            line.sendall(f"Content-Length: {60 * MIB}\r\n\r\n".encode() + bytes(60 * MIB))
            assert reader.readline().startswith(b"HTTP/1.1 507 ")
            heads = dict(head.lower().split(b":", 1) for head in iter(reader.readline, b"\r\n"))
            assert b"InsufficientStorage" in reader.read(int(heads[b"content-length"]))
    s3.delete_object(Bucket="bucket", Key="one")
    s3.put_object(Bucket="bucket", Key="two", Body=noise(60 * MIB))
    assert face.node.get("/v1/node")["used_bytes"] == 0, "apart from what the scheduler manages"


def test_who_was_told_to_continue_finds_out_that_the_share_is_full(face: S3Face) -> None:
    """The room goes to another while the body comes: the answer must not be lost in a broken line."""
    url = face.client(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "late"})
    head = f"PUT {url.split(face.endpoint)[1]} HTTP/1.1\r\nHost: 127.0.0.1:{face.port}\r\nExpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", face.port), timeout=60) as line:
        line.sendall(f"{head}Content-Length: {60 * MIB}\r\n\r\n".encode())
        reader = line.makefile("rb")
        assert (reader.readline(), reader.readline()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
        face.client().put_object(Bucket="bucket", Key="faster", Body=noise(60 * MIB))
        line.sendall(bytes(60 * MIB))
        assert reader.readline().startswith(b"HTTP/1.1 507 ")
        heads = dict(head.lower().split(b":", 1) for head in iter(reader.readline, b"\r\n"))
        assert b"InsufficientStorage" in reader.read(int(heads[b"content-length"]))


def test_clients_that_go_away_leave_nothing(face: S3Face) -> None:
    s3 = face.client()
    url = face.client(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "k"})
    path = url.split(face.endpoint)[1]
    for sent in (0, 1000, 2 * MIB):
        with socket.create_connection(("127.0.0.1", face.port)) as line:
            head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{face.port}\r\nContent-Length: {50 * MIB}\r\n\r\n"
            line.sendall(head.encode() + bytes(sent))
            wait_until(lambda: content_files(face), "the upload to begin")
        wait_until(lambda: not content_files(face), "the upload to be given up")
    s3.put_object(Bucket="bucket", Key="k", Body=noise(90 * MIB))


def test_a_refused_body_that_was_not_sent_is_not_read_from_the_next_request(face: S3Face) -> None:
    """botocore keeps its body when it is refused before 100 Continue, and the connection for what it asks next."""
    head = f"PUT /bucket/k HTTP/1.1\r\nHost: 127.0.0.1:{face.port}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    with socket.create_connection(("127.0.0.1", face.port), timeout=60) as line:
        line.sendall(head.encode())
        answer = b"".join(iter(line.makefile("rb").readline, b""))
    assert answer.startswith(b"HTTP/1.1 403 ") and b"connection: close" in answer


def test_an_empty_body_that_expected_to_continue_ends_its_connection(face: S3Face) -> None:
    """aws of version 1 keeps the status of such an answer for the next one on the connection, and waits for ever."""
    for size, closes in ((0, True), (5, False)):
        url = face.client(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "k"})
        head = f"PUT {url.split(face.endpoint)[1]} HTTP/1.1\r\nHost: 127.0.0.1:{face.port}\r\nExpect: 100-continue\r\n"
        with socket.create_connection(("127.0.0.1", face.port), timeout=60) as line:
            line.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
            reader = line.makefile("rb")
            if size:
                assert (reader.readline(), reader.readline()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
                line.sendall(bytes(size))
            answer = b"".join(iter(reader.readline, b"\r\n"))
            assert answer.startswith(b"HTTP/1.1 200 ") and (b"connection: close" in answer) == closes


@pytest.mark.parametrize("size", [100, 200_000])
def test_of_two_that_create_the_same_exactly_one_wins(face: S3Face, size: int) -> None:
    clients = [face.client() for _ in range(4)]
    for turn in range(10):
        bodies = [noise(size, turn * 10 + writer) for writer in range(4)]

        def create(writer: int, key: str = f"k{turn}", bodies: list[bytes] = bodies) -> bool:
            try:
                clients[writer].put_object(Bucket="bucket", Key=key, Body=bodies[writer], IfNoneMatch="*")
                return True
            except ClientError as error:
                assert error.response["Error"]["Code"] == "PreconditionFailed"
                return False

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(create, range(4)))
        assert won.count(True) == 1
        assert clients[0].get_object(Bucket="bucket", Key=f"k{turn}")["Body"].read() == bodies[won.index(True)]


def test_a_node_that_is_used_over_s3_alone_is_not_idle(short_dir: Path) -> None:
    face = S3Face(short_dir / "idle", options=["--idle-exit-s", "5"])
    face.start()
    try:
        s3, until = face.client(), time.monotonic() + 8
        while time.monotonic() < until:
            s3.list_buckets()
            # Between calls, as a caller pauses: far shorter than the node waits, also where a processor is long in coming.
            time.sleep(0.2)
        assert face.node.server is not None
        wait_until(face.node.server.gone, "the node to end itself when nobody calls any more")
        assert face.node.server.returncode() == 0
    finally:
        face.stop()


def started_with(directory: Path, *options: str) -> str:
    """What it says when it refuses to start."""
    argv = [str(ionode_binary()), "serve", "--store", str(directory / "s"), "--node-id", "n", "--capacity", "1"]
    ended = subprocess.run([*argv, "--socket", str(directory / "n.sock"), *options], capture_output=True, text=True, timeout=60)
    assert ended.returncode not in (0, None)
    return ended.stderr


def test_wrong_options_are_refused_before_anything_is_made(short_dir: Path) -> None:
    key = short_dir / "key"
    key.write_text(json.dumps({"access_key_id": "a", "secret_access_key": "s" * 20}))
    key.chmod(0o644)
    credentials = ["--s3-credentials", str(key)]
    assert "--s3-share" in started_with(short_dir, "--s3-listen", "127.0.0.1:0", *credentials)
    assert "chmod 600" in started_with(short_dir, "--s3-listen", "127.0.0.1:0", *credentials, "--s3-share", "1000")
    key.chmod(0o600)
    assert "--trust-network" in started_with(short_dir, "--s3-listen", "0.0.0.0:0", *credentials, "--s3-share", "1000")
    assert not (short_dir / "s").exists()
