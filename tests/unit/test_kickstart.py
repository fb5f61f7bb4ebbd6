"""Records of kickstart as samples: those that the testbed writes in its form, and kickstart's own where they are beside the clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.profiling import Sample
from stager.readers.kickstart import read_samples, records_of
from tests.testbed.kickstart import write_records
from tests.testbed.places import case_id, shared_files


@pytest.fixture(params=["written", *{place.parent for place in shared_files("pegasus/kickstart/*.000")}], ids=case_id)
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if isinstance(request.param, Path):
        return request.param
    place = tmp_path_factory.mktemp("kickstart")
    write_records(place)
    return place


def samples(*paths: Path) -> list[Sample]:
    return list(read_samples(paths, "uuid/job", "diamond-1", "here"))


def test_what_a_record_says_is_taken_and_nothing_else(records: Path) -> None:
    """The first process's counters are the whole job's: its children's are in them."""
    (found,) = samples(records / "preprocess_pre.out.000")
    assert (found.job_type, found.run, found.wall_s, found.cpu_s) == ("preprocess", "diamond-1", 0.011, pytest.approx(0.009))
    assert (found.memory_peak_bytes, found.read_bytes, found.written_bytes) == (2980 * 1024, 1038114, 1002000)
    assert (found.input_bytes, found.input_files, found.output_bytes, found.output_files) == (1000, 1, 1_002_000, 2)
    assert {(group.side.value, group.pattern) for group in found.files} == {("input", "f.a"), ("output", "f.b*")}
    assert found.at == pytest.approx(1795168344.439, abs=0.01)


def test_a_record_without_a_tracer_says_nothing_of_what_was_read(records: Path) -> None:
    (found,) = samples(records / "stage_in_remote_local_0_0.out.000")
    assert found.wall_s == 2.114 and found.read_bytes is None


@pytest.mark.parametrize("name", ["ks-t.yml", "ks-z.yml", "ks-Z.yml"])
def test_records_with_lines_that_are_no_yaml(records: Path, name: str) -> None:
    (found,) = samples(records / name)
    assert found.job_type == "t" and found.written_bytes is not None and found.written_bytes >= 6_000_000


def test_of_a_job_that_failed_of_what_was_cut_off_and_of_what_is_no_record_nothing_is_taken(records: Path, tmp_path: Path) -> None:
    text = (records / "analyze_an.out.000").read_text()
    for number, content in enumerate(
        (text.replace("regular_exitcode: 0", "regular_exitcode: 3"), text[: text.index("status:")], "hello\n", "- invocation: [\n")
    ):
        place = tmp_path / f"job.out.{number:03d}"
        place.write_text(content)
        assert samples(place, tmp_path / "not there") == []


def test_a_job_of_several_tasks_and_the_tries_of_a_job(records: Path, tmp_path: Path) -> None:
    """Each record is a sample of its own, with a name that is the same whenever it is read."""
    one, two = ((records / name).read_text() for name in ("findrange_fr1.out.000", "analyze_an.out.000"))
    (tmp_path / "merge.out.000").write_text(f"[cluster-task id=1]\n{one}\n[cluster-task id=2]\n{two}[cluster-summary]\n")
    (tmp_path / "merge.out.001").write_text(one)
    (tmp_path / "merge.output").write_text(one)
    found = records_of(tmp_path / "merge")
    assert [path.name for path in found] == ["merge.out.000", "merge.out.001"]
    taken = samples(*found)
    assert [sample.job_type for sample in taken] == ["findrange", "analyze", "findrange"]
    assert len({sample.attempt for sample in taken}) == 3 and taken == samples(*found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("regular_exitcode: 0", "regular_exitcode: 0\n      on: 2024-13-45"),
        ("regular_exitcode: 0", "regular_exitcode: 0\n      on: " + "[" * 3000 + "]" * 3000),
        ("maxrss: ", "maxrss: .inf\n      was: "),
        ("maxrss: ", f"maxrss: {'9' * 400}\n      was: "),
    ],
)
def test_a_record_that_cannot_be_read_costs_its_sample_and_nothing_else(records: Path, tmp_path: Path, old: str, new: str) -> None:
    good = (records / "analyze_an.out.000").read_text()
    assert old in good
    (tmp_path / "job.out.000").write_text(good.replace(old, new, 1) + "\n" + good)
    found = samples(tmp_path / "job.out.000")
    assert found and found[-1].job_type == "analyze" and all(sample.memory_peak_bytes != 0 for sample in found)
