"""A program that answers requests line by line, started when it is first asked.

May know: pipes. One rule: a request is asked again only where the program had ended before it answered, and then once: it ends by itself
when nobody asks for a while, and nothing that is asked of it changes anything.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence

PIECE_BYTES = 1 << 16
COMPLAINT_BYTES = 500
ENDS_WITHIN_S = 1.0


class Silent(Exception):
    """It did not answer in time, and was killed."""


class Broken(Exception):
    """It ended twice before it answered. Says with what."""


class LineProcess:
    """From any thread, one request at a time. It ends with this object, or with the process that made it, since its input does."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.lock = threading.Lock()
        self.running: Running | None = None
        self.end: Callable[[], object] = lambda: None

    def ask(self, line: bytes, deadline_s: float) -> bytes:
        """The answer, without its end of line. Raises Silent, Broken."""
        until = time.monotonic() + deadline_s
        with self.lock:
            if self.running is not None:
                answer = self.running.ask(line, until)
                if answer is not None:
                    return answer
            self.end()
            self.running = Running(self.command)
            self.end = weakref.finalize(self, end, self.running)
            answer = self.running.ask(line, until)
            if answer is not None:
                return answer
            raise Broken(self.running.last_words())


class Running:
    def __init__(self, command: Sequence[str]) -> None:
        # A pipe that nobody reads would stop it.
        self.complaints = os.memfd_create("complaints")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.complaints, bufsize=0)

    def ask(self, line: bytes, until: float) -> bytes | None:
        """None: it has ended. A line is read whole before it is answered, so writing never waits for reading."""
        assert self.process.stdin is not None and self.process.stdout is not None
        answer = bytearray()
        try:
            write_all(self.process.stdin.fileno(), line + b"\n")
            while not answer.endswith(b"\n"):
                if not readable(self.process.stdout.fileno(), until):
                    raise Silent
                piece = os.read(self.process.stdout.fileno(), PIECE_BYTES)
                if not piece:
                    return None
                answer += piece
        except BrokenPipeError:
            return None
        except BaseException:
            # Whoever asks next would get the answer to this.
            self.process.kill()
            self.process.wait()
            raise
        return bytes(answer[:-1])

    def last_words(self) -> str:
        code = self.process.wait()
        written_bytes = os.fstat(self.complaints).st_size
        said = os.pread(self.complaints, COMPLAINT_BYTES, max(0, written_bytes - COMPLAINT_BYTES)).decode(errors="replace")
        return f"it ended with {code}: {said.strip()}"


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def readable(descriptor: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def end(running: Running) -> None:
    process = running.process
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        # Whoever ends now does not wait for what it asked.
        process.kill()
        process.wait()
    os.close(running.complaints)
