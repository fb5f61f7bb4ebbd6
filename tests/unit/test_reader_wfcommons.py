"""The WfCommons reader: three versions read the same, odd records are decided or named, all real instances have the recorded counts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.model.workflow import Workflow, graph_of
from stager.readers import wfcommons
from stager.readers.wfcommons_profiles import read_samples
from tests.testbed.places import case_id, shared_files, wfcommons_cases, wfcommons_record

# Of instances of others, where they are beside the clone: tasks, files, bytes / 1e9.
FACTS = {
    "montage-chameleon-2mass-01d-001": (103, 183, 0.44),
    "montage-chameleon-2mass-05d-001": (1738, 2475, 4.51),
    "montage-chameleon-dss-10d-001": (472, 633, 11.15),
    "epigenomics-chameleon-hep-2seq-100k-001": (119, 151, 1.58),
    "1000genome-chameleon-8ch-100k-001": (208, 232, 15.65),
    "srasearch-chameleon-50a-001": (104, 210, 69.05),
    "soykb-chameleon-10fastq-20ch-001": (156, 321, 2.83),
    "cycles-chameleon-1l-1c-12p-001": (219, 1738, 1.56),
    "seismology-chameleon-300p-001": (301, 904, 0.0),
    "blast-chameleon-medium-001": (303, 907, 5.11),
    "bwa-chameleon-small-001": (104, 312, 0.0),
    "rnaseq-dirt02-001": (197, 680, 0.29),
    "smrnaseq-dirt02-001": (197, 608, 4.81),
}


def task(task_id: str, inputs: list[str], outputs: list[str], parents: list[str] | None = None, **more: object) -> dict:
    return {"id": task_id, "name": task_id, "inputFiles": inputs, "outputFiles": outputs, "parents": parents or [], "children": [], **more}


def split_instance(
    tasks: list[dict], sizes: dict[str, int] | None = None, version: str = "1.5", execution: list[dict] | None = None
) -> dict:
    names = dict.fromkeys(name for entry in tasks for name in entry["inputFiles"] + entry["outputFiles"])
    files = [{"id": name, "sizeInBytes": size} for name, size in (sizes if sizes is not None else dict.fromkeys(names, 10)).items()]
    workflow = {"specification": {"tasks": tasks, "files": files}, "execution": {"tasks": execution or []}}
    return {"name": "sample", "schemaVersion": version, "workflow": workflow}


def read(tmp_path: Path, data: object) -> Workflow:
    path = tmp_path / "sample.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return wfcommons.read(path)


CHAIN = [
    task("mProject_ID0000001", ["a.fits", "hdr"], ["p.fits"]),
    task("mAdd_ID0000002", ["p.fits", "hdr"], ["m.fits"], ["mProject_ID0000001"]),
]
EXECUTION = [
    {
        "id": "mProject_ID0000001",
        "runtimeInSeconds": 1.5,
        "coreCount": 1.2,
        "memoryInBytes": 4096,
        "command": {"program": "mProject", "arguments": ["-X", 3]},
    },
    {"id": "mAdd_ID0000002", "runtimeInSeconds": 0, "command": {"program": "mAdd", "arguments": []}},
]
FLAT = {
    "name": "sample",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {
                "name": "mProject_ID0000001",
                "id": "ID0000001",
                "category": "mProject",
                "parents": [],
                "children": ["mAdd_ID0000002"],
                "files": [
                    {"link": "input", "name": "a.fits", "sizeInBytes": 10},
                    {"link": "input", "name": "hdr", "sizeInBytes": 10},
                    {"link": "output", "name": "p.fits", "sizeInBytes": 10},
                ],
                "cores": 1.2,
                "memoryInBytes": 4096,
                "runtimeInSeconds": 1.5,
                "command": {"program": "mProject", "arguments": ["-X", 3]},
            },
            {
                "name": "mAdd_ID0000002",
                "id": "ID0000002",
                "category": "mAdd",
                "parents": ["mProject_ID0000001"],
                "children": [],
                "files": [
                    {"link": "input", "name": "p.fits", "sizeInBytes": 10},
                    {"link": "input", "name": "hdr", "sizeInBytes": 10},
                    {"link": "output", "name": "m.fits", "sizeInBytes": 10},
                ],
                "runtimeInSeconds": 0,
                "command": {"program": "mAdd", "arguments": []},
            },
        ]
    },
}


def test_what_is_read(tmp_path: Path) -> None:
    workflow = read(tmp_path, split_instance(CHAIN, execution=EXECUTION))
    first, second = workflow.jobs.values()
    assert (first.job_type, first.argv) == ("mProject", ("mProject", "-X", "3"))
    assert (first.cores, first.memory_bytes, first.compute_s) == (2, 4096, 1.5)
    assert [entry.lfn for entry in second.inputs] == ["p.fits", "hdr"] and second.compute_s == 0 and second.after == ()
    assert workflow.files["a.fits"].is_external and workflow.files["a.fits"].sources[0].size_bytes == 10
    assert {lfn for lfn, file in workflow.files.items() if file.is_final} == {"m.fits"}
    assert list(workflow.origins) == [wfcommons.RECORDED]


def test_the_three_versions_read_the_same(tmp_path: Path) -> None:
    one = read(tmp_path, split_instance(CHAIN, execution=EXECUTION))
    assert read(tmp_path, split_instance(CHAIN, version="1.6", execution=EXECUTION)) == one
    assert read(tmp_path, FLAT) == one


def test_the_flat_format_names_tasks_by_name_or_id_and_edges_at_either_end(tmp_path: Path) -> None:
    data = json.loads(json.dumps(FLAT))
    first, second = data["workflow"]["tasks"]
    first["children"], second["parents"] = [], ["ID0000001"]
    assert graph_of(read(tmp_path, data)).parents["mAdd_ID0000002"] == ("mProject_ID0000001",)
    first["children"], second["parents"] = ["mAdd_ID0000002"], []
    first["files"] = [use for use in first["files"] if use["link"] == "input"]
    assert read(tmp_path, data).jobs["mAdd_ID0000002"].after == ("mProject_ID0000001",)


def test_same_names_keep_their_ids_in_the_flat_format(tmp_path: Path) -> None:
    data = json.loads(json.dumps(FLAT))
    for entry in data["workflow"]["tasks"]:
        entry.update(name="step", parents=[], children=[])
    data["workflow"]["tasks"][1]["parents"] = ["ID0000001"]
    assert list(read(tmp_path, data).jobs) == ["ID0000001", "ID0000002"]
    data["workflow"]["tasks"][1]["parents"] = ["step"]
    with pytest.raises(InvalidInput, match="refers to 'step', and that names more than one task"):
        read(tmp_path, data)


def test_a_parent_without_data_is_waited_for(tmp_path: Path) -> None:
    workflow = read(tmp_path, split_instance([task("a", [], ["x"]), task("b", ["y"], ["z"], ["a"])]))
    assert workflow.jobs["b"].after == ("a",)


def test_a_reader_that_is_no_recorded_child_still_waits_for_its_data(tmp_path: Path) -> None:
    workflow = read(tmp_path, split_instance([task("b", ["x"], ["z"]), task("a", ["y"], ["x"])]))
    assert graph_of(workflow).parents["b"] == ("a",)
    assert any("not recorded as a child" in note for note in workflow.notes)


def test_a_file_changed_in_place_is_two_contents(tmp_path: Path) -> None:
    tasks = [task("before", ["db"], ["r0"]), task("change", ["db"], ["db"], ["before"]), task("behind", ["db"], ["r1"], ["change"])]
    workflow = read(tmp_path, split_instance(tasks))
    read_by = {job.id: [entry.lfn for entry in job.inputs] for job in workflow.jobs.values()}
    assert read_by == {"before": ["db@0"], "change": ["db@0"], "behind": ["db"]}
    assert [entry.lfn for entry in workflow.jobs["change"].outputs] == ["db"]
    assert workflow.files["db@0"].is_external and workflow.files["db@0"].size_bytes == 10 and not workflow.files["db"].is_final
    assert len({entry.path for job in workflow.jobs.values() for entry in job.inputs}) == 2
    assert any("db" in note for note in workflow.notes)


def test_a_name_written_again_by_a_descendant_is_two_contents(tmp_path: Path) -> None:
    tasks = [
        task("one", [], ["log"]),
        task("mid", ["log"], ["m"], ["one"]),
        task("two", ["m"], ["log"], ["mid"]),
        task("end", ["log"], ["e"], ["two"]),
        task("side", ["log"], ["s"], ["one"]),
    ]
    workflow = read(tmp_path, split_instance(tasks))
    read_by = {job.id: [entry.lfn for entry in job.inputs] for job in workflow.jobs.values()}
    assert read_by == {"one": [], "mid": ["log@1"], "two": ["m"], "end": ["log"], "side": ["log@1"]}
    assert workflow.jobs["one"].outputs[0].lfn == "log@1"


def test_two_producers_side_by_side_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="file 'x' is written by 'a' and by 'b', and neither waits"):
        read(tmp_path, split_instance([task("a", [], ["x"]), task("b", [], ["x"])]))


def test_unlisted_and_unused_files_are_told(tmp_path: Path) -> None:
    workflow = read(tmp_path, split_instance([task("a", ["in"], ["out"])], sizes={"out": 7, "left": 9}))
    assert (workflow.files["in"].size_bytes, workflow.files["out"].size_bytes) == (0, 7) and "left" not in workflow.files
    assert any("1 file has no recorded size (in)" in note for note in workflow.notes)
    assert any("1 recorded files are used by no task" in note for note in workflow.notes)


def test_a_listed_file_without_a_size_has_none(tmp_path: Path) -> None:
    data = split_instance([task("a", ["in"], ["out"])], sizes={"in": 3, "out": 7})
    del data["workflow"]["specification"]["files"][1]["sizeInBytes"]
    assert any("1 file has no recorded size (out)" in note for note in read(tmp_path, data).notes)
    (sample,) = read_samples(tmp_path / "sample.json")[0]
    assert (sample.input_bytes, sample.output_bytes) == (3, None), "what was not seen is not 0"


def test_all_findings_at_once(tmp_path: Path) -> None:
    execution = [{"id": "b", "runtimeInSeconds": 1}, {"id": "a", "runtimeInSeconds": -1}]
    data = split_instance([task("a", ["in", 3], ["x"]), task("a", [], ["y"], ["ghost"])], execution=execution)
    data["workflow"]["specification"]["files"].append({"sizeInBytes": 1})
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, data)
    for word in ("tasks[0].inputFiles: 3", "'b' is no task", "runtimeInSeconds: -1", "files[4].id: is missing"):
        assert word in caught.value.message, caught.value.message
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, split_instance([task("a", [], ["x"]), task("a", [], ["y"], ["ghost"])]))
    assert "2 tasks have the id 'a'" in caught.value.message and "'ghost', and that is no task" in caught.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "sample.json:1:2: this is not JSON"),
        ("[]", "a WfCommons instance is an object"),
        ('{"schemaVersion": "1.7", "workflow": {}}', "WfFormat 1.7 is not read; 1.4, 1.5, 1.6 are"),
        ('{"schemaVersion": "1.5", "workflow": {"specification": {"tasks": []}}}', "there are no tasks"),
        ('{"schemaVersion": "1.5", "workflow": []}', "workflow: must be an object, it is list"),
        ("[" * 100_000, "this JSON cannot be read: it is nested too deeply"),
        ('{"schemaVersion": ' + "9" * 5000 + "}", "this JSON cannot be read: a number in it has thousands of digits"),
        ('{"schemaVersion": "1.5", "name": "\\ud800"}', "half of a character is written as an escape"),
    ],
)
def test_what_is_no_instance_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    assert told in caught.value.message


def test_recorded_cycles_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="tasks wait for each other: a -> b -> a|tasks wait for each other: b -> a -> b"):
        read(tmp_path, split_instance([task("a", [], ["x"], ["b"]), task("b", [], ["y"], ["a"])]))
    with pytest.raises(InvalidInput, match="wait for each other in a circle"):
        read(tmp_path, split_instance([task("a", ["y"], ["x"]), task("b", ["x"], ["y"])]))


@pytest.mark.parametrize(
    ("name", "words", "job_type"),
    [
        ("mProject_ID0000001", ["mProject"], "mProject"),
        ("fast2bfq_fast2bfq_HEP_1_ID0000002", ["/usr/bin/fast2bfq"], "fast2bfq"),
        ("split_fasta_ID000001", [], "split_fasta"),
        ("NFCORE.FASTQC", ["fastqc \\\n x"], "NFCORE.FASTQC"),
        ("step_ID1", ["a script with\nlines"], "step"),
    ],
)
def test_job_types(tmp_path: Path, name: str, words: list[str], job_type: str) -> None:
    execution = [{"id": "t", "command": {"program": words[0], "arguments": []}}] if words else []
    workflow = read(tmp_path, split_instance([task("t", [], ["x"]) | {"name": name}], execution=execution))
    assert workflow.jobs["t"].job_type == job_type


@pytest.mark.parametrize("case", wfcommons_cases(), ids=case_id)
def test_recorded_workflows_have_the_tasks_files_and_edges_of_their_records(case: str | Path) -> None:
    path = wfcommons_record(case)
    started = time.process_time()
    workflow = wfcommons.read(path)
    assert time.process_time() - started < 2
    recorded = json.loads(path.read_text())["workflow"]["specification"]
    sizes = {entry["id"]: entry["sizeInBytes"] for entry in recorded["files"]}
    assert {lfn: file.size_bytes for lfn, file in workflow.files.items()} == sizes and len(workflow.jobs) > 40 and len(sizes) > 70
    graph = graph_of(workflow)
    tasks = recorded["tasks"]
    assert {job: set(parents) for job, parents in graph.parents.items()} == {entry["id"]: set(entry["parents"]) for entry in tasks}
    if path.stem in FACTS:
        assert (len(tasks), len(sizes), sum(sizes.values()) / 1e9) == pytest.approx(FACTS[path.stem], abs=0.006)
    read_names = {lfn for job in workflow.jobs.values() for lfn in (entry.lfn for entry in job.inputs)}
    assert {lfn for lfn, file in workflow.files.items() if file.is_final} == set(graph.producer) - read_names
    assert workflow.notes == ()


if shared_files("wfinstances/*.json"):

    def test_no_instance_of_others_is_left_out() -> None:
        assert {path.stem for path in shared_files("wfinstances/*.json")} == set(FACTS)
