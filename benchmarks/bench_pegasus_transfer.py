"""stager-transfer beside pegasus-transfer: one small file, a source that fails first, many small files, large ones.

pegasus-transfer sleeps two seconds times its number in each thread before the first transfer, and again for each further source. So two
ratios are printed: of the whole, which is what a user waits for, and of what is left when the sleeps are taken off, which is the work.
Again: `make bench-pegasus-transfer ARGS="--rounds 5"`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import timed, verdict
from tests.testbed.own_place import own_place
from tests.testbed.pegasus import Done, listed, ours, pegasus_transfer, theirs, transfer, url

SLEEP_S = 2.0
GOAL_S = 0.150


def one_small(place: Path, round_name: str) -> list[dict[str, Any]]:
    return [transfer([url(place / "small")], url(place / round_name / "small"))]


def second_source(place: Path, round_name: str) -> list[dict[str, Any]]:
    sources = [url(place / "not there", priority=2), url(place / "small", priority=1)]
    return [transfer(sources, url(place / round_name / "small"))]


def many_small(place: Path, round_name: str) -> list[dict[str, Any]]:
    return [transfer([url(place / "small")], url(place / round_name / f"{number:04d}")) for number in range(500)]


def two_large(place: Path, round_name: str) -> list[dict[str, Any]]:
    return [transfer([url(place / "large")], url(place / round_name / f"{number}")) for number in range(2)]


# (what, its list, how long pegasus-transfer sleeps). One thread, as inside jobs: of more, one sleeps while another works.
CASES: tuple[tuple[str, Callable[[Path, str], list[dict[str, Any]]], float], ...] = (
    ("1 file of 1 KB", one_small, SLEEP_S),
    ("the second source", second_source, 2 * SLEEP_S),
    ("500 files of 1 KB", many_small, SLEEP_S),
    ("2 files of 256 MB", two_large, SLEEP_S),
)


def took_s(program: Callable[..., Done], entries: list[dict[str, Any]], place: Path) -> tuple[float, float]:
    def work() -> None:
        done = program(listed(*entries), place, "-m", "1", "-n", "1")
        if done.code:
            raise SystemExit(done.said)

    return timed(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", help="where the files are made")
    arguments = parser.parse_args()
    pegasus_transfer()
    print(f"{'case':<20}{'pegasus':>10}{'stager':>10}{'ratio':>8}   {'sleeps':>7}{'ratio without':>15}{'busy':>7}")
    with own_place(arguments.dir) as place:
        (place / "small").write_bytes(b"s" * 1000)
        (place / "large").write_bytes(b"l" * 256_000_000)
        for case, entries_of, sleeps_s in CASES:
            rows: dict[str, list[float]] = {"theirs": [], "ours": []}
            busy = []
            for number in range(arguments.rounds):
                for side, program in (("theirs", theirs), ("ours", ours)):
                    seconds, share = took_s(program, entries_of(place, f"{case} {side} {number}"), place)
                    rows[side].append(seconds)
                    busy.append(share)
            their_s, our_s = (statistics.median(rows[side]) for side in ("theirs", "ours"))
            without = max(their_s - sleeps_s, 0.0) / our_s
            shown = f"{their_s:>8.2f} s{our_s:>8.3f} s{their_s / our_s:>7.1f}x   {sleeps_s:>5.0f} s{without:>14.1f}x"
            print(f"{case:<20}{shown}{statistics.median(busy):>6.0%}")
            if case == CASES[0][0]:
                quickest_s = min(rows["ours"])
                print(
                    f"  goal: start to end <= {GOAL_S * 1000:.0f} ms: quickest {quickest_s * 1000:.0f} ms, {verdict(quickest_s <= GOAL_S)}"
                )


if __name__ == "__main__":
    main()
