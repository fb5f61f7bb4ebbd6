"""The timeline of a file that several tenants share: what happened to it for others is told, and their names are not."""

from __future__ import annotations

from stager.ports import Batch
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.timeline import timeline


def fetch(run: str, transfer: str, lfn: str) -> cmd.Fetch:
    where = {"node": "node0", "file": "f", "origin": f"{run}s-origin", "path": "p", "size_bytes": 1, "token": "t"}
    return cmd.Fetch(id="c", at=0.0, cause="e1", transfer=transfer, lfn=lfn, run=run, purpose=cmd.Purpose.DEMAND, priority=0, **where)


def test_of_a_shared_file_another_tenants_names_are_not_told() -> None:
    failed = ev.TransferCancelled(at=1.0, node="node0", transfer="t1")
    mine = ev.TransferCancelled(at=3.0, node="node0", transfer="t2")
    batches = [
        Batch(1, "v", [], [fetch("theirs", "t1", "secret")]),
        Batch(2, "v", [failed], [fetch("ours", "t2", "sky")]),
        Batch(3, "v", [mine], []),
    ]
    told = list(timeline(batches, "ours", "f", "", lambda run: run == "ours"))
    assert len(told) == 4 and not any("secret" in line or "theirs" in line or "t1" in line for line in told), told
    assert "for a run of somebody else: fetch" in told[0] and "for a run of somebody else: transfer cancelled" in told[1]
    assert "fetch t2 of sky from ourss-origin:p" in told[2] and "transfer t2 was called off" in told[3]
    assert "secret" in next(timeline(batches, "ours", "f", ""))
