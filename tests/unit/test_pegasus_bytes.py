"""Each way of copying bytes: the next one goes on where the last one could not, and holes stay holes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pegasus_stager import bytes_by_kernel

MADE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "small": lambda path: path.write_bytes(b"x"),
    "pieces": lambda path: path.write_bytes(os.urandom(3_500_001)),
    "holes": lambda path: with_holes(path),
    "only a hole": lambda path: os.truncate(path.open("wb").name, 5_000_000),
}


def with_holes(path: Path) -> None:
    with open(path, "wb") as file:
        for place in (0, 4_000_000, 9_000_000):
            file.seek(place)
            file.write(os.urandom(70_000))
        file.truncate(20_000_000)


def copied(source: Path, target: Path) -> int:
    with open(source, "rb") as from_file, open(target, "wb+") as to_file:
        return bytes_by_kernel.copy_bytes(from_file.fileno(), to_file.fileno())


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("missing", [(), ("copy_file_range",), ("copy_file_range", "sendfile")], ids=len)
def test_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, missing: tuple[str, ...]) -> None:
    def refused(*anything: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    MADE[made](tmp_path / "s")
    for name in missing:
        monkeypatch.setattr(os, name, refused)
    monkeypatch.setattr(bytes_by_kernel, "PIECE_BYTES", 1_000_000)
    assert copied(tmp_path / "s", tmp_path / "t") == (tmp_path / "s").stat().st_size
    assert (tmp_path / "t").read_bytes() == (tmp_path / "s").read_bytes()
    if "hole" in made:
        assert (tmp_path / "t").stat().st_blocks <= (tmp_path / "s").stat().st_blocks + 16


def test_a_way_that_fails_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_bytes(os.urandom(3_500_001))
    real, calls = os.copy_file_range, []

    def once(*arguments: int) -> int:
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(errno.EINVAL, "not any more")
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", once)
    monkeypatch.setattr(bytes_by_kernel, "PIECE_BYTES", 1_000_000)
    assert copied(tmp_path / "s", tmp_path / "t") == 3_500_001 and len(calls) == 2
    assert (tmp_path / "t").read_bytes() == (tmp_path / "s").read_bytes()


def test_a_real_fault_is_not_taken_for_a_missing_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*anything: object) -> int:
        raise OSError(errno.EIO, "the disk")

    (tmp_path / "s").write_bytes(b"x")
    monkeypatch.setattr(os, "copy_file_range", faulty)
    with pytest.raises(OSError, match="the disk"):
        copied(tmp_path / "s", tmp_path / "t")


def test_a_file_that_the_kernel_makes_says_no_size(tmp_path: Path) -> None:
    assert copied(Path("/proc/version"), tmp_path / "t") > 0
    assert (tmp_path / "t").read_bytes() == Path("/proc/version").read_bytes()


def test_a_source_that_gets_shorter_is_told_by_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_bytes(os.urandom(2_000_000))
    real = os.copy_file_range

    def cut(*arguments: int) -> int:
        os.truncate(tmp_path / "s", 1_500_000)
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", cut)
    monkeypatch.setattr(bytes_by_kernel, "PIECE_BYTES", 1_000_000)
    assert copied(tmp_path / "s", tmp_path / "t") == 1_500_000
