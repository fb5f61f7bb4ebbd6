"""How wide a link is, from the transfers over it: on links whose rate is known, and where transfers say less than they seem to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.model.files import Destination, File, Location, Source
from stager.model.link import SMALL_BYTES, Measured, Move, measured, measured_of
from stager.model.topology import DEFAULT_WAN_BYTES_PER_S, Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.measuring import moved_by
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld

MB = 10**6


def move(begun_at: float, ended_at: float, moved_bytes: int, *, is_fetch: bool = True, run: str = "r", read_back: bool = False) -> Move:
    return Move(run, is_fetch, begun_at, ended_at, moved_bytes, read_back)


def simulated_over(link: OriginLink, origin: Origin, run: str, sizes: list[int], finals: list[int]) -> list[Move]:
    """What the transfers of a simulated run over this link told: of one job that reads and makes these."""
    taken = {
        f"in{n}": File(f"in{n}", size_bytes=size, sources=(Source(Location("lab", f"in/{n}"), size, "t"),)) for n, size in enumerate(sizes)
    }
    made = {f"out{n}": File(f"out{n}", size_bytes=size, destination=Destination(Location("lab", f"{n}"))) for n, size in enumerate(finals)}
    inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in taken), tuple(JobOutput(lfn, lfn) for lfn in made)
    job = Job("all", "all", argv=("true",), inputs=inputs, outputs=outputs, compute_s=1.0)
    workflow = Workflow("w", taken | made, {"all": job}, {"lab": origin})
    topology = Topology((Node("n", 10**12, disk_bytes_per_s=1e15, network_bytes_per_s=1e15),), (link,))
    world = SimWorld(topology, keep_journal=True)
    world.submit(run, workflow, make_plan(workflow, topology))
    simulate(world)
    begun: dict[str, cmd.Fetch | cmd.Upload] = {}
    moves: list[Move] = []
    for events, commands in world.journal:
        for event in events:
            moves += [seen[2] for seen in moved_by(event, begun[event.transfer], origin)] if type(event) is ev.TransferDone else []
        begun |= {command.transfer: command for command in commands if type(command) in (cmd.Fetch, cmd.Upload)}
    return moves


def lab(*, read_back: bool = False) -> Origin:
    return Origin("lab", OriginKind.SFTP, "sftp://lab/d", options=(("shell_checksum", str(not read_back).lower()),))


LARGE = st.integers(300 * MB, 3000 * MB)
RATES = st.floats(1e6, 1e8)


@settings(max_examples=40, deadline=None)
@given(RATES, RATES, st.floats(0.001, 0.1), st.lists(LARGE, min_size=1, max_size=12), st.lists(LARGE, min_size=1, max_size=4))
def test_a_simulated_link_is_found_to_be_what_it_is(
    fetch: float, upload: float, latency_s: float, sizes: list[int], finals: list[int]
) -> None:
    """However many share it: a run of small files shows the wait, one of large files the rates."""
    link = OriginLink("lab", fetch, upload, latency_s, upload_latency_s=2 * latency_s)
    moves = simulated_over(link, lab(), "w-1", [10] * 3, [10] * 3) + [
        replace(each, begun_at=each.begun_at + 1e6, ended_at=each.ended_at + 1e6)
        for each in simulated_over(link, lab(), "w-2", sizes, finals)
    ]
    found = measured(moves)
    assert found.fetch_bytes_per_s == pytest.approx(fetch, rel=0.02)
    assert found.upload_bytes_per_s == pytest.approx(upload, rel=0.02)
    assert (found.latency_s, found.upload_latency_s) == (pytest.approx(latency_s, abs=1e-4), pytest.approx(2 * latency_s, abs=1e-4))
    assert measured(reversed(moves)) == found


@settings(max_examples=20, deadline=None)
@given(RATES, RATES, LARGE)
def test_what_is_read_back_is_not_the_uploads_own_time(fetch: float, upload: float, size: int) -> None:
    link = OriginLink("lab", fetch, upload, 0.001, reads_back=True)
    moves = simulated_over(link, Origin("lab", OriginKind.S3, "s3://lab/d"), "w-1", [size], [size])
    assert [each.read_back for each in moves] == [False, True]
    assert measured(moves).reads_back
    assert not measured([replace(each, read_back=False) for each in moves]).reads_back
    many = [replace(moves[1], read_back=number < 2) for number in range(4)]
    assert not measured(many).reads_back
    assert measured(moves).upload_bytes_per_s == pytest.approx(upload, rel=0.05)


@settings(max_examples=20, deadline=None)
@given(RATES, RATES, LARGE)
def test_what_is_read_back_while_it_is_written_takes_as_long_as_the_slower_way(fetch: float, upload: float, size: int) -> None:
    origin = lab(read_back=True)
    found = measured(simulated_over(OriginLink("lab", fetch, upload, 0.001), origin, "w-1", [size], [size]), origin.reads_behind)
    assert found.reads_back
    assert found.upload_bytes_per_s == pytest.approx(min(fetch, upload), rel=0.05)


def test_a_bandwidth_that_is_reached_is_of_both_ways_together() -> None:
    """300 MB at 10 MB/s: a fetch, and an upload that comes back meanwhile, at half of that each way."""
    told = [move(0, 30, 300 * MB), move(100, 160, 300 * MB, is_fetch=False, read_back=True)]
    declared = replace(lab(read_back=True), options=(("shell_checksum", "false"), ("bandwidth", "10MB")))
    assert measured_of(declared, told).upload_bytes_per_s == pytest.approx(10 * MB, rel=0.05)
    assert measured_of(lab(read_back=True), told).upload_bytes_per_s == pytest.approx(5 * MB, rel=0.05)
    wide = replace(declared, options=(("shell_checksum", "false"), ("bandwidth", "100MB")))
    assert measured_of(wide, told).upload_bytes_per_s == pytest.approx(5 * MB, rel=0.05)


def test_of_nothing_nothing_is_known_and_the_link_is_as_is_usual() -> None:
    assert measured([]) == Measured()
    assert Measured().of("lab") == OriginLink("lab")
    assert measured([move(0, 1, 0)]) == Measured()


def test_small_files_tell_of_the_wait_and_not_of_the_rate() -> None:
    """Ten at once, as a node may have under way: a rate of 60 kB/s would be nonsense."""
    seen = measured([move(second, second + 0.3, 2_000) for second in range(9)] + [move(9, 9.4, 2_000)])
    assert (seen.fetch_bytes_per_s, seen.upload_bytes_per_s) == (None, None)
    assert seen.latency_s == pytest.approx(0.3)
    link = seen.of("lab")
    assert (link.fetch_bytes_per_s, link.measured, link.latency_measured) == (DEFAULT_WAN_BYTES_PER_S, False, True)


def test_small_files_that_a_busy_origin_keeps_waiting_tell_no_rate_either() -> None:
    """Most are quick, some take ten times as long, one after the other: five seconds in which a megabyte and a half came."""
    slow = [move(at / 4, at / 4 + 0.5, 30_000) for at in range(20)]
    quick = [move(at / 6, at / 6 + 0.05, 30_000) for at in range(30)]
    assert measured([*slow, *quick]).fetch_bytes_per_s is None


def test_a_stretch_that_is_over_before_it_began_tells_no_rate() -> None:
    """Logging in took most of it; and files of 70 kB have to come for longer than their turns take."""
    assert measured([move(0, 0.4, MB)]).fetch_bytes_per_s is None
    assert measured([move(0, 4, MB)]).fetch_bytes_per_s == pytest.approx(MB / 4, rel=0.02)
    assert measured([move(at / 20, at / 20 + 0.06, SMALL_BYTES) for at in range(100)]).fetch_bytes_per_s is None


def test_what_a_small_file_waits_behind_a_large_one_is_not_its_own() -> None:
    large = move(100, 110, 100 * MB)
    behind = [move(100 + at, 103 + at, 1_000) for at in range(5)]
    alone = [move(at, at + 0.05, 1_000) for at in range(3)]
    assert measured([large, *behind, *alone]).latency_s == pytest.approx(0.05)
    assert measured([large, *behind]).latency_s is None
    assert measured([replace(large, is_fetch=False), *behind]).latency_s is None


def test_newer_runs_weigh_more() -> None:
    old = [move(at * 100, at * 100 + 10, 100 * MB, run=f"old{at}") for at in range(4)]
    new = [move(1e5 + at * 100, 1e5 + at * 100 + 50, 100 * MB, run=f"new{at}") for at in range(8)]
    assert measured(old).fetch_bytes_per_s == pytest.approx(1e7, rel=0.01)
    assert measured([*old, *new]).fetch_bytes_per_s == pytest.approx(2e6, rel=0.01)
    assert measured([*new, *old]) == measured([*old, *new])


def test_a_stretch_that_a_clock_made_too_fast_does_not_decide() -> None:
    """One of twenty that seems ten times as fast."""
    usual = [move(at * 100, at * 100 + 10, 100 * MB, run=f"r{at}") for at in range(19)]
    assert measured([*usual, move(5e3, 5e3 + 1, 100 * MB)]).fetch_bytes_per_s == pytest.approx(1e7, rel=0.01)


def test_a_line_is_no_slower_than_most_files_came() -> None:
    """Of a directory, one after the other: each was over before it told of the rate, but for a few that came from a cold disk. From them
    a line of 350 MB/s was taken for 36, and a run predicted to take 23 % too long.
    """
    quick = [move(at, at + 0.0018, 620_000) for at in range(600)]
    cold = [move(1000.0 + at, 1000.07 + at, 620_000) for at in range(6)]
    small = [move(2000.0 + at, 2000.0007 + at, 700) for at in range(100)]
    found = measured(quick + cold + small)
    assert found.fetch_bytes_per_s is not None
    assert found.fetch_bytes_per_s >= 300 * MB


def test_a_short_slow_beginning_does_not_outweigh_what_passed_later() -> None:
    """Most of what came later was tiny, so waits in turn might have explained it: 14 MB/s were believed of a line that had carried 100."""
    alone = [move(-100.0 + at, -99.9 + at, 7) for at in range(10)]
    beginning = [move(0.0, 0.1 + 0.03 * at, 410_000) for at in range(1, 41)]
    later = [move(10.0 + 0.0033 * at, 10.15 + 0.0033 * at, 600_000 if at % 2 else 7) for at in range(1100)]
    rate = measured(alone + beginning + later).fetch_bytes_per_s
    assert rate is not None
    assert rate == pytest.approx(300_000 / 0.0033, rel=0.1)


def test_files_that_went_alone_tell_of_a_disk_that_holds_up_every_third() -> None:
    """A disk with a limit: two in three files pass at once, and the third pays for them. 27 MB/s were taken for 550, as most files had it,
    and a run of 18 s was predicted to take 9.
    """
    took_s = [0.0014 if number % 3 else 0.055 for number in range(600)]
    moves = [move(at * 0.1, at * 0.1 + took, 530_000) for at, took in enumerate(took_s)]
    moves += [move(at * 0.1, at * 0.1 + 0.0004, 6) for at in range(600)]
    found = measured(moves).fetch_bytes_per_s
    assert found == pytest.approx(600 * 530_000 / sum(took_s), rel=0.1)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.001, 2.0), st.floats(0.001, 0.1), st.lists(st.integers(1, 3 * MB), min_size=3, max_size=3))
def test_what_stager_takes_for_each_is_told_apart_from_the_line_and_from_turns(
    dispatch_s: float, latency_s: float, sizes: list[int]
) -> None:
    """Of a few files, and of a crowd beside which nobody finds a place at once."""
    link = OriginLink("lab", 10 * MB, 10 * MB, latency_s, dispatch_s=dispatch_s)
    found = measured(simulated_over(link, lab(), "r", sizes, []))
    assert found.dispatch_s == pytest.approx(dispatch_s, rel=1e-6)
    assert found.of("lab").dispatch_s == found.dispatch_s
    assert measured(simulated_over(link, lab(), "crowd", [1000] * 200, [])).dispatch_s is None


def test_what_waits_behind_others_waits_for_its_turn() -> None:
    """Of sixteen that were asked for together none is sure of a place, of three that went alone each is. What a stager of before did not
    note says nothing.
    """
    at, waits = 1_795_933_858.3, [0.01 + 0.37 * n for n in range(16)]
    crowd = [Move("r", True, at + wait_s, at + wait_s + 1.0, 1000, waited_s=wait_s) for wait_s in waits]
    alone = [Move("r", True, at + 0.02, at + 0.5, 1000, waited_s=0.02) for at in (1.0, 2.0, 3.0)]
    assert measured(crowd).dispatch_s is None
    assert measured([*crowd, *alone]).dispatch_s == 0.02
    assert measured([replace(move, waited_s=None) for move in alone]).dispatch_s is None
    assert measured(alone[:2]).dispatch_s is None
