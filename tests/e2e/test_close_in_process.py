"""A scheduler that is closed in the process of whoever opened it, in the middle of a batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from stager.adapters.journal_sqlite import SqliteJournal
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.nodes_rig import Composed, made, one_job
from tests.e2e.service_rig import Rig


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    rig = Rig(short_dir)
    yield rig
    rig.end()


def test_a_close_waits_for_the_batch_that_is_being_written(rig: Rig) -> None:
    """The driving thread writes to the journal and the records: they are closed when it has ended."""
    append, writes, goes_on = SqliteJournal.append, threading.Event(), threading.Event()

    def slow(journal: SqliteJournal, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> int:
        if any(isinstance(event, ev.RunSubmitted) for event in events):
            writes.set()
            goes_on.wait(30.0)
        return append(journal, events, commands)

    async def main() -> None:
        composed = Composed(rig)
        with mock.patch.object(SqliteJournal, "append", slow):
            await composed.open(lambda epoch: [])
            submitting = asyncio.ensure_future(composed.submit(one_job(rig, "a")))
            await asyncio.to_thread(writes.wait, 30.0)
            closing = asyncio.ensure_future(composed.scheduler.close())
            # What a close does beside the stores takes less.
            await asyncio.wait([closing], timeout=3.0)
            goes_on.set()
            await closing
            assert composed.scheduler.machine.lifetime.failure is None
            submitting.cancel()
        # It was taken: the next one goes on with it.
        await composed.open(lambda epoch: [])
        (run,) = [record.run for record in composed.scheduler.machine.stores.records.all()]
        await composed.ends(run)
        await composed.close()

    asyncio.run(main())
    assert made(rig, "a") == b"one\none\n"
