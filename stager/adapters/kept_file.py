"""A file of the user's is replaced by a new version of it, and the old one is kept beside it.

May know: the file system. One rule: under its name there is at every instant the whole old version or the whole new one.
"""

from __future__ import annotations

import codecs
import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from stager.model.errors import Transient


def replace_kept(path: Path, old: str, new: str) -> Path:
    """The copy of the old version, under a name that was free. A link stays a link; owner and mode stay. Raises Transient if somebody else
    has written since `old` was read.
    """
    place = Path(os.path.realpath(path))
    raw = place.read_bytes()
    mark = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    if raw != mark + old.encode():
        raise Transient(f"{path} was changed by somebody else meanwhile; call it again", code="source_changed", subject=str(path))
    copy = kept(place, raw)
    fresh = place.with_name(f"{place.name}.{os.getpid()}.new")
    try:
        with open(fresh, "xb") as stream:
            was = place.stat()
            with suppress(PermissionError):
                os.fchown(stream.fileno(), was.st_uid, was.st_gid)
            os.fchmod(stream.fileno(), was.st_mode & 0o7777)
            stream.write(mark + new.encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, place)
    finally:
        fresh.unlink(missing_ok=True)
    return copy


def kept(place: Path, old: bytes) -> Path:
    """Copies are never written over: the first may be the only one that is as its owner wrote it."""
    for number in count(1):
        copy = place.with_name(f"{place.name}.old" + (str(number) if number > 1 else ""))
        try:
            with open(copy, "xb") as stream:
                stream.write(old)
                stream.flush()
                os.fsync(stream.fileno())
        except FileExistsError:
            continue
        shutil.copystat(place, copy)
        return copy
    raise AssertionError("numbers do not end")
