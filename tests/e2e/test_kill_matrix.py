"""kill -9 of each process in each phase: the run ends right all the same, and nothing that was finished runs again.

The origin is a real ssh server behind a line that is slow when a phase is to last; a run whose phase was not hit fails.
Eight cells are of each day, make kill-matrix has them all, STAGER_KILL_ROUNDS times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.client import Client, connect
from stager.model.errors import StagerError
from tests.e2e.kill_phases import Phase, cells
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

VICTIMS = ("command", "scheduler", "node", "job")
PHASES = ("fetching", "running", "uploading")
EACH_DAY = {
    ("command", "fetching"),
    ("command", "uploading"),
    ("scheduler", "running"),
    ("scheduler", "uploading"),
    ("node", "fetching"),
    ("node", "running"),
    ("node", "uploading"),
    ("job", "running"),
}
# Where no job runs none is killed.
CELLS = [cell for cell in cells(VICTIMS, PHASES, EACH_DAY) if cell.values[:2] not in (("job", "fetching"), ("job", "uploading"))]


@pytest.fixture
def slow_lab(short_dir: Path, sshd: Sshd, link: Callable[..., Link]) -> Iterator[tuple[Stager, Letters, Link, Path]]:
    line = link(sshd.port)
    known = sshd.known_hosts.read_text().replace(f":{sshd.port}", f":{line.port}")
    (short_dir / "known_hosts").write_text(known)
    data = sshd.data / "letters"
    letters = Letters(short_dir / "wf", count=3, size_bytes=1_500_000, pause_s=0.5)
    origin = f'{{url: "sftp://{sshd.user}@127.0.0.1:{line.port}{data}", '
    origin += f'credentials: "key:{sshd.identity_file}", known_hosts: "{short_dir / "known_hosts"}"}}'
    letters.make(data, origin)
    program = Stager(short_dir / "s", short_dir / "home")
    yield program, letters, line, data
    program.end()


def phase_is(client: Client, run: str, phase: str, stager: Stager) -> bool:
    """Asked of the scheduler while it can be asked."""
    with contextlib.suppress(StagerError):
        status = client.run(run).status()
        moving = {
            transfer.direction
            for transfer in status.transfers
            if transfer.state == "running" and transfer.bytes_done < transfer.bytes_total
        }
        return {"fetching": "fetch" in moving, "running": bool(status.running and stager.reaper_pids()), "uploading": "upload" in moving}[
            phase
        ]
    return False


def victim_pid(victim: str, command: subprocess.Popen[str], stager: Stager) -> int | None:
    if victim == "command":
        return command.pid
    if victim == "job":
        return next(iter(stager.reaper_pids()), None)
    return stager.scheduler_pid() if victim == "scheduler" else stager.node_pid()


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "phase", "number"), CELLS)
def test_killed_at_any_instant_the_run_ends_right(
    slow_lab: tuple[Stager, Letters, Link, Path], victim: str, phase: str, number: int
) -> None:
    stager, letters, line, data = slow_lab
    held = Phase(phase, letters, line)
    command = stager.start("submit", letters.workflow)
    client = wait_until(lambda: connect(stager.state_dir), "the scheduler to answer")
    run = wait_until(lambda: client.runs(), "the run to be submitted")[0].run
    held.begin()
    wait_until(lambda: phase_is(client, run, phase, stager), f"the phase {phase}")
    done = {job.job for job in client.run(run).jobs(state="done")}
    ended = letters.ended()
    pid = victim_pid(victim, command, stager)
    assert pid is not None, f"no {victim} simulated in the phase {phase}: this run proves nothing"
    os.kill(pid, signal.SIGKILL)
    client.close()
    held.let_go()
    if victim == "scheduler":
        wait_until(lambda: stager.scheduler_pid() is None, "the scheduler to be gone")
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(60)
        stager.run("resume", run)
    else:
        stager.run("wait", run)
    command.kill()
    command.communicate()
    letters.check(data)
    after = letters.ended()
    names = {job: job.replace("-", " ").replace("_", " ") for job in done}
    again = {job for job in done for line_ in ended if same_job(names[job], line_) and after[line_] != ended[line_]}
    assert not again, f"finished jobs ran again: {again}"
    assert all(count <= 2 for count in after.values()), after


def same_job(name: str, traced: str) -> bool:
    kind, number = traced.split()
    return name.startswith(kind) and (kind == "join" or name.endswith(number))
