"""Tests that share something costly name a group (`xdist_group`), and run one after the other on one worker; and the order of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.testbed.places import PROJECT, shared_files

GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


@pytest.mark.slow
def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    """pytest 9.2 takes the names of groups from pytest-xdist 3.8, without a word."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    # The plugins that it is not about take seconds to be imported.
    argv = [sys.executable, "-m", "pytest", "-p", "xdist", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"SEEN": str(tmp_path / "seen"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = (tmp_path / "seen").read_text().split()
    assert len(workers) == 6 and len(set(workers)) == 1, workers


class Item:
    """As far as the order of tests looks at one."""

    def __init__(self, name: str, *marks: str) -> None:
        self.name, self.path, self.marks, self.module = name, PROJECT / "tests" / name, marks, SimpleNamespace()

        beds = {"bed": [SimpleNamespace(scope="module")]} if "bed" in marks else {}
        self._fixtureinfo = SimpleNamespace(name2fixturedefs={"tmp_path": [SimpleNamespace(scope="function")], **beds})
        self.added: list[Any] = []

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in (*self.marks, *(mark.name for mark in self.added)) else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.added.append(mark)


class Config:
    """What pytest was called with, and the tests that it was told are left out."""

    def __init__(self, **options: bool) -> None:
        self.options, self.hook = options, self
        self.left_out: list[Item] = []

    def getoption(self, name: str, default: bool) -> bool:
        return self.options.get(name, default)

    def pytest_deselected(self, items: list[Item]) -> None:
        self.left_out += items


@pytest.mark.parametrize(
    ("longest_first", "wanted"),
    [
        (False, ["test_tidy.py", "unit/a.py", "unit/b.py", "e2e/a.py", "e2e/b.py", "e2e/test_montage.py", "airflow/a.py"]),
        (True, ["e2e/test_montage.py", "airflow/a.py", "e2e/b.py", "e2e/a.py", "unit/b.py", "unit/a.py", "test_tidy.py"]),
    ],
)
def test_the_order_of_tests(longest_first: bool, wanted: list[str]) -> None:
    config = Config(longest_first=longest_first)
    names = ["unit/a.py", "unit/b.py", "airflow/a.py", "e2e/a.py", "e2e/b.py", "e2e/test_montage.py", "test_tidy.py"]
    items = [Item(name, *(["slow"] if name.endswith("/b.py") else [])) for name in names]
    conftest.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    assert [item.name for item in items] == wanted


def test_what_shares_a_bed_is_a_group_and_comes_early() -> None:
    items = [Item("e2e/a.py"), Item("e2e/b.py", "bed"), Item("e2e/b.py"), Item("e2e/c.py", "bed", "xdist_group"), Item("unit/a.py", "bed")]
    conftest.pytest_collection_modifyitems(Config(longest_first=True), items)  # type: ignore[arg-type]
    assert [item.name for item in items] == ["e2e/b.py", "e2e/b.py", "e2e/c.py", "e2e/a.py", "unit/a.py"]
    assert [[mark.args for mark in item.added] for item in items] == [[("b",)], [], [], [], []]


def test_units_that_are_run_alone_are_not_run_twice() -> None:
    """But slow ones, which are not run alone, and those that have more cases where there is data beside the clone."""
    items = [Item("unit/a.py"), Item("unit/b.py", "slow"), Item("unit/c.py"), Item("e2e/a.py"), Item("test_tidy.py")]
    items[2].module.shared_files = shared_files
    config = Config(units_apart=True)
    conftest.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    assert [item.name for item in items] == ["test_tidy.py", "unit/b.py", "unit/c.py", "e2e/a.py"]
    assert [item.name for item in config.left_out] == ["unit/a.py"]


def test_the_longest_are_there() -> None:
    assert [name for name in conftest.LONGEST if not (PROJECT / "tests" / name).is_file()] == []
