"""The files that a job left in its sandbox instead of an output that it did not make: most often the same file under another name.

May know: an attempt's spec and place. One rule: a look costs no more than a screen of names, whatever the job has left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from stager.model.errors import Fault
from stager.worker.place import Place
from stager.worker.spec import SCRATCH, AttemptSpec
from stager.worker.walking import walked

NAMES_SHOWN = 12
# How many entries are looked at, whatever they are.
ENTRIES_MAX = 2_000


def with_found(fault: Fault, spec: AttemptSpec, place: Place) -> Fault:
    found = list(islice(made_in(spec, place), NAMES_SHOWN + 1))
    names = ", ".join(repr(name) for name in found[:NAMES_SHOWN]) + (", …" if len(found) > NAMES_SHOWN else "")
    what = f"beside its inputs its sandbox held {names}" if found else "beside its inputs its sandbox held nothing"
    return replace(fault, message=f"{fault.message.replace('the job', f'job {spec.job_id!r}', 1)}; {what}")


def made_in(spec: AttemptSpec, place: Place) -> Iterator[str]:
    """Paths below the sandbox that are no inputs, in order; those of directories only where nothing is in them."""
    inputs = {*spec.input_paths, SCRATCH}
    left = ENTRIES_MAX
    for top, directories, files in walked(place.sandbox):
        below = os.path.relpath(top, place.sandbox)
        prefix = "" if below == "." else f"{below}/"
        directories[:] = sorted(name for name in directories if prefix + name not in inputs)
        left -= len(directories) + len(files)
        yield from (prefix + name for name in sorted(files) if prefix + name not in inputs)
        if prefix and not directories and not files:
            yield prefix
        if left < 0:
            return
