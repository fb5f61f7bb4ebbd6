"""The unit by which systemd keeps a host running."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.service.host_unit import NAME, SYSTEM, USER, install, unit_text, version_here

ODD = Path('/srv/an odd $HOME 100% "name"')


@pytest.mark.parametrize("kind", [USER, SYSTEM])
def test_systemd_finds_nothing_wrong_with_it(kind: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / NAME
    unit.write_text(unit_text(ODD, kind, "root", 0o027, {"PATH": "/opt/a b:/usr/bin", "STAGER_TOKEN": "secret"}, version_here()))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *(["--user"] if kind == USER else []), str(unit)],
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert NAME not in done.stdout + done.stderr, done.stderr


def test_jobs_outlive_it_and_no_secret_is_in_it() -> None:
    text = unit_text(ODD, SYSTEM, "alice", 0o027, {"PATH": "/usr/bin", "STAGER_TOKEN": "secret"}, 252)
    assert "\nKillMode=process\n" in text and "\nUser=alice\n" in text and "\nUMask=0027\n" in text and "secret" not in text
    assert f'\nExecStart="{sys.executable}" "-P" "-m" "stager.cli" "host" "run" "--store" "/srv/an odd $$HOME 100%% \\"name\\""\n' in text
    assert "User=" not in unit_text(ODD, USER, "alice", 0o027, {}, 252)


def test_a_path_of_two_lines_writes_no_line_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="choose another path"):
        unit_text(Path("/srv/a\nUser=root"), SYSTEM, "alice", 0o027, {}, 252)


def test_it_is_written_where_the_users_systemd_reads_it(tmp_path: Path) -> None:
    path, steps = install("[Unit]\n", USER, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert path == tmp_path / "systemd" / "user" / NAME and path.read_text() == "[Unit]\n"
    assert f"systemctl --user enable --now {NAME}" in steps


def test_a_systemd_that_can_start_it_beside_its_jobs_delegates_memory() -> None:
    """An older one would be refused in a group whose children have limits, as long as a job of before a restart lives."""
    assert "Delegate" not in unit_text(ODD, USER, "alice", 0o027, {}, 253)
    text = unit_text(ODD, USER, "alice", 0o027, {"STAGER_CGROUP": "/sys/fs/cgroup/mine"}, 254)
    assert "\nDelegate=memory\nDelegateSubgroup=main\nRestart=" in text and '\nEnvironment="STAGER_CGROUP=/sys/fs/cgroup/mine"\n' in text
