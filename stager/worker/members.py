"""Reads the members that a job named in an output, before its outputs are taken.

May know: one sandbox. One rule: the job wrote it, so no step in it follows a link, and no more is read than a list may have. What was read
is written down beside the sandbox first, so that each repeat says the same.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from stager.model.errors import InvalidInput
from stager.model.scatter import MEMBERS_MAX, Rows, ScatterForm
from stager.model.units import format_size
from stager.worker.captured import STEP, escaped
from stager.worker.member_lists import members_in, members_of_directory
from stager.worker.place import Place, publish_json, read_json
from stager.worker.spec import AttemptSpec, MembersIn

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BAD_CODE = "bad_members"
MEMBERS_BYTES_MAX = 16 << 20
NO_FILE = "it is no regular file"


def members_of(spec: AttemptSpec, place: Place) -> dict[str, Any]:
    """By entry that scatters over an output. One that is not there is missed by the stage-out. Raises InvalidInput, and OSError."""
    if not spec.members:
        return {}
    known = read_json(place.members)
    if known is not None:
        return dict(known)
    found = {}
    for each in spec.members:
        try:
            found[each.name] = read_members(place.sandbox, each)
        except FileNotFoundError:
            continue
        except ValueError as problem:
            text = f"job {spec.job_id!r} made {each.path!r}, over which {each.name!r} scatters, and that cannot be: {problem}"
            raise InvalidInput(text, code=BAD_CODE, subject=each.path) from None
    publish_json(place.members, found)
    return found


def read_members(sandbox: str, each: MembersIn) -> Rows:
    """Raises ValueError for what is no list."""
    *directories, name = each.path.split("/")
    here = os.open(sandbox, STEP)
    try:
        for directory in directories:
            child = os.open(directory, STEP, dir_fd=here)
            os.close(here)
            here = child
        last = of_kind(here, name, each.form)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOTDIR):
            raise escaped(each.path) from problem
        raise
    finally:
        os.close(here)
    if each.form is ScatterForm.DIRECTORY:
        return members_of_directory(names_in(last), each.path)
    with open(last, "rb") as opened:
        content = opened.read(MEMBERS_BYTES_MAX + 1)
    if len(content) > MEMBERS_BYTES_MAX:
        raise ValueError(f"it has more than {format_size(MEMBERS_BYTES_MAX)}")
    try:
        return members_in(content.decode("utf-8-sig"), each.path, each.keys, each.form)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def of_kind(parent: int, name: str, form: ScatterForm) -> int:
    """What members of this form stand in, opened. Raises ValueError where it is something else, and OSError."""
    is_directory = form is ScatterForm.DIRECTORY
    try:
        found = os.open(name, DIRECTORY if is_directory else FILE, dir_fd=parent)
    except OSError as problem:
        if is_directory and problem.errno == errno.ENOTDIR:
            raise ValueError("it is no directory") from None
        if problem.errno == errno.ENXIO:
            raise ValueError(NO_FILE) from None
        raise
    if is_directory or stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise ValueError(NO_FILE)


def names_in(directory: int) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = []
            for entry in entries:
                names.append(entry.name)
                if len(names) > MEMBERS_MAX:
                    raise ValueError(f"it holds more than {MEMBERS_MAX:,} entries")
            return names
    finally:
        os.close(directory)
