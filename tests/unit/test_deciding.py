"""What makes a scheduler another one: what decides, and nothing besides."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.client.warm_start import WHEN_TOLD
from stager.runtime.deciding import DECIDING, PACKAGE, deciding_digest, digest_of
from stager.service import command_line


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "stager", ignore=shutil.ignore_patterns("__pycache__")))


def test_a_copy_elsewhere_is_the_same(copy: Path) -> None:
    assert digest_of(copy) == deciding_digest()
    assert re.fullmatch(r"[0-9a-f]{16}", deciding_digest())


OTHERS = ("cli/main.py", "adapters/moves.py", "runtime/recovery.py", "service/app.py", "client/calls.py", "__init__.py")


@pytest.mark.parametrize("place", OTHERS)
def test_what_decides_nothing_makes_no_other_version(copy: Path, place: str) -> None:
    with (copy / place).open("a") as file:
        file.write("# a word more\n")
    assert digest_of(copy) == deciding_digest()


@pytest.mark.parametrize("package", DECIDING)
def test_a_byte_of_what_decides_makes_another_version(copy: Path, package: str) -> None:
    path = next((copy / package).glob("*.py"))
    path.write_text(path.read_text() + "\n")
    assert digest_of(copy) != deciding_digest()


def test_a_file_that_came_went_or_was_renamed_makes_another_version(copy: Path) -> None:
    (copy / "planning" / "new.py").write_text("")
    came = digest_of(copy)
    (copy / "planning" / "new.py").rename(copy / "planning" / "newer.py")
    renamed = digest_of(copy)
    assert len({deciding_digest(), came, renamed}) == 3
    (copy / "planning" / "newer.py").unlink()
    assert digest_of(copy) == deciding_digest()


def test_what_decides_imports_nothing_of_ours_that_is_not_in_it() -> None:
    """Else a change there would decide differently under the same digest."""
    for path in (path for name in DECIDING for path in (PACKAGE / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in getattr(node, "names", [])]
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                ours = [name for name in named if name.split(".")[0] == "stager"]
                assert all(len(parts := name.split(".")) > 1 and parts[1] in DECIDING for name in ours), f"{path}: {ours}"


def test_a_warm_process_is_current_until_what_decides_is_replaced(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks when it is told to become the scheduler, long after it imported its own code."""
    questions: list[Callable[[], bool]] = []

    def never_told(is_current: Callable[[], bool]) -> bool:
        questions.append(is_current)
        return False

    monkeypatch.setattr(command_line, "PACKAGE", copy)
    monkeypatch.setattr(command_line, "wait_until_told", never_told)
    assert command_line.main([WHEN_TOLD]) == 0
    [is_current] = questions
    assert is_current()
    (copy / "cli" / "main.py").write_text("")
    assert is_current()
    (copy / "scheduler" / "machine.py").write_text("")
    assert not is_current()
