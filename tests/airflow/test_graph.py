"""What follows from a DAG: which file belongs to which part, and workflows that our own reader takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from airflow.providers.stager.graph import DagFact, DagRunPart, FileFact, Shape, TaskFact, shape_of
from airflow.providers.stager.runs import DagRunId, Runs, own_part

from stager import rest
from stager.adapters.origin_access import IonodeOriginAccess
from stager.readers.native import read

LAB = "sftp://lab.example.org/data"


def task(name: str, reads: tuple[str, ...] = (), makes: tuple[str, ...] = (), up: tuple[str, ...] = (), **more: Any) -> TaskFact:
    stages = more.pop("stages", True)
    facts = (tuple(FileFact(uri) for uri in uris) for uris in (reads, makes))
    return TaskFact(name, stages, *facts, upstream=up, **more)


def shape(*tasks: TaskFact, **more: Any) -> Shape:
    return shape_of(DagFact("survey", tasks), "survey run-1", **more)


class Taking:
    """In the place of a client: keeps what is submitted."""

    def __init__(self) -> None:
        self.taken: list[rest.EngineSubmission] = []

    def engine_run(self, submission: rest.EngineSubmission, *, key: str) -> str:
        self.taken.append(submission)
        return key


def test_all_runs_of_a_dagrun_are_submitted_as_part_of_it() -> None:
    makes = task("make", (), (f"{LAB}/made",), stages=False)
    client, dag = Taking(), DagFact("survey", (makes, task("look", (f"{LAB}/made", f"{LAB}/raw"), up=("make",))))
    for own in ("", own_part("try-1.look.0123456789ab", 1)):
        runs = Runs(client, dag, DagRunId("survey", "run-1"), own)  # type: ignore[arg-type]
        for part in runs.shape().parts:
            runs.submit(part, "key")
    assert [each.part_of for each in client.taken] == ["survey/run-1"] * len(client.taken) and len(client.taken) > 1
    assert DagRunId("survey", "run-1", "lab b").part_of == "survey/run-1 (lab b)"
    strange = DagRunId("survey", "run\n\x1b" + "1" * 1000).part_of
    assert len(strange) == rest.PART_OF_MAX and strange.startswith("survey/run__1")
    rest.EngineSubmission(workflow="x", part_of=strange)


def said(part: DagRunPart) -> dict[str, Any]:
    return json.loads(part.text)


def test_outside_files_intermediates_and_finals_are_one_run() -> None:
    found = shape(
        task("project", (f"{LAB}/raw.fits",), ("stager://survey/p.fits",)),
        task("add", ("stager://survey/p.fits", f"{LAB}/raw.fits"), (f"{LAB}/out/mosaic.fits",), up=("project",)),
    )
    (part,) = found.parts
    assert said(part) == {
        "stager": 1,
        "name": "survey run-1",
        "engine": "airflow",
        "origins": {"lab-example-org-data": LAB, "lab-example-org-data-out": f"{LAB}/out"},
        "files": {"lab.example.org/data/raw.fits": {"from": "lab-example-org-data:raw.fits", "literal": True}},
        "jobs": {
            "project": {
                "type": "survey.project",
                "inputs": ["lab.example.org/data/raw.fits"],
                "outputs": {"survey/p.fits": {"literal": True}},
            },
            "add": {
                "type": "survey.add",
                "inputs": ["survey/p.fits", "lab.example.org/data/raw.fits"],
                "outputs": {
                    "lab.example.org/data/out/mosaic.fits": {
                        "to": "lab-example-org-data-out:mosaic.fits",
                        "on_exists": "replace",
                        "literal": True,
                    }
                },
                "after": ["project"],
            },
        },
    }
    assert (found.notes, part.after, part.jobs) == ((), "", {"project", "add"})
    assert part.files["stager://survey/p.fits"] == "survey/p.fits"
    assert part.origins["lab-example-org-data-out"] == (f"{LAB}/out/mosaic.fits",)


def test_what_a_task_makes_that_does_not_stage_is_a_part_of_its_own() -> None:
    """Its reader reads there, and makes in the first part."""
    found = shape(
        task("observe", makes=(f"{LAB}/night.fits",), stages=False),
        task("project", (f"{LAB}/night.fits", f"{LAB}/flat.fits"), ("stager://survey/p",), up=("observe",)),
        task("add", ("stager://survey/p",), (f"{LAB}/sum",), up=("project",)),
    )
    first, after = found.parts
    assert (first.after, after.after, after.jobs) == ("", "observe", {"project"})
    assert said(after)["jobs"] == {"project": {"type": "survey.project.reads", "inputs": ["lab.example.org/data/night.fits"]}}
    assert said(after)["name"] == "survey run-1 after observe"
    assert f"{LAB}/night.fits" not in first.files and f"{LAB}/flat.fits" in first.files
    assert [part.after for part in found.of_task("project")] == ["", "observe"]


def test_tasks_that_do_not_stage_bring_nothing_unless_another_reads_it_too() -> None:
    plain = task("look", (f"{LAB}/raw", f"{LAB}/only-here"), stages=False)
    (part,) = shape(plain, task("project", (f"{LAB}/raw",))).parts
    assert list(part.files) == [f"{LAB}/raw"] and part.jobs == {"project"}
    assert shape(plain).parts == ()


@pytest.mark.parametrize(
    ("tasks", "word"),
    [
        ((task("a", makes=(f"{LAB}/x",)), task("b", makes=(f"{LAB}/x",)), task("c", (f"{LAB}/x",), up=("a", "b"))), "several tasks (a, b)"),
        ((task("a", makes=(f"{LAB}/x",)), task("c", (f"{LAB}/x",))), "c reads"),
        ((task("a", makes=("stager://s/x",)), task("c", ("stager://s/x",), up=("a",), many=True)), "c cannot read"),
        ((task("a", makes=("https://lab/x",)),), "writes to"),
    ],
)
def test_what_can_be_in_no_part_is_said_once(tasks: tuple[TaskFact, ...], word: str) -> None:
    found = shape(*tasks)
    (note,) = found.notes
    assert word in note and tasks[0].outlets[0].uri in note
    readers = {job for part in found.parts for job, entry in said(part)["jobs"].items() if "inputs" in entry}
    assert "c" not in readers


def test_mapped_tasks_are_in_no_part() -> None:
    assert shape(task("each", (f"{LAB}/raw",), (f"{LAB}/out",), many=True)).parts == ()
    first = shape(task("each", makes=(f"{LAB}/out",), many=True), task("all", (f"{LAB}/out",), up=("each",))).parts[0]
    assert (first.after, first.jobs) == ("each", {"all"})


def test_an_intermediate_that_nobody_here_reads_is_left_to_its_task() -> None:
    assert shape(task("a", makes=("stager://survey/for-another-dag",))).parts == ()
    assert shape(task("b", ("stager://survey/of-another-dag",))).parts == ()


def test_a_task_may_read_what_it_makes_anew() -> None:
    (part,) = shape(task("a", (f"{LAB}/log",), (f"{LAB}/log",))).parts
    assert "inputs" not in said(part)["jobs"]["a"]


def test_hints_count_from_wherever_they_are_said() -> None:
    made = TaskFact("a", True, (FileFact(f"{LAB}/in", sha256="ab"),), (FileFact("stager://s/x"),))
    reads = TaskFact("b", True, (FileFact("stager://s/x", 7), FileFact(f"{LAB}/in", 5)), upstream=("a",))
    (part,) = shape(made, reads).parts
    assert said(part)["files"]["lab.example.org/data/in"] | {"from": ""} == {"from": "", "literal": True, "size": 5, "sha256": "ab"}
    assert said(part)["jobs"]["a"]["outputs"]["s/x"]["size"] == 7


def test_what_the_service_refused_is_left_out() -> None:
    tasks = (task("a", (f"{LAB}/gone", f"{LAB}/there")), task("b", (f"{LAB}/gone",)))
    (part,) = shape(*tasks, loose=[f"{LAB}/gone"]).parts
    assert (part.jobs, list(part.files)) == ({"a"}, [f"{LAB}/there"])


def test_edges_pass_over_tasks_that_are_in_no_part_and_name_the_nearest_only() -> None:
    tasks = [task("a", (f"{LAB}/1",)), task("plain", stages=False, up=("a",)), task("b", (f"{LAB}/2",), up=("plain", "a"))]
    (part,) = shape(*tasks, task("c", (f"{LAB}/3",), up=("b", "a"))).parts
    assert [said(part)["jobs"][each].get("after") for each in "abc"] == [None, ["a"], ["a", "b"]]


ODD = [
    "a b.fits",
    "x%2Fy.txt",
    "br{a}ce.txt",
    "${home}.txt",
    "10:30.txt",
    "st*r.txt",
    "[1].txt",
    "ü.txt",
    "d+1/{n.x}/f.txt",
    "sp ace/f.txt",
]


def test_our_own_reader_takes_what_is_said_whatever_files_are_called(tmp_path: Path) -> None:
    """And finds the very files that the URIs mean."""
    uris = []
    for name in ODD:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        uris.append("file://" + quote(str(tmp_path / name)))
    outs = tuple(uri + ".out" for uri in uris)
    (part,) = shape(task("1st.task", tuple(uris), outs)).parts
    file = tmp_path / "workflow.yml"
    file.write_text(part.text)
    workflow = read(file, access=IonodeOriginAccess(os.environ))
    assert (workflow.engine, list(workflow.jobs)) == ("airflow", ["1st.task"])
    for uri, name in zip(uris, ODD, strict=True):
        location = workflow.files[part.files[uri]].sources[0].location
        assert f"{unquote(urlsplit(workflow.origins[location.origin].url).path)}/{location.path}" == str(tmp_path / name)
        assert workflow.files[part.files[uri]].size_bytes == len(name.encode())
    assert all(workflow.files[part.files[uri]].destination for uri in outs)


def test_names_of_files_that_would_stand_in_each_others_way() -> None:
    uris = ("s3://b/a", "s3://b/a/c.fits", "s3://b/x y.fits", "s3://b/x_y.fits", "sftp://b/a/c.fits")
    (part,) = shape(task("t", uris)).parts
    names = list(part.files.values())
    assert len(set(names)) == len(names)
    assert not [one for one in names for other in names if other.startswith(one + "/")]
    assert all(part.files[uri].endswith(".fits") for uri in uris[1:])


@pytest.mark.parametrize(
    "uri", ["postgres://x/y", "s3://b", "sftp:///no-host", "file://host/x", "s3://b/k?versionId=1", "plain", "sftp://h/a/../b", "http://[x"]
)
def test_what_is_no_file_of_ours_is_none(uri: str) -> None:
    assert shape(task("t", (uri,), (uri,))).parts == ()


def test_the_same_facts_give_the_same_text() -> None:
    tasks = [task(f"t{n}", (f"{LAB}/{n % 3}", f"{LAB}/common"), (f"stager://s/{n}",)) for n in range(9)]
    tasks.append(task("all", tuple(f"stager://s/{n}" for n in range(9)), (f"{LAB}/all",), up=tuple(f"t{n}" for n in range(9))))
    assert shape(*tasks) == shape(*tasks)
