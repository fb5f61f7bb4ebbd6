"""Whether a job ended because the file system of its sandbox was full.

May know: the file system. One rule: what was full is looked at before the sandbox goes; it is a fact of the disk, never read out of what a
program printed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stager.model.errors import SANDBOX_FULL_CODE, ErrorClass, Fault
from stager.model.units import format_size
from stager.worker.attempt import AttemptResult, Outcome
from stager.worker.place import Place
from stager.worker.spec import AttemptSpec
from stager.worker.walking import walked

# Below this a node calls its own disk full too (docs/operating/ionode.md).
FREE_BYTES_MIN = 16 * 1024 * 1024
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def if_full(spec: AttemptSpec, place: Place, result: Mapping[str, Any], ended: AttemptResult) -> AttemptResult:
    """The same, or one that says that the disk was full, where a job failed by itself and there is no space left. Of one that is lost too:
    its reaper had no space to write down how it ended.
    """
    by_itself = ended.outcome is Outcome.LOST or (ended.outcome is Outcome.FAILED and result["outcome"] in ("exited", "signalled"))
    return if_left_without_space(spec, place, ended) if by_itself else ended


def if_left_without_space(spec: AttemptSpec, place: Place, ended: AttemptResult) -> AttemptResult:
    if not os.path.isdir(place.sandbox):
        return ended
    found = os.statvfs(place.sandbox)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes >= FREE_BYTES_MIN:
        return ended
    said = ended.fault.message if ended.fault is not None else ""
    return with_full(spec, place, ended, f"{said}; the file system of its sandbox {place.sandbox} has {format_size(free_bytes)} left")


def with_full(spec: AttemptSpec, place: Place, ended: AttemptResult, what: str) -> AttemptResult:
    text = f"{what}: give space back there, or lower the capacity of the node beside it"
    fault = Fault(ErrorClass.TRANSIENT, SANDBOX_FULL_CODE, text, spec.job_id)
    outcome = Outcome.FAILED if ended.outcome is Outcome.OK else ended.outcome
    return replace(ended, outcome=outcome, fault=fault, fitted_bytes=written_bytes(spec, place))


def written_bytes(spec: AttemptSpec, place: Place) -> int:
    """The bytes that the job has put on the disk, without the inputs that it was given. Files that go away meanwhile do not count."""
    given = {f"{place.sandbox}/{entry.path}" for entry in spec.inputs}
    total = 0
    for directory, _, names in walked(place.sandbox):
        for name in names:
            path = f"{directory}/{name}"
            if path not in given:
                try:
                    total += os.lstat(path).st_blocks * 512
                except OSError:
                    continue
    return total
