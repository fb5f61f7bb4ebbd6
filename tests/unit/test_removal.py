"""What jobs leave in their directories goes, whatever its form, and nothing beside it (stager/worker/removal.py)."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import traceback
from pathlib import Path

import pytest

from stager.worker.removal import remove_tree
from tests.testbed.deep import LEVELS, chain, gone_after

NOBODY = 65534


def test_a_tree_goes_however_deep_it_is(tmp_path: Path) -> None:
    top = tmp_path / "top"
    with gone_after(top):
        chain(top, LEVELS)
        os.mkfifo(top / "fifo")
        remove_tree(top)
        assert not top.exists()


def test_no_link_is_followed_and_what_is_no_directory_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "kept").write_text("kept")
    outside.chmod(0o750)
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    for above in (top, top / "a", top / "a" / "b"):
        (above / "out").symlink_to(outside)
        (above / "nowhere").symlink_to("nowhere")
    remove_tree(top)
    assert not top.exists() and (outside / "inner" / "kept").read_text() == "kept" and outside.stat().st_mode & 0o777 == 0o750
    (tmp_path / "link").symlink_to(outside)
    for path in (tmp_path / "link", outside / "inner" / "kept", tmp_path / "missing"):
        remove_tree(path)
    assert (tmp_path / "link").is_symlink() and (outside / "inner" / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user here")
def test_an_ordinary_user_removes_what_he_may_not_write_into() -> None:
    """As Go leaves its modules, below HOME, which is the sandbox."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        os.chown(place, NOBODY, NOBODY)
        child = os.fork()
        if child == 0:
            # Whatever befalls it, it is no second pytest.
            try:
                removed_as_nobody(place)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.listdir(place) == []
    finally:
        shutil.rmtree(place)


def removed_as_nobody(place: Path) -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Who was root before would be refused its own files in /proc: PR_SET_DUMPABLE.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    for mode in (0o555, 0o000):
        inner = place / "top" / "go" / "mod" / f"of-{mode}"
        inner.mkdir(parents=True)
        (inner / "file").write_text("x")
        (inner / "below").mkdir()
        (inner / "below" / "file").write_text("x")
        (inner / "below").chmod(mode)
        inner.chmod(mode)
    remove_tree(place / "top")
