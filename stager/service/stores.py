"""The stores of one state directory: the journal, the records of runs, the profiles. One rule: this process alone writes there."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass

from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.profiles_store import ProfilesStore
from stager.adapters.run_records import RunRecords
from stager.runtime.deciding import deciding_digest
from stager.service.state_dir import StateDir


@dataclass(frozen=True, slots=True)
class Stores:
    records: RunRecords
    profiles: ProfilesStore
    journal: SqliteJournal

    def close(self, *, gone: bool = False) -> None:
        """`gone`: their directory is, so nothing more can be kept there."""
        for store in (self.journal, self.records, self.profiles):
            with contextlib.suppress(sqlite3.Error) if gone else contextlib.nullcontext():
                store.close()


def open_stores(state_dir: StateDir) -> Stores:
    records, profiles = RunRecords(state_dir.runs), ProfilesStore(state_dir.profiles)
    return Stores(records, profiles, SqliteJournal(state_dir.journal, deciding_digest()))
