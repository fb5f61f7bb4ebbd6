"""Has what tenants send read and planned in processes of their own, and answers as if it were done here.

May know: how those processes are asked (reader_process.py). Blocking, on worker threads. One rule: whatever a text costs or breaks,
its sender is told, and nobody else waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec

from stager import rest, wire
from stager.model.errors import Refused, Transient
from stager.service.reader_process import ADVICE, TOO_LARGE, Answer, Limits, Question, Start, read_frame, write_frame
from stager.service.settings import Settings
from stager.service.submissions import Rights, sweep
from stager.service.tenancy import Tenancy

# Each takes 100 MB, and a second to start.
IDLE_MAX = 2

log = logging.getLogger(__name__)


class Reading(Rights):
    """Submissions that another process reads; what is only looked up is done here."""

    def __init__(self, settings: Settings, tenancy: Tenancy, limits: Limits | None = None) -> None:
        super().__init__(tenancy)
        self.start = Start(settings, tenancy.path, limits or Limits())
        self.idle: list[ReaderProcess] = []
        self.busy: set[ReaderProcess] = set()
        self.closed = False
        self.lock = threading.Lock()
        sweep(settings.state_dir)

    def validate(self, body: bytes, tenant: str) -> rest.Validated:
        return rest.Validated.model_validate_json(self.ask("validate", body, tenant))

    def plan(self, body: bytes, tenant: str) -> bytes:
        return self.ask("plan", body, tenant)

    def estimate(self, body: bytes, tenant: str) -> rest.Estimated:
        return rest.Estimated.model_validate_json(self.ask("estimate", body, tenant))

    def submission(self, body: bytes, tenant: str) -> wire.SubmitRequest:
        return wire.decode_submit(self.ask("submission", body, tenant))

    def engine_submission(self, body: bytes, tenant: str) -> wire.SubmitRequest:
        return wire.decode_submit(self.ask("engine_submission", body, tenant))

    def ask(self, name: str, body: bytes, tenant: str) -> bytes:
        """Raises what the submissions reader raised, Refused or Transient where a limit was met."""
        with self.reader() as reader:
            answer = reader.ask(Question(name, body, tenant))
        if answer.told is not None:
            raise answer.told.error()
        if answer.found is None:
            raise RuntimeError(f"{name} failed by a defect, which was logged before")
        return answer.found

    @contextlib.contextmanager
    def reader(self) -> Iterator[ReaderProcess]:
        """One that nobody else asks meanwhile; it is kept for the next question unless it has ended or too many are kept."""
        reader = self.kept() or ReaderProcess(self.start)
        try:
            with self.lock:
                self.busy.add(reader)
                if self.closed:
                    reader.call_off()
            yield reader
        except BaseException:
            reader.end()
            raise
        finally:
            with self.lock:
                self.busy.discard(reader)
        with self.lock:
            keep = not reader.is_over and not self.closed and len(self.idle) < IDLE_MAX
            if keep:
                self.idle.append(reader)
        if not keep:
            reader.end()

    def close(self) -> None:
        """The service ends. Callers that still wait for an answer are told so."""
        with self.lock:
            self.closed = True
            kept, self.idle = self.idle, []
            for reader in self.busy:
                reader.call_off()
        for reader in kept:
            reader.end()

    def kept(self) -> ReaderProcess | None:
        with self.lock:
            while self.idle:
                reader = self.idle.pop()
                if reader.process.poll() is None:
                    return reader
                reader.end()
        return None


class ReaderProcess:
    """One process; it ends by itself when the service has gone."""

    def __init__(self, start: Start) -> None:
        self.start = start
        command = [sys.executable, "-P", "-m", "stager.service.reader_process"]
        # A session of its own, so that what it has started ends with it.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.asks, self.answers = self.process.stdin, self.process.stdout
        self.is_over = self.is_late = self.is_called_off = False
        write_frame(self.asks, pickle.dumps(start))

    def ask(self, question: Question) -> Answer:
        timer = threading.Timer(self.start.limits.deadline_s, self.give_up)
        timer.start()
        try:
            write_frame(self.asks, msgspec.msgpack.encode(question))
            answer = msgspec.msgpack.decode(read_frame(self.answers), type=Answer)
        except (EOFError, BrokenPipeError):
            self.end()
            raise self.ended() from None
        finally:
            timer.cancel()
            timer.join()
        self.is_over = answer.last or self.is_late or self.is_called_off
        return answer

    def give_up(self) -> None:
        self.is_late = True
        self.kill()

    def call_off(self) -> None:
        """From any thread: whoever asks gets no answer, and ends it."""
        self.is_called_off = True
        self.kill()

    def ended(self) -> Exception:
        limits = self.start.limits
        if self.is_called_off:
            return Transient("the service is ending; ask again in a moment", code="draining")
        if self.is_late:
            text = f"this was not read and planned within {limits.deadline_s:g} s"
            return Transient(f"{text}; its origins may be slow: ask again in a moment, or {ADVICE}", code="busy")
        if self.process.returncode == -signal.SIGXCPU:
            text = f"reading and planning this takes more than {limits.cpu_s} s of a processor"
            return Refused(f"{text}; {ADVICE}", code=TOO_LARGE)
        log.error("a process that read a tenant's text ended by itself (%d)", self.process.returncode)
        return Refused(f"reading this takes more than this machine has; {ADVICE}", code=TOO_LARGE)

    def kill(self) -> None:
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.is_over = True
        self.kill()
        self.process.wait()
        for pipe in (self.asks, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        sweep(self.start.settings.state_dir, self.process.pid)
