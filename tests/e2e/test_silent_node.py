"""An I/O node that falls silent without closing a connection, and that nobody gives up by hand."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.nodes_rig import Composed, found, made, on_loopback, one_job
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode

# A person would write minutes.
GONE_AFTER_S = 4.0


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    rig = Rig(short_dir)
    yield rig
    rig.end()


@pytest.mark.slow
def test_a_silent_node_is_away_and_given_up_later_by_itself(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node = ionode(node_id="node1", options=on_loopback())

    async def main() -> None:
        composed = Composed(rig, gone_after_s=GONE_AFTER_S)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        waits = one_job(rig, "b")
        job = replace(waits.jobs["make-b"], shell=f"until test -e {rig.gate}; do sleep 0.05; done; {waits.jobs['make-b'].shell}")
        run = await composed.submit(replace(waits, jobs={job.id: job}), **{"make-b": "node1"})

        async def begun() -> bool:
            return rig.ran()["make-b"] == 1 if rig.trace.exists() else bool(composed.places())

        await composed.until(begun)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            stopped_at, said = time.monotonic(), ""

            async def away() -> bool:
                return (await composed.nodes())["node1"].state == "away" or not (await composed.nodes())["node1"].connected

            await composed.until(away)
            # It is asked again every 5 s, and has 10 s to answer.
            assert time.monotonic() - stopped_at < 17.0

            async def told() -> bool:
                nonlocal said
                waiting = (await composed.scheduler.services.runs.status.status(run)).waiting
                said = next((each.message for each in waiting if each.code == "node_away"), said)
                return bool(said)

            await composed.until(told)
            assert "1 job began beside it; it is given up at " in said
            explained = await composed.scheduler.services.runs.journal.explained(run, None, "make-b")
            assert "it waits: node node1: no answer for " in explained.lines[-1] and "1 job began beside it" in explained.lines[-1]
            rig.gate.touch()
            await composed.ends(run)
            gone = composed.scheduler.machine.runs.state.nodes["node1"].gone
            assert gone == "no answer for 4.00 s (gone_after)"
        finally:
            os.kill(node.pid, signal.SIGCONT)
        await composed.all_up()
        await composed.close()

    asyncio.run(main())
    assert made(rig, "b") == b"one\none\n"
