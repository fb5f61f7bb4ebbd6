"""What is made of an input for jobs: once for all, again where it went, and a fault that is told to each of them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import InvalidInput, Transient
from stager.wire.node import StagedIn
from stager.worker import AttemptInput, AttemptSpec, Place
from stager.worker.kept_directories import KeptDirectories
from stager.worker.made_of_inputs import TRIES, MadeOfInputs, Maker
from tests.testbed.places import PROJECT


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our maker, which no installation has."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))


MAKER = Maker("tests.testbed.quick_maker", "not_made", "the box of job {job} could not be made", "job {job} has no box", {"in": "box"})
STAGED = StagedIn(mounts=[], copied_bytes=0)


class Bed:
    def __init__(self, place: Path, said: str) -> None:
        self.place, self.used = place, set[str]()
        (place / "sandbox").mkdir()
        (place / "sandbox" / "in").write_text(said)
        self.kept = KeptDirectories(place / "boxes", 1 << 30, "image.json", lambda: self.used)
        self.made = MadeOfInputs(self.kept, MAKER)

    async def of(self, job: str, file_id: str = "f") -> Any:
        spec = AttemptSpec(attempt_id=f"{job}-1", run_id="r", job_id=job, argv=("true",))
        return await self.made.of(spec, AttemptInput(file_id, "g", "in"), Place(str(self.place)), STAGED, self.name)

    def name(self, said: Any) -> None:
        self.used.add(Path(said["root_dir"]).parent.name)

    def calls(self) -> list[str]:
        return (self.place / "sandbox" / "calls").read_text().split()


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_it_is_made_once_for_all_and_again_where_it_went(tmp_path: Path) -> None:
    bed = Bed(tmp_path, "one")

    async def timeline() -> None:
        both = await asyncio.gather(bed.of("a"), bed.of("b"))
        assert both[0] == both[1] == {"root_dir": str(tmp_path / "boxes" / "one" / "root")} and bed.calls() == ["box"]
        assert bed.used == {"one"} and bed.made.names({"f"}) == {"one"} and bed.made.names({"f", "other"}) is None
        bed.used.clear()
        assert [entry.name for entry in await bed.kept.drop((await bed.kept.found()).idle)] == ["one"]
        await bed.of("c")
        assert bed.calls() == ["box"] * 2 and bed.used == {"one"}

    done(timeline())


def test_one_that_goes_before_an_attempt_has_named_it_is_made_again_and_not_for_ever(tmp_path: Path) -> None:
    bed, going = Bed(tmp_path, "one"), 1
    take = bed.kept.take

    def taken(name: str, write_name: Any) -> bool:
        nonlocal going
        going -= 1
        return going < 0 and take(name, write_name)

    bed.kept.take = taken  # type: ignore[method-assign]
    done(bed.of("a"))
    assert bed.calls() == ["box"] * 2
    going = 99
    with pytest.raises(Transient, match="the box of job 'b' could not be made: it was removed while the job began"):
        done(bed.of("b", "other"))
    assert len(bed.calls()) == 2 + TRIES


def test_a_disk_that_is_full_when_an_attempt_notes_what_it_uses_is_told_by_name(tmp_path: Path) -> None:
    bed = Bed(tmp_path, "one")

    def full(said: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bed.name = full  # type: ignore[method-assign]
    with pytest.raises(Transient, match="job 'a' could not note what it uses: .*No space left"):
        done(bed.of("a"))


def test_what_does_not_do_is_asked_once_and_told_to_each_job(tmp_path: Path) -> None:
    bed = Bed(tmp_path, "invalid")

    async def told(job: str) -> None:
        with pytest.raises(InvalidInput, match=f"job '{job}' has no box: it is odd"):
            await bed.of(job)

    async def timeline() -> None:
        await asyncio.gather(told("a"), told("b"))

    done(timeline())
    assert bed.calls() == ["box"]


def test_a_maker_that_ends_without_an_answer_is_tried_again(tmp_path: Path) -> None:
    bed = Bed(tmp_path, "garbage")
    for count in (1, 2):
        with pytest.raises(Transient, match="the box of job 'a' could not be made: a bad day"):
            done(bed.of("a"))
        assert len(bed.calls()) == count


def test_no_module_of_the_directory_that_the_scheduler_was_started_in_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`json.py` beside a workflow is its author's, and /tmp everybody's."""
    bed = Bed(tmp_path, "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(elsewhere)
    assert done(bed.of("a"))["root_dir"].endswith("one/root")
