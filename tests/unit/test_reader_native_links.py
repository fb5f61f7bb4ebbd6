"""The native format: what a pattern means and no listing can give, and names that an origin cannot hold, are refused, never left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stager.readers import native
from stager.readers.lines import WorkflowInvalid
from tests.unit.reader_origins import DirectoryAccess


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three links of four lead out of the origin; beside them all else that a listing cannot give."""
    raw, real = tmp_path / "lab" / "raw", tmp_path / "real"
    (raw / "night").mkdir(parents=True)
    real.mkdir()
    for number in range(3):
        (real / f"{number}.dat").write_text("x")
        (raw / f"{number}.dat").symlink_to(f"../../real/{number}.dat")
    (raw / "3.dat").write_text("x")
    (raw / "inside.txt").symlink_to("3.dat")
    (raw / "night" / "4.fits").write_text("x")
    (raw / "gone.fits").symlink_to("nowhere")
    (raw / "again").symlink_to("night")
    (raw / ".hidden").symlink_to("nowhere")
    os.mkfifo(raw / "pipe.log")
    return tmp_path


def read(tree: Path, reference: str):
    path = tree / "w.yml"
    path.write_text(f"stager: 1\norigins: {{lab: 'file:lab'}}\njobs:\n  a: {{run: x, inputs: ['{reference}']}}\n")
    return native.read(path, access=DirectoryAccess(tree))


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("lab:raw/*.dat", ["raw/0.dat", "raw/1.dat", "raw/2.dat"]),
        ("lab:raw/[12].dat", ["raw/1.dat", "raw/2.dat"]),
        ("lab:raw/*.fits", ["raw/gone.fits"]),
        ("lab:raw/*.log", ["raw/pipe.log"]),
        ("lab:raw/.h*", ["raw/.hidden"]),
        ("lab:raw/*/*.fits", ["raw/again"]),
        ("lab:**/[4]*.fits", ["raw/again"]),
        ("lab:raw/", ["raw/.hidden", "raw/0.dat", "raw/1.dat", "raw/2.dat", "raw/again", "raw/gone.fits", "raw/pipe.log"]),
    ],
)
def test_a_pattern_that_means_what_cannot_be_given_names_it_all(tree, reference, named):
    with pytest.raises(WorkflowInvalid) as caught:
        read(tree, reference)
    (finding,) = caught.value.findings
    assert str(finding).startswith(f"{tree}/w.yml:4:24: jobs.a.inputs[0]: {reference!r} takes in what cannot be read")
    told = sorted(part for part in finding.message.split("'") if part.startswith("lab:") and part != reference)
    assert told == [f"lab:{name}" for name in named]
    assert "name an origin where the links lead to" in finding.message


def test_reasons_are_told_with_their_names(tree):
    with pytest.raises(WorkflowInvalid) as caught:
        read(tree, "lab:raw/**/*")
    for told in (
        "'lab:raw/0.dat', 'lab:raw/1.dat', 'lab:raw/2.dat' (a link that leads out of the origin)",
        "'lab:raw/again' (a link to a directory",
        "'lab:raw/gone.fits' (a link that leads nowhere)",
    ):
        assert told in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("lab:raw/3*", ["raw/3.dat"]),
        ("lab:raw/[3a]*", ["raw/3.dat"]),
        ("lab:raw/*.txt", ["raw/inside.txt"]),
        ("lab:raw/night/*", ["raw/night/4.fits"]),
    ],
)
def test_what_a_pattern_does_not_mean_is_no_concern(tree, reference, found):
    assert [each.lfn for each in read(tree, reference).jobs["a"].inputs] == found


def test_a_name_that_s3_cannot_hold_is_refused_before_its_job_runs(tmp_path):
    path = tmp_path / "w.yml"
    outputs = 'outputs: {"o new\\nline": "cloud:", "tab\\there": "lab:", plain: "cloud:a\\x7Fb", fine: "cloud:größe é"}'
    path.write_text(f"stager: 1\norigins: {{cloud: 's3://bucket/p', lab: 'sftp://u@h/d'}}\njobs:\n  a: {{run: x, {outputs}}}\n")
    with pytest.raises(WorkflowInvalid) as caught:
        native.read(path)
    why = "holds a control character, as a newline is one, and no name at an s3 origin may; choose another name"
    assert [str(finding).removeprefix(f"{path}:") for finding in caught.value.findings] == [
        f"4:40: jobs.a.outputs.o new\\nline: 'cloud:o new\\nline' {why}",
        f"4:78: jobs.a.outputs.plain: 'cloud:a\\x7fb' {why}",
    ]
