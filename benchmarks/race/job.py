"""The program of the jobs of a race that replays a record: `job.py SECONDS EDITION INPUT... -- PATH:BYTES...`

Reads every byte of its inputs, waits, and writes its outputs. One rule: what it writes is a function of its edition and of the content of
its inputs, so that a result that was made of something else shows at the end.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from pathlib import Path

CHUNK_BYTES = 1 << 20


def main(seconds: str, edition: str, *files: str) -> None:
    split = files.index("--")
    begun, seen = time.monotonic(), hashlib.sha256(edition.encode())
    for path in files[:split]:
        with open(path, "rb") as content:
            seen.update(hashlib.file_digest(content, "sha256").digest())
    # A job that took long to read waits for less, as the recorded time had its reading in it.
    time.sleep(max(0.0, begun + float(seconds) - time.monotonic()))
    for output in files[split + 1 :]:
        path, _, size = output.rpartition(":")
        write(Path(path), int(size), random.Random(f"{seen.hexdigest()} {path}"))


def write(path: Path, left: int, chance: random.Random) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        while left > 0:
            left -= out.write(chance.randbytes(min(left, CHUNK_BYTES)))


if __name__ == "__main__":
    main(*sys.argv[1:])
