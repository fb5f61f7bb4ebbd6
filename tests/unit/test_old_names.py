"""What was written with words that have changed since: plans, journals and records of runs are read with the present ones."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path

import msgspec

from stager.adapters.journal_sqlite import Codec, SqliteJournal
from stager.adapters.run_records import RunRecord, RunRecords
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.unit.test_plan_direct_access import survey, topology, traced

BEFORE = {
    '"direct_read_bytes"': '"read_in_place_bytes"',
    '"direct_access"': '"in_place"',
    '"direct_s"': '"in_place_s"',
    '"direct_bytes"': '"in_place_bytes"',
    '"version": 5': '"version": 4',
}


def test_a_plan_of_version_4_has_its_direct_reads() -> None:
    plan = make_plan(survey(), topology(), traced(0.01))
    assert plan.direct_read_bytes and any(file.access is Access.DIRECT for file in plan.files)
    older = to_json(plan)
    for present, past in BEFORE.items():
        older = older.replace(present, past)
    assert "direct_access" not in older
    found = from_json(older)
    assert (found.files, found.direct_read_bytes) == (plan.files, plan.direct_read_bytes)


def test_a_journal_of_format_2_is_read_with_the_present_names(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path, "1").close()
    hasten = cmd.Reprioritize(id="c1-1", at=1.0, cause="e1", node="n", transfer="t1", priority=0)
    fetched = cmd.FallBackToFetch(id="c1-2", at=1.0, cause="e1", run="r", file="f", lfn="x", why="no mount")
    copy = cmd.CopyReplica(
        id="c1-3", at=1.0, cause="e1", node="n", source="m", transfer="t2", file="f", lfn="x", run="r", source_generation="g", size_bytes=1,
        purpose=cmd.Purpose.EXTRA_COPY, priority=1,
    )  # fmt: skip
    present = Codec(ev.Event, cmd.Command).encode([ev.Woken(at=1.0)], [hasten, fetched, copy])
    words = ((b"Reprioritize", b"Hasten"), (b"FallBackToFetch", b"FetchInstead"), (b"extra_copy", b"spare"))
    plain = msgspec.msgpack.decode(present)
    past = {new.decode(): old.decode() for new, old in words}
    commands = [[past.get(name, name), fields | {"purpose": "spare"} if "purpose" in fields else fields] for name, fields in plain[1]]
    body = msgspec.msgpack.encode([plain[0], commands])
    assert b"Hasten" in body and b"spare" in body and b"Reprioritize" not in body
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO batches VALUES (1, '0.1', ?, 0, ?)", (zlib.crc32(body), body))
        db.execute("INSERT INTO batches VALUES (2, '0.1', 7, 0, ?)", (body,))
        db.execute("UPDATE meta SET value = '2' WHERE key = 'format'")
    db.close()
    journal = SqliteJournal(path, "1")
    assert list(journal.batch(1).commands) == [hasten, fetched, copy]
    journal.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT checksum, body FROM batches WHERE seq = 2").fetchone() == (7, body), "damaged, and left as it was"
    db.close()


def test_a_journal_of_format_3_is_read_with_the_present_names_of_stripes(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path, "1").close()
    reported = ev.NodeReported(
        at=1.0, node="n", incarnation="i", capacity_bytes=9, can_link=True, can_assemble=True, replicas=(), transfers=()
    )  # fmt: skip
    stripe = cmd.Stripe(0, 2, 1, 2, "t1", "n")
    facts = {
        "cause": "e1",
        "run": "r",
        "file": "f",
        "lfn": "x",
        "origin": "o",
        "path": "x",
        "token": "",
        "size_bytes": 2,
        "purpose": cmd.Purpose.DEMAND,
        "priority": 0,
    }
    part = cmd.Fetch(id="c1-1", at=1.0, node="m", transfer="t2", stripe=stripe, **facts)
    whole = cmd.AssembleStripes(id="c1-2", at=1.0, node="n", transfer="t1", parts=(cmd.Part("m", "t2", 1),), **facts)
    body = Codec(ev.Event, cmd.Command).encode([reported], [part, whole])
    for present, past in ((b"AssembleStripes", b"Gather"), (b"can_assemble", b"can_gather"), (b"assembly", b"gather")):
        assert present in body
        length = 0xA0
        body = body.replace(bytes([length + len(present)]) + present, bytes([length + len(past)]) + past)
    assert b"ssembl" not in body
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO batches VALUES (1, '0.1', ?, 0, ?)", (zlib.crc32(body), body))
        db.execute("UPDATE meta SET value = '3' WHERE key = 'format'")
    db.close()
    journal = SqliteJournal(path, "1")
    assert (list(journal.batch(1).events), list(journal.batch(1).commands)) == ([reported], [part, whole])
    journal.close()


def test_records_of_format_4_are_read_with_the_present_names(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    records = RunRecords(path)
    records.add(RunRecord("w-1", "k", "w", "", 1.0, 1))
    ledger = json.dumps([{"lfn": "x", "state": "overtaken"}, {"lfn": "overtaken", "state": "durable"}])
    records.finish("w-1", "succeeded", 2.0, 1, '{"read_in_place_bytes":5,"finals_overtaken":1,"ledger":{"overtaken":2}}', ledger.encode())
    records.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=4")
    db.close()
    records = RunRecords(path)
    (record,) = records.all()
    assert json.loads(record.summary or "") == {"direct_read_bytes": 5, "finals_superseded": 1, "ledger": {"superseded": 2}}
    assert json.loads(records.ledger("w-1")) == [{"lfn": "x", "state": "superseded"}, {"lfn": "overtaken", "state": "durable"}]
    records.close()
