"""Asking the scheduler of stager, over its socket: a few lines of HTTP, since the library for it takes longer to load than most lists.

May know: sockets, the answers of docs/formats/rest-api.md. One rule: nothing that it answers, or fails to, is more than an exception.
"""

from __future__ import annotations

import json
import os
import socket
import time
from urllib.parse import quote

CONNECT_S = 10.0
# Beside what it was asked to wait for.
ANSWER_S = 60.0
# A scheduler that was ended may be started again at once.
GONE_S = 15.0
POLL_S = 0.25
ANSWER_BYTES_MAX = 64 << 20


class Unasked(Exception):
    """It cannot be asked, or its answer is not understood."""


class Declined(Exception):
    """It said no. `code`: why, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Scheduler:
    """`headers`: what it wants with each question. `run`: of the workflow."""

    def __init__(self, place: str, run: str, headers: dict[str, str]) -> None:
        self.place, self.headers = place, headers
        self.path = f"/v1/runs/{quote(run, safe='')}"
        self.answered = False

    def get(self, what: str, **query: str) -> dict[str, object]:
        words = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        return self.asked("GET", f"{what}?{words}", b"", 0.0)

    def post(self, what: str, wait_s: float = 0.0, **body: object) -> dict[str, object]:
        """All that is asked here may be asked twice."""
        return self.asked("POST", what, json.dumps({**body, "wait_s": wait_s}).encode(), wait_s)

    def asked(self, method: str, what: str, body: bytes, wait_s: float) -> dict[str, object]:
        """One that has answered before is given the time to come back."""
        end = time.monotonic() + GONE_S
        while True:
            try:
                status, answer = self.exchanged(method, self.path + what, body, wait_s)
                break
            except (OSError, ValueError) as problem:
                if not self.answered or time.monotonic() > end:
                    raise Unasked(f"the scheduler at {self.place} does not answer: {problem}") from problem
            time.sleep(POLL_S)
        self.answered = True
        if status < 400:
            return answer
        error = answer.get("error")
        said = error if isinstance(error, dict) else {}
        raise Declined(str(said.get("code", status)), str(said.get("message", f"it answered {status}")))

    def exchanged(self, method: str, path: str, body: bytes, wait_s: float) -> tuple[int, dict[str, object]]:
        """Raises OSError, or ValueError on what is no answer."""
        head = [f"{method} {path} HTTP/1.1", "Connection: close", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        with connected(self.place) as line:
            line.settimeout(wait_s + ANSWER_S)
            line.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            data = b""
            while part := line.recv(1 << 16):
                data += part
                if len(data) > ANSWER_BYTES_MAX:
                    raise ValueError(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
        status, _, said = data.partition(b"\r\n\r\n")
        words = status.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.1") or b"chunked" in status.lower():
            raise ValueError("its answer is no HTTP that is understood here")
        answer = json.loads(said or b"{}")
        if not isinstance(answer, dict):
            raise ValueError("its answer is no JSON object")
        return int(words[1]), answer


def connected(place: str) -> socket.socket:
    """The path may be longer than the kernel takes: then its directory is opened, and named by its descriptor."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(CONNECT_S)
    directory = os.open(os.path.dirname(place) or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        line.connect(f"/proc/self/fd/{directory}/{os.path.basename(place)}")
    except BaseException:
        line.close()
        raise
    finally:
        os.close(directory)
    return line
