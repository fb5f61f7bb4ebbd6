"""What attempts take beside their programs: measured, kept, and planned with."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.adapters import overheads
from stager.adapters.profiles_store import ProfilesStore
from stager.model.overhead import (
    MANY_FILES,
    SAMPLES_MIN,
    Overhead,
    SeenOverhead,
    disk_rate,
    overhead_of,
    program_s,
    seen_overhead,
    share_after,
)
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_OVERHEAD_S, embedded
from stager.model.workflow import Job, JobInput
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.planning.plan_json import from_json, to_json
from stager.readers.topology import parse_topology
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.measuring import Measuring
from tests.model.test_estimate import CHAIN, workflow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles.sqlite"


def start(attempt: str, at: float) -> cmd.StartAttempt:
    facts = {"id": f"c{attempt}", "cause": "", "run": "r", "job": "j", "node": "n", "number": 1, "inputs": (), "reserve_bytes": 0}
    return cmd.StartAttempt(at=at, attempt=attempt, **facts)  # type: ignore[arg-type]


def ended(
    attempt: str, at: float, outcome: ev.Outcome = ev.Outcome.OK, made_bytes: int = 0, wall_s: float | None = 2.0, files: int = 1
) -> ev.AttemptEnded:
    outputs = (ev.OutputMade("x", "f", attempt, made_bytes, ""),) * files
    return ev.AttemptEnded(at=at, run="r", job="j", attempt=attempt, outcome=outcome, outputs=outputs, measures=ev.Measures(wall_s=wall_s))


def seen_by(*batches: tuple[list[Any], list[Any]], state: Any = None) -> list[overheads.Seen]:
    store = SimpleNamespace(seen=[], add=list, add_moves=list)
    store.add_overheads = store.seen.extend
    measuring = Measuring(store, SimpleNamespace(state=state or SimpleNamespace(runs={})))  # type: ignore[arg-type]
    measuring._speaks = lambda event: False  # type: ignore[method-assign]
    for events, commands in batches:
        measuring.saw(events, commands)
    return list(store.seen)


def test_an_attempt_took_what_its_program_and_the_disk_did_not() -> None:
    assert seen_overhead(3.5, 3.0, None, 0, 0, 1) == SeenOverhead(pytest.approx(0.5), 1, 0, pytest.approx(0.5), 0)
    made = int(DEFAULT_DISK_BYTES_PER_S / 10)
    assert seen_overhead(3.5, 3.0, None, 9**9, made, 2) == SeenOverhead(pytest.approx(0.4), 2, made, pytest.approx(0.5), made)
    assert seen_overhead(2.0, 3.0, None, 0, 0, 1).seconds == 0.0
    as_declared = seen_overhead(3.5, 3.0, 2.95, made, made, 1)
    expected = SeenOverhead(pytest.approx(3.5 - 2.95 - 0.2), 1, 2 * made, pytest.approx(0.55), 2 * made)
    assert as_declared == expected, "plans add both, read and made"


def passed(rate: float, sizes: list[int], odd_s: float = 0.0) -> list[SeenOverhead]:
    return [SeenOverhead(0.0, 1, size, 0.05 + size / rate + (odd_s if at % 7 == 0 else 0.0)) for at, size in enumerate(sizes)]


SIZES = [number * 1_000_000 for number in range(60)]


@pytest.mark.parametrize("rate", [100e6, 500e6, 2e9])
def test_attempts_show_how_fast_the_disk_is_by_their_bytes(rate: float) -> None:
    """Montage that passed 1.5 GB was predicted to take three times as long as the page cache did."""
    assert disk_rate(passed(rate, SIZES)) == pytest.approx(rate)
    assert disk_rate(passed(rate, SIZES, odd_s=3.0)) == pytest.approx(rate, rel=0.05), "some hung"
    known = overhead_of(passed(rate, SIZES))
    assert known.disk_bytes_per_s == pytest.approx(rate)
    assert known.seconds == pytest.approx(0.05), "without what the disk took"


def test_few_bytes_say_nothing_of_the_disk() -> None:
    assert disk_rate(passed(2e9, [number * 100_000 for number in range(60)])) is None
    assert disk_rate(passed(2e9, SIZES[-8:])) is None
    assert disk_rate([SeenOverhead(0.1, 1)] * 60) is None, "kept by a stager that did not count bytes"
    assert disk_rate(passed(1e15, SIZES)) == 5e9, "no disk is believed to be as fast as that"


def test_attempts_that_pass_the_same_show_how_fast_the_disk_is_at_least() -> None:
    """340 jobs that each read an index of 36 MB from the page cache were predicted to take twice as long as they did."""
    assert disk_rate(passed(2e9, [36_000_000] * 60)) == pytest.approx(36e6 / (0.05 + 36e6 / 2e9))
    assert disk_rate(passed(1e8, [36_000_000] * 60)) is None, "something beside the bytes may have taken as long"
    assert disk_rate(passed(2e9, [36_000_000] * 3 + [0] * 57)) is None, "too few, and not that large"
    assert disk_rate([SeenOverhead(0.0, 1, 10**9, 0.0)] * 60) == 5e9
    known = overhead_of(passed(2e9, [36_000_000] * 60))
    assert known.seconds == pytest.approx(0.0, abs=1e-9), "all of it is in the bytes"


def test_two_that_pass_much_show_how_fast_the_disk_is_at_least() -> None:
    """One job in the end read what 1,173 others had made, 974 MB in 0.35 s: it was predicted to take 2 s."""
    small = [SeenOverhead(0.0, 1, 2_000_000, 0.012)] * 1173
    large = SeenOverhead(0.0, 1, 974_000_000, 0.352)
    assert disk_rate([*small, large, large]) == pytest.approx(972e6 / 0.34), "without what any attempt takes"
    assert disk_rate([*small, large]) is None, "one may be odd"
    assert disk_rate([*small, *[SeenOverhead(0.0, 1, 974_000_000, 3.0)] * 2]) is None, "something beside the bytes may have taken as long"


def test_few_that_pass_much_are_looked_at_however_many_pass_little() -> None:
    """Of 442 attempts four passed 1.4 GB in 0.7 s. A line through every fifth missed them, and two more were predicted to take 2 s."""
    usual = [SeenOverhead(0.0, 1, 30_000_000 + 100_000 * (at % 200), 0.045 + (at % 200) / 200 * 0.015) for at in range(438)]
    large = [SeenOverhead(0.0, 1, 1_400_000_000, 0.7)] * 4
    found = overhead_of([usual[0], *large, *usual[1:]])
    assert found.disk_bytes_per_s is not None
    assert found.seconds + 1_400_000_000 / found.disk_bytes_per_s == pytest.approx(0.7, rel=0.05)
    assert found.seconds + 40_000_000 / found.disk_bytes_per_s == pytest.approx(0.0525, rel=0.1)


def test_what_attempts_take_counts_where_most_take_nothing_beside_their_bytes() -> None:
    """Half of the jobs showed the disk to be a little faster than the middle one did. What the other half took was cut to nothing."""
    quick, usual = SeenOverhead(0.0, 1, 30_000_000, 0.010), SeenOverhead(0.0, 1, 30_000_000, 0.014)
    found = overhead_of([*[quick] * 31, *[usual] * 29, SeenOverhead(0.0, 1, 30_000_000, 60.0)])
    assert found.disk_bytes_per_s == pytest.approx(3e9)
    assert found.seconds == pytest.approx((29 * 0.004 + 0.02) / 61), "one that hung counts as an odd one"


def test_no_line_makes_the_disk_slower_than_it_was_for_most() -> None:
    """The few that ran alone passed half as much in a third of the time: a line through both would be below nothing at no bytes."""
    most = [SeenOverhead(0.0, passed_bytes=66_000_000, beyond_s=0.018) for _ in range(60)]
    alone = [SeenOverhead(0.0, passed_bytes=33_000_000, beyond_s=0.006) for _ in range(20)]
    found = overhead_of(most + alone)
    assert found.disk_bytes_per_s is not None
    assert found.seconds + 66_000_000 / found.disk_bytes_per_s == pytest.approx(0.018, rel=0.05)


def test_what_attempts_beside_it_pass_meanwhile_counts_too() -> None:
    """Each of four gets what one gets alone: the disk gives four times as much."""
    alone = seen_overhead(2.0, 1.0, None, 0, 10**9, 1)
    share = share_after(None, 2.0, 1.0)
    assert (alone.passed_bytes, alone.beside(4 * share).passed_bytes) == (10**9, 3 * 10**9), "half of their time is theirs to compute"
    assert share_after(None, 2.0, 2.0) == 1.0
    assert share_after(None, 1.0, -1.0) == share_after(None, 0.0, 0.0) == 0.0
    assert share_after(0.5, 1.0, 0.5) == 0.5
    assert share_after(0.5, 60.0, 60.0) == pytest.approx(0.525), "one that hung does not speak for the others"


@pytest.mark.parametrize("rest_s", [0.0, 0.004, 0.02])
@pytest.mark.parametrize("program_s", [0.002, 0.02])
def test_attempts_take_as_long_in_a_plan_as_they_did(rest_s: float, program_s: float) -> None:
    """Two at a time, each at the disk for a part of its time beyond its program. Others were reckoned to be there for all of theirs, and
    what they passed was taken off what attempts take: a run of 9.1 s was predicted to take 8.
    """
    sizes, each_bytes_per_s, share = [(number * 37 % 79 + 1) * 500_000 for number in range(790)], 2e9, None
    seen = []
    for size in sizes:
        beyond_s = rest_s + size / each_bytes_per_s
        one = seen_overhead(program_s + beyond_s, program_s, None, 0, size, 1)
        share = share_after(share, program_s + beyond_s, beyond_s)
        seen.append(one.beside(share))
    found = overhead_of(seen)
    rate = found.disk_bytes_per_s or DEFAULT_DISK_BYTES_PER_S
    planned_s = 0.0
    for size in sizes:
        # As in a simulation: alone at the disk, or sharing it with the other one while that is there, too.
        alone_s = size / rate
        beyond_s = found.seconds + alone_s
        for _ in range(20):
            at_disk_s = alone_s * (1 + (beyond_s - found.seconds) / (beyond_s + program_s))
            beyond_s = found.seconds + at_disk_s
        planned_s += beyond_s
    assert planned_s == pytest.approx(sum(rest_s + size / each_bytes_per_s for size in sizes), rel=0.08)


def test_a_disk_is_not_slow_because_some_attempts_waited() -> None:
    """All make the same beside one other. What passed beside each was reckoned from how long it took: those that waited had passed more."""
    batches: list[tuple[list[Any], list[Any]]] = [([], [start("beside", 0.0)])]
    for number in range(60):
        wait_s = 0.1 * (number % 10)
        more = [start(f"a{number}", 2.0 * number)]
        batches += [([], more), ([ended(f"a{number}", 2.0 * number + 0.12 + wait_s, made_bytes=40_000_000, wall_s=0.1)], [])]
    found = disk_rate([each for _, _, each in seen_by(*batches)])
    assert found is None or found > 200e6


def test_a_run_measures_with_the_attempts_that_were_beside_it() -> None:
    """Two end in one batch: each was beside the other, and beside a third that goes on."""
    began = ([], [start(name, 5.0) for name in "abc"])
    made = 50_000_000
    found = seen_by(began, ([ended(name, 9.0, made_bytes=made) for name in "ab"], []), ([ended("c", 9.0, made_bytes=made)], []))
    assert [each.passed_bytes for _, _, each in found] == [2 * made, 2 * made, made]


def test_a_plan_reckons_with_the_disk_that_was_seen_and_says_so() -> None:
    value = workflow(CHAIN)
    here = embedded(10**12, cores=2)
    plan = make_plan(value, here.with_disks(2e9))
    assert (plan.disk_bytes_per_s, plan.disk_basis) == (2e9, Basis.MEASURED)
    assert from_json(to_json(plan)) == plan
    assert (make_plan(value, here).disk_bytes_per_s, make_plan(value, here).disk_basis) == (DEFAULT_DISK_BYTES_PER_S, Basis.DEFAULT)
    assert here.with_disks(None) == here


def test_what_came_over_the_line_passed_the_disk_where_attempts_do_not_show_it() -> None:
    """Files of a directory came at 740 MB/s to a disk that was taken to bear 500: a run was predicted to take 29 % too long."""
    alike = [SeenOverhead(0.006, 1, 1_700_000, 0.007)] * 20
    assert overhead_of(alike).disk_bytes_per_s is None
    assert overhead_of(alike, 100e6).disk_bytes_per_s is None
    found = overhead_of(alike, 740e6)
    assert found.disk_bytes_per_s == 740e6
    assert found.seconds == pytest.approx(0.007 - 1_700_000 / 740e6)
    assert overhead_of(alike, 1e12).disk_bytes_per_s == 5e9, "no disk is believed to be faster"
    differ = [SeenOverhead(0.0, 1, size, size / 1e9) for size in range(0, 100_000_000, 5_000_000)]
    assert overhead_of(differ, 5e9).disk_bytes_per_s == pytest.approx(1e9), "what jobs got counts"


def test_a_program_that_did_as_declared_leaves_its_start_to_the_overhead() -> None:
    """Plans take what is declared of a job: a thousand short ones took ten milliseconds each that no plan had."""
    assert program_s(0.31, None, 10**6) == 0.31, "nobody declared it"
    assert program_s(0.31, 0.3, 0) == 0.3
    assert program_s(0.31, 0.3, 50_000_000) == pytest.approx(0.4), "plans add the reading of inputs, which was quicker here"
    assert program_s(0.32, 0.3, 500_000_000) == pytest.approx(1.3), "the page cache had them"
    assert program_s(2.0, 0.3, 0) == 2.0, "it was declared wrongly, and that is no overhead of all others"
    assert program_s(0.1, 9.0, 0) == 0.1


@pytest.mark.parametrize(
    ("declared_s", "seen"), [(1.95, (0.95, 1, 50_000_000, 1.05, 50_000_000)), (1.0, (1.0, 1, 0, 1.0, 0)), (None, (1.0, 1, 0, 1.0, 0))]
)
def test_a_run_measures_beyond_what_was_declared_of_its_jobs(declared_s: float | None, seen: tuple[float, ...]) -> None:
    """The program took 2 s of 3 and read 50 MB, which plans give a tenth of a second."""
    job = Job("j", "j", ("true",), inputs=(JobInput("in", "in"),), compute_s=declared_s)
    run = SimpleNamespace(workflow=SimpleNamespace(jobs={"j": job}), file_ids={"in": "f1"})
    state = SimpleNamespace(runs={"r": run}, files={"f1": SimpleNamespace(size_bytes=50_000_000)})
    found = seen_by(([], [start("a", 5.0)]), ([ended("a", 8.0)], []), state=state)
    assert found == [("a", 8.0, SeenOverhead(*(pytest.approx(value) for value in seen)))]


def test_few_attempts_say_nothing_and_one_that_hung_does_not_count() -> None:
    assert overhead_of([SeenOverhead(9.0)] * (SAMPLES_MIN - 1)) == Overhead(DEFAULT_OVERHEAD_S, measured=False)
    hung = overhead_of([SeenOverhead(seconds, 3) for seconds in (0.2, 0.1, 0.3, 0.2, 60.0)])
    assert hung == Overhead(pytest.approx((0.2 + 0.1 + 0.3 + 0.2 + 0.6) / 5), measured=True)


def test_what_attempts_took_adds_up_again() -> None:
    """Most are quick and some are not: the median of them was a tenth less than what a run takes for each."""
    seen = [0.05] * 60 + [0.08] * 30 + [0.12] * 10
    assert overhead_of([SeenOverhead(seconds) for seconds in seen]).seconds == pytest.approx(sum(seen) / len(seen))


def test_attempts_with_many_outputs_tell_what_each_of_them_adds_and_nothing_else() -> None:
    few = [SeenOverhead(0.2, files) for files in (0, 1, MANY_FILES - 1, 2, 1)]
    many = [SeenOverhead(0.2 + 0.01 * files, files) for files in (MANY_FILES, 40, 50, 60, 70, 100, 1000)]
    assert overhead_of([*few, *many]) == Overhead(0.2, True, pytest.approx(0.01), True)
    # One of them is enough, which is as many files; one that hung while it had few of them does not move it.
    assert overhead_of(many[-1:]) == Overhead(DEFAULT_OVERHEAD_S, False, pytest.approx((10.2 - DEFAULT_OVERHEAD_S) / 1000), True)
    assert overhead_of([*few, *many, SeenOverhead(60.0, MANY_FILES)]).file_s == pytest.approx(0.01)
    assert overhead_of([*few, SeenOverhead(0.1, 1000)]).file_s == 0.0


def test_it_is_measured_from_the_command_to_the_word_of_the_end() -> None:
    assert seen_by(([], [start("a", 5.0), start("b", 6.0)]), ([ended("b", 9.0), ended("a", 7.25)], [])) == [
        ("b", 9.0, SeenOverhead(pytest.approx(1.0), 1, 0, pytest.approx(1.0), 0)),
        ("a", 7.25, SeenOverhead(pytest.approx(0.25), 1, 0, pytest.approx(0.25), 0)),
    ]
    assert seen_by(([], [start("a", 5.0)]), ([ended("a", 9.0, files=40)], [])) == [
        ("a", 9.0, SeenOverhead(pytest.approx(2.0), 40, 0, pytest.approx(2.0), 0))
    ]


@pytest.mark.parametrize(
    "events",
    [
        [ended("unknown", 9.0)],
        [ended("a", 9.0, ev.Outcome.FAILED)],
        [ended("a", 9.0, wall_s=None)],
        [ev.AttemptWaits(at=8.0, attempt="a", needed_bytes=1), ended("a", 9.0)],
    ],
    ids=["begun before", "failed", "no wall time", "waited for space"],
)
def test_what_says_nothing_of_the_usual_is_left_out(events: list[Any]) -> None:
    assert seen_by(([], [start("a", 5.0)]), (events, [])) == []


def test_the_newest_are_kept_and_the_same_again_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overheads, "KEPT", 3)
    assert overheads.read(path) == []
    store = ProfilesStore(path)
    store.add_overheads([(f"a{number}", float(number), SeenOverhead(number / 10, number)) for number in range(5)])
    store.write()
    store.add_overheads([("a4", 9.0, SeenOverhead(99.0, 9))])
    store.write()
    assert list(store.db.execute("SELECT * FROM overhead_files ORDER BY attempt")) == [("a2", 2), ("a3", 3), ("a4", 4)]
    store.close()
    assert overheads.read(path) == [SeenOverhead(0.2, 2), SeenOverhead(0.3, 3), SeenOverhead(0.4, 4)]


def test_the_first_attempts_of_a_run_of_thousands_count(path: Path) -> None:
    """They were slower. The last 2,000 of two runs of 1,174 were known alone, and 7 % of the time of a run was missing."""
    store = ProfilesStore(path)
    store.add_overheads([(f"a{number}", float(number), SeenOverhead(0.02 if number < 1000 else 0.01)) for number in range(4000)])
    store.close()
    assert overhead_of(overheads.read(path)).seconds == pytest.approx(0.0125)


def test_a_store_of_before_tells_nothing_and_is_written_to(path: Path) -> None:
    store = ProfilesStore(path)
    store.db.execute("DROP TABLE overheads")
    store.db.execute("DROP TABLE overhead_bytes")
    store.db.execute("DROP TABLE overhead_files")
    store.close()
    assert overheads.read(path) == []
    again = ProfilesStore(path)
    again.add_overheads([("a", 1.0, SeenOverhead(0.5, 7))])
    again.close()
    assert overheads.read(path) == [SeenOverhead(0.5, 7)]


def test_a_store_that_did_not_keep_what_was_an_attempts_own_tells_the_rest(path: Path) -> None:
    seen = SeenOverhead(0.5, 7, 300, 0.6, 100)
    store = ProfilesStore(path)
    store.add_overheads([("a", 1.0, seen)])
    store.close()
    assert overheads.read(path) == [seen]
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE overhead_own")
    assert overheads.read(path) == [replace(seen, own_bytes=None)]
    again = ProfilesStore(path)
    again.add_overheads([("b", 2.0, seen)])
    again.close()
    assert overheads.read(path) == [replace(seen, own_bytes=None), seen]


def test_a_store_that_did_not_count_files_tells_the_rest(path: Path) -> None:
    store = ProfilesStore(path)
    store.db.execute("INSERT INTO overheads VALUES ('old', 1.0, 0.5)")
    store.db.execute("DROP TABLE overhead_bytes")
    store.db.execute("DROP TABLE overhead_files")
    store.close()
    assert overheads.read(path) == [SeenOverhead(0.5, 0)]
    again = ProfilesStore(path)
    again.add_overheads([("new", 2.0, SeenOverhead(0.25, 4))])
    again.close()
    assert overheads.read(path) == [SeenOverhead(0.25, 4), SeenOverhead(0.5, 0)]


@pytest.mark.parametrize(("measured", "basis"), [(True, Basis.MEASURED), (False, Basis.DEFAULT)])
def test_a_plan_says_what_it_took_an_attempt_to_take_and_why(measured: bool, basis: Basis) -> None:
    plan = make_plan(workflow(CHAIN), embedded(10**6).with_overhead(0.25, measured, 0.5, measured))
    assert (plan.overhead_s, plan.overhead_basis) == (0.25, basis)
    assert (plan.overhead_file_s, plan.overhead_file_basis) == (0.5, basis)
    assert from_json(to_json(plan)) == plan


def test_a_plan_of_before_had_none() -> None:
    text = to_json(make_plan(workflow(CHAIN), embedded(10**6)))
    lines = [line for line in text.splitlines() if not line.startswith('"overhead_')]
    old = from_json("\n".join(lines))
    assert (old.overhead_s, old.overhead_basis) == (0.0, Basis.DEFAULT)
    assert (old.overhead_file_s, old.overhead_file_basis) == (0.0, Basis.DEFAULT)


@pytest.mark.parametrize(
    ("said", "overhead_s", "file_s"),
    [(", overhead: 80 ms", 0.08, 0.0), ("", DEFAULT_OVERHEAD_S, 0.0), (", overhead_file: 2 ms", DEFAULT_OVERHEAD_S, 0.002)],
)
def test_a_topology_file_may_say_it(said: str, overhead_s: float, file_s: float) -> None:
    cluster = parse_topology(f"stager-topology: 1\ncompute: {{nodes: 2{said}}}\nio: {{nodes: 1}}\n", "t.yml")
    assert [(node.overhead_s, node.overhead_file_s) for node in cluster.topology(workflow(CHAIN), 1).nodes] == [(overhead_s, file_s)]
