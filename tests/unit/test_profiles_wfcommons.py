"""Profiles from WfCommons instances: which numbers are taken, which are left out, and that both are said."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import InvalidInput
from stager.model.profiling import Kind, Side, profile_of
from stager.readers.wfcommons_profiles import read_samples, seconds_of
from tests.testbed.places import recorded, shared_files

FOREIGN = shared_files("wfinstances/montage-chameleon-dss-10d-001.json")


def instance(
    path: Path, *, tasks: list[dict[str, Any]] | None = None, size_bytes: int = 1000, name: str = "w", indent: int | None = None
) -> Path:
    ran = tasks if tasks is not None else [{"id": "sort_1", "runtimeInSeconds": 8.0, "avgCPU": 150.0, "memoryInBytes": 4096}]
    specified = [
        {"name": "sort", "id": entry["id"], "parents": [], "children": [], "inputFiles": ["in"], "outputFiles": [f"out_{entry['id']}"]}
        for entry in ran
    ]
    files = [{"id": "in", "sizeInBytes": size_bytes}, *({"id": f"out_{entry['id']}", "sizeInBytes": 2000} for entry in ran)]
    execution = {"makespanInSeconds": 9, "executedAt": "20200404T201725+0000", "tasks": ran}
    said = {
        "name": name,
        "schemaVersion": "1.5",
        "workflow": {"specification": {"tasks": specified, "files": files}, "execution": execution},
    }
    path.write_text(json.dumps(said, indent=indent))
    return path


def test_time_use_of_the_cpu_memory_and_sizes_are_taken(tmp_path: Path) -> None:
    samples, notes = read_samples(instance(tmp_path / "a.json"))
    (sample,) = samples
    assert (sample.job_type, sample.kind, sample.store, sample.at) == ("sort", Kind.RECORD, "wfcommons", seconds_of("2020-04-04T20:17:25Z"))
    assert (sample.wall_s, sample.cpu_s, sample.memory_peak_bytes) == (8.0, 12.0, 4096)
    assert (sample.input_bytes, sample.input_files, sample.output_bytes, sample.output_files) == (1000, 1, 2000, 1)
    assert (sample.read_bytes, sample.written_bytes, sample.reread_bytes, sample.touched_bytes) == (None, None, None, None)
    assert [(group.side, group.pattern, group.size_bytes) for group in sample.files] == [
        (Side.INPUT, "in", 1000),
        (Side.OUTPUT, "out_sort_*", 2000),
    ]
    assert "bytes read are unknown: the instance does not carry them" in notes


@pytest.mark.parametrize("value", [10**30, 10**400, float("inf"), float("nan"), -1])
def test_a_number_that_none_of_us_can_keep_is_told_with_its_place(tmp_path: Path, value: float) -> None:
    tasks = [{"id": "sort_1", "runtimeInSeconds": 8.0, "avgCPU": 150.0, "memoryInBytes": value}]
    with pytest.raises(InvalidInput, match=r"tasks\[0\].memoryInBytes: .* is not a number from 0 to"):
        read_samples(instance(tmp_path / "a.json", tasks=tasks))


def test_bytes_read_are_left_out_and_it_is_said_why(tmp_path: Path) -> None:
    tasks = [
        {"id": f"sort_{n}", "runtimeInSeconds": 1.0, "avgCPU": 99.0, "memoryInBytes": 1, "readBytes": 890_000, "writtenBytes": 5}
        for n in range(3)
    ]
    samples, notes = read_samples(instance(tmp_path / "a.json", tasks=tasks))
    assert {sample.read_bytes for sample in samples} == {None} == {sample.written_bytes for sample in samples}
    assert any(note.startswith("left out: readBytes and writtenBytes of 3 of 3 tasks: recorders disagree") for note in notes)
    assert not any("not recorded" in note for note in notes)


def test_what_was_recorded_as_0_was_not_seen(tmp_path: Path) -> None:
    tasks = [{"id": "sort_1", "runtimeInSeconds": 0.0, "avgCPU": 50.0, "memoryInBytes": 0}, {"id": "sort_2", "runtimeInSeconds": 2.0}]
    samples, notes = read_samples(instance(tmp_path / "a.json", tasks=tasks, size_bytes=0))
    assert [(sample.wall_s, sample.cpu_s, sample.memory_peak_bytes, sample.input_bytes) for sample in samples] == [
        (None, None, None, None),
        (2.0, None, None, None),
    ]
    text = "\n".join(notes)
    assert "left out: time of 1 of 2 tasks" in text and "left out: memory of 2 of 2 tasks" in text and "use of the CPU of 1 of 2" in text
    assert "left out: the sizes of inputs" in text


def test_the_same_run_has_the_same_names_however_the_file_is_written(tmp_path: Path) -> None:
    first, again, other = instance(tmp_path / "a.json"), instance(tmp_path / "b.json", indent=2), instance(tmp_path / "c.json", name="v")
    assert read_samples(first)[0] == read_samples(again)[0]
    assert {sample.attempt for sample in read_samples(other)[0]}.isdisjoint(sample.attempt for sample in read_samples(first)[0])


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2020-12-26T01:35:40+00:00", 1608946540.0),
        ("20200401T050758+0000", 1585717678.0),
        ("03-23-21T05:57:15Z", 1616479035.0),
        ("2023-03-21T11:10:20-10:00", 1679433020.0),
        ("last week", 0.0),
    ],
)
def test_when_it_ran_in_each_way_of_writing_it(written: str, seconds: float) -> None:
    assert seconds_of(written) == seconds


def test_a_recorded_workflow_gives_profiles_that_fit_its_record() -> None:
    place = recorded("montage")
    record = json.loads(place.read_text())["workflow"]
    ran = {entry["id"]: entry["runtimeInSeconds"] for entry in record["execution"]["tasks"]}
    made = {entry["id"]: entry["outputFiles"] for entry in record["specification"]["tasks"] if entry["name"] == "mProject"}
    sizes = {entry["id"]: entry["sizeInBytes"] for entry in record["specification"]["files"]}
    samples, _ = read_samples(place)
    project = profile_of("mProject", [sample for sample in samples if sample.job_type == "mProject"], "here")
    assert project.samples == len(made) > 20 and project.wall_s is not None and project.wall_s.imported
    assert project.wall_s.median == pytest.approx(statistics.median(ran[task] for task in made), rel=0.05)
    assert project.output_bytes is not None and project.memory_peak_bytes is None
    wanted = statistics.median(sum(sizes[name] for name in names) for names in made.values())
    assert project.output_bytes.median == pytest.approx(wanted, rel=0.05)


if FOREIGN:

    def test_a_real_instance_gives_profiles_that_fit_what_is_known_of_montage() -> None:
        samples, _ = read_samples(FOREIGN[0])
        project = profile_of("mProject", [sample for sample in samples if sample.job_type == "mProject"], "here")
        assert project.samples == 48 and project.wall_s is not None and project.wall_s.imported
        assert project.wall_s.median == pytest.approx(800, rel=0.05) and project.memory_peak_bytes is None
        assert project.output_bytes is not None and project.output_bytes.median == pytest.approx(106_058_880, rel=0.01)
        made = project.output("pposs2ukstu_blue_001_001.fits")
        assert made is not None and made.size_bytes is not None and (made.size_bytes.spread or 9) < 1.1
