"""`python -m stager.service.reader_process`: reads and plans what tenants send, apart from the service that serves all of them.

May know: the submissions reader. One rule: what a text costs is bounded here (memory, processor), and a text that costs more ends this
process only.

Requests come over standard input and answers go over standard output, each as its length (8 bytes, big-endian) and its bytes. The first
request is the pickled `Start`; each later one is a msgpack `Question`, answered by a msgpack `Answer`.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import resource
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from stager import wire
from stager.model.errors import Fault, Refused, StagerError, error_from
from stager.readers.lines import Finding, WorkflowInvalid
from stager.readers.tenants import read_tenants
from stager.service.settings import Settings
from stager.service.submissions import Submissions
from stager.service.tenancy import Tenancy

NICENESS = 5
LENGTH_BYTES = 8
# What a large text left behind is given back with the process.
RESIDENT_BYTES_MAX = 512 * 2**20
TOO_LARGE = "reading_limit"
ADVICE = "split the workflow, or ask the administrator of the service"

log = logging.getLogger("stager.service.reader")


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one reading: seconds of the processor, bytes of memory, seconds until it must have been answered (its origins are asked, too)."""

    cpu_s: int = 120
    memory_bytes: int = 3 * 2**30
    deadline_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Start:
    settings: Settings
    tenants: Path
    limits: Limits


class Question(msgspec.Struct, frozen=True):
    """`name`: of a method of the submissions reader."""

    name: str
    body: bytes
    tenant: str


class Told(msgspec.Struct, frozen=True):
    """An error on its way to the service; `findings` of a workflow that is invalid."""

    fault: Fault
    findings: tuple[Finding, ...] | None = None
    left_out: int = 0

    @classmethod
    def of(cls, problem: StagerError) -> Told:
        if isinstance(problem, WorkflowInvalid):
            return cls(problem.fault(), problem.findings, problem.left_out)
        return cls(problem.fault())

    def error(self) -> StagerError:
        if self.findings is not None:
            return WorkflowInvalid(self.fault.subject, self.findings, self.left_out)
        return error_from(self.fault)


class Answer(msgspec.Struct, frozen=True):
    """`last`: the process ends after it. Neither `found` nor `told`: a defect, which the log tells of."""

    found: bytes | None = None
    told: Told | None = None
    last: bool = False


def read_frame(stream: IO[bytes]) -> bytes:
    """Raises EOFError where the other side is gone."""
    head = stream.read(LENGTH_BYTES)
    body = stream.read(int.from_bytes(head)) if len(head) == LENGTH_BYTES else b""
    if len(head) < LENGTH_BYTES or len(body) < int.from_bytes(head):
        raise EOFError
    return body


def write_frame(stream: IO[bytes], body: bytes) -> None:
    stream.write(len(body).to_bytes(LENGTH_BYTES))
    stream.write(body)
    stream.flush()


def main() -> None:
    asks, answers = own_streams()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    start: Start = pickle.loads(read_frame(asks))
    os.umask(0o077)
    os.nice(NICENESS)
    bound(resource.RLIMIT_AS, start.limits.memory_bytes)
    bound(resource.RLIMIT_CORE, 0)
    submissions = Submissions(start.settings, Tenancy(start.tenants, start.settings.state_dir, start.settings.environ, read_tenants))
    coming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(asks, coming), daemon=True).start()
    while True:
        question = msgspec.msgpack.decode(coming.get(), type=Question)
        bound(resource.RLIMIT_CPU, int(sum(os.times()[:2])) + 1 + start.limits.cpu_s)
        answer = answered(submissions, question, start.limits)
        write_frame(answers, msgspec.msgpack.encode(answer))
        if answer.last:
            return


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """No program that is started here reads what is meant for us, and nothing that is printed gets between our answers."""
    asks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return asks, answers


def bound(what: int, most: int) -> None:
    """The soft limit, as far as the hard one allows."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def listen(asks: BinaryIO, coming: queue.SimpleQueue[bytes]) -> None:
    """A service that is gone needs no answer, whatever is being read."""
    try:
        while True:
            coming.put(read_frame(asks))
    except EOFError:
        os._exit(0)


def answered(submissions: Submissions, question: Question, limits: Limits) -> Answer:
    try:
        found = QUESTIONS[question.name](submissions, question.body, question.tenant)
    except StagerError as problem:
        return Answer(told=Told.of(problem), last=is_large())
    except (MemoryError, RecursionError):
        text = f"reading this takes more than {limits.memory_bytes >> 20} MiB of memory"
        return Answer(told=Told.of(Refused(f"{text}; {ADVICE}", code=TOO_LARGE)), last=True)
    except Exception:
        log.exception("%s failed by a defect", question.name)
        return Answer(last=True)
    return Answer(found, last=is_large())


def is_large() -> bool:
    """Now: the kernel's own maximum begins with what the process had that started this one."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * resource.getpagesize() > RESIDENT_BYTES_MAX


QUESTIONS: dict[str, Callable[[Submissions, bytes, str], bytes]] = {
    "validate": lambda submissions, body, tenant: submissions.validate(body, tenant).model_dump_json().encode(),
    "plan": lambda submissions, body, tenant: submissions.plan(body, tenant),
    "estimate": lambda submissions, body, tenant: wire.encode(submissions.estimate(body, tenant)),
    "submission": lambda submissions, body, tenant: wire.encode(submissions.submission(body, tenant)),
    "engine_submission": lambda submissions, body, tenant: wire.encode(submissions.engine_submission(body, tenant)),
}

if __name__ == "__main__":
    main()
