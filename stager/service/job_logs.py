"""The output of jobs: the end of it, or what came since. One rule: a file of the state directory is read on a thread, never all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from stager import wire
from stager.model.errors import InvalidInput
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.worker.place import safe_name

TAIL_BYTES_MAX = 16 << 20
STREAMS = {"out": "stdout", "err": "stderr"}


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The choice of a job's output. `attempt` and `stream` empty: each. `after`: the first so many bytes are known; None: the end."""

    tail_bytes: int
    attempt: str = ""
    stream: str = ""
    after: int | None = None


class JobLogs:
    """On the event loop's thread. `logs`: the directory that the worker writes to."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, logs: Path, bring: Callable[[str, str], Awaitable[None]] | None = None) -> None:
        """`bring`: brings what attempts of a job on hosts have printed, before it is read."""
        self.inquiry, self.runs, self.logs, self.bring = inquiry, runs, logs, bring

    async def of(self, run: str, job: str, choice: LogChoice) -> wire.JobLogs:
        folded = await self.inquiry.ask(lambda: self.runs.is_folded(run))
        entry = None if folded else await self.inquiry.ask(lambda: self.runs.known(run))
        if entry is not None and job not in entry.workflow.jobs:
            raise InvalidInput(f"run {run} has no job {job!r}; `stager jobs {run}` lists them", code="not_found", subject=job)
        if self.bring is not None:
            await self.bring(run, job)
        found = await asyncio.to_thread(read_logs, self.logs / safe_name(run), job, choice)
        return wire.JobLogs(run=run, job=job, logs=found)


def read_logs(directory: Path, job: str, choice: LogChoice) -> list[wire.AttemptLog]:
    """In the order of the attempts, stdout before stderr."""
    name = safe_name(job)
    found = []
    for path in directory.glob("*"):
        stem, _, ending = path.name.rpartition(".")
        start, _, number = stem.rpartition(".")
        stream = STREAMS.get(ending, "")
        if start == name and number.isdecimal() and stream and choice.attempt in ("", number) and choice.stream in ("", stream):
            found.append((int(number), stream == "stderr", path))
    return [read_log(path, number, is_err, choice) for number, is_err, path in sorted(found)]


def read_log(path: Path, number: int, is_err: bool, choice: LogChoice) -> wire.AttemptLog:
    size_bytes, most = path.stat().st_size, min(max(0, choice.tail_bytes), TAIL_BYTES_MAX)
    start = max(0, size_bytes - most) if choice.after is None else min(choice.after, size_bytes)
    with path.open("rb") as stream:
        stream.seek(start)
        read = stream.read(most)
    if choice.after is not None:
        read = whole_letters(read)
    return wire.AttemptLog(
        attempt=str(number),
        stream="stderr" if is_err else "stdout",
        path=str(path),
        size_bytes=size_bytes,
        text=read.decode(errors="replace"),
        next_byte=start + len(read),
    )


def whole_letters(read: bytes) -> bytes:
    """Without the beginning of a letter whose other bytes are yet to come."""
    for back in range(1, min(4, len(read) + 1)):
        last = read[-back]
        if last >= 0xC0:
            return read[:-back] if back < 2 + (last >= 0xE0) + (last >= 0xF0) else read
        if last < 0x80:
            break
    return read
