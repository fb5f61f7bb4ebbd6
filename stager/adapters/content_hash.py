"""The BLAKE3 of a file, as `stager-ionode hash` tells it: the control plane hashes no content with it itself.

May know: the data plane's program. One rule: where that is not there, or is too old to tell, the answer is that nobody knows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from stager.adapters.binary import find_ionode
from stager.model.errors import Refused

# Of one call: names of files may be long.
FILES_MAX = 500


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


def blake3_of_each(paths: Iterable[Path], environ: Mapping[str, str]) -> dict[Path, str]:
    """Of those that can be read. The program ends at the first that cannot be: the rest is asked for again."""
    wanted, found = list(dict.fromkeys(paths)), dict[Path, str]()
    try:
        program = find_ionode(environ) if wanted else ""
    except Refused:
        return {}
    while wanted:
        asked = wanted[:FILES_MAX]
        try:
            done = subprocess.run([program, "hash", "--", *map(str, asked)], capture_output=True, check=False, stdin=subprocess.DEVNULL)
            told = [msgspec.json.decode(line, type=Hashed) for line in done.stdout.splitlines()]
        except (OSError, msgspec.DecodeError):
            return found
        found.update((path, each.blake3) for path, each in zip(asked, told, strict=False))
        wanted = wanted[len(told) + (len(told) < len(asked)) :]
    return found
