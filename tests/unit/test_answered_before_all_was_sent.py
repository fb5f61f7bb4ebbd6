"""A scheduler that answers before it has read all of a request, and then goes: `stager shutdown` has its answer all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stager.client.socket import SOCKET_NAME, Client
from stager.model.errors import Transient

# More than a socket holds: the client is still sending when the other end closes.
LARGE = b"x" * 8_000_000


@contextmanager
def one_that_goes(state_dir: Path, answer: bytes) -> Iterator[None]:
    """It reads the head of one request alone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(state_dir / SOCKET_NAME))
        listening.listen(1)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(256)
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield
        finally:
            serving.join()


def test_its_answer_counts(short_dir: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull"
    with one_that_goes(short_dir, answer), Client(short_dir) as client:
        assert client.call("POST", "/v1/shutdown", LARGE) == b"null"


def test_without_an_answer_it_was_not_to_be_asked(short_dir: Path) -> None:
    with one_that_goes(short_dir, b""), Client(short_dir) as client, pytest.raises(Transient, match="does not answer"):
        client.call("POST", "/v1/shutdown", LARGE)
