"""The requests that moving a file to or from a bucket takes.

May know: nothing. One rule: as the I/O node reads and writes buckets (ionode/origins/src/s3).
"""

from __future__ import annotations

# Ranges of 8 MiB on a line that is not slow; up to 16 MiB in one put, larger ones in parts of 8 to 64 MiB, as many as a thousand where
# that will do.
READ_RANGE_BYTES = 8 << 20
SINGLE_PUT_BYTES = 16 << 20
PART_BYTES_MIN, PART_BYTES_MAX, PARTS_USUAL = 8 << 20, 64 << 20, 1000
# Before a write the destination is looked at, after it what is there is compared: two HEADs.
LOOKS_PER_WRITE = 2


def reads_of(size_bytes: int) -> int:
    """Requests that read an object of a bucket once: one for each range, one for an empty one."""
    return max(1, -(-size_bytes // READ_RANGE_BYTES))


def writes_of(size_bytes: int) -> int:
    """Requests that write an object: a put, or begin, parts and end of an upload in parts."""
    if size_bytes < SINGLE_PUT_BYTES:
        return 1
    part = min(max(-(-size_bytes // PARTS_USUAL), PART_BYTES_MIN), PART_BYTES_MAX)
    return 2 + -(-size_bytes // part)
