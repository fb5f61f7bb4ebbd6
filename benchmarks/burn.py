"""A job of bench_bound.py: reads its inputs, takes its time, makes its outputs and says what that took by its own clocks.

    burn.py cpu|wait SECONDS NAME:BYTES...

One rule: its clocks start with the process and stop with its last line, so that what it says is never more than it took.
"""

from __future__ import annotations

import os
import sys
import time


def main(how: str, seconds: str, *outputs: str) -> None:
    begun = time.monotonic()
    for place, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(place, name), "rb") as read:
                while read.read(1 << 20):
                    pass
    if how == "wait":
        time.sleep(float(seconds))
    while how == "cpu" and time.process_time() < float(seconds):
        sum(range(10_000))
    for entry in outputs:
        name, _, size_bytes = entry.rpartition(":")
        with open(name, "wb") as out:
            out.write(os.urandom(int(size_bytes)))
    print(f'{{"cpu_s": {time.process_time():.6f}, "wall_s": {time.monotonic() - begun:.6f}}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
