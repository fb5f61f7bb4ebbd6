"""Recorded workflows really run, by `stager replay`: of WfCommons' recipes, a small one of our own, and every instance beside the clone.

The command itself compares every byte of every final with what the seed says; here it is seen to have done so for all that the record has.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.client import connect
from stager.model.errors import StagerError
from stager.model.topology import embedded
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.readers import wfcommons
from stager.readers.replay import make_replay
from tests.testbed.places import case_id, shared_files, wfcommons_record
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager

SCALES = ("--bytes-scale", "0.001", "--time-scale", "0.0005")
# The largest first: they decide how long the whole takes.
INSTANCES = sorted(shared_files("wfinstances/*.json"), key=lambda path: (-path.stat().st_size, path.name))
# Of different shapes. What others recorded beside the clone covers more, and takes longer.
CASES: list[Any] = [
    "montage",
    "srasearch",
    *(pytest.param(case, id=case_id(case), marks=pytest.mark.heavy) for case in (*INSTANCES, "cycles", "1000genome", "soykb")),
]
DSS = shared_files("wfinstances/montage-chameleon-dss-10d-001.json")
SPILLED: list[Any] = ["montage", *(pytest.param(case, id=case_id(case), marks=pytest.mark.heavy) for case in DSS)]


@pytest.fixture(scope="module")
def stager(session_dir: Path) -> Iterator[Stager]:
    """One state directory for all instances: cache, journal and scheduler outlive each of them."""
    place = session_dir / "replays"
    place.mkdir()
    program = Stager(place / "s", place / "home", idle_exit_s=30)
    yield program
    program.end()


@pytest.fixture
def own_stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def small_instance(short_dir: Path) -> Path:
    """A diamond: inputs that are read twice, a file that is kept from the first job to the last, a final that is read, empty files."""
    jobs = {
        "keep": (["sky.hdr"], ["kept.dat", "key.dat"]),
        "split": (["raw.dat", "sky.hdr", "key.dat"], ["left.dat", "right.dat"]),
        "fit_1": (["left.dat", "sky.hdr"], ["left.fit"]),
        "fit_2": (["right.dat", "sky.hdr", "none.tbl"], ["right.fit", "empty.log"]),
        "join": (["left.fit", "right.fit", "raw.dat"], ["mosaic.dat", "report.txt"]),
        "look": (["mosaic.dat", "kept.dat"], ["mosaic.jpg"]),
    }
    sizes = {"raw.dat": 3_000_000, "sky.hdr": 300, "none.tbl": 0, "kept.dat": 4_000_000, "key.dat": 10, "left.dat": 1_500_001}
    sizes |= {"right.dat": 1_499_999, "left.fit": 900_000, "right.fit": 700_000, "empty.log": 0}
    sizes |= {"mosaic.dat": 2_000_000, "report.txt": 1_234, "mosaic.jpg": 65_537}
    maker = {name: job for job, (_, outputs) in jobs.items() for name in outputs}
    parents = {job: sorted({maker[name] for name in inputs if name in maker}) for job, (inputs, _) in jobs.items()}
    tasks = [
        {
            "id": job,
            "name": job.split("_")[0],
            "inputFiles": inputs,
            "outputFiles": outputs,
            "parents": parents[job],
            "children": [other for other in jobs if job in parents[other]],
        }
        for job, (inputs, outputs) in jobs.items()
    ]
    workflow = {
        "specification": {"tasks": tasks, "files": [{"id": name, "sizeInBytes": size} for name, size in sizes.items()]},
        "execution": {"tasks": [{"id": job, "runtimeInSeconds": 2.0} for job in jobs]},
    }
    path = short_dir / "diamond.json"
    path.write_text(json.dumps({"name": "diamond", "schemaVersion": "1.5", "workflow": workflow}))
    return path


def replayed_workflow(instance: Path, *scales: str) -> Workflow:
    given = dict(zip(scales[::2], scales[1::2], strict=True))
    origin = Origin("replay", OriginKind.FILE, "file:///nowhere")
    shrunk = {"bytes_scale": given["--bytes-scale"], "time_scale": given["--time-scale"]}
    return make_replay(wfcommons.read(instance), **shrunk, seed=1, origin=origin, output_origin=origin)[0]


def replay(stager: Stager, instance: Path, *words: str, deadline_s: float = 200.0) -> str:
    """Runs to the end; all jobs were done and all finals compared."""
    scales = words if "--bytes-scale" in words else (*SCALES, *words)
    out = stager.run("replay", instance, "--quiet", *scales, deadline_s=deadline_s).stdout
    workflow = replayed_workflow(instance, *scales[:4])
    finals = sum(file.destination is not None for file in workflow.files.values())
    jobs = len(workflow.jobs)
    assert finals, "a record without finals shows nothing"
    assert f"jobs     {jobs} of {jobs} done, 0 failed, {jobs} attempts" in out, out
    told = "1 final" if finals == 1 else f"{finals} finals"
    assert f"durable  {finals} of {told}" in out, out
    assert re.search(rf"checked {told}, .*: every byte is right", out), out
    return out


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_recorded_workflows_replay_to_the_end(stager: Stager, case: str | Path) -> None:
    replay(stager, wfcommons_record(case))


def test_a_small_instance_replays_to_the_end(own_stager: Stager, small_instance: Path) -> None:
    replay(own_stager, small_instance, "--bytes-scale", "1", "--time-scale", "0.01")


def test_inputs_are_made_once_and_made_again_when_they_are_wrong(own_stager: Stager, small_instance: Path) -> None:
    scales = ("--bytes-scale", "1", "--time-scale", "0")
    replay(own_stager, small_instance, *scales)
    raw = own_stager.state_dir / "replay" / "diamond" / "inputs" / "raw.dat"
    right, before = raw.read_bytes(), raw.stat()
    replay(own_stager, small_instance, *scales)
    assert raw.stat().st_ino == before.st_ino and raw.stat().st_mtime_ns == before.st_mtime_ns
    raw.write_bytes(b"\0" * len(right))
    os.utime(raw, ns=(before.st_atime_ns, before.st_mtime_ns))
    replay(own_stager, small_instance, *scales)
    assert raw.read_bytes() == right


@pytest.mark.slow
@pytest.mark.parametrize("case", SPILLED, ids=case_id)
def test_a_tenth_of_the_space_is_enough_with_a_place_to_spill_to(own_stager: Stager, case: str | Path) -> None:
    check_in_little_space(own_stager, wfcommons_record(case), *SCALES)


def test_a_small_instance_runs_in_little_space(own_stager: Stager, small_instance: Path) -> None:
    check_in_little_space(own_stager, small_instance, "--bytes-scale", "1", "--time-scale", "0.01")


def check_in_little_space(stager: Stager, instance: Path, *scales: str) -> None:
    """10 % of all bytes, or 1.1 times the smallest capacity if that is more; the node's own figures never say more than that."""
    workflow = replayed_workflow(instance, *scales)
    plan = make_plan(workflow, embedded(1 << 50, cores=2), {}, limits=Limits(cores=2), spill_origin="replay")
    total_bytes = sum(file.size_bytes or 0 for file in workflow.files.values())
    capacity_bytes = max(total_bytes // 10, plan.smallest_capacity_bytes * 11 // 10)
    assert capacity_bytes < plan.peak_live_bytes, "this space is not little"
    seen: list[tuple[int, int, int]] = []
    over = threading.Event()
    watcher = threading.Thread(target=watch_space, args=(stager.state_dir, seen, over))
    watcher.start()
    try:
        replay(stager, instance, *scales, "--spill", "--capacity", str(capacity_bytes))
    finally:
        over.set()
        watcher.join()
    assert len(seen) > 3, "the node was not watched"
    assert {capacity for _, _, capacity in seen} == {capacity_bytes}
    assert max(used + reserved for used, reserved, _ in seen) <= capacity_bytes
    assert max(used for used, _, _ in seen) > capacity_bytes // 4, "the space was not used"


def watch_space(state_dir: Path, seen: list[tuple[int, int, int]], over: threading.Event) -> None:
    """What `stager status --json` says of the node, as often as it is worth asking."""
    while not over.wait(0.05):
        try:
            client = connect(state_dir)
            if client is None:
                continue
            with client:
                runs = client.runs()
                nodes = client.run(runs[-1].run).status().nodes if runs else []
                seen += [(node.used_bytes, node.reserved_bytes, node.capacity_bytes) for node in nodes if node.connected]
        except StagerError:
            continue


def test_a_replay_over_sftp(own_stager: Stager, small_instance: Path, sshd: Sshd) -> None:
    config = own_stager.state_dir.parent / "ssh_config"
    config.write_text(sshd.ssh_config_text("lab"))
    (sshd.data / "replay").mkdir()
    own_stager.env = {"STAGER_SSH_CONFIG": str(config)}
    out = replay_remote(own_stager, small_instance, f"sftp://lab{sshd.data}/replay")
    assert (sshd.data / "replay" / "finals" / "mosaic.jpg").stat().st_size == 65_537
    assert "checksummed by the origin's host" in out or "read back and compared" in out


def test_a_replay_over_s3(own_stager: Stager, small_instance: Path, s3: S3, bucket: str) -> None:
    own_stager.env = s3.credentials() | {"AWS_ENDPOINT_URL": s3.endpoint}
    replay_remote(own_stager, small_instance, f"s3://{bucket}/replay")
    assert s3.client().head_object(Bucket=bucket, Key="replay/finals/mosaic.jpg")["ContentLength"] == 65_537


def replay_remote(stager: Stager, instance: Path, url: str) -> str:
    """At a remote origin inputs are put, and finals read back and compared, by runs of their own."""
    out = stager.run("replay", instance, "--quiet", "--bytes-scale", "1", "--time-scale", "0.01", "--origin", url).stdout
    assert out.count("succeeded") == 3, out
    assert re.search(r"checked \d+ finals?, .*: every byte is right", out), out
    return out
