"""That tests of the data plane run several programs at once must not hide one that failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import cargo_tests


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `cargo` that has built what the test put into the directory."""
    lines = tmp_path / "lines"
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text(f"#!/bin/sh\ncat {lines}\nexit $(cat {tmp_path}/code)\n")
    cargo.chmod(0o755)
    (tmp_path / "code").write_text("0")
    lines.write_text('{"reason": "build-finished", "success": true}\n')
    monkeypatch.setenv("PATH", f"{cargo.parent}:/usr/bin:/bin")
    return tmp_path


def add(project: Path, name: str, script: str) -> None:
    program = project / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    facts = {"reason": "compiler-artifact", "manifest_path": f"{project}/Cargo.toml", "target": {"name": name}, "profile": {"test": True}}
    with (project / "lines").open("a") as file:
        print(json.dumps(facts | {"executable": str(program)}), file=file)


def test_all_run_in_their_package_and_what_was_left_out_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(project, "one", "pwd > where; echo noise; echo 'NOT RUN: it needs nginx' >&2; echo 'test result: ok. 3 passed'")
    add(project, "two", "echo 'test result: ok. 2 passed'")
    assert cargo_tests.main([]) == 0
    said = capsys.readouterr().out
    assert (project / "where").read_text().strip() == str(project)
    assert "one: ok. 3 passed" in said and "two: ok. 2 passed" in said and "NOT RUN: it needs nginx" in said and "noise" not in said


def test_one_that_fails_fails_all_and_is_shown_and_the_others_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(project, "bad", "echo 'panicked at here'; exit 101")
    add(project, "good", "echo 'test result: ok. 2 passed'")
    assert cargo_tests.main(["-j", "1"]) == 1
    said = capsys.readouterr().out
    assert "panicked at here" in said and "FAILED: " in said and "/bad" in said and "good: ok. 2 passed" in said


@pytest.mark.parametrize("code", ["101", "0"])
def test_what_cannot_be_built_or_is_not_there_is_no_success(project: Path, code: str) -> None:
    if code != "0":
        add(project, "good", "true")
    (project / "code").write_text(code)
    assert cargo_tests.main([]) == 1
