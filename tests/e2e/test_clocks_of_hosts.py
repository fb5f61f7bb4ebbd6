"""Hosts whose clocks are hours apart fetch, run jobs and upload as others do: S3 servers refuse requests of another time."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.apart_rig import Apart
from tests.e2e.nodes_rig import batches_of, given_in
from tests.testbed.network import Network, needs_network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HOUR_S = 3600.0
PARTS = range(6)


def part(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * 10_000


def workflow_of(apart: Apart) -> str:
    sums = [f"sum{n}" for n in PARTS]
    jobs = [
        f"  sum{n}: {{run: 'sleep 0.5; sha256sum <part{n} >sum{n}', inputs: {{part{n}: lab:part{n}}}, outputs: [sum{n}]}}" for n in PARTS
    ]
    last = f"  all: {{run: 'cat {' '.join(sums)} >all', inputs: [{', '.join(sums)}], outputs: {{all: {{to: lab:all}}}}}}"
    return "\n".join(["stager: 1", "name: sums", f"origins: {{lab: {apart.origin()}}}", "jobs:", *jobs, last, ""])


def test_two_hosts_whose_clocks_are_four_hours_apart_fetch_run_and_upload(session_dir: Path) -> None:
    needs_network()
    with Network() as net:
        clocks = {"a": -2 * HOUR_S, "b": 2 * HOUR_S}
        apart = Apart(net, Path(tempfile.mkdtemp(dir=session_dir)), {}, clock_offsets_s=clocks)
        try:
            apart.start(cores=1)
            for number in PARTS:
                apart.put(f"part{number}", part(number))
            workflow = apart.place / "sums.yml"
            workflow.write_text(workflow_of(apart))
            apart.stager.run("submit", workflow, "--quiet")
            assert apart.stored()["all"] == b"".join(hashlib.sha256(part(number)).hexdigest().encode() + b"  -\n" for number in PARTS)
            given = batches_of(apart.state)
            assert {start.host for start in given_in(given, cmd.StartAttempt)} == {"ha", "hb"}
            fetches = {fetch.transfer for fetch in given_in(given, cmd.Fetch)}
            assert {"a", "b"} <= {event.node for event in apart.told(ev.TransferDone) if event.transfer in fetches}
            assert apart.told(ev.TransferFailed) == []
        finally:
            apart.end()
