"""A program that answers requests line by line, started when it is first asked.

May know: pipes. One rule: a request is asked again only where the program had ended before it answered, and then once: it ends by itself
when nobody asks for a while, and nothing that is asked of it changes anything.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import IO

COMPLAINT_BYTES = 500
ENDS_WITHIN_S = 1.0

# Of one request: its answer; None: the program ended before.
Answer = SimpleQueue[bytes | None]


class Silent(Exception):
    """It did not answer in time, and was killed."""


class Broken(Exception):
    """It ended twice before it answered. Says with what."""


class LineProcess:
    """From any thread, several requests at a time: it answers in the order in which it was asked. It ends with this object, or with the
    process that made it, since its input does.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.lock = threading.Lock()
        self.running: Running | None = None
        self.end: Callable[[], object] = lambda: None

    def ask(self, line: bytes, deadline_s: float) -> bytes:
        """The answer, without its end of line. Raises Silent, Broken."""
        until = time.monotonic() + deadline_s
        running = self.running
        if running is not None:
            answer = running.ask(line, until)
            if answer is not None:
                return answer
        running = self.started_after(running)
        answer = running.ask(line, until)
        if answer is not None:
            return answer
        raise Broken(running.last_words())

    def started_after(self, ended: Running | None) -> Running:
        """The one that took its place: of all who find that it has ended, the first starts another."""
        with self.lock:
            if self.running is None or self.running is ended:
                self.end()
                self.running = Running(self.command)
                self.end = weakref.finalize(self, end, self.running)
            return self.running


class Running:
    def __init__(self, command: Sequence[str]) -> None:
        # A pipe that nobody reads would stop it.
        self.complaints = os.memfd_create("complaints")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.complaints)
        self.lock = threading.Lock()
        self.asked: deque[Answer] = deque()
        assert self.process.stdout is not None
        self.hearing = threading.Thread(target=hear, args=(self.process.stdout, self.asked, self.lock), daemon=True, name="stager-answers")
        self.hearing.start()

    def ask(self, line: bytes, until: float) -> bytes | None:
        """None: it has ended. Its answers are read meanwhile, so writing never waits for them."""
        answer = Answer()
        with self.lock:
            assert self.process.stdin is not None
            if self.process.stdout is None or self.process.stdout.closed:
                return None
            self.asked.append(answer)
            try:
                write_all(self.process.stdin.fileno(), line + b"\n")
            except BrokenPipeError:
                return None
        try:
            return waited_for(answer, until)
        except Empty:
            self.process.kill()
            self.process.wait()
            raise Silent from None

    def last_words(self) -> str:
        code = self.process.wait()
        written_bytes = os.fstat(self.complaints).st_size
        said = os.pread(self.complaints, COMPLAINT_BYTES, max(0, written_bytes - COMPLAINT_BYTES)).decode(errors="replace")
        return f"it ended with {code}: {said.strip()}"


def hear(answers: IO[bytes], asked: deque[Answer], lock: threading.Lock) -> None:
    """Until there are no more. Whoever went away without its answer leaves it to nobody else."""
    for line in answers:
        if not line.endswith(b"\n"):
            break
        asked.popleft().put(line[:-1])
    with lock:
        answers.close()
        while asked:
            asked.popleft().put(None)


def waited_for(answer: Answer, until: float) -> bytes | None:
    """Raises Empty when it is not there in time."""
    return answer.get(timeout=max(0.0, until - time.monotonic()))


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def end(running: Running) -> None:
    process = running.process
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        # Whoever ends now does not wait for what it asked.
        process.kill()
        process.wait()
    # Whichever thread lets go of it last ends it.
    if threading.current_thread() is not running.hearing:
        running.hearing.join()
    os.close(running.complaints)
