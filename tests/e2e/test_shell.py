"""What a failed job left, and a shell in it."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from stager.cli.main import stager as program
from tests.e2e.serve_rig import Service, small
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

HEAD = "stager: 1\nname: w\non_failure: continue\njobs:\n"
BAD = """  bad:
    run: 'mkdir sub; cat big small > sub/both; echo half > out.txt; test -e {mended} || exit 3'
    inputs: ['here:big', 'here:small']
    outputs: {{out.txt: 'here:out/out.txt'}}
    env: {{COLOUR: red}}
    env_pass: [TOKEN]
    retries: {retries}
"""
BIG = "".join(f"{number}\n" for number in range(50_000))


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    made = Stager(short_dir / "s", short_dir / "home", {"TOKEN": "hush-1"})
    (short_dir / "big").write_text(BIG)
    (short_dir / "small").write_text("small\n")
    for name in ("big", "small"):
        os.utime(short_dir / name, (1e9, 1e9))
    yield made
    made.end()


def workflow(place: Path, retries: int = 0, more: str = "") -> Path:
    file = place / "w.yml"
    file.write_text(HEAD + BAD.format(mended=place / "mended", retries=retries) + more)
    return file


def kept_in(stager: Stager) -> list[str]:
    return sorted(str(each.relative_to(stager.state_dir / "failed")) for each in stager.state_dir.glob("failed/*/*"))


def test_a_failed_job_can_be_looked_at_as_it_found_things(stager: Stager, short_dir: Path) -> None:
    other = "  none: {run: 'echo x > other', outputs: {told: 'here:out/told'}}\n  good: {run: 'true'}\n"
    said = stager.run("submit", workflow(short_dir, 1, other), code=1).stderr
    assert "what it left: stager shell w-1 bad" in said and "stager shell w-1 none" in said
    assert kept_in(stager) == ["w-1/bad.2", "w-1/none.1"]
    assert {job["job"]: job["sandbox_kept"] for job in stager.json("jobs", "w-1")} == {"bad": True, "none": True, "good": False}
    for directory in ("failed", "failed/w-1", "failed/w-1/bad.2", "failed/w-1/bad.2/sandbox"):
        assert stat.S_IMODE((stager.state_dir / directory).stat().st_mode) == 0o700

    stager.env = {"TOKEN": "hush-2"}
    looked = stager.run("shell", "w-1", "bad", "--", "sh", "-c", "cat sub/both; cat big; cat small; test -d $TMPDIR; echo >> big", code=2)
    assert looked.stdout == BIG + "small\n" + BIG + "small\n" and "Read-only" in looked.stderr
    env = dict(line.split("=", 1) for line in stager.run("shell", "w-1", "bad", "env").stdout.splitlines())
    assert (env["TOKEN"], env["COLOUR"], env["STAGER_JOB"], env["HOME"]) == (
        "hush-2",
        "red",
        "bad",
        env["PWD"] if "PWD" in env else env["HOME"],
    )
    assert not {"STAGER_STATE_DIR", "PYTHONPATH"} & set(env)
    assert stager.run("shell", "w-1", "none", "ls").stdout == "other\n"
    assert "'nosuch'" in stager.run("shell", "w-1", "bad", "nosuch", code=126).stderr.replace('"', "'")
    found = subprocess.run(["grep", "-rl", "hush-", str(stager.state_dir)], capture_output=True, text=True, check=False).stdout
    assert found == "", f"the secret is in {found}"
    assert "has succeeded" in stager.run("shell", "w-1", "good", code=3).stderr
    assert "has no job 'nosuch'" in stager.run("shell", "w-1", "nosuch", code=2).stderr
    assert "opens no shell" in stager.run("shell", "--server", "http://127.0.0.1:1", "w-1", "bad", code=3).stderr
    complete = BashComplete(program, {}, "stager", "_STAGER_COMPLETE")
    assert [item.value for item in complete.get_completions(["shell", "--state-dir", str(stager.state_dir), "w-1"], "b")] == ["bad"]


def test_a_shell_on_a_terminal_and_one_without(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", workflow(short_dir), code=1)
    command = [sys.executable, "-m", "stager.cli", "shell", "w-1", "bad"]
    piped = subprocess.run(command, env=stager.environment(), input="wc -l < big\nexit 7\n", capture_output=True, text=True, check=False)
    assert (piped.returncode, piped.stdout, piped.stderr) == (7, "50000\n", "")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, stager.environment())
    seen = read_until(terminal, "`exit` leaves")
    assert "ended with exit code 3" in seen and "it ran: mkdir sub" in seen
    os.write(terminal, b"sleep 100\n")
    wait_until(lambda: "sleep 100" in children_of(pid), "the shell to run what was typed")
    os.write(terminal, b"\x03")
    os.write(terminal, b"echo still-$((1 + 1))-here; exit 5\n")
    read_until(terminal, "still-2-here")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def read_until(terminal: int, text: str) -> str:
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def children_of(pid: int) -> str:
    return subprocess.run(["ps", "--ppid", str(pid), "-o", "args="], capture_output=True, text=True, check=False).stdout


def test_it_goes_when_the_job_succeeds_and_outlives_the_scheduler_until_then(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", workflow(short_dir), code=1)
    os.kill(stager.scheduler_pid(), signal.SIGKILL)
    assert stager.run("shell", "w-1", "bad", "cat", "sub/both").stdout == BIG + "small\n"
    (short_dir / "mended").touch()
    stager.run("resume", "w-1")
    wait_until(lambda: kept_in(stager) == [], "the sandbox to go")
    assert "has succeeded" in stager.run("shell", "w-1", "bad", code=3).stderr


def test_gc_takes_it_but_not_from_under_a_shell(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", workflow(short_dir), code=1)
    gate = short_dir / "gate"
    looking = stager.start(
        "shell", "w-1", "bad", "--", "sh", "-c", f"touch {short_dir}/in; until test -e {gate}; do sleep 0.05; done; cat small"
    )
    wait_until((short_dir / "in").exists, "the shell to be there")
    would = stager.json("gc", "--dry-run")
    did = stager.json("gc")
    assert (would["sandboxes"], did["sandboxes"]) == (1, 0) and would["freed_bytes"] > did["freed_bytes"] == 0, "what stayed is not freed"
    gate.touch()
    assert looking.communicate(timeout=120)[0] == "small\n"
    assert stager.json("gc")["sandboxes"] == 1 and kept_in(stager) == []
    assert "`stager gc` took it" in stager.run("shell", "w-1", "bad", code=3).stderr


def test_none_is_kept_beyond_what_may_be_taken(stager: Stager, short_dir: Path) -> None:
    stager.env = dict(stager.env) | {"STAGER_KEEP_FAILED": "100 kB"}
    stager.run("submit", workflow(short_dir), code=1)
    wait_until(lambda: kept_in(stager) == [], "what is too large to go")
    assert "STAGER_KEEP_FAILED" in stager.run("shell", "w-1", "bad", code=3).stderr


def test_of_a_tenants_job_that_failed_no_sandbox_is_kept_and_its_owner_gets_no_shell_there(short_dir: Path) -> None:
    data = short_dir / "data"
    data.mkdir()
    service = Service(short_dir / "serve", f'[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n')
    token = service.token("alice", "submit")
    try:
        alice = service.start().client(token)
        body = {"workflow": small(data, shell="sh -c 'cp a left; exit 3'")}
        run = alice.post("/runs", json=body).raise_for_status().json()["run"]
        assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"]
        [job] = alice.get(f"/runs/{run}/jobs").json()["jobs"]
        assert (job["state"], job["exit_code"], job["sandbox_kept"]) == ("failed", 3, False)
        assert alice.get(f"/runs/{run}/sandbox", params={"job": "up"}).status_code == 404
        assert "nobody gets a shell" in service.stager.run("shell", run, "up", code=3).stderr
        assert not list((service.stager.state_dir / "failed").glob("*/*"))
    finally:
        service.end()
