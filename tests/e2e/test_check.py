"""`stager check`: what stops a run, and what its author may want to know before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.origin_rig import ssh_origin
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager

HEAD = "stager: 1\nname: w\norigins:\n  o: file:data\n"


@pytest.fixture
def stager(short_dir: Path) -> Stager:
    return Stager(short_dir / "s", short_dir / "home")


def checked(stager: Stager, place: Path, body: str, code: int = 0) -> list[dict[str, Any]]:
    """Findings of a workflow whose origin `o` is the directory `data` beside it."""
    (place / "data").mkdir(exist_ok=True)
    workflow = place / "w.yml"
    workflow.write_text(HEAD + body)
    found: list[dict[str, Any]] = json.loads(stager.run("check", workflow, "--json", code=code).stdout)
    return found


def said(found: list[dict[str, Any]], about: str) -> str:
    return "\n".join(each["message"] for each in found if each["about"] == about)


def test_programs_in_shell_texts_are_looked_for_and_the_rest_is_counted(stager: Stager, short_dir: Path) -> None:
    found = checked(stager, short_dir, "jobs:\n  a: {run: 'nosuchprog2 | sort'}\n  b: {run: '$X y; cd z'}\n", code=3)
    assert "'nosuchprog2'" in said(found, "programs") and "'a'" in said(found, "programs")
    assert "1 found" in said(found, "programs") and "1 command of shell texts was not looked at" in said(found, "programs")


def test_a_program_that_only_the_submitters_path_knows_is_told_with_what_to_write(stager: Stager, short_dir: Path) -> None:
    (short_dir / "bin").mkdir()
    for name in ("mine", "myshell"):
        (short_dir / "bin" / name).write_text("#!/bin/sh\n")
        (short_dir / "bin" / name).chmod(0o755)
    stager.env = {"PATH": f"{short_dir / 'bin'}:/usr/bin:/bin"}
    jobs = "jobs:\n  a: {run: 'mine x'}\n  b: {run: [mine, x]}\n  c: {run: 'no words', shell: [myshell, -c]}\n"
    told = said(checked(stager, short_dir, jobs, code=3), "programs")
    assert told.count("write env_pass: [PATH]") == 2, "one for each program that is not found"
    assert f"'mine', which is on your PATH ({short_dir / 'bin' / 'mine'})" in told and "'myshell'" in told
    assert "'no'" not in told, "nobody knows how that shell reads its text"
    checked(stager, short_dir, f"defaults: {{env_pass: [PATH]}}\n{jobs}")


def test_a_shell_text_that_is_in_order_is_good(stager: Stager, short_dir: Path) -> None:
    found = checked(stager, short_dir, "jobs:\n  a: {run: 'set -e; sort x | uniq'}\n  b: {run: 'nosuch || true'}\n")
    assert said(found, "programs").startswith("2 found")


def test_variables_to_pass_that_are_not_set_are_named(stager: Stager, short_dir: Path) -> None:
    stager.env = {"SET_ONE": "1"}
    found = checked(stager, short_dir, "jobs:\n  a: {run: 'true', env_pass: [SET_ONE, MISSING_ONE]}\n")
    assert "MISSING_ONE" in said(found, "env_pass") and "SET_ONE" not in said(found, "env_pass")
    assert [each["note"] for each in found if each["about"] == "env_pass"] == [True]


def existing(stager: Stager, short_dir: Path, rule: str) -> dict[str, Any]:
    (short_dir / "data").mkdir()
    (short_dir / "data" / "x.txt").write_text("months of work")
    body = f"on_exists: {rule}\njobs:\n  a: {{run: 'true', outputs: {{x.txt: 'o:x.txt', y.txt: 'o:y.txt'}}}}\n"
    (found,) = [each for each in checked(stager, short_dir, body, 0 if rule == "replace" else 3) if each["about"] == "destinations"]
    assert "o:x.txt" in found["message"] and "y.txt" not in found["message"]
    return found


def test_destinations_that_will_be_replaced_are_noted(stager: Stager, short_dir: Path) -> None:
    found = existing(stager, short_dir, "replace")
    assert found["note"] and found["good"] and "replaced" in found["message"]


def test_destinations_that_no_run_may_write_over_stop_it(stager: Stager, short_dir: Path) -> None:
    found = existing(stager, short_dir, "fail")
    assert not found["good"] and not found["note"] and "on_exists: replace" in found["message"]


def test_notes_of_the_plan_are_listed(stager: Stager, short_dir: Path) -> None:
    stager.env = {"STAGER_MEMORY": "1 GB"}
    found = checked(stager, short_dir, "jobs:\n  a: {run: 'true', memory: 500 GB, cores: 64}\n")
    told = said(found, "plan")
    assert "1 GB of memory" in told and "2 cores" in told
    printed = stager.run("check", short_dir / "w.yml").stdout.splitlines()
    assert sum(line.startswith("note  plan: ") for line in printed) == 2


@pytest.mark.parametrize("kind", ["file", "sftp"])
def test_finals_that_do_not_fit_on_a_disk_together_stop_it(
    stager: Stager, short_dir: Path, tiny_disk: Callable[[int], Path], sshd: Sshd, kind: str
) -> None:
    """Each of the two alone would; their origins are two directories of one disk, as the destination of a mount below the base is."""
    disk = tiny_disk(8)
    for name in ("a", "b"):
        (disk / name).mkdir()
    config = short_dir / "ssh_config"
    config.write_text(sshd.ssh_config_text())
    stager.env = {"STAGER_SSH_CONFIG": str(config)}
    urls = [f"file:{disk / 'a'}", f"file:{short_dir}"] if kind == "file" else [f"sftp://lab{disk / 'a'}", f"sftp://lab{disk / 'b'}"]
    second = f"{disk.name}/b/y.txt" if kind == "file" else "y.txt"
    outputs = f"[{{file: x.txt, to: 'p:x.txt', size: 5 MB}}, {{file: y.txt, to: 'q:{second}', size: SIZE}}]"
    workflow = short_dir / "room.yml"

    def found(size: str) -> list[dict[str, Any]]:
        job = f"{{run: 'true', outputs: {outputs.replace('SIZE', size)}}}"
        workflow.write_text(f"stager: 1\nname: w\norigins: {{p: '{urls[0]}', q: '{urls[1]}'}}\njobs:\n  a: {job}\n")
        said = json.loads(stager.run("check", workflow, "--json", code=None).stdout)
        return [each for each in said if each["about"] == "room"]

    [stop] = found("5 MB")
    assert not stop["good"] and "the finals need 10 MB" in stop["message"] and stop["message"].count("://") == 2, stop
    assert found("1 MB") == []


def test_one_login_serves_all_that_a_command_asks(stager: Stager, short_dir: Path, sshd: Sshd) -> None:
    data = short_dir / "lab"
    data.mkdir()
    (data / "a.txt").write_text("a")
    workflow = short_dir / "w.yml"
    origin = ssh_origin(sshd, data)
    workflow.write_text(
        f"stager: 1\norigins: {{o: {origin}}}\njobs:\n  a: {{run: cp a.txt b, inputs: ['o:a.txt'], outputs: {{b: 'o:out/b'}}}}\n"
    )
    for command in ("check", "plan"):
        before = sshd.log.read_text().count("Accepted publickey")
        stager.run(command, workflow)
        assert sshd.log.read_text().count("Accepted publickey") == before + 1, command
