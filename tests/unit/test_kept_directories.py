"""Directories that are kept: which go when they are too large together, that none goes which somebody uses, and what is left of one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.scheduler.commands import RunOutcome
from stager.scheduler.states import JobState
from stager.service.unneeded_images import PULLED_LATELY_S, UnneededImages, asked_note, idle_archives, needed_images
from stager.worker import Place
from stager.worker.images import Container, Images
from stager.worker.kept_directories import KeptDirectories, KeptDirectory, remove_tree, tree_bytes
from stager.worker.place import write_json

NOBODY = 65534
BLOCK = 4096


def made(root: Path, name: str, used_at: float, blocks: int = 2) -> Path:
    place = root / name
    (place / "root").mkdir(parents=True)
    (place / "root" / "file").write_bytes(os.urandom(blocks * BLOCK))
    os.utime(place, (used_at, used_at))
    return place


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.fixture
def used() -> set[str]:
    return set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        made(tmp_path / "images", name, 1000.0 + number)
    (tmp_path / "images" / "pulled").mkdir()
    (tmp_path / "images" / ".a.lock").touch()
    return tmp_path / "images"


def test_those_used_longest_ago_go_and_what_is_used_stays(root: Path, used: set[str]) -> None:
    kept = KeptDirectories(root, 2 * 2 * BLOCK, lambda: used, ["pulled"])
    done(kept.trim())
    assert names(root) == [".a.lock", "b", "c", "pulled"]
    os.utime(made(root, "d", 0.0) / "root")
    used.add("d")
    done(kept.trim())
    assert names(root) == [".a.lock", "c", "d", "pulled"], "what was used last stays beside what is used"
    used.update("cd")
    kept.bytes_max = 0
    done(kept.trim())
    assert names(root) == [".a.lock", "c", "d", "pulled"], "more than the limit, while it is used"
    assert [entry.size_bytes for entry in done(kept.found()).entries] == [2 * BLOCK] * 2


def test_a_size_is_looked_up_once_and_to_look_is_no_use(root: Path, used: set[str]) -> None:
    kept = KeptDirectories(root, 0, lambda: used, ["pulled"])
    before = done(kept.found()).entries
    (root / "a" / "root" / "file").unlink()
    assert done(kept.found()).entries == before and [entry.used_at for entry in before] == [1000.0, 1001.0, 1002.0]


def test_what_is_taken_or_made_while_somebody_looks_stays(root: Path, used: set[str]) -> None:
    kept = KeptDirectories(root, 0, lambda: used, ["pulled"])

    async def taken_meanwhile() -> list[KeptDirectory]:
        found = await kept.found()
        kept.take(str(root / "a"))
        with kept.being_made():
            assert await kept.drop(found.idle, found.since) == []
        return await kept.drop(found.idle, found.since)

    assert [entry.name for entry in done(taken_meanwhile())] == ["b", "c"] and names(root) == [".a.lock", "a", "pulled"]
    with kept.being_made():
        done(kept.trim())
    assert "a" in names(root)


def test_what_killed_processes_left_goes_with_the_first_look(root: Path, used: set[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for left in (f".going.x.{ended.pid}", f".new.sha256-1.{ended.pid}", f".new.sha256-2.{os.getpid()}"):
        made(root, left, 0.0)
    done(KeptDirectories(root, 1 << 30, lambda: used, ["pulled"]).trim())
    assert names(root) == [".a.lock", f".new.sha256-2.{os.getpid()}", "a", "b", "c", "pulled"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user here")
def test_a_tree_goes_that_its_owner_may_not_write_into() -> None:
    """Images have such directories, and an ordinary user owns all that he unpacked."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        made(place, "image", 0.0)
        subprocess.run(["chown", "-R", str(NOBODY), place], check=True)
        for directory in (place / "image" / "root", place / "image"):
            directory.chmod(0o555)
        (place / "image-of-another").mkdir()
        child = os.fork()
        if child == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            remove_tree(place / "image")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert names(place) == ["image-of-another"]
    finally:
        shutil.rmtree(place)


def test_a_file_of_several_names_counts_once(tmp_path: Path) -> None:
    place = made(tmp_path, "a", 0.0)
    os.link(place / "root" / "file", place / "root" / "other")
    assert tree_bytes(place) == 2 * BLOCK


def container_of(root: Path, name: str) -> Container:
    return Container(str(root / name / "root"))


def test_images_of_attempts_and_of_kept_sandboxes_are_in_use(root: Path) -> None:
    state_dir = root.parent
    for directory, name in ((state_dir / "attempts" / "j-1", "a"), (state_dir / "failed" / "r" / "j.1", "b")):
        directory.mkdir(parents=True)
        write_json(Place(str(directory)).container, {"root_dir": str(root / name / "root"), "env": {}})
    (state_dir / "attempts" / "k-1").mkdir()
    images = Images(state_dir, 0)
    done(images.kept.trim())
    assert names(root) == [".a.lock", "a", "b", "pulled"]


@pytest.fixture
def state() -> Iterator[Any]:
    """Three runs with an image each: one goes on, one can be resumed, one is over."""

    def run(name: str, outcome: RunOutcome | None, job_state: JobState) -> Any:
        source = SimpleNamespace(location=SimpleNamespace(path=f"sha256-{name}.tar"))
        workflow = SimpleNamespace(
            jobs={"j": SimpleNamespace(id="j", image="i"), "k": SimpleNamespace(id="k", image=None)},
            files={"i": SimpleNamespace(sources=(source,))},
        )
        jobs = {"j": SimpleNamespace(state=job_state), "k": SimpleNamespace(state=JobState.READY)}
        return SimpleNamespace(id=name, outcome=outcome, workflow=workflow, jobs=jobs, file_ids={"i": f"x{name}"})

    runs = [
        run("on", None, JobState.WAITING),
        run("late", None, JobState.DONE),
        run("again", RunOutcome.INTERRUPTED, JobState.READY),
        run("over", RunOutcome.SUCCEEDED, JobState.DONE),
    ]
    yield SimpleNamespace(runs={each.id: each for each in runs}, active={"on": None, "late": None})


def test_what_a_run_may_need_stays_unpacked_and_pulled(root: Path, state: Any) -> None:
    needed = needed_images(state)
    assert needed.files == {"xon"}
    assert needed.archives == {f"sha256-{name}.tar" for name in ("on", "late", "again")}
    images = Images(root.parent, 0)
    unneeded = UnneededImages(images)

    def found() -> list[str]:
        return [entry.name for entry in done(unneeded.found(needed)).unpacked]

    images.known["xover", "g"] = container_of(root, "a")
    assert found() == [], "which of them is needed is not known"
    images.known["xon", "g"] = container_of(root, "b")
    assert found() == ["a", "c"]
    gone = done(unneeded.drop(done(unneeded.found(needed))))
    assert (gone.count, gone.size_bytes) == (2, 4 * BLOCK) and names(root) == [".a.lock", "b", "pulled"]


def test_an_archive_goes_a_day_after_it_was_asked_for(root: Path, state: Any) -> None:
    pulled, old = root / "pulled", os.stat(root).st_mtime - PULLED_LATELY_S - 60
    for name in ("on", "over", "asked", "new"):
        path = pulled / f"sha256-{name}.tar"
        path.write_bytes(b"x" * 10)
        if name != "new":
            os.utime(path, (old, old))
    asked_note(pulled / "sha256-asked.tar").touch()
    needed = needed_images(state)
    assert [path.name for path in idle_archives(pulled, needed.archives)] == ["sha256-over.tar"]
    unneeded = UnneededImages(Images(root.parent, 0))
    gone = done(unneeded.drop(done(unneeded.found(needed))))
    assert (gone.count, gone.size_bytes) == (1, 10) and names(pulled) == ["sha256-asked.tar", "sha256-new.tar", "sha256-on.tar"]
