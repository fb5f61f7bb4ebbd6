"""A word to a job that failed where a write was refused, where its image lacks a program, or where packages would have run one.

May know: how an attempt ended, the end of its log. One rule: it adds to a message and changes no outcome: programs print what they like.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stager.worker.attempt import AttemptResult
from stager.worker.place import packages_told
from stager.worker.spec import AttemptSpec

TAIL_BYTES = 4096
UNRUN_TOLD = 5
# Of mounts, and of Landlock.
REFUSALS = (("mounts", b"Read-only file system"), ("landlock", b"Permission denied"))


def with_hint(spec: AttemptSpec, ended: AttemptResult, result: Mapping[str, Any], packages: str = "") -> AttemptResult:
    """The same, where nothing says so. `packages`: the directory of its environment; empty: it had none."""
    if ended.fault is not None and spec.image is not None and result.get("code") == "program_not_found":
        text = "in the container; `shell: sh` is for images without bash, and what lies on the host is not in the image"
        return replace(ended, fault=replace(ended.fault, message=f"{ended.fault.message}, {text}"))
    if ended.fault is not None and packages and (unrun := packages_told(packages).get("unrun")):
        text = f"stager never runs the post-link scripts of packages, and its environment has {', '.join(unrun[:UNRUN_TOLD])} with one"
        ended = replace(ended, fault=replace(ended.fault, message=f"{ended.fault.message}; {text}"))
    if ended.fault is None or result["outcome"] != "exited" or ended.isolation in ("", "none"):
        return ended
    tail = end_of(ended.stderr_path)
    for means, said in REFUSALS:
        if means in ended.isolation and said in tail:
            where = "an isolated job writes in its sandbox and below TMPDIR alone (`isolate: off` ends that)"
            text = f"it printed {said.decode()!r}, and {where}"
            return replace(ended, fault=replace(ended.fault, message=f"{ended.fault.message}; {text}"))
    return ended


def end_of(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
        return stream.read()
    return b""
