"""Records of pegasus-kickstart, which measures each job of Pegasus, as samples for the profile of its job type.

May know: the record's form (version 3). One rule: only a program that ended well speaks for its type, and what the record does not say is
None. A record that cannot be read costs its sample and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from stager.model.profiling import Kind, Sample, Side, group_files
from stager.readers.lines import Loader

START = "- invocation:"
# With -z and -Z lines of XML stand within the YAML.
FOREIGN = re.compile(r"^\s*<")
RECORD_BYTES_MAX = 32 << 20
KIB = 1024
# More is nothing that was counted.
NUMBER_MAX = 2**53


def records_of(path: Path) -> list[Path]:
    """The records that the tries of a job wrote to its output, the oldest first: NAME.out.000, and NAME.out until it is rotated."""
    kept = (other for other in path.parent.glob(f"{path.name}.out*"))
    return sorted(other for other in kept if other.suffix == ".out" or other.suffix[1:].isdigit())


def read_samples(paths: Iterable[Path], name: str, run: str, store: str) -> Iterator[Sample]:
    """Of one job, called `name` in its samples."""
    for path in paths:
        try:
            text = path.read_bytes()[:RECORD_BYTES_MAX].decode(errors="replace")
        except OSError:
            continue
        for number, record in enumerate(read_records(text)):
            sample = sample_of(record, f"{name}/{path.name}/{number}", run, store)
            if sample is not None:
                yield sample


def read_records(text: str) -> Iterator[Mapping[str, Any]]:
    """A job of several tasks has one each; other text may stand between them."""
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if lines and (not line.startswith(" ") or line.startswith(START)):
            yield from parsed(lines)
            lines = []
        if line.startswith(START) or (lines and not FOREIGN.match(line)):
            lines.append(line)


def parsed(lines: list[str]) -> Iterator[Mapping[str, Any]]:
    try:
        found = yaml.load("\n".join(lines), Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        # Of a date that is none, for instance.
        return
    if isinstance(found, list) and isinstance(found[0], Mapping):
        yield found[0]


def sample_of(record: Mapping[str, Any], attempt: str, run: str, store: str) -> Sample | None:
    main = part(record, "mainjob")
    usage, status = part(main, "usage"), part(main, "status")
    job_type = record.get("transformation")
    if status.get("regular_exitcode") != 0 or not isinstance(job_type, str) or not job_type:
        return None
    cpu = [number(usage, "utime"), number(usage, "stime")]
    memory = number(usage, "maxrss")
    files = [entry for entry in part(record, "files").values() if isinstance(entry, Mapping) and isinstance(entry.get("lfn"), str)]
    outputs = [(str(entry["lfn"]), size_of(entry)) for entry in files if entry.get("output") is True]
    inputs = [(str(entry["lfn"]), size_of(entry)) for entry in files if entry.get("output") is not True]
    # Counters of a process hold those of its children that have ended: the first one's are the whole job's.
    traced = part(part(record, "procs") or part(main, "procs"), main.get("pid"))
    return Sample(
        store=store,
        attempt=attempt,
        job_type=job_type,
        run=run,
        kind=Kind.RUN,
        at=began_at(main.get("start")),
        wall_s=number(main, "duration"),
        cpu_s=None if None in cpu else sum(value for value in cpu if value is not None),
        memory_peak_bytes=None if memory is None else int(memory * KIB),
        input_bytes=total(inputs),
        input_files=len(inputs) or None,
        read_bytes=whole(traced, "rchar"),
        written_bytes=whole(traced, "wchar"),
        output_bytes=total(outputs),
        output_files=len(outputs) or None,
        files=group_files(Side.INPUT, inputs) + group_files(Side.OUTPUT, outputs),
    )


def part(of: Mapping[str, Any], key: Any) -> Mapping[Any, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


def number(of: Mapping[str, Any], key: str) -> float | None:
    found = of.get(key)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found <= NUMBER_MAX else None


def whole(of: Mapping[str, Any], key: str) -> int | None:
    found = number(of, key)
    return None if found is None else int(found)


def size_of(entry: Mapping[str, Any]) -> int | None:
    return whole(entry, "size")


def total(files: list[tuple[str, int | None]]) -> int | None:
    sizes = [size_bytes for _, size_bytes in files if size_bytes is not None]
    return sum(sizes) if sizes and len(sizes) == len(files) else None


def began_at(written: object) -> float:
    """Since 1970; 0, the oldest, where it is not understood. YAML knows times, and a quoted one is text."""
    try:
        return (written if isinstance(written, datetime) else datetime.fromisoformat(str(written))).timestamp()
    except (ValueError, OverflowError):
        return 0.0
