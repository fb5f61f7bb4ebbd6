"""One client's cold file through 1, 2 and 4 living I/O nodes, and a file that all jobs read on 4 nodes.

A lab behind an ssh server gives each node's address a line of its own. A scheduler, its node and the others run on hosts of the bed.
Goals: with k nodes the file comes at 0.9 k times the rate of one, and at most 1.02 bytes cross the lines for each byte of the file.
What crosses is the lab's own counter: headers of ssh, TCP and IP are in it. Rows with a busy machine are marked and claim nothing.
Again: `python benchmarks/bench_stripes.py [--mib N] [--mbit N] [--nodes 1,2,4] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import CPU_BOUND, verdict, watched
from stager.scheduler import commands as cmd
from tests.e2e.nodes_rig import Composed
from tests.e2e.stripes_rig import LINE_MBIT, LinesBed
from tests.testbed.network import Network, why_not
from tests.testbed.own_place import own_place
from tests.testbed.usage import machine

GOAL_RATE, GOAL_BYTES = 0.9, 1.02
# Of what one line would take.
PATIENCE = 3


@dataclass(frozen=True)
class Seen:
    """Of one run: from its submit to its end, and what the lab sent meanwhile."""

    took_s: float
    sent_bytes: int
    busy: float


def seen(place: Path, count: int, readers: int, size: int, mbit: float) -> Seen:
    with Network() as net:
        bed = LinesBed(net, place, count, mbit, capacity_bytes=6 * size + (1 << 30))
        file, content = bed.source("cold", size)
        found: list[Seen] = []

        async def story(bed: LinesBed, composed: Composed) -> None:
            composed.deadline_s = 60 + PATIENCE * size / (mbit * 1e6 / 8)
            before = net.sent_bytes(bed.lab)
            with watched() as watch:
                run = await bed.submit(composed, bed.reading(file, readers), spread=readers > 1)
                await composed.ends(run)
            found.append(Seen(watch.took_s, net.sent_bytes(bed.lab) - before, watch.busy))
            assert (bed.rig.data / "sum0").read_text().split()[0] == hashlib.sha256(content).hexdigest()
            assert composed.given(cmd.GiveUpStripes) == []

        bed.run(story)
    return found[0]


def row(name: str, one: Seen, size: int, *words: str) -> None:
    bound = ("CPU-bound: claims nothing",) if one.busy > CPU_BOUND else words
    rate = f"{size / one.took_s / 1e6:6.2f} MB/s  sent {one.sent_bytes / size:.3f} of its bytes  busy {one.busy:4.0%}"
    print(f"{name:26} {one.took_s:8.1f} s  {rate}  {', '.join(bound)}", flush=True)


def goal(text: str, good: bool) -> str:
    return f"{text}: {verdict(good)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=100, help="of the file; 1000 for the figure of the evaluation")
    parser.add_argument("--mbit", type=float, default=LINE_MBIT, help="of each node's line")
    parser.add_argument("--nodes", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"no lines: {reason}")
    size = options.mib << 20
    print(f"A cold file of {options.mib} MiB at an ssh server, {options.mbit:g} Mbit/s to each node; fsync on", flush=True)
    with own_place(options.dir) as made:
        first: Seen | None = None
        for count in options.nodes:
            place = made / f"{count}"
            place.mkdir()
            one = seen(place, count, 1, size, options.mbit)
            first = first or one
            times = first.took_s / one.took_s
            words = [f"{times:.2f} times the first row"]
            if count > options.nodes[0]:
                wanted = GOAL_RATE * count / options.nodes[0]
                words.append(goal(f"goal {wanted:.2f}", times >= wanted))
            words.append(goal(f"goal {GOAL_BYTES} bytes", one.sent_bytes <= GOAL_BYTES * size))
            row(f"one reader, {count} nodes", one, size, *words)
        place = made / "hot"
        place.mkdir()
        count = options.nodes[-1]
        one = seen(place, count, count, size, options.mbit)
        row(f"a reader on each of {count}", one, size, goal(f"goal {GOAL_BYTES} bytes", one.sent_bytes <= GOAL_BYTES * size))
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
