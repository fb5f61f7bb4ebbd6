"""`stager check` says that conda packages cannot be had here, where jobs would run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stager.cli.check import check_conda
from stager.readers.sniff import read_workflow
from stager.service.settings import Settings
from tests.unit.reader_origins import DirectoryAccess


def test_a_machine_without_the_library_is_told_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("")
    (tmp_path / "w.yml").write_text("stager: 1\njobs: {plain: {run: x}, solved: {run: x, conda: here:a.lock}}\n")
    workflow = read_workflow(tmp_path / "w.yml", access=DirectoryAccess(tmp_path))
    plain = replace(workflow, jobs={"plain": workflow.jobs["plain"]})
    here = Settings(tmp_path, 1_000_000, 1)
    (found,) = check_conda(workflow, here, lambda name: None)
    assert not found.good and found.message.startswith("job 'solved' cannot have its packages: this host has no py-rattler")
    assert check_conda(workflow, here, lambda name: name) == check_conda(plain, here, lambda name: None) == []
    assert check_conda(workflow, replace(here, pool="tcp://127.0.0.1:1"), lambda name: None) == []
