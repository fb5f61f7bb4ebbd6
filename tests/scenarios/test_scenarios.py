"""Plays every scenario and compares the whole log. STAGER_REWRITE=1 writes what came out instead; read the diff before it is committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.stage import play, read, scenario_files, split_text


@pytest.mark.parametrize("path", scenario_files(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    head, expected = split_text(path.read_text())
    log = play(read(head))
    if os.environ.get("STAGER_REWRITE") == "1":
        path.write_text(f"{head}expect\n{log}")
        return
    assert log == expected


def test_there_are_scenarios_and_wrong_lines_are_refused() -> None:
    assert len(scenario_files()) >= 8
    with pytest.raises(ValueError, match="no line 'host'"):
        read("host capacity=1")
