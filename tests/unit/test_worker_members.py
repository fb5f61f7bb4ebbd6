"""What a worker reads of a job's outputs for those that scatter over them: from the sandbox alone, and the same each time."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.model.scatter import ScatterForm
from stager.worker import AttemptSpec, MembersIn, Place
from stager.worker.members import MEMBERS_BYTES_MAX, members_of

LIST = MembersIn("align", "sub/l.txt", ("x",), ScatterForm.LINES)
CHUNKS = MembersIn("sort", "chunks", ("x",), ScatterForm.DIRECTORY)


def spec_of(*members: MembersIn) -> AttemptSpec:
    return AttemptSpec(attempt_id="a1", run_id="r", job_id="split", argv=("x",), members=members)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place.of(tmp_path, "a1")
    (Path(made.sandbox) / "sub").mkdir(parents=True)
    return made


def test_a_list_and_a_directory_are_read_once(place: Place) -> None:
    sandbox, spec = Path(place.sandbox), spec_of(LIST, CHUNKS)
    (sandbox / "sub/l.txt").write_text("\N{BYTE ORDER MARK}b\na\n")
    (sandbox / "chunks").mkdir()
    for name in ("2", "1"):
        (sandbox / "chunks" / name).touch()
    assert members_of(spec, place) == {"align": (("b",), ("a",)), "sort": (("chunks/1",), ("chunks/2",))}
    (sandbox / "sub/l.txt").write_text("other\n")
    assert members_of(spec, place)["align"] == [["b"], ["a"]], "a stage-out that is repeated after a crash says what it said"
    assert AttemptSpec.from_json(spec.to_json()).members == (LIST, CHUNKS) and "members" not in spec_of().to_json()


def test_an_output_that_is_not_there_is_for_the_stage_out_to_miss(place: Place) -> None:
    assert members_of(spec_of(LIST, CHUNKS), place) == {}


@pytest.mark.parametrize("what", ["link", "way", "pipe", "socket", "directory", "large", "latin", "twice"])
def test_what_is_no_list_in_the_sandbox_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    sandbox, secret = Path(place.sandbox), tmp_path / "secret"
    secret.mkdir()
    (secret / "l.txt").write_text("password\n")
    target = sandbox / "sub/l.txt"
    if what == "link":
        target.symlink_to(secret / "l.txt")
    elif what == "way":
        (sandbox / "sub").rmdir()
        (sandbox / "sub").symlink_to(secret)
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "socket":
        # The name of one is bound from where it lies: it may not be long.
        monkeypatch.chdir(target.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(target.name)
    elif what == "directory":
        target.mkdir()
    elif what == "large":
        target.write_bytes(b"x")
        os.truncate(target, MEMBERS_BYTES_MAX + 1)
    else:
        target.write_bytes({"latin": b"caf\xe9\n", "twice": b"a\na\n"}[what])
    with pytest.raises(InvalidInput) as caught:
        members_of(spec_of(LIST), place)
    said = {"link": "outputs must be", "way": "outputs must be", "large": "more than", "latin": "not UTF-8"}
    said |= dict.fromkeys(("pipe", "socket", "directory"), "no regular file")
    assert said.get(what, "line 2 repeats 'a'") in caught.value.message and "password" not in caught.value.message


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_no_directory_where_one_is_due_is_refused(place: Place, tmp_path: Path, is_link: bool) -> None:
    target = Path(place.sandbox) / "chunks"
    target.symlink_to(tmp_path) if is_link else target.touch()
    opened = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidInput, match=r"'chunks', over which 'sort' scatters, and that cannot be: it is no directory") as caught:
        members_of(spec_of(CHUNKS), place)
    assert caught.value.code == "bad_members" and len(os.listdir("/proc/self/fd")) == len(opened)
