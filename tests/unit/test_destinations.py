"""Destinations that are there before a run, and the room where they go: who is refused, who is told, who is let through."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from stager.adapters.run_records import RunRecord, RunRecords, Written, written_before
from stager.model.errors import Refused
from stager.model.files import Destination, File, Location, OnExists
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.ports import Probe
from stager.service.destination_space import disks_of
from stager.service.destinations import already_there, made_again, require_free
from tests.unit.reader_origins import DirectoryAccess

MB = 10**6


def making(place: Path, *lfns: str, rule: OnExists = OnExists.FAIL, size_bytes: int | None = None) -> Workflow:
    files = {lfn: File(lfn, size_bytes=size_bytes, destination=Destination(Location("lab", f"out/{lfn}"), rule)) for lfn in lfns}
    job = Job("make", "make", ("true",), outputs=tuple(JobOutput(lfn, lfn) for lfn in lfns))
    return Workflow("w", files, {"make": job}, {"lab": Origin("lab", OriginKind.FILE, place.as_uri())})


def put(place: Path, lfn: str, text: str = "months of work") -> str:
    """Its token."""
    path = place / "out" / lfn
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return f"m={path.stat().st_mtime_ns};s={path.stat().st_size}"


def wrote(records: Path, run: str, path: str, token: str, tenant: str = "") -> None:
    kept = RunRecords(records)
    kept.add(RunRecord(run, f"id {run}", "w", "", float(len(run)), 1, tenant=tenant))
    kept.finish(run, "succeeded", 2.0, 1, "{}", json.dumps([{"path": path, "token": token}, {"path": "out/z", "token": ""}]).encode())
    kept.close()


def test_each_destination_that_is_there_is_named_in_one_refusal(tmp_path: Path) -> None:
    names = [f"f{number:02}" for number in range(30)]
    for name in names[:25]:
        put(tmp_path, name)
    access = DirectoryAccess(tmp_path)
    with pytest.raises(Refused) as refused:
        require_free(making(tmp_path, *names), access, tmp_path / "runs.sqlite")
    said = refused.value.message
    assert refused.value.code == "destination_exists" and "25 destinations are there already" in said
    assert all(f"lab:out/{name}" in said for name in names[:25]) and not any(f"out/{name}" in said for name in names[25:])
    assert access.stats == [30], "one question for the origin"


def test_what_may_be_replaced_or_is_not_there_is_let_through(tmp_path: Path) -> None:
    require_free(making(tmp_path, "a"), DirectoryAccess(tmp_path), tmp_path / "runs.sqlite")
    put(tmp_path, "a")
    require_free(making(tmp_path, "a", rule=OnExists.REPLACE), DirectoryAccess(tmp_path), tmp_path / "runs.sqlite")


def test_what_an_earlier_run_left_is_let_through_until_somebody_writes_over_it(tmp_path: Path) -> None:
    token, records = put(tmp_path, "a"), tmp_path / "runs.sqlite"
    wrote(records, "w-1", "out/a", token)
    workflow, access = making(tmp_path, "a"), DirectoryAccess(tmp_path)
    require_free(workflow, access, records)
    assert [each.own for each in already_there(workflow, access, records)] == [True]
    put(tmp_path, "a", "notes of somebody")
    with pytest.raises(Refused, match="a destination is there already"):
        require_free(workflow, access, records)


def test_finals_that_are_made_again_over_what_an_earlier_run_left_are_told(tmp_path: Path) -> None:
    records = tmp_path / "runs.sqlite"
    for name in "ab":
        wrote(records, f"w-{name}", f"out/{name}", put(tmp_path, name))
    workflow, access = making(tmp_path, "a", "b", "c"), DirectoryAccess(tmp_path)
    there = require_free(workflow, access, records)
    [note] = made_again(workflow, there, ())
    assert note.startswith("note: an earlier run left 2 finals at their destinations, and their jobs run again: lab:out/a, lab:out/b; ")
    assert "the run ends not_durable" in note and "on_exists: replace" in note
    assert made_again(workflow, there, {"make"}) == (), "a job that does not run makes nothing"
    replacing = making(tmp_path, "a", rule=OnExists.REPLACE)
    assert made_again(replacing, require_free(replacing, access, records), ()) == ()
    many = [f"f{number}" for number in range(7)]
    for name in many:
        wrote(records, f"w-{name}", f"out/{name}", put(tmp_path, name))
    assert "lab:out/f4, and 2 more; " in made_again(making(tmp_path, *many), already_there(making(tmp_path, *many), access, records), ())[0]


def test_runs_of_other_tenants_do_not_count(tmp_path: Path) -> None:
    token, records = put(tmp_path, "a"), tmp_path / "runs.sqlite"
    wrote(records, "w-1", "out/a", token, tenant="bob")
    workflow, access = making(tmp_path, "a"), DirectoryAccess(tmp_path)
    require_free(workflow, access, records, "bob")
    with pytest.raises(Refused):
        require_free(workflow, access, records, "alice")


def test_a_run_of_it_that_has_not_ended_is_for_the_scheduler_to_name(tmp_path: Path) -> None:
    put(tmp_path, "a")
    records = RunRecords(tmp_path / "runs.sqlite")
    records.add(RunRecord("w-1", "id", "w", "", 1.0, 1))
    records.close()
    workflow, access = making(tmp_path, "a"), DirectoryAccess(tmp_path)
    require_free(workflow, access, tmp_path / "runs.sqlite")
    with pytest.raises(Refused):
        require_free(replace(workflow, name="other"), access, tmp_path / "runs.sqlite")


def test_records_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    asked = {Written("out/a", "t")}
    assert written_before(tmp_path / "none.sqlite", asked) == set()
    (tmp_path / "odd.sqlite").write_text("no such file")
    assert written_before(tmp_path / "odd.sqlite", asked) == set()


def probe(free_bytes: int | None, file_system: str = "dev:1") -> Probe:
    return Probe(True, True, free_bytes, (), file_system)


def two_origins(place: Path, size_bytes: int | None = 6 * MB) -> Workflow:
    workflow = making(place, "a", "b", size_bytes=size_bytes)
    more = {"home": Origin("home", OriginKind.FILE, (place / "home").as_uri())}
    files = dict(workflow.files)
    files["b"] = replace(files["b"], destination=Destination(Location("home", "b")))
    return replace(workflow, origins=dict(workflow.origins) | more, files=files)


def test_finals_of_one_file_system_share_its_room(tmp_path: Path) -> None:
    workflow = two_origins(tmp_path)
    plan = make_plan(workflow, embedded(10**12))
    shared = {("lab", "out"): probe(10 * MB), ("home", ""): probe(10 * MB)}
    [disk] = disks_of(workflow, plan, shared, set())
    assert disk.is_short and disk.known_bytes == 12 * MB
    assert f"{tmp_path.as_uri()} and {(tmp_path / 'home').as_uri()} share 10 MB free, the finals need 12 MB" in disk.message
    apart = shared | {("home", ""): probe(10 * MB, "dev:2")}
    assert [disk.is_short for disk in disks_of(workflow, plan, apart, set())] == [False, False]
    assert [disk.is_short for disk in disks_of(workflow, plan, shared, {("home", "b")})] == [False], "what is there needs none"


def test_what_the_plan_measured_counts_and_what_it_guesses_is_noted(tmp_path: Path) -> None:
    workflow = two_origins(tmp_path, None)
    plan = make_plan(workflow, embedded(10**12))
    probes = {("lab", "out"): probe(1), ("home", ""): probe(1)}
    [disk] = disks_of(workflow, plan, probes, set())
    assert not disk.is_short and disk.may_be_short and "are a guess" in disk.message
    measured = replace(plan, files=tuple(structs.replace(each, size_basis=Basis.PROFILE, likely_bytes=7) for each in plan.files))
    [disk] = disks_of(workflow, measured, probes, set())
    assert disk.is_short and disk.known_bytes == 14


def test_room_that_nobody_tells_stops_nobody(tmp_path: Path) -> None:
    workflow = two_origins(tmp_path)
    assert disks_of(workflow, None, {("lab", "out"): probe(None, "")}, set()) == []
