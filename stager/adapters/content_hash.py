"""The BLAKE3 of a file, as `stager-ionode hash` tells it: the control plane hashes no content with it itself.

May know: the data plane's program. One rule: where that is not there, or is too old to tell, the answer is that nobody knows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stager.adapters.binary import find_ionode
from stager.model.errors import Refused


class Hashed(msgspec.Struct, frozen=True):
    size_bytes: int
    blake3: str


def blake3_of(path: Path, environ: Mapping[str, str]) -> str | None:
    """In base 16, as the ledger has it; None: nobody here can tell. Takes as long as reading the file once."""
    try:
        program = find_ionode(environ)
        # No shell, and no option: the name may begin with a dash.
        done = subprocess.run([program, "hash", "--", str(path)], capture_output=True, check=True, stdin=subprocess.DEVNULL)
        return msgspec.json.decode(done.stdout, type=Hashed).blake3
    except (Refused, OSError, subprocess.CalledProcessError, msgspec.DecodeError):
        return None
