"""Strangers at the ports of a node: what they can take of its memory and of its places, and what its log tells of keys."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_s3_face import fetched
from tests.testbed.s3_face import ACCESS_KEY, SECRET_KEY, S3Face
from tests.testbed.waiting import wait_until

MB = 1_000_000
UNAUTHENTICATED = 300
# Of one connection's head, not ended.
HEAD_BYTES = 60_000
KNOWN_WITHIN_S = 10


@pytest.fixture(scope="module")
def face(session_dir: Path) -> Iterator[S3Face]:
    # What its user says of logs changes nothing of what may be in them.
    before, os.environ["RUST_LOG"] = os.environ.get("RUST_LOG"), "trace"
    face = S3Face(session_dir / "strangers", options=["--tcp", "127.0.0.1:0", "--log", "trace"])
    try:
        face.start()
    finally:
        os.environ.pop("RUST_LOG")
        if before is not None:
            os.environ["RUST_LOG"] = before
    face.client().create_bucket(Bucket="bucket")
    face.client().put_object(Bucket="bucket", Key="key", Body=b"body")
    yield face
    face.stop()


def peak_bytes(face: S3Face) -> int:
    status = Path(f"/proc/{face.node.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(face: S3Face) -> int:
    Path(f"/proc/{face.node.pid}/clear_refs").write_text("5")
    return peak_bytes(face)


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def sent_until_refused(port: int, head: str, size: int) -> bytes:
    """What is answered to a body that its sender goes on with as long as somebody takes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
        stream.sendall(f"{head}\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {size}\r\n\r\n".encode())
        try:
            for _ in range(size // MB):
                stream.sendall(b"x" * MB)
        except OSError:
            pass
        try:
            return stream.recv(65536)
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    "head",
    [
        "POST /bucket HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x",
        "POST /bucket HTTP/1.1\r\nContent-Type: Multipart/Form-data; boundary=x",
        "PUT /bucket/key HTTP/1.1",
        f"PUT /bucket/key HTTP/1.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20261123/r/s3/aws4_request,"
        " SignedHeaders=host, Signature=0",
        f"POST /bucket?delete HTTP/1.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20261123/r/s3/aws4_request,"
        " SignedHeaders=host, Signature=0",
    ],
)
def test_no_body_of_a_stranger_is_kept(face: S3Face, head: str) -> None:
    begun = forget_peak(face)
    answers: list[bytes] = []
    senders = [threading.Thread(target=lambda: answers.append(sent_until_refused(face.port, head, 40 * MB))) for _ in range(8)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert len(answers) == 8 and not any(b" 200 " in answer for answer in answers)
    assert peak_bytes(face) - begun < 20 * MB


def is_closed(stream: socket.socket) -> bool:
    stream.setblocking(False)
    try:
        return stream.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("port", ["s3", "tcp"])
def test_strangers_that_say_nothing_hold_little_and_not_for_long(face: S3Face, port: str) -> None:
    address = f"127.0.0.1:{face.port}" if port == "s3" else face.node.rendezvous["tcp"]
    begun = forget_peak(face)
    with ExitStack() as stack:
        known = stack.enter_context(socket.create_connection(place(address), timeout=60))
        if port == "tcp":
            call(known, face)
        unauthenticated = [stack.enter_context(socket.create_connection(place(address), timeout=60)) for _ in range(UNAUTHENTICATED)]
        for number, stream in enumerate(unauthenticated):
            head = b"GET / HTTP/1.1\r\nX-Filler: " + b"x" * (HEAD_BYTES if number % 3 else 0)
            try:
                stream.sendall(head)
            except ConnectionError:
                assert number < UNAUTHENTICATED // 2, "the oldest go first"
        wait_until(
            lambda: sum(map(is_closed, unauthenticated)) >= UNAUTHENTICATED // 2, "the oldest strangers to make room", KNOWN_WITHIN_S - 2
        )
        # Whoever has a key is served all the while.
        assert face.client().get_object(Bucket="bucket", Key="key")["Body"].read() == b"body"
        assert face.node.call("GET", "/v1/node").is_success
        assert peak_bytes(face) - begun < 30 * MB
        wait_until(lambda: all(map(is_closed, unauthenticated)), "all strangers to be gone", KNOWN_WITHIN_S + 20)
        if port == "tcp":
            call(known, face)


def call(stream: socket.socket, face: S3Face) -> None:
    """As a caller that keeps its connection."""
    token = face.node.token_file.read_text().strip()
    stream.sendall(f"GET /v1/node HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {token}\r\nX-Stager-Api: 1\r\n\r\n".encode())
    answer = stream.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def test_a_stranger_that_asks_and_asks_is_a_stranger(face: S3Face) -> None:
    """Health needs no token, and refusals need no key."""
    for port, line in ((face.port, "GET /bucket/key"), (place(face.node.rendezvous["tcp"])[1], "GET /healthz")):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:

            def answered(stream: socket.socket = stream, line: str = line) -> bool:
                try:
                    stream.sendall(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                    return stream.recv(65536) != b""
                except ConnectionError:
                    return False

            assert answered()
            wait_until(lambda: not answered(), "the connection to end", KNOWN_WITHIN_S + 20)


@pytest.mark.parametrize("wait", ["nan", "-nan", "inf", "-inf", "-1", "1e999"])
def test_a_wait_that_is_no_time_is_refused(face: S3Face, wait: str) -> None:
    for path in ("/v1/events?after=0&", "/v1/transfers/t-1?", "/v1/transfers/t-1/content?", "/v1/replicas/f/g/source?"):
        answer = face.node.call("GET", f"{path}wait_s={wait}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), answer.text


def test_a_head_without_an_end_is_cut_off(face: S3Face) -> None:
    for port in (face.port, place(face.node.rendezvous["tcp"])[1]):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            try:
                stream.sendall(b"GET / HTTP/1.1\r\nX-Filler: " + b"x" * 200_000)
                answer = stream.recv(65536)
            except ConnectionError:
                answer = b""
            assert answer == b"" or b" 431 " in answer


def test_the_log_tells_no_signature_however_much_it_is_to_tell(face: S3Face) -> None:
    """The library of the endpoint says the right signature where a wrong one comes."""
    right, wrong = [], []
    for method, what in (("GET", "get_object"), ("PUT", "put_object")):
        url = face.client(signature_version="s3v4").generate_presigned_url(what, Params={"Bucket": "bucket", "Key": "key"}, ExpiresIn=60)
        signature = url.partition("X-Amz-Signature=")[2][:64]
        right.append(signature)
        wrong.append(signature[:-1] + ("0" if signature[-1] != "0" else "1"))
        assert fetched(url.replace(signature, wrong[-1]), method, b"" if method == "PUT" else None)[0] == 403
    assert fetched(url, "PUT", b"body")[0] == 200
    log = face.node.log_text()
    assert '"level":"TRACE"' in log
    assert not [secret for secret in (*right, *wrong, SECRET_KEY, face.node.token_file.read_text().strip()) if secret in log]
