"""Runs that are over and whose part of the journal was folded away: what is still known of them.

May know: the run records, wire. One rule: it says what was written when the run ended, and nothing more.
"""

from __future__ import annotations

import json

from stager import wire
from stager.adapters.run_records import RunRecord, RunRecords
from stager.model.errors import InvalidInput
from stager.service.views import run_info


class Archive:
    def __init__(self, records: RunRecords) -> None:
        self.records = records

    def find(self, run: str) -> RunRecord | None:
        """None if there is no such run, or nothing is left of it."""
        record = self.records.get(run)
        return record if record is not None and record.summary is not None else None

    def known(self, run: str) -> RunRecord:
        """Raises InvalidInput."""
        record = self.find(run)
        if record is not None:
            return record
        gone = self.records.get(run)
        text = f"there is no run {run!r}" if gone is None else f"run {run!r} was removed (it was {gone.state})"
        raise InvalidInput(f"{text}; `stager runs` lists them", code="not_found", subject=run)

    def folded(self, run: str) -> InvalidInput:
        """For what only the journal could tell."""
        record = self.known(run)
        text = f"run {run!r} is {record.state}, and its part of the journal was folded away"
        return InvalidInput(f"{text}: its summary, logs and the ledger of its finals are kept", code="run_folded", subject=run)

    def summary(self, run: str) -> wire.RunSummary:
        return wire.RunSummary.model_validate_json(self.known(run).summary or "{}")

    def ledger(self, run: str, lfn: str | None = None) -> list[wire.LedgerEntry]:
        self.known(run)
        entries = [wire.LedgerEntry.model_validate(entry) for entry in json.loads(self.records.ledger(run))]
        return [entry for entry in entries if lfn in (None, entry.lfn)]

    def status(self, run: str) -> wire.RunStatus:
        summary = self.summary(run)
        durable = [entry for entry in self.ledger(run) if entry.state == "durable"]
        counts = wire.FileCounts(files=len(durable), size_bytes=sum(entry.size_bytes or 0 for entry in durable))
        return wire.RunStatus(
            info=run_info(self.known(run), None, self.known(run).finished_at or 0.0),
            jobs={"done": summary.jobs_done, "failed": summary.jobs_failed},
            finals_total=summary.finals_total,
            finals_durable=summary.finals_durable,
            ledger=wire.LedgerTotals(durable=counts),
            fetched_bytes=summary.fetched_bytes,
            fetch_bytes_planned=summary.fetched_bytes,
            uploaded_bytes=summary.uploaded_bytes,
            upload_bytes_planned=summary.uploaded_bytes,
            fetch_bytes_per_s=0.0,
            upload_bytes_per_s=0.0,
            eta_s=None,
            transfers=[],
            running=[],
            problems=[summary.fault] if summary.fault is not None else [],
            nodes=[],
            hit_rate=summary.hit_rate,
            params=summary.params,
            budget=summary.budget,
        )

    def wait(self, run: str, lfn: str | None) -> wire.WaitResponse:
        """It is over; a final may be asked for all the same."""
        summary, durable, superseded = self.summary(run), None, ""
        if lfn is not None:
            found = self.ledger(run, lfn)
            if not found:
                raise InvalidInput(
                    f"{lfn!r} is no final of run {run}; `stager ledger {run}` lists what it makes", code="not_final", subject=lfn
                )
            durable, superseded = found[0].state == "durable", found[0].fault if found[0].state == "superseded" else ""
        return wire.WaitResponse(run=run, finished=True, state=summary.outcome, fault=summary.fault, durable=durable, superseded=superseded)
