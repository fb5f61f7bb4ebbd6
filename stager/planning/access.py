"""How a job gets at an input.

May know: the model and the plan. One rule: between a link and a copy the file alone decides, and whether the host can link at all is seen
at the node, which copies where it cannot; what is read directly is chosen in direct_access.py.
"""

from __future__ import annotations

from stager.model.files import DIRECTORY, FileKind
from stager.planning.plan import COPY, DIRECT, LINK, Access

# A copy of a small file costs less than a mount; a read-only bind mount is what protects a large one that is shared.
COPY_BYTES_MAX = 64 * 1024


def access_of(kind: FileKind, size_bytes: int) -> Access:
    """Of what is kept: small files are copied, executables among them; directories and all else are linked."""
    if kind is DIRECTORY or size_bytes > COPY_BYTES_MAX:
        return LINK
    return COPY


def why_access(kind: FileKind, access: Access, size_bytes: int) -> str:
    """The reason in words, for `--explain`."""
    if access is DIRECT:
        return "read directly at the origin, through a read-only mount"
    if access is COPY:
        return f"copied into the sandbox: {size_bytes} bytes are at most {COPY_BYTES_MAX}, where a copy is cheaper than a mount"
    if kind is DIRECTORY:
        return "linked read-only: a directory is mounted as a whole"
    return f"linked read-only: larger than {COPY_BYTES_MAX} bytes, so it is not copied for each reader"
