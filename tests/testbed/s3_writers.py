"""Writers through the S3 endpoint that go on until it dies, and what they know then: begun, acknowledged, deleted.

One rule: a name counts as acknowledged from the moment its answer was there, and as nobody knows what while a delete of it is under way.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.testbed.s3_face import S3Face

MIB = 1 << 20
BUCKET = "bucket"
# In the log, small and large; in a file; in two files, one for each part.
SIZES = (3000, 300_000, 2 * MIB, 6 * MIB)
FILES = {3000: 0, 300_000: 0, 2 * MIB: 1, 6 * MIB: 2}


def noise(size: int, seed: int | str = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass
class Writers:
    """Threads, each with names of its own below `prefix`."""

    face: S3Face
    prefix: str
    begun: dict[str, str] = field(default_factory=dict)
    acked: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int) -> None:
        self.threads = [threading.Thread(target=self._until_it_dies, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join()

    def _until_it_dies(self, number: int) -> None:
        s3 = self.face.client(connect_timeout=20, read_timeout=60)
        with contextlib.suppress(BotoCoreError, ClientError):
            for turn in range(100_000):
                key, size = f"{self.prefix}{number}/{turn}", SIZES[turn % len(SIZES)]
                body = noise(size, key)
                self.begun[key] = hashlib.sha256(body).hexdigest()
                put(s3, key, body)
                self.acked[key] = self.begun[key]
                if turn % 5 == 4:
                    gone = f"{self.prefix}{number}/{turn - 4}"
                    self.acked.pop(gone)
                    s3.delete_object(Bucket=BUCKET, Key=gone)
                    self.deleted.add(gone)


def put(s3: Any, key: str, body: bytes) -> None:
    """The largest in two parts."""
    if len(body) < SIZES[-1]:
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
        return
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    parts = []
    for number, part in enumerate((body[: 5 * MIB], body[5 * MIB :]), 1):
        done = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=part)
        parts.append({"PartNumber": number, "ETag": done["ETag"]})
    s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
