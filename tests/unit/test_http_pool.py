"""Calls to I/O nodes: an answer is read as it is framed, however it arrives, and what is none is a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stager.adapters.http_pool import READ_BYTES, Lost, Pool, head_of

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": 12}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n{"a"\r\n5\r\n: 12}\r\n0\r\nSum: 1\r\n\r\n'
TO_THE_END = b'HTTP/1.1 200 OK\r\n\r\n{"a": 12}'
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
AFTER_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE


class Node:
    """Answers its n-th call with the n-th of these texts, in pieces of so many bytes; None: hangs up without a word."""

    def __init__(self, place: Path, answers: list[bytes | None], piece_bytes: int = READ_BYTES, hang_up: bool = False) -> None:
        self.place, self.answers, self.piece_bytes, self.hang_up = place / "socket", answers, piece_bytes, hang_up
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.heads.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                for at in range(0, len(answer), self.piece_bytes):
                    writer.write(answer[at : at + self.piece_bytes])
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.hang_up:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def called(node: Node, calls: int = 1) -> list[tuple[int, bytes]]:
    async def all_calls() -> list[tuple[int, bytes]]:
        server = await asyncio.start_unix_server(node.serve, node.place)
        pool = Pool(node.place)
        try:
            return [await pool.request("POST", f"/v1/x/{call}", [("Host", "n"), ("X-Y", "z")], b"body", 10.0) for call in range(calls)]
        finally:
            pool.close()
            server.close()

    return asyncio.run(all_calls())


@pytest.mark.parametrize("piece_bytes", [1, 7, READ_BYTES])
@pytest.mark.parametrize("answer", [WHOLE, CHUNKED, AFTER_HINTS, EMPTY], ids=["whole", "chunked", "after-hints", "empty"])
def test_an_answer_is_read_however_it_arrives_and_the_connection_kept(tmp_path: Path, answer: bytes, piece_bytes: int) -> None:
    node = Node(tmp_path, [answer] * 3, piece_bytes)
    expected = (204, b"") if answer is EMPTY else (200, b'{"a": 12}')
    assert called(node, 3) == [expected] * 3
    assert node.connections == 1
    assert node.heads[1] == b"POST /v1/x/1 HTTP/1.1\r\nHost: n\r\nX-Y: z\r\nContent-Length: 4\r\n\r\nbody"


@pytest.mark.parametrize(
    "answer",
    [TO_THE_END, WHOLE.replace(b"Content-Type: application/json", b"Connection: Close"), WHOLE.replace(b"1.1", b"1.0", 1), WHOLE + b"HTTP"],
    ids=["until-it-ends", "asked-to", "old", "more-than-was-asked"],
)
def test_a_connection_that_does_not_stay_is_not_used_again(tmp_path: Path, answer: bytes) -> None:
    node = Node(tmp_path, [answer] * 2, hang_up=True)
    assert called(node, 2) == [(200, b'{"a": 12}')] * 2
    assert node.connections == 2


def test_a_kept_connection_that_was_closed_is_replaced(tmp_path: Path) -> None:
    node = Node(tmp_path, [WHOLE, None, WHOLE])
    assert called(node, 2) == [(200, b'{"a": 12}')] * 2
    assert node.connections == 2


@pytest.mark.parametrize(
    ("answer", "began"),
    [
        (None, False),
        (WHOLE[:-1], True),
        (WHOLE[:20], True),
        (CHUNKED[:-9], True),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", True),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nwithout a colon\r\n\r\n", True),
        (WHOLE.replace(b": 9", b": -9"), True),
        (WHOLE.replace(b": 9", b": 9\r\nContent-Length: 8"), True),
        (WHOLE.replace(b": 9", b": 9\r\nTransfer-Encoding: chunked"), True),
        (CHUNKED.replace(b"chunked", b"gzip"), True),
        (CHUNKED.replace(b"4;x=y", b"zz"), True),
        (CHUNKED.replace(b"4;x=y", b"0x4"), True),
        (CHUNKED.replace(b"4;x=y", b"3"), True),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 3 * READ_BYTES, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 3 * READ_BYTES, True),
    ],
)
def test_what_is_no_answer_is_a_lost_connection(tmp_path: Path, answer: bytes | None, began: bool) -> None:
    node = Node(tmp_path, [answer], hang_up=True)
    with pytest.raises(Lost) as lost:
        called(node)
    assert lost.value.began is began
    assert node.connections == 1


@pytest.mark.parametrize(
    ("target", "value"), [("/v1/x y", "z"), ("/v1/x\r\nA: b", "z"), ("/v1/x", "z\r\nA: b"), ("/v1/x", "z\nA: b"), ("/v1/x", "z\rA")]
)
def test_nothing_makes_two_lines_of_one(target: str, value: str) -> None:
    with pytest.raises(ValueError, match="holds what none may"):
        head_of("GET", target, [("X-Y", value)], 0)


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".example"])
def test_a_name_that_is_none_of_a_host_is_a_lost_connection(name: str) -> None:
    """It ended whoever asked: of a node the whole scheduler."""
    with pytest.raises(Lost, match="cannot connect"):
        asyncio.run(Pool((name, 1)).request("GET", "/", timeout_s=10))
