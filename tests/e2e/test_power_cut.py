"""A cut of the power while objects and replicas are written: what was acknowledged is there, what was not is whole or absent.

The disk is a real file system whose unsynced state is thrown away; a file that was never synced proves for each round that it was.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.testbed.cut_disk import cut_disk
from tests.testbed.places import ionode_binary
from tests.testbed.s3_face import S3Face
from tests.testbed.s3_writers import BUCKET, Writers, noise
from tests.testbed.waiting import wait_until

ROUNDS = 4


def pushed(face: S3Face, path: Path, content: bytes, name: str) -> str:
    """A replica, on disk when this returns; its BLAKE3."""
    path.write_bytes(content)
    node = face.node
    argv = [ionode_binary(), "push", path, "--node", f"{node.address}@{node.token_file}", "--file", name, "--generation", "g"]
    done = subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return str(json.loads(done.stdout)["blake3"])


def check(face: S3Face, writers: list[Writers], replicas: dict[str, str]) -> None:
    s3 = face.client()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    there = {found["Key"] for page in pages for found in page.get("Contents", ())}
    for one in writers:
        assert not set(one.acked) - there, "acknowledged objects are gone"
        assert not one.deleted & there, "deleted objects are back"
    begun = {key: digest for one in writers for key, digest in one.begun.items()}
    for key in sorted(there):
        assert hashlib.sha256(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()).hexdigest() == begun[key], key
    for name, blake3 in replicas.items():
        assert face.node.get(f"/v1/replicas/{name}/g")["blake3"] == blake3
        assert face.node.do("POST", f"/v1/replicas/{name}/g/verify")["matches"], name


@pytest.mark.slow
def test_what_was_acked_survives_a_cut_of_power_and_nothing_is_half(short_dir: Path) -> None:
    chance = random.Random(7)
    writers: list[Writers] = []
    replicas: dict[str, str] = {}
    broken_off = 0
    with cut_disk(short_dir) as disk:
        face = S3Face(short_dir / "face")
        face.store = face.node.store = disk.mount / "store"
        try:
            face.start()
            face.client().create_bucket(Bucket=BUCKET)
            for number in range(ROUNDS):
                writing = Writers(face, f"r{number}-")
                writers.append(writing)
                writing.start(4)
                for size in (2000, 3 << 20):
                    name = f"p{number}-{size}"
                    replicas[name] = pushed(face, short_dir / "pushed", noise(size, number), name)
                enough = chance.randrange(20, 40)
                wait_until(lambda writing=writing, enough=enough: len(writing.acked) >= enough, "writes that were acked", 120)
                disk.cut(face.node.pid, face.kill)
                writing.join()
                broken_off += len(writing.begun) - len(writing.acked) - len(writing.deleted)
                face.start()
                check(face, writers, replicas)
        finally:
            face.stop()
    assert broken_off > 0, "no write was under way at any cut"
