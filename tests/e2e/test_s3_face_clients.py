"""The S3 endpoint of a node as the tools that people use see it: aws, rclone, pandas over s3fs, boto3's own transfers."""

from __future__ import annotations

import filecmp
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.s3_face import S3Face, client_program, rclone

MIB = 1 << 20
SIZES = {"a.txt": 5, "empty": 0, "dir/two words.bin": 70_000, "dir/größe+%.bin": 3 * MIB, "deep/er/large.bin": 20 * MIB + 3}


@pytest.fixture(scope="module")
def face(session_dir: Path) -> Iterator[S3Face]:
    face = S3Face(session_dir / "clients")
    face.start()
    yield face
    face.stop()


@pytest.fixture
def bucket(face: S3Face, request: pytest.FixtureRequest) -> str:
    name = "b-" + "".join(letter for letter in request.node.name.replace("_", "-") if letter.isalnum() or letter == "-")[:50].strip("-")
    face.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    rng = random.Random(7)
    for name, size in SIZES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(size))
    return tmp_path / "tree"


def same(one: Path, other: Path) -> bool:
    _, different, missing = filecmp.cmpfiles(one, other, list(SIZES), shallow=False)
    return not different and not missing and len([path for path in other.rglob("*") if path.is_file()]) == len(SIZES)


def test_boto3_transfers(face: S3Face, bucket: str, tree: Path, tmp_path: Path) -> None:
    s3 = face.client()
    for name in SIZES:
        s3.upload_file(str(tree / name), bucket, name)
        back = tmp_path / "back" / name
        back.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, name, str(back))
    s3.copy({"Bucket": bucket, "Key": "deep/er/large.bin"}, bucket, "copy")
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == (tree / "deep/er/large.bin").read_bytes()
    assert same(tree, tmp_path / "back")


def test_aws_cli(face: S3Face, bucket: str, tree: Path, tmp_path: Path) -> None:
    aws = client_program("aws")
    face.done(aws, "s3", "sync", tree, f"s3://{bucket}/t")
    assert "upload" not in face.done(aws, "s3", "sync", tree, f"s3://{bucket}/t"), "a second sync has nothing to do"
    listed = face.done(aws, "s3", "ls", "--recursive", f"s3://{bucket}/t/")
    assert sorted(line.split(maxsplit=3)[3] for line in listed.splitlines()) == sorted(f"t/{name}" for name in SIZES)
    assert "PRE dir/" in face.done(aws, "s3", "ls", f"s3://{bucket}/t/")
    face.done(aws, "s3", "mv", f"s3://{bucket}/t/deep/er/large.bin", f"s3://{bucket}/moved")
    face.done(aws, "s3", "cp", f"s3://{bucket}/moved", f"s3://{bucket}/t/deep/er/large.bin")
    face.done(aws, "s3", "sync", f"s3://{bucket}/t", tmp_path / "back")
    assert same(tree, tmp_path / "back")
    # The older aws presigns with version 2 signatures in us-east-1 unless it is told.
    face.done(aws, "configure", "set", "default.s3.signature_version", "s3v4")
    url = face.done(aws, "s3", "presign", f"s3://{bucket}/t/dir/two words.bin").strip()
    fetched = subprocess.run(["curl", "-sSf", url], capture_output=True, timeout=60)
    assert fetched.stdout == (tree / "dir/two words.bin").read_bytes(), fetched.stderr
    face.done(aws, "s3", "rm", "--recursive", f"s3://{bucket}")
    face.done(aws, "s3", "rb", f"s3://{bucket}")
    assert bucket not in face.done(aws, "s3", "ls")


def test_rclone(face: S3Face, bucket: str, tree: Path, tmp_path: Path) -> None:
    program = rclone()
    face.done(program, "sync", tree, f"node:{bucket}/t", "--s3-chunk-size", "5Mi", "--s3-upload-cutoff", "8Mi")
    face.done(program, "check", tree, f"node:{bucket}/t")
    face.done(program, "check", "--download", tree, f"node:{bucket}/t")
    face.done(program, "copy", f"node:{bucket}/t", tmp_path / "back")
    assert same(tree, tmp_path / "back")
    (tree / "a.txt").write_text("other")
    assert face.run(program, "check", tree, f"node:{bucket}/t").returncode == 1
    shutil.rmtree(tree / "dir")
    face.done(program, "sync", tree, f"node:{bucket}/t", "--checksum")
    assert sorted(face.done(program, "lsf", "-R", "--files-only", f"node:{bucket}/t").split()) == ["a.txt", "deep/er/large.bin", "empty"]
    face.done(program, "moveto", f"node:{bucket}/t/deep/er/large.bin", f"node:{bucket}/moved")
    face.done(program, "purge", f"node:{bucket}")


PANDAS = """
import sys
import pandas, s3fs
bucket = sys.argv[1]
frame = pandas.DataFrame({"n": range(300_000), "t": [f"row {n} ü" for n in range(300_000)]})
frame.to_csv(f"s3://{bucket}/dir/f.csv", index=False)
assert pandas.read_csv(f"s3://{bucket}/dir/f.csv").equals(frame)
fs = s3fs.S3FileSystem()
assert fs.ls(bucket) == [f"{bucket}/dir"] and fs.ls(f"{bucket}/dir") == [f"{bucket}/dir/f.csv"]
with fs.open(f"{bucket}/large", "wb", block_size=5 << 20) as file:
    for n in range(13):
        file.write(bytes([n]) * (1 << 20))
with fs.open(f"{bucket}/large", "rb") as file:
    file.seek((3 << 20) - 1)
    assert file.read(2) == bytes([2, 3])
fs.copy(f"{bucket}/large", f"{bucket}/copy")
assert fs.cat_ranges([f"{bucket}/copy"] * 2, [0, 12 << 20], [1, (12 << 20) + 1]) == [bytes([0]), bytes([12])]
fs.rm(f"{bucket}/large")
fs.invalidate_cache()
assert not fs.exists(f"{bucket}/large") and fs.exists(f"{bucket}/dir/f.csv")
fs.rm(bucket, recursive=True)
"""


def test_pandas_over_s3fs(face: S3Face, bucket: str, tmp_path: Path) -> None:
    script: Any = tmp_path / "frames.py"
    script.write_text(PANDAS)
    face.done(client_program("python"), script, bucket)
