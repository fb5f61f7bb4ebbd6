"""How an attempt ended, and why.

May know: the model, the reaper's result. One rule: a measure that was not seen is None, never 0.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from stager.model.errors import ErrorClass, Fault
from stager.model.units import format_size


class Outcome(StrEnum):
    """LOST: the job, or what it had to tell, is gone without a trace. KILLED: ended on request."""

    OK = "ok"
    FAILED = "failed"
    LOST = "lost"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Measures:
    """docs/formats/ionode-api.md, the reaper's result. The I/O counters are of the job's first process and all that it waited for."""

    wall_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    chars_read: int | None = None
    chars_written: int | None = None
    processes: int | None = None
    copied_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """`outputs`: Replicas as on the wire. `void_outputs`: committed before it turned out that the attempt failed; to be deleted.

    `release_fault`: leases or sandbox could not be cleared away. `fitted_bytes`: where its disk was full, what it had written by then.
    `isolation`: what held it to its sandbox, `none` where nothing could; empty: nobody asked. `opened`: the first files below watched
    directories that it opened. `members`: by entry that scatters over one of its outputs, what that names.
    """

    attempt_id: str
    outcome: Outcome
    fault: Fault | None = None
    exit_code: int | None = None
    signal: int | None = None
    measures: Measures = Measures()
    outputs: tuple[dict[str, Any], ...] = ()
    void_outputs: tuple[dict[str, Any], ...] = ()
    undeclared: tuple[str, ...] = ()
    undeclared_count: int = 0
    changed_inputs: tuple[tuple[str, str], ...] = ()
    stdout_path: str = ""
    stderr_path: str = ""
    started_at_s: float | None = None
    release_fault: Fault | None = None
    fitted_bytes: int | None = None
    isolation: str = ""
    opened: tuple[str, ...] = ()
    opened_count: int = 0
    members: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """By hand: dataclasses.asdict copies deeply, for a fifth of a millisecond of each job."""
        said = {name: getattr(self, name) for name in self.__slots__}
        for name in ("fault", "measures", "release_fault"):
            value = said[name]
            said[name] = value and {key: getattr(value, key) for key in value.__slots__}
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> AttemptResult:
        fields = dict(said)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["measures"] = Measures(**fields["measures"])
        for key in ("fault", "release_fault"):
            fields[key] = fault_from(fields[key]) if fields[key] else None
        for key in ("outputs", "void_outputs", "undeclared", "opened"):
            fields[key] = tuple(fields.get(key, ()))
        fields["changed_inputs"] = tuple((file, generation) for file, generation in fields["changed_inputs"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class AttemptWaiting:
    """The job ended well and its outputs lie in the sandbox: they need `needed_bytes` of reservation. `Worker.commit` goes on."""

    attempt_id: str
    needed_bytes: int
    measures: Measures = field(default_factory=Measures)


def fault_from(said: Mapping[str, str]) -> Fault:
    return Fault(ErrorClass(said["error_class"]), said["code"], said["message"], said["subject"])


def measures_of(result: Mapping[str, Any], copied_bytes: int | None) -> Measures:
    if result["outcome"] == "not_started":
        return Measures(copied_bytes=copied_bytes)
    seen = {name: result.get(name) for name in Measures.__slots__ if name != "copied_bytes"}
    return Measures(**seen, copied_bytes=copied_bytes)


NOT_BEGUN_CODE = "attempt_not_begun"
MEMORY_CODE = "memory_exceeded"
NOT_STARTED_CLASS = {
    "program_not_found": ErrorClass.INVALID_INPUT,
    "program_not_executable": ErrorClass.INVALID_INPUT,
    "stdin_unreadable": ErrorClass.INVALID_INPUT,
    "cannot_link": ErrorClass.REFUSED,
    "no_container": ErrorClass.REFUSED,
    "container_failed": ErrorClass.REFUSED,
    "isolation_failed": ErrorClass.REFUSED,
}


# What shells mean by them; programs that use these numbers otherwise are rare.
EXIT_MEANINGS = {
    126: " (of a shell: a program could not be executed)",
    127: " (of a shell: a program was not found)",
    141: " (of a shell: a program wrote to one that had stopped reading, as into `| head`)",
}


def fault_of(result: Mapping[str, Any], job_id: str, run_id: str) -> tuple[Outcome, Fault | None]:
    """The meaning of the reaper's result for the attempt. Its message names no path: tenants of a service read it too."""
    how, message = result["outcome"], result.get("message") or ""
    if how == "exited" and result["exit_code"] == 0:
        return Outcome.OK, None
    if how == "killed":
        return Outcome.KILLED, Fault(ErrorClass.TRANSIENT, "killed", f"job {job_id!r} was ended on request", job_id)
    if how == "not_started":
        code = result.get("code") or "start_failed"
        if code == "fenced":
            return Outcome.LOST, lost_fault(job_id)
        if code == "not_begun":
            text = f"job {job_id!r} had not begun when its start was broken off"
            return Outcome.FAILED, Fault(ErrorClass.TRANSIENT, NOT_BEGUN_CODE, text, job_id)
        kind = NOT_STARTED_CLASS.get(code, ErrorClass.TRANSIENT)
        return Outcome.FAILED, Fault(kind, code, f"job {job_id!r} was not started: {message}", job_id)
    if how == "memory":
        used, limit = format_size(result["memory_used_bytes"]), format_size(result["memory_limit_bytes"])
        had = f"used {used}" if result.get("memory_by") != "cgroup" else "wanted more"
        text = f"job {job_id!r} {had} where memory: {limit} is declared; it was ended: declare what it needs, or `memory_limit: off`"
        # As often as it is tried it takes as much.
        return Outcome.FAILED, Fault(ErrorClass.INVALID_INPUT, MEMORY_CODE, text, job_id)
    if how == "exited":
        said = f"ended with exit code {result['exit_code']}{EXIT_MEANINGS.get(result['exit_code'], '')}"
    elif how == "timeout":
        said = f"was ended: {message}"
    else:
        said = message.replace("the job ", "", 1) or f"ended by signal {result.get('signal')}"
    code = {"exited": "job_failed", "timeout": "job_timeout"}.get(how, "job_signalled")
    where = f"stager logs {shlex.quote(run_id)} {shlex.quote(job_id)}"
    return Outcome.FAILED, Fault(ErrorClass.TRANSIENT, code, f"job {job_id!r} {said}; its output: {where}", job_id)


def lost_fault(job_id: str) -> Fault:
    text = f"nothing is known any more of an attempt of job {job_id!r}; it can be run again"
    return Fault(ErrorClass.TRANSIENT, "attempt_lost", text, job_id)


def changed_fault(job_id: str, changed: list[str]) -> Fault:
    what = f"job {job_id!r} changed its linked inputs {', '.join(changed)}, which others read too; they are quarantined"
    text = f"{what}; let the job work on a copy"
    return Fault(ErrorClass.CORRUPT, "input_changed", text, changed[0])
