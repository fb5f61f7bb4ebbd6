"""Hosts of a pool as a person sees them: they come, are lost, drain and are given up, and jobs go where there is a host for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.model.topology import HERE
from stager.scheduler import events as ev
from tests.e2e.hosts_rig import Hosts
from tests.e2e.service_rig import Rig
from tests.testbed.pool import environment
from tests.testbed.processes import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def hosts(short_dir: Path) -> Iterator[Hosts]:
    made = Hosts(short_dir, {"h1": 1, "h2": 3})
    yield made
    made.end()


def held(rig: Rig, *jobs: tuple[str, dict[str, Any]]) -> Any:
    """Jobs that go on when `gate` is there."""
    files = [rig.source("in", b"given\n"), *(rig.final(name) for name, _ in jobs)]
    shell = f"until test -e {rig.gate}; do sleep 0.05; done; cp in"
    return rig.workflow("held", files, [rig.job(name, f"{shell} {name}", ("in",), (name,), **more) for name, more in jobs])


def test_jobs_go_to_hosts_that_are_large_enough_and_wait_for_one(hosts: Hosts) -> None:
    rig, client = hosts.rig, hosts.client()
    hosts.until(lambda: hosts.seen() == {"h1": ("open", 1), "h2": ("open", 3)}, "both hosts")
    run = rig.submit(client, held(rig, ("wide", {"cores": 3}), ("thin", {})))
    hosts.until(lambda: len(hosts.starts()) == 2, "both jobs")
    assert dict(hosts.starts()) == {"wide": "h2", "thin": "h1"}
    used = {host.host: (host.cores_used, host.attempts) for host in client.hosts.listed()}
    assert used == {"h1": (1, 1), "h2": (3, 1)}
    assert "starts on h2" in "\n".join(client.run(run).explain(job="wide").lines)
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded"
    too_wide = rig.submit(client, held(rig, ("wider", {"cores": 4})))
    hosts.add("h3", 2)
    hosts.until(lambda: client.run(too_wide).status().info.state == "failed", "the refusal")
    fault = client.run(too_wide).jobs()[0].fault
    assert fault is not None and fault.code == "no_host" and "4 cores" in fault.message
    listed = rig.stager.json("host", "list")
    assert [(host["host"], host["node"], host["state"]) for host in listed][:2] == [("h1", "node0", "open"), ("h2", "node0", "open")]


def test_a_host_that_drains_ends_what_it_has_and_gets_no_more(hosts: Hosts) -> None:
    rig, client = hosts.rig, hosts.client()
    hosts.until(lambda: len(hosts.seen()) == 2, "both hosts")
    run = rig.submit(client, held(rig, ("wide", {"cores": 3})))
    hosts.until(hosts.starts, "the job")
    assert "h2 drains; 1 attempt is there" in rig.stager.run("host", "drain", "h2").stdout
    later = rig.submit(client, held(rig, ("thin", {}), ("next", {})))
    rig.gate.touch()
    assert rig.finished(client, run) == rig.finished(client, later) == "succeeded"
    assert hosts.starts() == [("wide", "h2"), ("thin", "h1"), ("next", "h1")] or dict(hosts.starts())["next"] == "h1"
    hosts.pool.hosts["h2"].server.stop()
    hosts.pool.hosts["h2"].server.start()
    hosts.until(lambda: hosts.seen()["h2"] == ("open", 3), "the host to be open again")


def test_a_host_that_is_given_up_loses_its_jobs_to_others_and_is_swept_when_it_comes_back(hosts: Hosts) -> None:
    rig, client, h2 = hosts.rig, hosts.client(), hosts.pool.hosts["h2"]
    hosts.until(lambda: len(hosts.seen()) == 2, "both hosts")
    run = rig.submit(client, held(rig, ("one", {}), ("two", {})))
    hosts.until(lambda: rig.ran() == {"one": 1, "two": 1}, "both jobs")
    there = [job for job, host in hosts.starts() if host == "h2"]
    assert len(there) == 1
    refused = rig.stager.run("host", "forget", "h2", code=3)
    assert "host h2 answers" in refused.stderr
    h2.server.kill()
    hosts.until(lambda: hosts.seen()["h2"][0] == "away", "the loss of the host")
    assert h2.reaper_pids(), "its job goes on"
    rig.stager.run("host", "forget", "h2", "--why", "its power supply died")
    hosts.until(lambda: [event.outcome for event in hosts.told(ev.AttemptEnded)] == [ev.Outcome.LOST], "the end of its attempt")
    (lost,) = hosts.told(ev.AttemptEnded)
    assert h2.reaper_pids(), "its job goes on still"
    h2.server.start()
    hosts.until(lambda: hosts.seen().get("h2") == ("open", 3), "the host")
    hosts.until(lambda: not (h2.scratch / "attempts" / lost.attempt).exists(), "what it had to be ended and swept away")
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded"
    assert {name: (rig.data / "out" / name).read_bytes() for name in ("one", "two")} == {"one": b"given\n", "two": b"given\n"}
    assert rig.ran()[there[0]] == 2
    hosts.until(lambda: not list((h2.scratch / "attempts").iterdir()), "the sandboxes to go")


def test_without_its_pool_a_scheduler_gives_up_what_hosts_had_and_runs_it_itself(hosts: Hosts) -> None:
    """Nobody could ask those hosts any more, and the run waited for ever."""
    rig, client = hosts.rig, hosts.client()
    hosts.until(lambda: len(hosts.seen()) == 2, "both hosts")
    run = rig.submit(client, held(rig, ("one", {})))
    hosts.until(lambda: rig.ran() == {"one": 1}, "the job")
    os.kill(client.health().pid, signal.SIGKILL)
    rig.gate.touch()
    alone = rig.client()
    assert rig.finished(alone, run) == "succeeded"
    assert (rig.data / "out" / "one").read_bytes() == b"given\n"
    assert [event.outcome for event in hosts.told(ev.AttemptEnded)] == [ev.Outcome.LOST, ev.Outcome.OK]
    assert [host for _, host in hosts.starts()][1:] == [HERE]


@pytest.mark.parametrize(
    "words, said",
    [
        (["pool", "--listen", "0.0.0.0:8786"], "can be reached from other machines"),
        (["worker", "tcp://10.0.0.1:8786", "--node", "node0=/tmp", "--scratch", "/nowhere"], "in plain text"),
        (["worker", "tcp://127.0.0.1:8786", "--node", "node0=/no/store", "--scratch", "/nowhere"], "no such directory"),
        (["worker", "tcp://127.0.0.1:8786", "--node", "node0=/tmp", "--node", "io1", "--scratch", "/nowhere"], "for all or none"),
        (["worker", "tcp://127.0.0.1:8786", "--node", "io1", "--node", "io2", "--scratch", "/nowhere"], "is beside one of them"),
        (["worker", "tcp://127.0.0.1:8786", "--node", "node0=/tmp", "--scratch", "/nowhere", "--name", "a=b"], "no name of a host"),
    ],
)
def test_what_cannot_be_is_refused_by_name(words: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "stager.cli", *words], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode in (2, 3) and said in done.stderr and not Path("/nowhere").exists()


def test_two_workers_do_not_share_a_scratch_directory(hosts: Hosts) -> None:
    h1 = hosts.pool.hosts["h1"]
    hosts.until(lambda: h1.worker_pid() is not None, "the first worker")
    done = subprocess.run(h1.server.argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "another `stager worker` has the scratch directory" in done.stderr


def test_a_second_worker_of_one_name_is_kept_out_and_gets_no_attempt(hosts: Hosts) -> None:
    """A call is given to whoever offers that host's cores. On another disk it would be lost."""
    rig, client, h1 = hosts.rig, hosts.client(), hosts.pool.hosts["h1"]
    hosts.until(lambda: hosts.seen() == {"h1": ("open", 1), "h2": ("open", 3)}, "both hosts")
    words = [word if word != str(h1.scratch) else str(hosts.pool.place / "again") for word in h1.server.argv]
    again = Server(words, hosts.pool.place / "again.log", env=environment())
    again.start()
    try:
        hosts.until(lambda: "name taken, h1" in again.log_text(), "the second one to be refused")
        run = rig.submit(client, held(rig, ("one", {}), ("two", {}), ("three", {})))
        rig.gate.touch()
        assert rig.finished(client, run) == "succeeded" and "h1" in dict(hosts.starts()).values()
        assert {event.outcome for event in hosts.told(ev.AttemptEnded)} == {ev.Outcome.OK}
    finally:
        again.stop()


def test_another_scheduler_in_the_same_pool_ends_no_attempt_of_the_first(hosts: Hosts, short_dir: Path) -> None:
    """Each takes what it does not know of for over. A state directory of one's own is quickly made, and STAGER_POOL is in the profile."""
    rig, client = hosts.rig, hosts.client()
    hosts.until(lambda: len(hosts.seen()) == 2, "both hosts")
    run = rig.submit(client, held(rig, ("one", {})))
    hosts.until(lambda: rig.ran() == {"one": 1}, "the job")
    os.kill(client.health().pid, signal.SIGKILL)
    for host in hosts.pool.hosts.values():
        host.kill_worker()
    (short_dir / "other").mkdir()
    other = Rig(short_dir / "other")
    try:
        second = other.client(STAGER_POOL=hosts.pool.address)
        refused = [f"host {name} is not taken: it works for another scheduler" for name in ("h1", "h2")]
        hosts.until(lambda: all(text in other.stager.log_tail() for text in refused), "the refusal of both hosts")
        assert second.hosts.listed() == [] and any(host.reaper_pids() for host in hosts.pool.hosts.values())
        again = hosts.client()
        rig.gate.touch()
        assert rig.finished(again, run) == "succeeded" and rig.ran() == {"one": 1}
        assert [event.outcome for event in hosts.told(ev.AttemptEnded)] == [ev.Outcome.OK]
    finally:
        other.end()


def test_a_worker_that_is_asked_to_end_ends_and_leaves_its_jobs(hosts: Hosts) -> None:
    rig, client = hosts.rig, hosts.client()
    hosts.until(lambda: hosts.seen() == {"h1": ("open", 1), "h2": ("open", 3)}, "both hosts")
    run = rig.submit(client, held(rig, ("wide", {"cores": 3})))
    hosts.until(lambda: rig.ran() == {"wide": 1}, "the job")
    h2 = hosts.pool.hosts["h2"]
    assert h2.server.process is not None
    h2.server.process.send_signal(signal.SIGTERM)
    assert h2.server.process.wait(120) == 0 and h2.reaper_pids()
    h2.server.start()
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded" and rig.ran() == {"wide": 1}
