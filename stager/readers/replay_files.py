"""Makes the inputs of a replay and checks its finals, by the I/O node's binary: Python touches no payload.

May know: the binary's verbs (docs/formats/replay.md).
One rule: all that is wrong is told together, and nothing that is right is made again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stager.model.errors import Corrupt, Fault, Transient, error_from
from stager.model.workflow import Origin
from stager.ports import OriginAccess
from stager.readers.replay import ReplayFile


@dataclass(frozen=True, slots=True)
class ReplayReport:
    files: int
    bytes: int
    made: int
    wrong: tuple[str, ...]


def make_inputs(program: str, directory: Path, seed: int, files: Sequence[ReplayFile]) -> ReplayReport:
    """Makes what is not right yet below the directory: a file origin's base, or where uploads to another origin start. Blocking."""
    report = run_verb(program, "replay-make", directory, seed, files)
    if report.wrong:
        raise Transient(
            f"{len(report.wrong)} of {report.files} replay inputs could not be made below {directory}: {'; '.join(report.wrong[:3])}"
        )
    return report


def check_files(program: str, directory: Path, seed: int, files: Sequence[ReplayFile]) -> ReplayReport:
    """Compares every byte. Blocking. Wrong and missing files are in the report."""
    return run_verb(program, "replay-check", directory, seed, files)


def require_right(report: ReplayReport) -> None:
    if report.wrong:
        raise Corrupt(f"{len(report.wrong)} of {report.files} finals are not what the replay must have made: {'; '.join(report.wrong[:3])}")


def not_at_origin(access: OriginAccess, origin: Origin, files: Sequence[ReplayFile]) -> list[ReplayFile]:
    """The files to upload first, by size: the jobs check every byte."""
    answers = access.stat(origin, [file.path for file in files])
    for entry in answers:
        if isinstance(entry, Fault) and entry.code != "not_found":
            raise error_from(entry)
    return [file for file, entry in zip(files, answers, strict=True) if isinstance(entry, Fault) or entry.size_bytes != file.size_bytes]


def specification(seed: int, files: Iterable[ReplayFile]) -> str:
    return json.dumps({"format": 1, "seed": seed, "files": [[file.path, file.size_bytes] for file in files]}, separators=(",", ":"))


def run_verb(program: str, verb: str, directory: Path, seed: int, files: Sequence[ReplayFile]) -> ReplayReport:
    command = [program, verb, "--dir", str(directory), "--spec", "-"]
    done = subprocess.run(command, input=specification(seed, files), capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        told = done.stderr.strip().splitlines() or ["it said nothing"]
        raise Transient(f"{program} {verb} ended with {done.returncode}: {told[0]}") from None
    return ReplayReport(found["files"], found["bytes"], found["made"], tuple(found["wrong"]))
