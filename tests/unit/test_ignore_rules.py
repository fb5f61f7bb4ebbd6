"""`.stagerignore` means what git means by the same lines: git is asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.cli.ignore_rules import IgnoreRules

PATHS = ("a", "b.log", "a.b", "dir/a", "dir/b.log", "dir/sub/a", "dir/sub/c.txt", "x/dir/a", "x/y/dir/a", "!b", "#a", "x y", "[a]", "x/[a]")
LINES = """*.log
!dir/b.log
/a
dir/
dir/*
**/a
x/**
x/**/a
*
!*/
[ab]
[!a]
[^a-c]*
\\!b
\\#a
#a
x\\ y
x y\x20\x20
a?b
dir/**/c.txt
/*/a
sub
!sub
sub/
[]a]
[a
\\[a\\]
**
dir**
[z-a]""".splitlines()


def by_git(place: Path, lines: list[str]) -> set[str]:
    (place / ".git" / "info" / "exclude").write_text("")
    (place / ".gitignore").write_text("\n".join(lines) + "\n")
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=place,
        input="\0".join(PATHS).encode(),
        capture_output=True,
        check=False,
    )
    assert asked.returncode in (0, 1), asked.stderr
    return {name.decode() for name in asked.stdout.split(b"\0") if name}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    for path in PATHS:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).touch()
    return place


@pytest.mark.parametrize("line", LINES)
def test_a_line_means_what_it_means_to_git(place: Path, line: str) -> None:
    rules = IgnoreRules([line])
    assert {path for path in PATHS if rules.ignores(path)} == by_git(place, [line])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=2, max_size=5))
def test_several_lines_mean_what_they_mean_to_git(place: Path, lines: list[str]) -> None:
    rules = IgnoreRules(lines)
    assert {path for path in PATHS if rules.ignores(path)} == by_git(place, lines)
