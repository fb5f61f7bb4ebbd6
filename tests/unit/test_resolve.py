"""Sizes and tokens of external files: asked in batches, everything missing at once, several sources in their order."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from stager.model.errors import Denied, ErrorClass, Fault, InvalidInput, Transient
from stager.model.files import File, Location, Source
from stager.model.workflow import Job, JobInput, Origin, OriginKind, Workflow
from stager.ports import DirectoryListing, OriginEntry
from stager.readers.lines import Place
from stager.readers.resolve import resolve, unsettled
from tests.unit.reader_origins import DirectoryAccess


def workflow_of(tmp_path: Path, *files: File) -> Workflow:
    """One job that reads every file; origins a, b, c are directories."""
    origins = {name: Origin(name, OriginKind.FILE, f"file://{tmp_path}/{name}") for name in "abc"}
    job = Job("j", "j", argv=("true",), inputs=tuple(JobInput(file.lfn, file.lfn) for file in files))
    return Workflow("w", {file.lfn: file for file in files}, {"j": job}, origins)


def put(tmp_path: Path, *paths: str, text: str = "12345") -> None:
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)


def at(*places: str) -> tuple[Source, ...]:
    return tuple(Source(Location(*place.split(":"))) for place in places)


def test_sizes_and_tokens_are_filled_in_and_produced_files_left_alone(tmp_path):
    put(tmp_path, "a/x")
    produced = File("p", size_bytes=7)
    resolved = resolve(workflow_of(tmp_path, File("x", size_bytes=99, sources=at("a:x")), produced), DirectoryAccess(tmp_path))
    (source,) = resolved.files["x"].sources
    assert (resolved.files["x"].size_bytes, source.size_bytes) == (5, 5) and source.token.startswith("m=")
    assert resolved.files["p"] == produced


def test_what_was_resolved_is_not_asked_again(tmp_path):
    put(tmp_path, "a/x")
    once = resolve(workflow_of(tmp_path, File("x", sources=at("a:x"))), DirectoryAccess(tmp_path))
    access = DirectoryAccess(tmp_path)
    assert resolve(once, access) == once and access.stats == [] == access.lists


def test_everything_missing_is_said_at_once_with_origin_and_path(tmp_path):
    put(tmp_path, "a/x")
    files = [File(lfn, sources=at(f"{origin}:{lfn}")) for origin, lfn in (("a", "x"), ("a", "y"), ("b", "z/w"))]
    with pytest.raises(InvalidInput) as caught:
        resolve(workflow_of(tmp_path, *files), DirectoryAccess(tmp_path))
    assert str(caught.value).splitlines() == [
        f"w: input 'y' is missing: there is no a:y (at file://{tmp_path}/a/y)",
        f"w: input 'z/w' is missing: there is no b:z/w (at file://{tmp_path}/b/z/w)",
    ]


def test_a_directory_is_no_file(tmp_path):
    put(tmp_path, "a/d/x")
    with pytest.raises(InvalidInput, match="a:d is a directory; write a:d/ for all files below it"):
        resolve(workflow_of(tmp_path, File("d", sources=at("a:d"))), DirectoryAccess(tmp_path))


def test_sources_go_by_priority_then_site_then_order(tmp_path):
    put(tmp_path, "a/1", "a/2", "a/3", "a/4")
    one, two, three, four = at("a:1", "a:2", "a:3", "a:4")
    sources = (replace(one, priority=1), replace(two, site="s2"), replace(three, site="s1"), replace(four, site="s1"))
    resolved = resolve(workflow_of(tmp_path, File("x", sources=sources)), DirectoryAccess(tmp_path))
    assert [source.location.path for source in resolved.files["x"].sources] == ["3", "4", "2", "1"]


def test_a_source_that_is_gone_leaves_while_another_is_there(tmp_path):
    put(tmp_path, "b/x")
    resolved = resolve(workflow_of(tmp_path, File("x", sources=at("a:x", "b:x"))), DirectoryAccess(tmp_path))
    assert [source.location.origin for source in resolved.files["x"].sources] == ["b"]


def test_sources_of_different_size_need_a_checksum(tmp_path):
    put(tmp_path, "a/x")
    put(tmp_path, "b/x", text="longer than the other")
    file = File("x", sources=at("a:x", "b:x"))
    with pytest.raises(InvalidInput, match="the sources of 'x' differ: a:x has 5 bytes, b:x has 21 bytes"):
        resolve(workflow_of(tmp_path, file), DirectoryAccess(tmp_path))
    resolved = resolve(workflow_of(tmp_path, replace(file, sha256="0" * 64)), DirectoryAccess(tmp_path))
    assert len(resolved.files["x"].sources) == 2


class Scripted:
    """Answers of an origin that is not well."""

    def __init__(self, answers: dict[str, OriginEntry | Fault | Exception]) -> None:
        self.answers = answers

    def stat(self, origin, paths):
        if isinstance(self.answers.get(origin.name), Exception):
            raise self.answers[origin.name]
        return [self.answers[path] for path in paths]

    def list(self, origin, prefix, *, recursive=True, limit=0):
        raise InvalidInput("too many")


def test_what_an_origin_says_keeps_its_class(tmp_path):
    denied = Fault(ErrorClass.DENIED, "denied", "you may not read x", "x")
    files = [File("x", sources=at("a:x"))]
    with pytest.raises(Denied, match="you may not read x"):
        resolve(workflow_of(tmp_path, *files), Scripted({"x": denied}))
    missing = Fault(ErrorClass.INVALID_INPUT, "not_found", "no y", "y")
    with pytest.raises(InvalidInput, match="there is no a:y"):
        resolve(workflow_of(tmp_path, *files, File("y", sources=at("a:y"))), Scripted({"x": denied, "y": missing}))


def test_every_input_that_is_a_link_out_of_its_origin_is_named_at_once(tmp_path):
    answers = {name: Fault(ErrorClass.INVALID_INPUT, "link_leads_out", f"{name} leads out", name) for name in "xyz"}
    files = [File(name, sources=at(f"a:{name}")) for name in "xyz"]
    where = {name: (Place(7, column), f"jobs.j.inputs[{column}]") for column, name in enumerate("xyz")}
    with pytest.raises(InvalidInput) as caught:
        resolve(workflow_of(tmp_path, *files), Scripted(answers), where=where)
    assert str(caught.value).splitlines() == [
        f"w:7:{column}: jobs.j.inputs[{column}]: input {name!r}: {name} leads out" for column, name in enumerate("xyz")
    ]


def test_an_origin_that_is_down_is_no_trouble_where_another_has_the_file(tmp_path):
    down = Transient("origin a does not answer", code="origin_unreachable")
    entry = OriginEntry("x", 3, "t", settled=False)
    resolved = resolve(workflow_of(tmp_path, File("x", sources=at("a:x", "b:x"))), Scripted({"a": down, "x": entry}))
    assert [source.location.origin for source in resolved.files["x"].sources] == ["b"]
    assert unsettled(resolved) == ["x"] and "1 input was written less than 2 s before" in resolved.notes[0]
    assert resolve(resolved, Scripted({})).notes == resolved.notes


def test_an_origin_that_is_down_is_told_by_its_first_input(tmp_path):
    down = Transient("origin a does not answer; ask again later", code="origin_unreachable", subject="the host")
    workflow = workflow_of(tmp_path, File("x", sources=at("a:x")), File("y", sources=at("a:d/y")))
    base = workflow.origins["a"].url
    with pytest.raises(Transient) as caught:
        resolve(workflow, Scripted({"a": down}), where={"x": (Place(7, 9), "jobs.j.inputs.x"), "y": (Place(8, 9), "jobs.j.inputs.y")})
    told = f"w:7:9: jobs.j.inputs.x: input 'x' at {base}/x (and 1 more likewise): origin a does not answer; ask again later"
    assert (caught.value.message, caught.value.subject) == (told, "jobs.j.inputs.x")
    with pytest.raises(Transient) as caught:
        resolve(workflow_of(tmp_path, File("y", sources=at("a:d/y"))), Scripted({"a": down}))
    told = f"w: y: input 'y' at {base}/d/y: origin a does not answer; ask again later"
    assert (caught.value.message, caught.value.subject) == (told, "y")


def test_a_directory_of_many_inputs_is_listed_and_the_rest_asked_in_one_call(tmp_path):
    names = [f"d/{i}" for i in range(300)]
    put(tmp_path, *(f"a/{name}" for name in names), "a/e/1", "a/f/2")
    access = DirectoryAccess(tmp_path)
    resolve(workflow_of(tmp_path, *(File(name, sources=at(f"a:{name}")) for name in [*names, "e/1", "f/2"])), access)
    assert access.lists == ["a:d"] and access.stats == [2]


def test_a_directory_with_far_more_than_is_wanted_is_asked_by_name(tmp_path):
    names = [f"d/{i}" for i in range(100)]
    files = [File(name, sources=at(f"a:{name}")) for name in names]
    resolved = resolve(workflow_of(tmp_path, *files), Scripted({name: OriginEntry(name, 1, "t") for name in names}))
    assert all(file.size_bytes == 1 for file in resolved.files.values())


class Counted:
    """An origin with ten thousand files, in memory."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.calls = names, 0

    def stat(self, origin, paths):
        self.calls += 1
        return [OriginEntry(path, 1, "t") for path in paths]

    def list(self, origin, prefix, *, recursive=True, limit=0):
        self.calls += 1
        return DirectoryListing([OriginEntry(name, 1, "t") for name in self.names if name.startswith(prefix + "/")], [])


@pytest.mark.slow
@pytest.mark.parametrize(("directories", "calls"), [(3, 3), (100, 5), (10_000, 1)])
def test_ten_thousand_inputs_take_a_few_calls_and_a_second(tmp_path, directories, calls):
    names = [f"d{i % directories}/{i}" for i in range(10_000)]
    access, workflow = Counted(names), workflow_of(tmp_path, *(File(name, sources=at(f"a:{name}")) for name in names))
    began = time.process_time()
    resolved = resolve(workflow, access)
    assert access.calls == calls and time.process_time() - began < 6
    assert all(file.sources[0].token == "t" for file in resolved.files.values())


def test_a_web_server_is_never_asked_for_a_listing(tmp_path):
    names = [f"d/{i}" for i in range(100)]
    access = Scripted({name: OriginEntry(name, 1, 'etag:"t";s=1') for name in names})
    workflow = workflow_of(tmp_path, *(File(name, sources=at(f"a:{name}")) for name in names))
    workflow = replace(workflow, origins={"a": Origin("a", OriginKind.HTTP, "https://h")})
    access.list = None
    assert resolve(workflow, access).files["d/7"].sources[0].token == 'etag:"t";s=1'


def test_what_is_known_by_its_size_alone_is_said_once(tmp_path):
    entries = {
        "x": OriginEntry("x", 1, "s=1"),
        "y": OriginEntry("y", 2, "s=2"),
        "z": OriginEntry("z", 3, "s=3;md5=" + "0" * 32),
        "w": OriginEntry("w", 4, "s=4"),
    }
    files = [File(name, sources=at(f"a:{name}"), sha256="0" * 64 if name == "w" else None) for name in "xyzw"]
    (note,) = resolve(workflow_of(tmp_path, *files), Scripted(entries)).notes
    assert note.startswith("of 2 inputs the server tells the size and nothing else, 'x' first") and "sha256" in note
