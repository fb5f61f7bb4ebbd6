"""10,000 inputs behind sftp and s3 are listed, checked and planned in seconds of a processor: the clock counts what others do, too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.e2e.origin_rig import s3_env, s3_origin, ssh_origin
from tests.testbed.processes import children_s
from tests.testbed.s3 import running_s3
from tests.testbed.sshd import running_sshd
from tests.testbed.stager import Stager

COUNT, PER_DIRECTORY = 10_000, 500
BOUND_S = 10.0
NAMES = [f"in/{number // PER_DIRECTORY:02d}/f{number:05d}.dat" for number in range(COUNT)]


def size_of(number: int) -> int:
    return number % 7


def plan(short_dir: Path, origin: str, env: dict[str, str]) -> None:
    """By glob for the jobs, by prefix for the one that reads all."""
    workflow = short_dir / "w.yml"
    workflow.write_text(
        f"stager: 1\nname: many\norigins: {{o: {origin}}}\nfiles: {{all: 'o:in/'}}\njobs:\n"
        "  one: {foreach: {f: 'o:in/*/*.dat'}, run: [cp, '{f}', '{f.stem}.out'], inputs: ['{f}'], outputs: ['{f.stem}.out']}\n"
        "  sum: {run: 'cat in/*/* > sum', inputs: [all], outputs: {sum: 'o:sum'}}\n"
    )
    stager = Stager(short_dir / "s", short_dir / "home", env)
    before_s = children_s()
    planned = json.loads(stager.run("plan", workflow, "--json", deadline_s=240).stdout)
    worked_s = children_s() - before_s
    print(f"{COUNT:,} inputs listed and planned in {worked_s:.1f} s of a processor")
    assert len(planned["jobs"]) == COUNT + 1 and planned["fetch_bytes"] == sum(size_of(number) for number in range(COUNT))
    assert worked_s < BOUND_S


@pytest.mark.slow
def test_over_sftp(short_dir: Path, memory_dir: Path) -> None:
    for number, name in enumerate(NAMES):
        place = memory_dir / name
        if number % PER_DIRECTORY == 0:
            place.parent.mkdir(parents=True)
        place.write_bytes(b"x" * size_of(number))
    with running_sshd(short_dir, memory_dir) as sshd:
        plan(short_dir, ssh_origin(sshd, memory_dir), {})


@pytest.mark.slow
def test_over_s3(short_dir: Path, memory_dir: Path) -> None:
    """The objects are laid where versitygw keeps them, with the ETags that it would have made: 10,000 uploads take longer than all else."""
    with running_s3(memory_dir) as server:
        server.make_bucket("many")
        if server.data is None:
            pytest.skip("only versitygw keeps objects as plain files")
        for number, name in enumerate(NAMES):
            content = b"x" * size_of(number)
            place, metadata = server.data / "many" / "letters" / name, memory_dir / "metadata" / "many" / "letters" / name / "meta"
            place.parent.mkdir(parents=True, exist_ok=True)
            metadata.mkdir(parents=True)
            place.write_bytes(content)
            (metadata / "etag").write_text(f'"{hashlib.md5(content).hexdigest()}"')
        plan(short_dir, s3_origin(server, "many"), s3_env(server))
