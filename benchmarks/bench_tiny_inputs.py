"""What the scheduler adds to fetching many tiny inputs: a run of one job that reads them all, beside the I/O node told by a bare program.

Both tell the node one call for each file and hear one event for each; the bare program keeps no journal and decides nothing. The run is
timed by its journal, from its submit to the last fetch; in the bare way the look at each file is counted, which the run does before.
Target: the node alone is at most 1.5 times as fast. Again: `python benchmarks/bench_tiny_inputs.py [--files N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fetching import Ours, Wanted
from stager.adapters.journal_sqlite import SqliteJournal
from stager.scheduler import events as ev
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary
from tests.testbed.processes import HERE
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.usage import machine

TARGET = 1.5
FILE_BYTES = 1024
WORKFLOW = "stager: 1\nname: tiny\norigins:\n  o: {url}\njobs:\n  all: {{run: ['true'], inputs: ['o:in/*']}}\n"


@contextmanager
def origins(place: Path, files: int) -> Iterator[list[tuple[str, str, dict[str, object], dict[str, str]]]]:
    """(kind, URL for workflows, what the node is told, the environment that the run needs)."""
    data = place / "data"
    (data / "in").mkdir(parents=True)
    for number in range(files):
        (data / "in" / f"{number:05d}").write_bytes(number.to_bytes(4, "big") * (FILE_BYTES // 4))
    (place / "sshd").mkdir()
    server = Sshd(place / "sshd", data)
    server.start()
    try:
        config = place / "ssh_config"
        config.write_text(server.ssh_config_text("lab"))
        told: dict[str, object] = {"kind": "file", "base_path": str(data)}
        yield [
            ("file", f"file:{data}", told, {}),
            ("sftp", f"sftp://lab{data}", server.origin(), {"STAGER_SSH_CONFIG": str(config)}),
        ]
    finally:
        server.stop()


def run_s(place: Path, url: str, env: dict[str, str], files: int) -> float:
    place.mkdir()
    stager = Stager(place / "s", place / "home", env=env, idle_exit_s=60)
    try:
        workflow = place / "workflow.yml"
        workflow.write_text(WORKFLOW.format(url=url))
        stager.run("submit", workflow, "--quiet", deadline_s=600)
        journal = next((place / "s").glob("journal*"))
        begun, ends = 0.0, []
        for batch in SqliteJournal(journal, "bench").read_beside():
            begun = next((event.at for event in batch.events if isinstance(event, ev.RunSubmitted)), begun)
            ends += [event.at for event in batch.events if isinstance(event, ev.TransferDone)]
        assert len(ends) == files, f"{len(ends)} of {files} files came"
        return max(ends) - begun
    finally:
        stager.end()


def node_s(place: Path, told: dict[str, object], files: int) -> float:
    wanted = Wanted("in", tuple(f"in/{number:05d}" for number in range(files)), files * FILE_BYTES, 600)
    with Ours(ionode_binary(), HERE, place).fetching(told).ready() as fetch:
        begun = time.monotonic()
        fetch(wanted, place)
        return time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    worst = 0.0
    print(f"{given.files} files of {FILE_BYTES} bytes, the middle of {given.rounds} rounds; files a second; {machine()}")
    print(f"{'':<8}{'run':>10}{'node':>10}{'node/run':>10}")
    with own_place() as place, origins(place, given.files) as kinds:
        for kind, url, told, env in kinds:
            run = statistics.median(run_s(place / f"run-{kind}{number}", url, env, given.files) for number in range(given.rounds))
            node = statistics.median(node_s(place / f"store-{kind}{number}", told, given.files) for number in range(given.rounds))
            worst = max(worst, run / node)
            print(f"{kind:<8}{given.files / run:>10,.0f}{given.files / node:>10,.0f}{run / node:>10.2f}")
    print(f"target: the node alone at most {TARGET:g} times as fast: {worst:.2f}, {'met' if worst <= TARGET else 'MISSED'}")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
