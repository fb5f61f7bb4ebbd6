"""What stager-transfer does otherwise than pegasus-transfer 5.1.3, each by name; docs/operating/pegasus.md lists the same.

One rule: a difference is there to keep data or to tell the truth, and what pegasus-transfer does is said beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pegasus_stager import rounds
from pegasus_stager.urls import Url

from tests.testbed.pegasus import listed, ours, ours_started, snapshot, transfer, url


def removal(text: str, recursive: bool = True) -> str:
    return listed({"type": "remove", "target": url(text, "x", recursive=recursive)})


def test_two_directories_in_a_list(tmp_path: Path) -> None:
    """pegasus-transfer sorts its list and dies, since it cannot compare two mkdirs."""
    done = ours(listed(*({"type": "mkdir", "target": url(tmp_path / name, "x")} for name in ("a", "b/c"))), tmp_path)
    assert done.code == 0 and (tmp_path / "a").is_dir() and (tmp_path / "b/c").is_dir()


def test_the_same_inode_on_another_file_system_is_another_file(tmp_path: Path, tiny_disk: Callable[[int], Path]) -> None:
    """pegasus-transfer compares the numbers only, leaves the old content, and reports success."""
    one, two = tiny_disk(1), tiny_disk(1)
    (one / "f").write_bytes(b"new")
    (two / "f").write_bytes(b"old")
    assert (one / "f").stat().st_ino == (two / "f").stat().st_ino, "the case is not the one meant"
    done = ours(listed(transfer([url(one / "f")], url(two / "f"))), tmp_path)
    assert done.code == 0 and (two / "f").read_bytes() == b"new"


def test_a_removal_does_not_go_through_a_link(tmp_path: Path) -> None:
    """`rm -r link/` of pegasus-transfer empties the directory that the link leads to."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "data").touch()
    (tmp_path / "link").symlink_to("kept")
    assert ours(removal(f"{tmp_path}/link/"), tmp_path).code == 1
    assert (tmp_path / "kept" / "data").exists() and (tmp_path / "link").is_symlink()
    assert ours(removal(f"{tmp_path}/link"), tmp_path).code == 0
    assert (tmp_path / "kept" / "data").exists() and not (tmp_path / "link").is_symlink()


def test_a_removal_with_an_unset_variable_is_refused(tmp_path: Path) -> None:
    """For pegasus-transfer it is empty, so that $SCRATCH/data is /data."""
    (tmp_path / "data").touch()
    done = ours(removal(f"file://$NOT_SET_HERE{tmp_path}/data"), tmp_path)
    assert done.code == 1 and "NOT_SET_HERE" in done.said and (tmp_path / "data").exists()


@pytest.mark.parametrize("path", ["/", "//", ".", "..", "sub/.", "sub/..", ""])
def test_what_is_never_removed(tmp_path: Path, path: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "kept").touch()
    done = ours(removal(f"file:{path}"), tmp_path / "sub")
    assert done.code == 1 and (tmp_path / "sub" / "kept").exists()


def test_one_bad_parent_does_not_stop_the_others(tmp_path: Path) -> None:
    """pegasus-transfer raises out of its thread and leaves what it had not done yet."""
    (tmp_path / "s").write_bytes(b"s")
    (tmp_path / "file").touch()
    entries = [transfer([url(tmp_path / "s")], url(tmp_path / path)) for path in ("file/x", "ok")]
    assert ours(listed(*entries), tmp_path).code == 1
    assert (tmp_path / "ok").read_bytes() == b"s"


def test_a_destination_in_the_working_directory(tmp_path: Path) -> None:
    """pegasus-transfer wants to make the directory "" for it, and dies."""
    (tmp_path / "s").write_bytes(b"s")
    assert ours(listed(transfer([url("file:s")], url("file:d"))), tmp_path).code == 0
    assert (tmp_path / "d").read_bytes() == b"s"


def test_names_are_never_part_of_a_command(tmp_path: Path) -> None:
    """pegasus-transfer puts them between single quotes in a line for the shell: these would make files, or worse."""
    name = "it's $(touch made)`touch made`'; touch 'made"
    (tmp_path / name).write_bytes(b"x")
    given = listed(transfer([url(f"file:{name}")], url("file:d/copy"), lfn="x", generate_checksum=True))
    done = ours(given, tmp_path)
    assert done.code == 0 and (tmp_path / "d" / "copy").read_bytes() == b"x"
    assert sorted(os.listdir(tmp_path)) == sorted([name, "d"])


def test_links_of_relative_sources_lead_to_them(tmp_path: Path) -> None:
    """pegasus-transfer keeps the text, which is then read from the directory of the link."""
    (tmp_path / "s").write_bytes(b"s")
    assert ours(listed(transfer([url("file:s")], url(f"symlink://{tmp_path}/d/link"))), tmp_path).code == 0
    assert (tmp_path / "d" / "link").read_bytes() == b"s"


def test_errors_on_purpose_never_reach_a_source(tmp_path: Path) -> None:
    """With -s pegasus-transfer writes PEGASUS_TRANSFER_ERROR_RATE's garbage through the link, into the source."""
    (tmp_path / "s").write_bytes(b"s")
    os.link(tmp_path / "s", tmp_path / "same")
    entries = [transfer([url(tmp_path / "s")], url(tmp_path / name)) for name in ("same", "d/link")]
    assert ours(listed(*entries), tmp_path, "-s", PEGASUS_TRANSFER_ERROR_RATE="100").code == 0
    assert (tmp_path / "s").read_bytes() == b"s"


def test_errors_on_purpose(tmp_path: Path) -> None:
    """As there otherwise: the copy is spoiled, and the check at the destination finds it."""
    (tmp_path / "s").write_bytes(b"s")
    assert ours(listed(transfer([url(tmp_path / "s")], url(tmp_path / "d"))), tmp_path, PEGASUS_TRANSFER_ERROR_RATE="100").code == 0
    assert (tmp_path / "d").read_bytes().startswith(b"sHere be dragons!")
    done = ours(listed(transfer([url(tmp_path / "s")], url(tmp_path / "e"))), tmp_path, PEGASUS_TRANSFER_ERROR_RATE="many")
    assert done.code == 1 and "PEGASUS_TRANSFER_ERROR_RATE" in done.said and not (tmp_path / "e").exists()


@pytest.mark.parametrize("options", [("-n", "-1"), ("-m", "0")])
def test_numbers_that_make_no_sense(tmp_path: Path, options: tuple[str, str]) -> None:
    """pegasus-transfer -n -1 does nothing and reports success; -m 0 of a list that fails never ends."""
    (tmp_path / "s").touch()
    assert ours(listed(transfer([url(tmp_path / "s")], url(tmp_path / "d"))), tmp_path, *options).code == 2
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "given",
    ["{}", "# src 1 a\nfile:///s\n", "# src 1 a\nfile:///s\n# dst 1 b\nfile:///tmp/none/d\n# src 2 a\nfile:///s\n"],
    ids=["not a list", "no destination", "cut off"],
)
def test_lists_that_are_cut_off(tmp_path: Path, given: str) -> None:
    """pegasus-transfer does what it can read of them and reports success."""
    done = ours(given, tmp_path)
    assert done.code == 1 and "nothing was done" in done.said


def test_special_files_are_no_source_and_no_destination(tmp_path: Path) -> None:
    """pegasus-transfer waits at a pipe for ever; `cp -R` makes a second device; a rename would put a file in the place of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "s").touch()
    assert ours(listed(transfer([url(tmp_path / "pipe")], url(tmp_path / "d"))), tmp_path).code == 1
    assert ours(listed(transfer([url("/dev/zero")], url(tmp_path / "d"))), tmp_path).code == 1
    assert ours(listed(transfer([url(tmp_path / "s")], url(tmp_path / "pipe"))), tmp_path).code == 1
    assert set(snapshot(tmp_path)) == {"pipe", "s"} and (tmp_path / "pipe").is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize("white", ["\n", "\u00a0", "\u3000", "\u2028", "\t", "\x85"])
def test_a_url_is_never_cut(tmp_path: Path, white: str) -> None:
    """pegasus-transfer moves `f` instead of `f\\nx`, and reports success; so it is not called for that."""
    assert Url(f"sftp://lab/data/f{white}x", "lab", {}).path == f"/data/f{white}x"
    called = tmp_path / "pegasus-transfer"
    called.write_text(f"#!/bin/sh\ncat > {tmp_path}/called\n")
    called.chmod(0o755)
    for place in (f"gsiftp://lab/data/f{white}x", f"gsiftp://lab{white}/data/f"):
        given = listed(transfer([url(place)], url(tmp_path / "d")), transfer([url("gsiftp://lab/whole name")], url(tmp_path / "e")))
        done = ours(given, tmp_path, PEGASUS_TRANSFER_FALLBACK=str(called))
        assert done.code == 1 and "nothing was done" in done.said and not (tmp_path / "called").exists()
    given = listed(transfer([url("gsiftp://lab/whole name")], url(tmp_path / "e")))
    assert ours(given, tmp_path, PEGASUS_TRANSFER_FALLBACK=str(called)).code == 0
    assert "whole name" in (tmp_path / "called").read_text()


@pytest.mark.parametrize("text", ["see sftp://lab/f", "sftp://me or you@lab/f", "http://lab?f=/g", "sftp://[::1]/f"])
def test_a_text_that_holds_a_url_is_none(text: str) -> None:
    """pegasus-transfer takes the first part that looks like one."""
    with pytest.raises(ValueError, match="is not a URL"):
        Url(text, "lab", {})


def test_two_reports_of_one_second_are_both_kept(tmp_path: Path) -> None:
    """pegasus-transfer writes over the first; its two seconds of sleep hide it."""
    (tmp_path / "m").mkdir()
    (tmp_path / "s").touch()
    now = int(time.time())
    for second in range(now, now + 30):
        (tmp_path / "m" / f"{second}-transfer").write_text("first")
    given = listed(transfer([url(tmp_path / "s")], url(tmp_path / "d")))
    assert ours(given, tmp_path, PEGASUS_MULTIPART_DIR=f"{tmp_path}/m").code == 0
    reports = [path.read_text() for path in (tmp_path / "m").iterdir()]
    assert len(reports) == 31 and reports.count("first") == 30


def test_a_failed_check_at_the_destination_is_acted_on(tmp_path: Path) -> None:
    """The check of Pegasus 5.1.0 to 5.1.2 compared a list with `is []`, which is never true (their commit 2f1006cb2)."""
    (tmp_path / "bad").write_bytes(b"bad")
    (tmp_path / "good").write_bytes(b"good")
    sha256 = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
    (tmp_path / "j.meta").write_text(f'[{{"_id": "x", "_attributes": {{"checksum.value": "{sha256}"}}}}]')
    sources = [url(tmp_path / "bad", priority=2), url(tmp_path / "good", priority=1)]
    done = ours(listed(transfer(sources, url(tmp_path / "d"), lfn="x", verify_checksum_remote=True)), tmp_path, "-m", "1")
    assert done.code == 0 and (tmp_path / "d").read_bytes() == b"good", "the next source is tried"
    given = listed(transfer(sources[:1], url(tmp_path / "e"), lfn="x", verify_checksum_remote=True))
    done = ours(given, tmp_path, "-m", "1")
    assert done.code == 1 and "corrupt" in done.said and not (tmp_path / "e").exists()
    given = listed(transfer(sources, url(tmp_path / "f"), lfn="unknown", verify_checksum_remote=True))
    assert ours(given, tmp_path, "-m", "1").code == 1, "what has no checksum is not checked"


@pytest.mark.slow
def test_a_retry_helps_and_comes_soon(tmp_path: Path) -> None:
    """pegasus-transfer waits 126 to 145 seconds before its second attempt."""
    assert rounds.WAITS_S[0] <= 5 and sum(rounds.WAITS_S) * (1 + rounds.JITTER) < 90
    began = time.monotonic()
    running = ours_started(listed(transfer([url(tmp_path / "late")], url(tmp_path / "d"))), tmp_path)
    assert running.stderr is not None
    for line in running.stderr:
        if b"attempt 2 of 3 in" in line:
            (tmp_path / "late").write_bytes(b"late")
    assert running.wait() == 0 and (tmp_path / "d").read_bytes() == b"late"
    assert rounds.WAITS_S[0] <= time.monotonic() - began < 90


@pytest.mark.parametrize("what", ["a directory", "many", "checkpoint"])
def test_what_no_waiting_mends_is_not_waited_for(tmp_path: Path, what: str) -> None:
    """pegasus-transfer sleeps for minutes before it says so; users lost hours (pegasus #1116, #1708)."""
    entries = [transfer([url(tmp_path / f"none{number}")], url(tmp_path / "d" / str(number))) for number in range(20)]
    if what == "a directory":
        entries = [transfer([url(tmp_path)], url(tmp_path / "d"))]
    elif what == "checkpoint":
        entries = [transfer([url(tmp_path / "none", checkpoint="true")], url(tmp_path / "d"))]
    took: list[float] = []
    # The start alone takes a machine that is busy with other things a while.
    while len(took) < 5 and (not took or took[-1] >= rounds.WAITS_S[0]):
        began = time.monotonic()
        done = ours(listed(*entries), tmp_path)
        took.append(time.monotonic() - began)
        assert done.code == 1 and "attempt 2" not in done.said
    assert min(took) < rounds.WAITS_S[0], took
