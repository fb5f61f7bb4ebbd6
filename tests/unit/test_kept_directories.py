"""Directories that are made for jobs and kept: which go when they are too large together or when somebody asks, and that none goes which
somebody uses.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.model.keep_limits import KeepLimits
from stager.scheduler.commands import RunOutcome
from stager.scheduler.states import JobState
from stager.service.made_for_jobs import PULLED_LATELY_S, asked_note, idle_archives, removed
from stager.service.needed_inputs import needed_of, wanted_archives
from stager.worker import Place, Worker
from stager.worker.collecting import Collected, Needed, collected
from stager.worker.environments import Environments
from stager.worker.images import Images
from stager.worker.kept_directories import KeptDirectories
from stager.worker.kept_directory import locked, tree_bytes
from stager.worker.place import write_json

NOBODY = 65534
BLOCK = 4096
NOTE = "image.json"


def made(root: Path, name: str, used_at: float, blocks: int = 2, note: str = NOTE) -> Path:
    """With what is in the note: a block more."""
    place = root / name
    (place / "root").mkdir(parents=True)
    (place / "root" / "file").write_bytes(os.urandom(blocks * BLOCK))
    write_json(str(place / note), {"env": {}, "digest": "d"})
    os.utime(place, (used_at, used_at))
    return place


def names(root: Path) -> list[str]:
    """Without locks and sizes, which are beside."""
    return sorted(path.name for path in root.iterdir() if path.suffix not in (".lock", ".size"))


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


def kept_in(root: Path, bytes_max: int, used: set[str]) -> KeptDirectories:
    return KeptDirectories(root, bytes_max, NOTE, lambda: used, besides=["pulled"])


def test_those_used_longest_ago_go_and_what_is_used_stays(root: Path, used: set[str]) -> None:
    kept = kept_in(root, 2 * 3 * BLOCK, used)
    done(kept.trim())
    assert names(root) == ["b", "c", "pulled"]
    os.utime(made(root, "d", 0.0) / "root")
    used.add("d")
    done(kept.trim())
    assert names(root) == ["c", "d", "pulled"], "what was used last stays beside what is used"
    used.update("cd")
    kept.bytes_max = 0
    done(kept.trim())
    assert names(root) == ["c", "d", "pulled"], "more than the limit, while it is used"
    assert [entry.size_bytes for entry in done(kept.found()).entries] == [3 * BLOCK] * 2


def test_a_size_is_looked_up_once_and_to_look_is_no_use(root: Path, used: set[str]) -> None:
    kept = kept_in(root, 0, used)
    before = done(kept.found()).entries
    (root / "a" / "root" / "file").unlink()
    assert done(kept.found()).entries == before and [entry.used_at for entry in before] == [1000.0, 1001.0, 1002.0]


def test_a_disk_without_room_for_a_note_is_no_reason_to_keep_what_fills_it(
    root: Path, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    done(kept_in(root, 0, used).trim())
    assert names(root) == ["pulled"]


def test_what_is_taken_or_made_while_somebody_looks_stays(root: Path, used: set[str]) -> None:
    kept = kept_in(root, 0, used)
    found = done(kept.found())
    assert kept.take("a", lambda: None), "one that has ended since then"
    # By a note alone, as of an attempt that was taken up.
    used.add("b")
    with kept.being_made():
        assert done(kept.drop(found.idle)) == []
    assert [entry.name for entry in done(kept.drop(found.idle))] == ["c"] and names(root) == ["a", "b", "pulled"]
    with kept.being_made():
        done(kept.trim())
    assert names(root) == ["a", "b", "pulled"]


def test_one_that_is_about_to_be_named_by_another_process_stays(root: Path, used: set[str]) -> None:
    """As by the worker that was started in the place of this one. Its lock tells."""
    kept = kept_in(root, 0, used)
    with locked(root / "a", fcntl.LOCK_SH):
        done(kept.trim())
        assert names(root) == ["a", "pulled"]
    with locked(root / "a", fcntl.LOCK_EX):
        assert not kept.take("a", lambda: used.add("a")), "somebody removes it"
    assert not kept.take("b", lambda: used.add("b")) and not used, "it went"


def test_what_was_not_made_to_its_end_or_was_changed_goes_when_somebody_asks(root: Path, used: set[str]) -> None:
    kept = kept_in(root, 1 << 30, used)
    (root / "b" / NOTE).write_text("{")
    assert not kept.take("b", lambda: None)
    kept.is_changed = lambda place: place.name in "ac"
    used.add("c")
    with locked(root / "b", fcntl.LOCK_EX):
        assert [entry.name for entry in done(kept.collect(lambda name: True, dry_run=False))] == ["a"], "b is being made"
    assert [entry.name for entry in done(kept.collect(lambda name: True, dry_run=True))] == ["b"] and "b" in names(root)
    done(kept.trim())
    assert names(root) == ["c", "pulled"], "c is used"


def test_what_killed_processes_left_goes_with_the_first_look(root: Path, used: set[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for left in (f".going.x.{ended.pid}", f".new.sha256-1.{ended.pid}", f".new.sha256-2.{os.getpid()}"):
        made(root, left, 0.0)
    done(kept_in(root, 1 << 30, used).trim())
    assert names(root) == [f".new.sha256-2.{os.getpid()}", "a", "b", "c", "pulled"]


def test_a_file_of_several_names_counts_once(tmp_path: Path) -> None:
    place = made(tmp_path, "a", 0.0)
    os.link(place / "root" / "file", place / "root" / "other")
    assert tree_bytes(place) == 3 * BLOCK


@pytest.mark.parametrize("kind", ["image", "environment"])
def test_what_attempts_and_kept_sandboxes_name_is_in_use(tmp_path: Path, kind: str) -> None:
    state_dir = tmp_path
    made_of = (Images(state_dir, 0) if kind == "image" else Environments(state_dir, 0)).made
    root = made_of.kept.root
    for number, name in enumerate("abcde"):
        made(root, name, 1000.0 + number, note=f"{kind}.json")
    for directory, name in {"attempts/j-1": "a", "failed/r/j.1": "b", "attempts/k-1": "c", "attempts/l-1": "d"}.items():
        place = Place(str(state_dir / directory))
        Path(place.directory).mkdir(parents=True)
        if kind == "image":
            write_json(place.container, {"root_dir": str(root / name / "root"), "env": {}})
        else:
            write_json(place.environment, {"root_dir": str(root / name)})
    (state_dir / "attempts" / "m-1").mkdir()
    for ended in ("k-1", "l-1"):
        write_json(Place.of(state_dir, ended).outcome, {"outcome": "failed"})
    # It is about to be kept.
    (state_dir / "attempts" / "l-1" / "sandbox").mkdir()
    made_of.kept.is_changed = lambda root: False
    done(made_of.kept.trim())
    assert names(root) == ["a", "b", "d"]


@pytest.fixture
def state() -> Iterator[Any]:
    """Runs with an image and a lock file each: one goes on, one can be resumed, one is over."""

    def run(name: str, outcome: RunOutcome | None, job_state: JobState) -> Any:
        source = SimpleNamespace(location=SimpleNamespace(path=f"sha256-{name}.tar"))
        workflow = SimpleNamespace(
            jobs={
                "j": SimpleNamespace(id="j", image="i", venv=None, conda=None),
                "k": SimpleNamespace(id="k", image=None, venv=None, conda=None),
                "l": SimpleNamespace(id="l", image=None, venv="v", conda=None),
            },
            files={"i": SimpleNamespace(sources=(source,))},
        )
        jobs = {"k": SimpleNamespace(state=JobState.READY), **{job: SimpleNamespace(state=job_state) for job in "jl"}}
        return SimpleNamespace(
            id=name, tenant="", outcome=outcome, workflow=workflow, jobs=jobs, file_ids={"i": f"x{name}", "v": f"y{name}"}
        )

    runs = [
        run("on", None, JobState.WAITING),
        run("late", None, JobState.DONE),
        run("again", RunOutcome.INTERRUPTED, JobState.READY),
        run("over", RunOutcome.SUCCEEDED, JobState.DONE),
    ]
    yield SimpleNamespace(runs={each.id: each for each in runs}, active={"on": None, "late": None}, tenants={})


def test_what_was_made_of_what_a_run_may_need_stays_on_each_host(root: Path, state: Any) -> None:
    needed = needed_of(state)
    assert needed == Needed(frozenset({"xon"}), frozenset({"yon"})) == needed_of(state, "") and needed_of(state, "alice") == Needed(
        frozenset(), frozenset()
    )
    assert wanted_archives(state) == {f"sha256-{name}.tar" for name in ("on", "late", "again")}
    worker = Worker(root.parent, None, binary="", inherited={}, keep=KeepLimits(0, 0))  # type: ignore[arg-type]
    images, environments = worker.images.made, worker.environments.made
    environments.kept.is_changed = lambda place: place.name == "p"
    for name in "pq":
        made(environments.kept.root, name, 1000.0, note="environment.json")

    def gone(needed: Needed | None, *, dry_run: bool = True) -> Collected:
        said = done(collected(worker, needed, dry_run=dry_run))
        assert isinstance(said, Collected)
        return said

    size_bytes = 3 * BLOCK
    images.known["i", "xover", "g"] = {"root_dir": str(root / "a" / "root")}
    assert gone(needed) == Collected(environments=1, freed_bytes=size_bytes, left_bytes=4 * size_bytes), "which are needed is not known"
    images.known["i", "xon", "g"] = {"root_dir": str(root / "b" / "root")}
    environments.known["v", "yon", "g"] = {"root_dir": str(environments.kept.root / "q")}
    assert gone(needed) == Collected(images=2, environments=1, freed_bytes=3 * size_bytes, left_bytes=2 * size_bytes)
    assert gone(None, dry_run=False) == Collected(environments=1, freed_bytes=size_bytes, left_bytes=4 * size_bytes)
    assert gone(needed, dry_run=False) == Collected(images=2, freed_bytes=2 * size_bytes, left_bytes=2 * size_bytes)
    assert names(root) == ["b", "pulled"] and names(environments.kept.root) == ["q"]


def test_an_archive_goes_a_day_after_it_was_asked_for(root: Path, state: Any) -> None:
    pulled, old = root / "pulled", os.stat(root).st_mtime - PULLED_LATELY_S - 60
    for name in ("on", "over", "asked", "new"):
        path = pulled / f"sha256-{name}.tar"
        path.write_bytes(b"x" * 10)
        if name != "new":
            os.utime(path, (old, old))
    asked_note(pulled / "sha256-asked.tar").touch()
    idle = idle_archives(pulled, wanted_archives(state))
    assert [path.name for path in idle] == ["sha256-over.tar"] and [removed(path) for path in idle] == [10]
    assert names(pulled) == ["sha256-asked.tar", "sha256-new.tar", "sha256-on.tar"]
