"""What a scheduler makes of its state directory: gone, replaced, or on a disk that does not answer."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import Refused
from stager.service.state_dir import StateDir
from stager.service.watching import Holding, check, state_dir_gone


@pytest.fixture
def scheduler(tmp_path: Path) -> Holding:
    state_dir = StateDir(tmp_path / "s")
    state_dir.make()
    state_dir.lock.touch()
    return Holding(state_dir, state_dir.lock_file())


def test_a_directory_that_is_gone_ends_it(scheduler: Holding) -> None:
    assert check(scheduler, "") == "" and state_dir_gone(scheduler) is None
    os.rename(scheduler.state_dir.root, scheduler.state_dir.root.with_name("t"))
    assert state_dir_gone(scheduler) is not None
    with pytest.raises(Refused, match="was removed or replaced"):
        check(scheduler, "")


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_what_cannot_be_told_ends_nothing_and_is_told_once(
    scheduler: Holding, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a defect, which ended the scheduler, and at its end once more, so that nothing was closed."""

    def fails(self: Path, **_: Any) -> os.stat_result:
        raise OSError(number, os.strerror(number), str(self))

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(Path, "stat", fails)
        told = check(scheduler, "")
        assert check(scheduler, told) == told and state_dir_gone(scheduler) is None
    assert len(caplog.records) == 1 and os.strerror(number) in caplog.text
    assert check(scheduler, told) == ""
