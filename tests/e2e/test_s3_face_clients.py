"""The S3 endpoint of a node as the tools that people use see it: aws, rclone, s3cmd, mc, pyarrow, pandas over s3fs, boto3's transfers."""

from __future__ import annotations

import filecmp
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.s3_face import ACCESS_KEY, SECRET_KEY, S3Face, client_program, client_python, minio_client, rclone

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


def test_s3cmd(face: S3Face, bucket: str, tree: Path, tmp_path: Path) -> None:
    # Its default region is US.
    host = face.endpoint.removeprefix("http://")
    said = ["--config=/dev/null", f"--host={host}", f"--host-bucket={host}", "--no-ssl", f"--access_key={ACCESS_KEY}"]
    s3cmd = [client_program("s3cmd"), *said, f"--secret_key={SECRET_KEY}", "--multipart-chunk-size-mb=5"]
    face.done(*s3cmd, "sync", f"{tree}/", f"s3://{bucket}/t/")
    assert "upload" not in face.done(*s3cmd, "sync", f"{tree}/", f"s3://{bucket}/t/"), "a second sync has nothing to do"
    assert len(face.done(*s3cmd, "ls", "--recursive", f"s3://{bucket}/t/").splitlines()) == len(SIZES)
    face.done(*s3cmd, "mv", f"s3://{bucket}/t/a.txt", f"s3://{bucket}/t/b.txt")
    face.done(*s3cmd, "cp", f"s3://{bucket}/t/b.txt", f"s3://{bucket}/t/a.txt")
    face.done(*s3cmd, "del", f"s3://{bucket}/t/b.txt")
    (tmp_path / "back").mkdir()
    face.done(*s3cmd, "sync", f"s3://{bucket}/t/", f"{tmp_path / 'back'}/")
    assert same(tree, tmp_path / "back")
    face.done(*s3cmd, "rb", "--recursive", f"s3://{bucket}")


def test_mc(face: S3Face, bucket: str, tree: Path, tmp_path: Path) -> None:
    program = minio_client()
    face.done(program, "alias", "set", "node", face.endpoint, ACCESS_KEY, SECRET_KEY)
    face.done(program, "mirror", tree, f"node/{bucket}/t")
    face.done(program, "mv", f"node/{bucket}/t/a.txt", f"node/{bucket}/t/b.txt")
    face.done(program, "cp", f"node/{bucket}/t/b.txt", f"node/{bucket}/t/a.txt")
    face.done(program, "tag", "set", f"node/{bucket}/t/b.txt", "kind=text")
    assert "kind" in face.done(program, "tag", "list", f"node/{bucket}/t/b.txt")
    face.done(program, "rm", f"node/{bucket}/t/b.txt")
    face.done(program, "mirror", f"node/{bucket}/t", tmp_path / "back")
    assert same(tree, tmp_path / "back")
    face.done(program, "rb", "--force", f"node/{bucket}")


ARROW = """
import sys
import pyarrow, pyarrow.parquet
from pyarrow import fs
bucket, endpoint, access, secret = sys.argv[1:]
place = fs.S3FileSystem(access_key=access, secret_key=secret, endpoint_override=endpoint, scheme="http", region="us-east-1")
table = pyarrow.table({"n": list(range(2_000_000)), "t": [f"row {n}" for n in range(2_000_000)]})
pyarrow.parquet.write_table(table, f"{bucket}/dir/t.parquet", filesystem=place, compression="none")
assert pyarrow.parquet.read_table(f"{bucket}/dir/t.parquet", filesystem=place).equals(table)
with place.open_output_stream(f"{bucket}/empty"):
    pass
found = place.get_file_info(fs.FileSelector(bucket, recursive=True))
assert sorted(one.path for one in found if one.is_file) == [f"{bucket}/dir/t.parquet", f"{bucket}/empty"]
place.delete_dir_contents(bucket)
assert not place.get_file_info(fs.FileSelector(bucket))
"""


def test_pyarrow(face: S3Face, bucket: str, tmp_path: Path) -> None:
    script = tmp_path / "arrow.py"
    script.write_text(ARROW)
    face.done(client_python("pyarrow"), script, bucket, face.endpoint.removeprefix("http://"), ACCESS_KEY, SECRET_KEY)


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
