"""What a submit looks at for reuse: nothing of a workflow that never ran, and what is in the way of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stager.adapters.content_hash import blake3_of_each
from stager.adapters.results_store import ResultsStore
from stager.model.errors import Corrupt, Refused, Transient
from stager.model.files import Destination, File, Location, Source
from stager.model.results import MadeOutput, Result, SeenAt, origin_key
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.digest import workflow_digest
from stager.planning.job_key import key_of
from stager.planning.reuse import Known, Reuse
from stager.ports import OriginEntry
from stager.scheduler.entering import content_of
from stager.scheduler.events import IDS
from stager.service import reusing
from stager.service.prepare import SubmitContext, SubmitOptions, as_asked, found_before
from stager.service.reusing import SETTLED_S, Asker, remembered, reuse_lines
from stager.service.settings import Settings, read_settings
from tests.testbed.waiting import wait_until
from tests.unit.reader_origins import DirectoryAccess

OLD_S = 60.0


class Place:
    """One job, `in` to `out`, in a directory of this machine; `hashed`: the files that were read to hash them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.results = root, root / "results.sqlite"
        self.hashed: list[str] = []
        (root / "in").write_text("input\n")
        (root / "out").write_text("output\n")
        here = Origin("here", OriginKind.FILE, f"file://{root}")
        job = Job("a", "t", ("cp", "in", "out"), inputs=(JobInput("in", "in"),), outputs=(JobOutput("out", "out"),))
        found = (root / "in").stat()
        source = Source(Location("here", "in"), found.st_size, token_of(root / "in"))
        files = {
            "in": File("in", size_bytes=found.st_size, sources=(source,)),
            "out": File("out", destination=Destination(Location("here", "out"))),
        }
        self.flow = Workflow("w", files, {"a": job}, {"here": here})
        monkeypatch.setattr(reusing, "blake3_of_each", self.hash)

    def hash(self, paths: object, environ: Mapping[str, str]) -> dict[Path, str]:
        listed = list(paths)  # type: ignore[call-overload]
        self.hashed += [path.name for path in listed]
        return blake3_of_each(listed, os.environ)

    def remember(self, *, at: float | None = None, tenant: str = "") -> None:
        """As a run of it leaves it that began after all was written."""
        at = time.time() + OLD_S if at is None else at
        contents = {path.name: told for path, told in blake3_of_each([self.root / "in", self.root / "out"], os.environ).items()}
        key = key_of(self.flow, self.flow.jobs["a"], contents, {})
        made = MadeOutput("out", 7, contents["out"])
        result = Result(key.digest, "w-1", "a", "t", "w", key.parts, (made,), at, 1.0)
        home = origin_key(self.flow.origins["here"])
        seen = [
            SeenAt(home, name, token_of(self.root / name), 7, contents[name], at, "readback" if name == "out" else "")
            for name in ("in", "out")
        ]
        seen[0] = replace(seen[0], size_bytes=6)
        store = ResultsStore(self.results)
        store.write(tenant, [result], seen)
        store.close()

    def asked(self, *, by_name: bool = False, tenant: str | None = None, verify: bool = False) -> reusing.Remembered:
        answers = {("here", "out"): OriginEntry("out", 7, token_of(self.root / "out"))}
        asker = Asker(tenant, {}, os.environ, self.root, by_name=by_name, verify=verify)
        return remembered(self.flow, self.results, asker, answers, ((), ()))

    def edited(self) -> None:
        """Another listing of the input."""
        found = (self.root / "in").stat()
        source = Source(Location("here", "in"), found.st_size, token_of(self.root / "in"))
        self.flow = replace(
            self.flow, files={**self.flow.files, "in": replace(self.flow.files["in"], sources=(source,), size_bytes=found.st_size)}
        )


def token_of(path: Path) -> str:
    found = path.stat()
    return f"m={found.st_mtime_ns};s={found.st_size}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_workflow_that_never_ran_is_asked_nothing_and_no_input_of_it_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ResultsStore(place.results).close()
    monkeypatch.setattr(ResultsStore, "kept", lambda *words: pytest.fail("what is kept of other results is no business of this one"))
    found = place.asked()
    assert place.hashed == [] and "no run that is remembered read it there" in found.reuse.runs["a"]
    assert reuse_lines(place.flow, found, None, by_name=False) == []  # type: ignore[arg-type]
    place.asked(by_name=True)
    assert place.hashed == ["in"], "who asks for reuse may have moved what ran elsewhere"


def test_without_any_results_nothing_is_looked_for_unless_somebody_asks(tmp_path: Path, place: Place) -> None:
    def found(settings: Settings, options: SubmitOptions) -> object:
        return found_before(place.flow, SubmitContext(settings, DirectoryAccess(tmp_path), options), {})

    settings = read_settings(state_dir=tmp_path / "s", environ={})
    assert settings.reuse and found(settings, SubmitOptions()) is None
    assert found(settings, SubmitOptions(reuse=True)) is not None
    assert found(settings, SubmitOptions(reuse=False)) is None
    off = read_settings(state_dir=tmp_path / "s", environ={"STAGER_REUSE": "off"})
    assert not off.reuse and found(off, SubmitOptions(rerun=("a",))) is not None


def test_what_did_not_change_is_known_without_reading_it(place: Place) -> None:
    place.remember()
    assert place.asked().reuse.reused.keys() == {"a"} and place.hashed == []


def test_a_small_input_that_was_edited_is_hashed_and_a_large_one_of_another_size_is_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.remember()
    (place.root / "in").write_text("another input\n")
    place.edited()
    assert "no run that is remembered made this" in place.asked().reuse.runs["a"] and place.hashed == ["in"]
    monkeypatch.setattr(reusing, "EDITED_BYTES_MAX", 5)
    place.hashed.clear()
    assert "it changed" in place.asked().reuse.runs["a"] and place.hashed == []


def test_results_that_cannot_be_read_hold_up_no_submit_that_did_not_ask_for_them(place: Place) -> None:
    place.results.write_bytes(b"no database, and long enough to be told so\n" * 100)
    found = place.asked()
    (told,) = reuse_lines(place.flow, found, None, by_name=False)  # type: ignore[arg-type]
    assert "all jobs run" in told and str(place.results) in told and found.reuse.runs.keys() == {"a"}
    with pytest.raises(Corrupt, match="move the file away"):
        place.asked(by_name=True)


def test_inputs_that_are_to_be_verified_are_hashed_here_and_unknown_elsewhere(place: Place) -> None:
    place.remember()
    assert place.asked(verify=True).reuse.reused.keys() == {"a"} and place.hashed == ["in"]
    assert "to verify it" in place.asked(verify=True, tenant="").reuse.runs["a"], "what is not here is only known by fetching it"
    flow = as_asked(place.flow, SubmitOptions(verify_inputs=True))
    other = as_asked(place.flow, SubmitOptions(verify_inputs=True))
    ids = {content_of(each, each.files["in"], IDS) for each in (place.flow, flow, other)}
    assert len(ids) == 3 and workflow_digest(flow) == workflow_digest(place.flow), "no cache has it under this name"


def test_finals_of_an_earlier_submit_come_to_their_new_place_whatever_came_along_with_it(tmp_path: Path) -> None:
    """A pattern of the workflow may take along what an earlier run made. An error would come at each try."""
    old, gone = tmp_path / "old", tmp_path / "gone"
    old.write_text("made\n")
    new, sent, same = tmp_path / "tree" / "new", tmp_path / "sent", tmp_path / "same"
    sent.write_text("sent\n")
    same.hardlink_to(old)
    places = {"a": (old, new), "b": (old, sent), "c": (old, same), "d": (old, tmp_path / "of a job that runs")}
    seen = SeenAt("home", "x", "t", 5, "b3", 1.0, "readback")
    found = reusing.Remembered(Reuse(held=dict.fromkeys("abc", seen)), Known({}, {}, lambda key: None), brought=places)
    found.bring_finals()
    assert [path.read_text() for path in (new, sent, same)] == ["made\n"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "same", "sent", "tree"]
    found.brought["a"] = (gone, new)
    with pytest.raises(Transient, match="went just now"):
        found.bring_finals()


@pytest.mark.parametrize("is_directory", [False, True])
def test_an_input_behind_a_link_that_leads_elsewhere_now_is_hashed(place: Place, is_directory: bool) -> None:
    """As `current`, where all versions were unpacked long ago, with the same times."""
    there = place.root / "versions"
    for name, text in (("v1", "input\n"), ("v2", "INPUT\n")):
        (there / name).mkdir(parents=True)
        (there / name / "in").write_text(text)
        os.utime(there / name / "in", (1_700_000_000, 1_700_000_000))
    link, target = (place.root / "in", "versions/{}/in") if not is_directory else (place.root / "current", "versions/{}")
    (place.root / "in").unlink()
    link.symlink_to(target.format("v1"))
    if is_directory:
        (place.root / "in").symlink_to("current/in")
    place.edited()
    begun = time.time()
    wait_until(lambda: time.time() > begun + SETTLED_S + 0.3, "all to have settled")
    place.remember(at=time.time() - 0.1)
    place.hashed.clear()
    assert place.asked().reuse.reused.keys() == {"a"} and "in" not in place.hashed
    link.unlink()
    link.symlink_to(target.format("v2"))
    with pytest.raises(Refused, match="`touch` it"):
        place.asked()
