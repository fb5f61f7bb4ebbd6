"""What scripts/setup.sh says on a machine that lacks things. One rule: no apt-get is within its reach, so nothing can be installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.places import PROJECT
from tests.testbed.processes import is_alive
from tests.testbed.waiting import wait_until

STOCK = ("bash", "cut", "dirname", "id", "mktemp", "rm", "sort", "tr")
GCC_WITHOUT_LIBC = "exit 1"
PYTHON_WITHOUT_VENV = f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"'


def setup(place: Path, level: str = "run", **programs: str) -> str:
    """What it says when these scripts are all that the machine has besides the stock."""
    tools = place / "bin"
    tools.mkdir()
    for name in STOCK:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    env = {"PATH": str(tools), "HOME": str(place), "VENV": str(place / "venv"), "TMPDIR": str(place), "LANG": os.environ.get("LANG", "C")}
    command = [str(tools / "bash"), str(PROJECT / "scripts" / "setup.sh"), level]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and [path.name for path in place.iterdir()] == ["bin"], f"something was made: {done.stderr}"
    return done.stderr


@pytest.mark.parametrize(("version", "told"), [(None, True), ("1.65.0", True), ("1.89.1", True), ("1.90.0", False), ("1.100.0", False)])
def test_all_that_is_missing_is_told_at_once(tmp_path: Path, version: str | None, told: bool) -> None:
    cargo = {} if version is None else {"cargo": f"echo 'cargo {version} (0000000 2026-01-01)'"}
    said = setup(tmp_path, cc=GCC_WITHOUT_LIBC, python3=PYTHON_WITHOUT_VENV, **cargo)
    assert "apt-get install gcc libc6-dev python3-venv" in said
    assert ("Rust 1.90 or newer" in said) == told
    assert len(said.strip().splitlines()) == 2 + told


def test_a_machine_that_can_link_is_not_told_of_a_compiler(tmp_path: Path) -> None:
    said = setup(tmp_path, cc="exit 0", python3=PYTHON_WITHOUT_VENV)
    assert "python3-venv" in said and "gcc" not in said


def test_the_rendering_says_what_it_lacks_before_anything_is_built(tmp_path: Path) -> None:
    said = setup(tmp_path, level="povray", cc=GCC_WITHOUT_LIBC, python3=PYTHON_WITHOUT_VENV)
    assert "apt-get install povray povray-examples" in said and "gcc" not in said


def test_files_of_a_clone_are_newer_than_what_another_clone_built_last(tmp_path: Path) -> None:
    """Cargo took the I/O node of one clone for that of another, whose files were older."""
    files = {name: tmp_path / name / "ionode" / "core" / "lib.rs" for name in ("one", "other")}
    long_ago = 1_000_000_000

    def is_made_newer(name: str) -> bool:
        os.utime(files[name], (long_ago, long_ago))
        env = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
        subprocess.run([PROJECT / "scripts" / "own_target.sh"], cwd=tmp_path / name, env=env, check=True)
        return files[name].stat().st_mtime > long_ago

    for file in files.values():
        file.parent.mkdir(parents=True)
        file.write_text("")
    assert [is_made_newer(name) for name in ("one", "one", "other", "other", "one")] == [True, False, True, False, True]


def building(place: Path, cargo: str, level: str = "run") -> subprocess.Popen[str]:
    """Where all is there but what cargo builds."""
    tools = place / "bin"
    tools.mkdir()
    for name, text in {"cargo": f'[ "$1" != --version ] || {{ echo "cargo 1.95.0"; exit 0; }}\n{cargo}', "cc": "exit 0"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    # A Python that says yes to all: pip is not to touch the environment of the tests.
    python = place / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    # As if this clone had built last: the tests touch none of its files.
    target = place / ".cache" / "stager" / "target"
    target.mkdir(parents=True, exist_ok=True)
    (target / ".built-last-by").write_text(f"{PROJECT}\n")
    env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(place), "VENV": str(place / "venv"), "TMPDIR": str(place)}
    command = ["bash", str(PROJECT / "scripts" / "setup.sh"), level]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_what_cannot_be_built_is_said_and_ends_it(tmp_path: Path) -> None:
    running = building(tmp_path, "echo 'error: no such crate' >&2; exit 101")
    said = running.communicate(timeout=120)[1]
    assert running.returncode and "no such crate" in said and not (tmp_path / "venv" / "bin" / "stager-ionode").exists()


def test_what_is_built_stands_beside_the_program(tmp_path: Path) -> None:
    running = building(tmp_path, "mkdir -p $CARGO_TARGET_DIR/release; echo built >$CARGO_TARGET_DIR/release/stager-ionode")
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    assert (tmp_path / "venv" / "bin" / "stager-ionode").read_text() == "built\n"


@pytest.mark.parametrize(
    ("level", "there", "profile"),
    [
        ("run", (), "release"),
        ("run", ("quick",), "release"),
        ("demo", (), "quick"),
        ("demo", ("release",), "release"),
        ("unit", (), "quick"),
        ("unit", ("release",), "release"),
    ],
)
def test_a_new_machine_builds_quickly_what_first_looks_run(tmp_path: Path, level: str, there: tuple[str, ...], profile: str) -> None:
    target = tmp_path / ".cache" / "stager" / "target"
    for name in there:
        (target / name).mkdir(parents=True)
        (target / name / "stager-ionode").touch(0o755)
    cargo = 'while [ "$1" != --profile ]; do shift; done; mkdir -p $CARGO_TARGET_DIR/$2; echo "$*" >$CARGO_TARGET_DIR/$2/stager-ionode'
    running = building(tmp_path, cargo, level)
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    built = (tmp_path / "venv" / "bin" / "stager-ionode").read_text()
    assert built.startswith(f"--profile {profile} ") and ("--no-default-features" in built) == (profile == "quick")


def test_what_is_built_beside_the_rest_does_not_outlive_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    running = building(tmp_path, f"echo $$ > {told}.new; mv {told}.new {told}; exec sleep 600 2>/dev/null")
    wait_until(told.exists, "cargo to build")
    pid = int(told.read_text())
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)
    wait_until(lambda: not is_alive(pid), "cargo to end")
    assert running.returncode
