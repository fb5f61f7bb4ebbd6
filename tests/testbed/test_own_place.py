"""What a program that measures leaves behind when it is ended: nothing; and what it leaves when it is killed, the next one takes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import network
from tests.testbed.places import PROJECT
from tests.testbed.processes import is_alive, started_at
from tests.testbed.waiting import wait_until

# A process in its own session on a host, one here that carries the mark, and one that cleared its environment and works in the place.
MEASURES = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from tests.testbed import network
from tests.testbed.network import Network, Wan
from tests.testbed.own_place import own_place
network.PREFIX, name = sys.argv[1], sys.argv[2]
network.OWNED = network.owned_by_name(network.PREFIX)
deaf = dict(start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with own_place(sys.argv[3]) as place, Network() as net:
    far = net.host("far", wan=Wan(rtt_s=0.01, rate_mbit_s=100))
    (place / "mount").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place / "mount"], check=True)
    pids = [
        subprocess.Popen(far.command(["sleep", "600"]), **deaf).pid,
        subprocess.Popen(["sleep", "600"], cwd="/", **deaf).pid,
        subprocess.Popen(["sleep", "600"], cwd=place, env={}, **deaf).pid,
    ]
    if name == "slow to end":
        # Longer than a second signal takes to come: what is taken down must not be left half way.
        whole = net.close
        net.close = lambda: (Path(sys.argv[4]).write_text("closing"), time.sleep(1), whole())
    print(json.dumps({"place": str(place), "hosts": net.prefix, "pids": [*pids, net.lines[0].pid]}), flush=True)
    while True:
        time.sleep(1)
"""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> str:
    """Of hosts that nobody beside this test sweeps."""
    network.needs_network()
    name = f"{network.PREFIX}{os.getpid()}"
    monkeypatch.setattr(network, "OWNED", network.owned_by_name(name))
    return name


@contextmanager
def measuring(names: str, short_dir: Path, name: str = "") -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    env = os.environ | {"STAGER_TEST_TOOLS": str(short_dir / "tools")}
    argv = [sys.executable, "-c", MEASURES, names, name, str(short_dir), str(short_dir / "closing")]
    program = subprocess.Popen(argv, cwd=PROJECT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout is not None
    try:
        said = program.stdout.readline()
        assert said, program.communicate()[1]
        facts = json.loads(said)
        yield program, facts | {"begun": {pid: started_at(pid) for pid in facts["pids"]}}
    finally:
        program.terminate()
        program.communicate(timeout=120)


def left_of(facts: dict[str, Any]) -> list[str]:
    """Processes, hosts, mounts, directories."""
    found = [f"process {pid}" for pid, start in facts["begun"].items() if is_alive(pid) and started_at(pid) == start]
    found += [name for name, _, _ in network.owned_namespaces() if name.startswith(facts["hosts"])]
    found += [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4].startswith(facts["place"])
    ]
    return found + [facts["place"]] * Path(facts["place"]).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_program_that_is_ended_leaves_nothing(names: str, short_dir: Path, number: signal.Signals) -> None:
    """Also by a second signal while it takes things down, as an impatient Ctrl-C."""
    with measuring(names, short_dir, "slow to end") as (program, facts):
        assert len(left_of(facts)) == 4 + 2 + 1 + 1
        program.send_signal(number)
        wait_until((short_dir / "closing").exists, "the program to take things down")
        program.send_signal(number)
        _, err = program.communicate(timeout=120)
        assert program.returncode == 128 + number and f"ends by {number.name}" in err and "Traceback" not in err
        assert left_of(facts) == []
        assert list((short_dir / "tools" / "places").iterdir()) == []


def test_what_a_killed_program_left_the_next_one_takes_away(names: str, short_dir: Path) -> None:
    with measuring(names, short_dir) as (program, facts), measuring(names, short_dir) as (_, living):
        program.kill()
        program.wait()
        line = facts["pids"][-1]
        wait_until(lambda: not is_alive(line), "the delay line to end with its owner")
        assert len(left_of(facts)) == 3 + 2 + 1 + 1
        with measuring(names, short_dir) as (third, _):
            assert left_of(facts) == []
            assert len(left_of(living)) == 4 + 2 + 1 + 1, "of another that lives"
            third.send_signal(signal.SIGTERM)
            assert f"took away what a program of pid {program.pid} had left: {facts['place']}" in third.communicate(timeout=120)[1]
