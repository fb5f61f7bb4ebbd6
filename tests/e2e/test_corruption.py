"""Damage on the node's disk, on the line and at the origin: found, acted on, and never in a final."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.origin_rig import Bucket, known_hosts_of, s3_env, s3_origin, ssh_origin, wait_for_bytes
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

SIZE_BYTES = 300_000


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


def flip(path: Path, at: int = 1000) -> None:
    """One bit of a file, in place, as a failing disk or a stray program would."""
    os.chmod(path, 0o600)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def rot(path: Path) -> None:
    """As `flip`, with size, mtime and mode as they were."""
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.chmod(path, before.st_mode)


def replicas(stager: Stager, content: bytes) -> list[Path]:
    """Files of the node's store with this content."""
    return [path for path in (stager.state_dir / "node" / "data").rglob("*") if holds(path, content)]


def holds(path: Path, content: bytes) -> bool:
    """What was just there under the name of a file being written may be gone."""
    try:
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def gated(short_dir: Path, origin: str) -> Path:
    """first -> mid -> second, which is not started before the file `go` is there: another job holds it up."""
    workflow = short_dir / "w.yml"
    ran, go = short_dir / "ran", short_dir / "go"
    workflow.write_text(
        f"stager: 1\nname: gated\ndefaults: {{isolate: off}}\norigins:\n  o: {origin}\njobs:\n"
        f"  first: {{run: 'cat in.bin in.bin > mid.bin; echo first >> {ran}', inputs: ['o:in.bin'], outputs: [mid.bin]}}\n"
        f"  gate: {{run: 'until test -e {go}; do sleep 0.05; done; : > open', after: first, outputs: [open]}}\n"
        f"  second:\n    retries: 0\n    run: cat mid.bin in.bin > out.bin; echo second >> {ran}\n"
        "    inputs: [mid.bin, 'o:in.bin', open]\n    outputs: {out.bin: 'o:out.bin'}\n"
    )
    return workflow


def ran(short_dir: Path) -> list[str]:
    return (short_dir / "ran").read_text().split()


@pytest.mark.parametrize("which", ["input", "intermediate"])
def test_a_replica_damaged_between_jobs_is_made_again_and_never_read(stager: Stager, short_dir: Path, which: str) -> None:
    data = short_dir / "data"
    data.mkdir()
    content = os.urandom(SIZE_BYTES)
    (data / "in.bin").write_bytes(content)
    run = stager.submit(gated(short_dir, f"file:{data}"))
    wait_until(lambda: stager.json("status", run)["jobs"].get("done"), "the first job to end")
    lfn, expected = ("in.bin", content) if which == "input" else ("mid.bin", content * 2)
    (replica,) = replicas(stager, expected)
    flip(replica)
    (short_dir / "go").touch()
    stager.run("wait", run)
    assert (data / "out.bin").read_bytes() == content * 3
    assert ran(short_dir) == (["first", "second"] if which == "input" else ["first", "first", "second"]), "not what damage asks for"
    assert "is damaged" in stager.run("explain", run, "--file", lfn).stdout


@pytest.mark.parametrize("which", ["input", "intermediate"])
def test_the_scrubber_finds_what_rots_silently_before_a_job_links_it(stager: Stager, short_dir: Path, which: str) -> None:
    """Size and mtime stay, so nothing but reading can tell; the large replica would be linked unread."""
    stager.env = {"STAGER_SCRUB_RATE": "1 GB", "STAGER_SCRUB_EVERY": "0 s"}
    data = short_dir / "data"
    data.mkdir()
    content = os.urandom(SIZE_BYTES)
    (data / "in.bin").write_bytes(content)
    run = stager.submit(gated(short_dir, f"file:{data}"))
    wait_until(lambda: stager.json("status", run)["jobs"].get("done"), "the first job to end")
    lfn, expected = ("in.bin", content) if which == "input" else ("mid.bin", content * 2)
    (replica,) = replicas(stager, expected)
    rot(replica)
    wait_until(lambda: "is quarantined" in stager.run("explain", run, "--file", lfn).stdout, "the damage to be found", pause_s=0.2)
    wait_until(lambda: replicas(stager, expected), "it to be made again, before anybody asks for it", pause_s=0.1)
    (short_dir / "go").touch()
    stager.run("wait", run)
    assert (data / "out.bin").read_bytes() == content * 3
    assert ran(short_dir) == (["first", "second"] if which == "input" else ["first", "first", "second"])


def test_a_replica_damaged_while_nobody_ran_is_fetched_again(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, size_bytes=SIZE_BYTES, pause_s=0)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    stager.run("submit", letters.workflow)
    stager.run("shutdown")
    wait_until(lambda: not stager.living(), "the scheduler and the node to end")
    (replica,) = replicas(stager, letters.content(0))
    flip(replica)
    for final in letters.finals():
        (short_dir / "data" / final).unlink()
    done = stager.run("submit", letters.workflow)
    letters.check(short_dir / "data")
    assert "fetched  300 kB" in done.stdout, "one of two inputs was to be fetched again"


@pytest.fixture
def wire(s3: S3, bucket: str, link: Callable[..., Link], stager: Stager) -> tuple[Bucket, Link]:
    stager.env = s3_env(s3)
    return Bucket(s3.client(), bucket), link(s3.port)


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_bit_turned_on_the_way_to_or_from_s3_never_reaches_a_final(
    stager: Stager, short_dir: Path, s3: S3, wire: tuple[Bucket, Link], way: str
) -> None:
    store, line = wire
    content = os.urandom(2_000_000)
    store.put("in.bin", content)
    workflow = gated(short_dir, s3_origin(s3, store.name, port=line.port))
    plan = short_dir / "plan.json"
    stager.run("plan", workflow, "--output", plan)
    if way == "down":
        (short_dir / "go").touch()
        line.flip_after(1_000_000)
        run = stager.submit(workflow, "--plan", str(plan))
    else:
        run = stager.submit(workflow)
        wait_until(lambda: stager.json("status", run)["jobs"].get("done"), "the first job to end")
        line.flip_after(3_000_000, up=True)
        (short_dir / "go").touch()
    stager.run("wait", run)
    assert (line.up if way == "up" else line.down).flipped == 1, "nothing was damaged: this proves nothing"
    assert store.get("out.bin") == content * 3
    lfn = "in.bin" if way == "down" else "out.bin"
    assert "tried again" in stager.run("explain", run, "--file", lfn).stdout
    assert ran(short_dir) == ["first", "second"]


def test_a_source_cut_short_between_listing_and_fetch_fails_by_name(stager: Stager, sshd: Sshd, short_dir: Path) -> None:
    """There is no room to fetch ahead while the gate is closed."""
    data = sshd.data / "d"
    data.mkdir()
    (data / "in.bin").touch()
    os.truncate(data / "in.bin", 200_000_000)
    go = short_dir / "go"
    workflow = short_dir / "w.yml"
    workflow.write_text(
        f"stager: 1\nname: cut\norigins:\n  o: {ssh_origin(sshd, data)}\n  f: file:{short_dir}\njobs:\n"
        f"  gate: {{run: 'until test -e {go}; do sleep 0.05; done; : > open', outputs: {{open: {{size: 100 MB}}}}}}\n"
        "  use: {run: 'cat in.bin > out.bin', inputs: ['o:in.bin'], after: gate, outputs: {out.bin: {to: 'f:out.bin', size: 1 MB}}}\n"
        "  other: {run: 'echo fine > other.txt', after: gate, outputs: {other.txt: {to: 'f:other.txt', size: 1 MB}}}\n"
    )
    run = stager.submit(workflow, "--capacity", "250 MB")
    wait_until(lambda: stager.json("status", run)["jobs"].get("running"), "the gate to stand")
    os.truncate(data / "in.bin", 100_000_000)
    go.touch()
    done = stager.run("wait", run, code=1)
    assert "in.bin" in done.stderr and "changed" in done.stderr, done.stderr
    assert (short_dir / "other.txt").read_text() == "fine\n" and not (short_dir / "out.bin").exists()


def test_an_input_that_changes_while_it_is_fetched_fails_its_readers_by_name(
    stager: Stager, sshd: Sshd, link: Callable[..., Link], short_dir: Path
) -> None:
    data = sshd.data / "d"
    data.mkdir()
    line = link(sshd.port, bytes_per_s=150_000)
    known = known_hosts_of(sshd, line.port, short_dir / "known")
    (data / "in.bin").write_bytes(os.urandom(3_000_000))
    past = time.time() - 100
    os.utime(data / "in.bin", (past, past))
    (short_dir / "go").touch()
    workflow = gated(short_dir, ssh_origin(sshd, data, port=line.port, known_hosts=str(known)))
    run = stager.submit(workflow)
    wait_for_bytes(stager, run)
    (data / "in.bin").write_bytes(os.urandom(3_000_000))
    line.bytes_per_s = None
    done = stager.run("wait", run, code=1)
    assert "in.bin" in done.stderr and "changed" in done.stderr, done.stderr
    assert not (data / "out.bin").exists() and not (short_dir / "ran").exists(), "a job read what is not what was planned with"


def test_a_final_damaged_at_its_origin_is_not_adopted_by_the_next_run(stager: Stager, sshd: Sshd, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, size_bytes=SIZE_BYTES, pause_s=0)
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d"))
    stager.run("submit", letters.workflow)
    final = sshd.data / "d" / "all.txt"
    before = final.stat()
    flip(final)
    # As a disk that rots: a change that tells its time is refused at submit.
    os.utime(final, ns=(before.st_atime_ns, before.st_mtime_ns))
    damaged = final.read_bytes()
    done = stager.run("submit", letters.workflow, code=4)
    assert "all.txt" in done.stderr and "other content" in done.stderr
    assert final.read_bytes() == damaged, "what somebody may want to look at was replaced"
    final.unlink()
    stager.run("resume")
    letters.check(sshd.data / "d")
