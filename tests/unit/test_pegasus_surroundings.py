"""stager-transfer where what is around it is not as usual: streams that are closed or full, no working directory, odd variables.

One rule: a list that can be done is done, and where pegasus-transfer does it too the exit code is the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pegasus_stager import local_files, rounds
from pegasus_stager.failures import Failed
from pegasus_stager.lists import ListEntry
from pegasus_stager.log import Log

from tests.testbed.pegasus import PLUGIN, Done, call, listed, ours, surroundings, transfer, url


@contextlib.contextmanager
def somebody() -> Iterator[None]:
    """Whom mode bits keep from things."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(1234, 1234, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def open_to_all(place: Path) -> None:
    for path in (place, *place.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o711)
    place.chmod(0o777)


def one(place: Path) -> str:
    (place / "s").write_bytes(b"content")
    return listed(transfer([url(place / "s")], url(place / "d" / "f")))


def by_shell(before: str, given: str, cwd: Path, *options: str, **environ: str) -> Done:
    settled = {"PEGASUS_TRANSFER_FALLBACK": "", "PYTHONPATH": str(PLUGIN)} | environ
    line = f"{before} exec {shlex.quote(sys.executable)} -m pegasus_stager -m 1 {shlex.join(options)}"
    return call(["bash", "-c", line], given, cwd, surroundings(**settled))


@pytest.mark.parametrize("before", ["exec 2>/dev/full;", "exec 2>&-;", "exec >&- 2>&-;", "exec >&-;", "exec 2> >(exit);"])
def test_what_it_says_need_not_arrive(tmp_path: Path, before: str) -> None:
    """The disk with the job's .err may be full. A stream that is closed must not be what the first file opens under its number."""
    done = by_shell(before, one(tmp_path), tmp_path)
    assert done.code == 0, done.said
    assert (tmp_path / "d" / "f").read_bytes() == b"content"


def test_a_list_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    done = by_shell("exec <&-;", "", tmp_path)
    assert done.code == 1 and "nothing was done" in done.said and "Traceback" not in done.said, done.said


def test_the_working_directory_may_be_gone(tmp_path: Path) -> None:
    before = "mkdir gone; cd gone; rmdir ../gone;"
    done = by_shell(before, one(tmp_path), tmp_path, PEGASUS_DAG_JOB_ID="x")
    assert done.code == 0 and (tmp_path / "d" / "f").read_bytes() == b"content", done.said


@pytest.mark.parametrize("number", ["many", "", "0"])
def test_the_option_comes_before_the_variable(tmp_path: Path, number: str) -> None:
    given = one(tmp_path)
    done = ours(given, tmp_path, PEGASUS_TRANSFER_THREADS=number)
    assert done.code == 1 and "PEGASUS_TRANSFER_THREADS" in done.said and not (tmp_path / "d").exists()
    assert ours(given, tmp_path, "-n", "2", PEGASUS_TRANSFER_THREADS=number).code == 0


def test_as_many_threads_as_the_system_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system may allow few processes: the others do the work then."""
    assert ours(one(tmp_path), tmp_path, PEGASUS_TRANSFER_THREADS="5000").code == 0
    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if threading.active_count() > 2:
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    done: list[ListEntry] = []
    entries = [ListEntry({}, []) for _ in range(20)]
    assert rounds.run_rounds(entries, done.append, 8, 1, Log()) == []
    assert len(done) == 20


def test_words_that_are_no_options_are_passed_over(tmp_path: Path) -> None:
    assert ours(one(tmp_path), tmp_path, "a", "-m", "1", "b", "--", "-c").code == 0
    assert ours(one(tmp_path), tmp_path, "a", "-m", "1", "--dance").code == 2


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """JSON can say half a pair of surrogates, which no name of a file can be; of other words it is only shown otherwise."""
    good = json.loads(one(tmp_path))
    half = transfer([url(tmp_path / "half")], url(tmp_path / "d" / "x"))
    done = ours(listed(*good, half).replace("half", "\\ud800"), tmp_path, "-m", "1")
    assert done.code == 1 and "nothing was done" in done.said and "Traceback" not in done.said, done.said
    site = transfer([url(tmp_path / "s", "half")], url(tmp_path / "d" / "y"), lfn="half", generate_checksum=True)
    done = ours(listed(*good, site).replace("half", "\\ud800"), tmp_path, "-m", "1", PEGASUS_MULTIPART_DIR=str(tmp_path))
    assert done.code == 0 and "Traceback" not in done.said, done.said
    assert (tmp_path / "d" / "f").read_bytes() == (tmp_path / "d" / "y").read_bytes() == b"content"


def test_a_priority_without_end_is_refused(tmp_path: Path) -> None:
    given = one(tmp_path).replace('"site_label"', '"priority": 1e999, "site_label"')
    done = ours(given, tmp_path)
    assert done.code == 1 and "is not a number" in done.said and "Traceback" not in done.said


def test_an_empty_name_of_a_directory_is_none(tmp_path: Path) -> None:
    """pegasus-transfer writes its statistics to / then."""
    assert ours(one(tmp_path), tmp_path, PEGASUS_MULTIPART_DIR="").code == 0
    assert sorted(os.listdir(tmp_path)) == ["d", "s"]


def test_text_lists_of_other_systems(tmp_path: Path) -> None:
    one(tmp_path)
    given = f"# src 1 a\r\nfile://{tmp_path}/s\r\n# dst 1 b\r\nfile://{tmp_path}/t\r\n"
    assert ours(given, tmp_path, "-m", "1").code == 0 and (tmp_path / "t").read_bytes() == b"content"


def test_files_that_the_kernel_makes_have_no_size_and_a_content(tmp_path: Path) -> None:
    done = ours(listed(transfer([url("/proc/version")], url(tmp_path / "v"))), tmp_path, "-m", "1")
    assert done.code == 0, done.said
    assert (tmp_path / "v").read_bytes() == Path("/proc/version").read_bytes()


@pytest.mark.slow
def test_a_list_of_ten_thousand(tmp_path: Path) -> None:
    entries = []
    for number in range(10_000):
        (tmp_path / f"s{number}").touch()
        entries.append(transfer([url(tmp_path / f"s{number}")], url(tmp_path / f"d/{number % 100}/f{number}")))
    done = ours(listed(*entries), tmp_path)
    assert done.code == 0, done.said[-2000:]
    assert sum(len(files) for _, _, files in os.walk(tmp_path / "d")) == 10_000


def test_what_others_remove_meanwhile_is_removed_and_the_rest_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cleanup jobs may overlap: `rm -rf` goes on then, and only the rest must be gone to call it a success."""
    for name in ("a", "b", "c"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "f").touch()
    unlink, stolen = os.unlink, []

    def late(path: str, *, dir_fd: int | None = None) -> None:
        if not stolen:
            stolen.append(path)
            unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", late)
    local_files.remove(str(tmp_path / "tree"), recursive=True)
    assert stolen and not (tmp_path / "tree").exists()


def test_what_cannot_be_removed_keeps_nothing_else(short_dir: Path) -> None:
    """As `rm -rf`: and a directory that cannot be read is removed if it is empty."""
    open_to_all(short_dir)
    with somebody():
        for name in ("a", "b", "c"):
            (short_dir / "tree" / name).mkdir(parents=True)
            (short_dir / "tree" / name / "f").touch()
        (short_dir / "tree" / "empty").mkdir(0o000)
        (short_dir / "tree" / "b").chmod(0o555)
        with pytest.raises(Failed, match="tree/b"):
            local_files.remove(str(short_dir / "tree"), recursive=True)
        assert sorted(os.listdir(short_dir / "tree")) == ["b"]
        (short_dir / "tree" / "b").chmod(0o755)
        local_files.remove(str(short_dir / "tree"), recursive=True)
        assert not (short_dir / "tree").exists()


def test_a_link_to_what_may_not_be_written_is_replaced_itself(short_dir: Path) -> None:
    """As by `cp -f`."""
    open_to_all(short_dir)
    with somebody():
        (short_dir / "s").write_bytes(b"new")
        (short_dir / "kept").write_bytes(b"old")
        (short_dir / "kept").chmod(0o444)
        (short_dir / "link").symlink_to("kept")
        local_files.copy_file(str(short_dir / "s"), str(short_dir / "link"))
        assert (short_dir / "kept").read_bytes() == b"old"
        assert (short_dir / "link").read_bytes() == b"new" and not (short_dir / "link").is_symlink()


def test_what_was_moved_is_never_lost_by_a_check(tmp_path: Path) -> None:
    """Its source is gone: a copy that fails its check is taken away, what was moved is all there is."""
    (tmp_path / "s").write_bytes(b"content")
    given = listed(transfer([url(tmp_path / "s")], url(f"moveto://{tmp_path}/d/f"), lfn="f", verify_checksum_remote=True))
    ours(given, tmp_path, "-m", "1")
    assert (tmp_path / "d" / "f").read_bytes() == b"content"
