"""A load on two real I/O nodes for as long as one likes: jobs, pushes, fetches, gets, copies, deletes, S3; one of the nodes is killed.

What was acknowledged is kept outside of the nodes and compared, byte by byte, when it is read, after each kill -9 and in the end. Memory,
open files, threads and the space on disk of both nodes are sampled. It fails if anything is lost or damaged, or if the memory or the open
files of the last third of the samples are above those of the first third; samples begin after a warm-up. No scheduler takes part.
The one rule: an error counts as the kill's only between the kill and the restart; a wrong byte always counts.
Again: `make soak MINUTES=30`, or `python scripts/soak.py --minutes 3 --kill-every-s 40`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.soak_load import FILES_OF_ORIGIN, WORK, Bed, Content, Lost
from tests.testbed.ionode import IoNode
from tests.testbed.own_place import own_place
from tests.testbed.sshd import running_sshd
from tests.testbed.usage import machine, status_bytes
from tests.testbed.waiting import wait_until

GROWTH, GROWTH_BYTES, GROWTH_COUNT = 1.10, 16 << 20, 16
# Until the nodes hold as much as they will and their caches are warm; at most this share of the run.
WARM_UP_S, WARM_UP_SHARE = 60.0, 0.2
KILLS_TO_COMPARE = 6
PARKED_WITHIN_S = 90.0


class Gate:
    """Work goes on while it is open; whoever closes it waits until nobody works."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.open, self.working, self.over = True, 0, False

    def enter(self) -> bool:
        """False when it is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.open or self.over)
            self.working += not self.over
            return not self.over

    def leave(self) -> None:
        with self.changed:
            self.working -= 1
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.open = False
            parked = self.changed.wait_for(lambda: self.working == 0, PARKED_WITHIN_S)
        assert parked, f"{self.working} calls did not end within {PARKED_WITHIN_S:g} s"

    def reopen(self) -> None:
        with self.changed:
            self.open = True
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()


@dataclass(frozen=True)
class Sample:
    rss_bytes: int
    fds: int
    threads: int
    store_bytes: int


def sample(node: IoNode) -> Sample:
    process = Path(f"/proc/{node.pid}")
    rss = next(status_bytes(node.pid, "VmRSS"), 0)
    return Sample(rss, len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())), disk_bytes(node.store))


def disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


class Soak:
    def __init__(self, bed: Bed, options: argparse.Namespace) -> None:
        self.bed, self.options = bed, options
        self.gate, self.killed = Gate(), threading.Event()
        self.failures: list[str] = []
        self.done: Counter[str] = Counter()
        self.broken_off = 0
        bed.closing = lambda: not self.gate.open or self.gate.over
        self.samples: dict[str, list[Sample]] = {node.node_id: [] for node in bed.nodes}

    def run(self) -> None:
        names = list(WORK) * 2
        threads = [threading.Thread(target=self.work, args=(name, number), daemon=True) for number, name in enumerate(names)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + self.options.minutes * 60
        next_kill = time.monotonic() + self.options.kill_every_s
        next_sample = time.monotonic() + min(WARM_UP_S, WARM_UP_SHARE * self.options.minutes * 60)
        try:
            while (now := time.monotonic()) < end and not self.failures:
                if now >= next_kill:
                    self.kill_and_restart()
                    next_kill = time.monotonic() + self.options.kill_every_s
                if now >= next_sample:
                    for node in self.bed.nodes:
                        self.samples[node.node_id].append(sample(node))
                    next_sample += self.options.sample_every_s
                self.bed.acknowledge_events()
                time.sleep(0.2)
            self.gate.close()
            if not self.failures:
                self.bed.check_all()
        except Exception as error:
            self.failed("the run itself", error)
        self.gate.end()
        for thread in threads:
            thread.join(PARKED_WITHIN_S)

    def work(self, name: str, seed: int) -> None:
        dice = random.Random(seed)
        while not self.failures and self.gate.enter():
            try:
                WORK[name](self.bed, dice)
                self.done[name] += 1
            except Exception as error:
                # The kill's: the call got no answer, or a new incarnation did not know it.
                if self.killed.is_set() and not isinstance(error, Lost):
                    self.broken_off += 1
                else:
                    self.failed(name, error)
            finally:
                self.gate.leave()

    def is_judged(self, node_id: str) -> bool:
        """A process that was started anew holds less: its thirds can be compared where each has some lives of it."""
        enough = len(self.samples[node_id]) >= 3
        return enough and (node_id != self.bed.nodes[0].node_id or self.bed.kills == 0 or self.bed.kills >= KILLS_TO_COMPARE)

    def failed(self, what: str, error: Exception) -> None:
        where = "".join(traceback.format_exception(error)[-3:])
        self.failures.append(f"{what}: {error!r}\n{where}")

    def kill_and_restart(self) -> None:
        self.killed.set()
        self.bed.kill()
        self.gate.close()
        started = time.monotonic()
        self.bed.restart()
        took_s = time.monotonic() - started
        self.killed.clear()
        print(f"  killed and restarted in {took_s:.1f} s; all of {self.bed.check_all()} is there", flush=True)
        self.gate.reopen()


def thirds(values: list[int]) -> tuple[float, float]:
    """Medians of the first and of the last third."""
    share = max(len(values) // 3, 1)
    return statistics.median(values[:share]), statistics.median(values[-share:])


def grown(samples: list[Sample]) -> list[str]:
    """What became more over the run."""
    found = []
    for name, slack in (("rss_bytes", GROWTH_BYTES), ("fds", GROWTH_COUNT)):
        first, last = thirds([getattr(one, name) for one in samples])
        if last > first * GROWTH + slack:
            found.append(f"{name} went from {first:,.0f} to {last:,.0f}")
    return found


def report(soak: Soak) -> bool:
    print(f"\n{'':12}{'first third':>14}{'last third':>14}{'most':>14}   (medians)")
    for node_id, samples in soak.samples.items():
        show: list[tuple[str, str, Callable[[float], str]]] = [
            ("rss_bytes", "RSS MiB", lambda value: f"{value / (1 << 20):,.0f}"),
            ("fds", "open files", lambda value: f"{value:,.0f}"),
            ("threads", "threads", lambda value: f"{value:,.0f}"),
            ("store_bytes", "store MiB", lambda value: f"{value / (1 << 20):,.0f}"),
        ]
        for name, words, text in show if samples else []:
            values = [getattr(one, name) for one in samples]
            first, last = thirds(values)
            print(f"{node_id} {words:10}{text(first):>14}{text(last):>14}{text(max(values)):>14}")
        if samples and not soak.is_judged(node_id):
            print(f"  growth of {node_id} is not judged: it was killed too rarely to compare thirds of lives")
        print(f"  RSS MiB (threads) over time: {' '.join(f'{one.rss_bytes >> 20}({one.threads})' for one in samples)}")
    print(f"\n{sum(soak.done.values()):,} calls: {', '.join(f'{count:,} {name}' for name, count in sorted(soak.done.items()))}")
    print(f"{soak.bed.kills} kills, {soak.broken_off} calls broken off by them; {soak.bed.compared_bytes / 1e9:.2f} GB compared")
    found = [f"{node_id}: {what}" for node_id, samples in soak.samples.items() if soak.is_judged(node_id) for what in grown(samples)]
    if soak.bed.kills and not soak.broken_off:
        found.append("no kill ever broke off a call: the crash path was not hit")
    for words in soak.failures + found:
        print(f"FAILED {words}")
    print("soak: " + ("FAILED" if soak.failures or found else "nothing lost, nothing grew") + f"; {machine()}")
    return not soak.failures and not found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kill-every-s", type=float, default=120)
    parser.add_argument("--sample-every-s", type=float, default=10)
    parser.add_argument("--dir", type=Path, help="on the disk to be used (default: a temporary one)")
    options = parser.parse_args()
    with own_place(options.dir) as place:
        (place / "sshd").mkdir()
        with running_sshd(place / "sshd") as sshd:
            contents = {name: Content(number, size) for number, (name, size) in enumerate(FILES_OF_ORIGIN.items())}
            for name, content in contents.items():
                (sshd.data / name).write_bytes(content.made())
            bed = Bed(place, sshd, contents)
            try:
                bed.start()
                soak = Soak(bed, options)
                soak.run()
                wait_until(lambda: soak.gate.working == 0, "the last calls to end", PARKED_WITHIN_S)
                good = report(soak)
            finally:
                bed.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
