"""Sandboxes of failed jobs on their kept_sandboxes: which are kept, which go first, and that nothing is lost or shared in between."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from stager.worker import AttemptResult, AttemptSpec, KeptSandboxes, Outcome, Place, kept_sandboxes
from stager.worker.place import publish_json, write_json
from tests.testbed.deep import LEVELS, chain, gone_after

MUCH = 1 << 40


def failed(
    state_dir: Path, job: str = "j", number: int = 1, *, outcome: Outcome = Outcome.FAILED, size: int = 10, keep: bool = True
) -> str:
    """An attempt that has ended, with a sandbox."""
    attempt = f"{job}-{number}"
    place = Place.of(state_dir, attempt)
    os.makedirs(place.sandbox, mode=0o700)
    os.chmod(place.directory, 0o700)
    Path(place.sandbox, "left").write_bytes(b"x" * size)
    spec = AttemptSpec(attempt_id=attempt, run_id="r", job_id=job, number=number, argv=("x",), keep_failed_sandbox=keep)
    write_json(place.attempt, spec.to_json())
    publish_json(place.outcome, AttemptResult(attempt_id=attempt, outcome=outcome).to_json())
    return attempt


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.KILLED, Outcome.LOST])
def test_only_what_a_failed_job_left_is_kept_and_only_if_somebody_may_look(tmp_path: Path, outcome: Outcome) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    assert not kept.take(failed(tmp_path, "a", outcome=outcome)) and not kept.take(failed(tmp_path, "b", keep=False))
    assert not KeptSandboxes(tmp_path, 0).take(failed(tmp_path, "c")) and kept.kept == {}
    assert kept.take(failed(tmp_path, "d")) and list(kept.kept) == [("r", "d")]


def test_it_is_its_owners_only_and_its_attempt_has_it_no_more(tmp_path: Path) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    kept.take(failed(tmp_path))
    place = kept.kept["r", "j"].place
    assert (Path(place.sandbox) / "left").read_bytes() == b"x" * 10 and not Path(Place.of(tmp_path, "j-1").directory).exists()
    for directory in (tmp_path / "failed", tmp_path / "failed" / "r", Path(place.directory)):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_the_newest_try_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    assert kept.take(failed(tmp_path, number=1)) and kept.take(failed(tmp_path, number=2))
    kept.trim(0)
    assert kept.kept["r", "j"].number == 2 and [each.name for each in (tmp_path / "failed" / "r").iterdir()] == ["j.2"]


def test_too_many_or_too_large_ones_go_the_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_sandboxes, "SANDBOXES_MAX", 3)
    kept = KeptSandboxes(tmp_path, 1_000_000)
    for number, job in enumerate("abcd"):
        assert kept.take(failed(tmp_path, job, size=300_000))
        os.utime(kept.kept["r", job].place.directory, (number, number))
    again = KeptSandboxes(tmp_path, 1_000_000)
    again.load()
    again.trim(0)
    assert [job for _, job in again.kept] == ["b", "c", "d"] and "at most 3" in again.gone["r", "a"]
    again.bytes_max = 700_000
    again.trim(0)
    assert [job for _, job in again.kept] == ["c", "d"] and "STAGER_KEEP_FAILED" in again.gone["r", "b"]
    again.take(failed(tmp_path, "e", size=800_000))
    again.trim(0)
    assert [job for _, job in again.kept] == ["c", "d"], "one that is too large by itself is not kept, and pushes out no other"
    assert again.gone["r", "e"] == "it was larger than STAGER_KEEP_FAILED allows"


def test_what_the_cache_may_still_take_of_the_disk_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    kept.take(failed(tmp_path))
    monkeypatch.setattr(kept_sandboxes, "free_bytes", lambda path: 100_000_000)
    kept.trim(50_000_000)
    assert ("r", "j") in kept.kept
    kept.trim(90_000_000)
    assert kept.kept == {} and "--capacity" in kept.gone["r", "j"]


def test_one_that_somebody_has_a_shell_in_stays_until_he_has_left(tmp_path: Path) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    kept.take(failed(tmp_path, number=1))
    first = kept.kept["r", "j"].place
    with open(first.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert kept.drop("r") == 0
        kept.clear()
        kept.take(failed(tmp_path, number=2))
        kept.trim(0)
        assert Path(first.sandbox, "left").exists() and kept.kept["r", "j"].number == 2
    kept.trim(0)
    assert not Path(first.directory).exists() and kept.drop("r", "j") == 1 and not list((tmp_path / "failed").iterdir())


def test_what_a_crash_left_is_found_again_or_goes(tmp_path: Path) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    kept.take(failed(tmp_path, number=1))
    half = tmp_path / "failed" / f"{kept_sandboxes.GOING}r.x.1.77"
    half.mkdir()
    # As a job may have named what it wrote.
    os.rename(Place.of(tmp_path, failed(tmp_path, "forged")).directory, half / "sandbox")
    again = KeptSandboxes(tmp_path, MUCH)
    again.load()
    again.trim(0)
    assert list(again.kept) == [("r", "j")] and not half.exists()


def test_one_is_measured_and_goes_however_deep_it_is(tmp_path: Path) -> None:
    with gone_after(tmp_path / "attempts"), gone_after(tmp_path / "failed"):
        kept = KeptSandboxes(tmp_path, 1_000_000)
        for number in (1, 2):
            attempt = failed(tmp_path, number=number, size=300_000)
            chain(Path(Place.of(tmp_path, attempt).sandbox), LEVELS)
            assert kept.take(attempt)
            kept.trim(0)
            assert kept.kept["r", "j"].number == number
        assert kept.drop("r") == 1 and not list((tmp_path / "failed").iterdir())


def test_one_goes_however_long_its_names_are(tmp_path: Path) -> None:
    kept = KeptSandboxes(tmp_path, MUCH)
    attempt = failed(tmp_path)
    place = Place.of(tmp_path, attempt)
    spec = AttemptSpec(attempt_id=attempt, run_id="w" * 150 + "-1", job_id="j" * 150, argv=("x",), keep_failed_sandbox=True)
    write_json(place.attempt, spec.to_json())
    assert kept.take(attempt) and kept.drop(spec.run_id) == 1 and not list((tmp_path / "failed").iterdir())
