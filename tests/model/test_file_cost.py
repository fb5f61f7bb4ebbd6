"""What a file costs beside its bytes, from transfers over lines that are known, and where transfers say less than they seem to."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from random import Random

import pytest

from stager.model.file_cost import Traffic, crowds
from stager.model.link import SMALL_BYTES, Measured, Move, measured
from stager.model.topology import DEFAULT_WAN_BYTES_PER_S, OriginLink
from tests.model.test_link import MB, lab, move, simulated_over

RATE = 20e6


def burst(
    count: int,
    at_once: int,
    latency_s: float,
    file_s: float,
    bytes_max: int = SMALL_BYTES,
    run: str = "r",
    at: float = 0.0,
    rate: float = RATE,
) -> list[Move]:
    """Uploads that are all there at once, so many under way at a time: each waits its latency, then the line serves one after the other.
    Latencies and costs vary by a fifth around their means.
    """
    random = Random(f"{count} {at_once} {latency_s} {file_s} {bytes_max}")
    waiting: list[tuple[float, float]] = []
    moves: list[Move] = []
    line_at, left = at, count

    def begin(begun_at: float) -> None:
        heappush(waiting, (begun_at + latency_s * random.uniform(0.8, 1.2), begun_at))

    for number in range(min(count, at_once)):
        begin(at + number * 1e-5)
        left -= 1
    while waiting:
        asked_at, begun_at = heappop(waiting)
        size_bytes = random.randrange(1, bytes_max)
        line_at = max(line_at, asked_at) + file_s * random.uniform(0.8, 1.2) + size_bytes / rate
        moves.append(Move(run, False, begun_at, line_at, size_bytes))
        if left:
            left -= 1
            begin(line_at + 1e-4)
    return moves


def took_s(moves: list[Move]) -> float:
    return max(each.ended_at for each in moves) - min(each.begun_at for each in moves)


def predicted_s(found: Measured, moves: list[Move]) -> float:
    """As a plan has it: the latency, then one file after the other."""
    link = found.of("lab")
    weighs = sum(link.upload_weighs(each.moved_bytes) for each in moves)
    return link.before_upload_s + weighs / link.upload_bytes_per_s


# Files of up to 30 MB, a few at a time, and small ones that were alone: what tells of the rate and of the latency.
def others(latency_s: float, file_s: float) -> list[Move]:
    return burst(12, 4, latency_s, file_s, 30 * MB, at=1e5) + [
        replace(each, begun_at=each.begun_at + 1e3 * number, ended_at=each.ended_at + 1e3 * number)
        for number in range(6)
        for each in burst(1, 1, latency_s, file_s, 1000, at=2e5)
    ]


@pytest.mark.parametrize("count", [150, 400, 1000])
@pytest.mark.parametrize("at_once", [16, 64])
@pytest.mark.parametrize(("latency_s", "file_s"), [(0.01, 0.002), (0.05, 0.005), (0.05, 0.1), (0.4, 0.1), (0.03, 0.03)])
def test_a_known_line_is_found_to_be_what_it_is(count: int, at_once: int, latency_s: float, file_s: float) -> None:
    moves = burst(count, at_once, latency_s, file_s)
    found = measured(moves + others(latency_s, file_s))
    assert found.upload_file_s == pytest.approx(file_s, rel=0.1)
    assert found.upload_bytes_per_s == pytest.approx(RATE, rel=0.1)
    assert found.upload_latency_s == pytest.approx(latency_s, abs=max(0.1 * latency_s, 0.3 * file_s))
    assert predicted_s(found, moves) == pytest.approx(took_s(moves), rel=0.1)
    assert measured(reversed(moves + others(latency_s, file_s))) == found


@pytest.mark.parametrize(("count", "at_once"), [(400, 16), (1000, 16), (200, 64), (1000, 64)])
def test_where_a_node_has_too_few_under_way_to_fill_the_line_a_file_costs_its_part_of_the_wait(count: int, at_once: int) -> None:
    """Half a second each, so many at once: 0.5 / 16 s a file, although the server could do more. The next run has no more of them. The
    wait of the first of them is counted once more.
    """
    moves = burst(count, at_once, 0.5, 0.0001)
    found = measured(moves + others(0.5, 0.0001))
    mean_s = sum(each.moved_bytes for each in moves) / count / RATE
    assert found.upload_file_s is not None
    assert found.upload_file_s + mean_s == pytest.approx(0.5 / at_once, rel=0.1)
    assert predicted_s(found, moves) == pytest.approx(took_s(moves) + 0.25, rel=0.15)


@pytest.mark.parametrize(("count", "login_s"), [(30, 0.5), (60, 2.0)])
def test_a_crowd_that_all_began_at_once_tells_it_by_its_ends(count: int, login_s: float) -> None:
    """Whatever they waited for first, logging in say, is no file's cost."""
    moves = [replace(each, begun_at=each.begun_at - login_s) for each in burst(count, 64, 0.01, 0.1)]
    assert measured(moves).upload_file_s == pytest.approx(0.1, rel=0.1)


def test_a_server_that_serves_all_at_once_tells_the_same() -> None:
    """Ten times 64, each of which takes 6.4 s."""
    waves = [move(6.4 * wave, 6.4 * wave + 6.4, 1000, is_fetch=False) for wave in range(10) for _ in range(64)]
    assert measured(waves).upload_file_s == pytest.approx(0.1, rel=0.01)


def test_files_one_after_the_other_tell_the_latency_alone() -> None:
    """Who knows what more at once would have brought."""
    alone = [move(number * 0.2, number * 0.2 + 0.2, 1000) for number in range(500)]
    few = [move(number * 0.2, number * 0.2 + 0.2 * 6, 1000) for number in range(500)]
    for moves in (alone, few):
        found = measured(moves)
        assert (found.fetch_file_s, found.fetch_bytes_per_s) == (None, None)
        assert found.latency_s == pytest.approx(moves[0].took_s)


def test_what_went_on_side_by_side_once_tells_the_latency_alone() -> None:
    """They end within the time that one takes: nobody need have waited for another."""
    together = [move(0, 5 + number / 100, SMALL_BYTES) for number in range(100)]
    assert measured(together).fetch_file_s is None
    assert measured(together).latency_s == pytest.approx(5.5, abs=0.1)


def test_few_files_are_no_crowd() -> None:
    assert measured(burst(14, 64, 0.01, 0.1)).upload_file_s is None
    assert measured(burst(20, 64, 0.01, 0.1)).upload_file_s == pytest.approx(0.1, rel=0.2)


def test_large_files_in_a_crowd_tell_the_rate_and_no_cost() -> None:
    """Of their own size they are as quick as predicted, whatever part of it was not for their bytes."""
    found = measured(burst(200, 16, 0.01, 0.0, 2 * MB))
    assert found.upload_file_s is None
    assert found.upload_bytes_per_s == pytest.approx(RATE, rel=0.05)


def test_what_files_cost_is_not_taken_for_a_slow_line() -> None:
    """Bytes of 12 files of 15 MB take 9 s, their costs 6 s."""
    slow = burst(400, 16, 0.05, 0.5)
    large = burst(12, 12, 0.05, 0.5, 30 * MB, at=1e5)
    found, without = measured([*slow, *large]), measured(large)
    assert without.upload_bytes_per_s is not None and without.upload_bytes_per_s < 0.75 * RATE
    assert found.upload_bytes_per_s == pytest.approx(RATE, rel=0.1)
    # Where costs are most of what large files take too, what is left says too little of the line.
    assert measured([*slow, *burst(12, 12, 0.05, 0.5, 2 * MB, at=1e5)]).upload_bytes_per_s is None


def test_bytes_that_pass_beside_small_files_are_not_their_cost() -> None:
    """A large one passes all the while."""
    moves = burst(600, 16, 0.01, 0.005)
    beside = move(0.0, took_s(moves), int(0.6 * RATE * took_s(moves)), is_fetch=False)
    (crowd,) = crowds(Traffic([*moves, beside]), {"r": 1.0}, 10 * SMALL_BYTES)
    assert crowd.passed_bytes - sum(each.moved_bytes for each in moves) * crowd.files / 600 == pytest.approx(
        0.6 * RATE * crowd.took_s, rel=0.05
    )
    assert not crowds(Traffic([*moves, beside]), {"r": 1.0}, SMALL_BYTES)


def test_newer_runs_weigh_more() -> None:
    old = [each for number in range(6) for each in burst(200, 16, 0.01, 0.1, 1000, f"old{number}", 1e4 * number)]
    new = [each for number in range(4) for each in burst(200, 16, 0.01, 0.01, 1000, f"new{number}", 1e6 + 1e4 * number)]
    assert measured(old).upload_file_s == pytest.approx(0.1, rel=0.1)
    assert measured([*old, *new]).upload_file_s == pytest.approx(0.01, rel=0.1)


def test_a_large_crowd_says_more_than_small_ones() -> None:
    small = [each for number in range(3) for each in burst(30, 16, 0.01, 0.1, 1000, at=1e4 * number)]
    assert measured(small).upload_file_s == pytest.approx(0.1, rel=0.1)
    assert measured([*small, *burst(400, 16, 0.01, 0.01, 1000, at=1e6)]).upload_file_s == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(("count", "at_once", "latency_s", "file_s"), [(400, 64, 0.05, 0.1), (700, 256, 0.2, 0.02)])
def test_of_a_crowd_the_first_tells_the_latency(count: int, at_once: int, latency_s: float, file_s: float) -> None:
    """What is left of the others, which took 5 or 6 s each, is how they were served."""
    found = measured(burst(count, at_once, latency_s, file_s))
    assert found.upload_file_s == pytest.approx(file_s, rel=0.1)
    assert found.upload_latency_s == pytest.approx(latency_s, rel=0.25)


def test_what_the_first_of_a_run_wait_for_is_no_latency() -> None:
    """Who began at the beginning waited for a login of a second, in two runs of three; in one a connection was open still."""
    runs = [burst(200, 16, 0.05, 0.002, run=f"r{number}", at=1e4 * number) for number in range(3)]
    for number in (0, 2):
        begun_at = 1e4 * number
        runs[number] = [replace(each, begun_at=begun_at - 1.0) if each.begun_at < begun_at + 0.01 else each for each in runs[number]]
    found = measured([each for run in runs for each in run])
    assert found.login_s == pytest.approx(1.0, rel=0.1)
    assert found.upload_latency_s == pytest.approx(0.05, rel=0.3)
    assert measured(runs[1]).login_s == pytest.approx(0.0, abs=0.01)
    assert found.of("lab").login_s == found.login_s


def test_a_large_file_that_comes_first_tells_nothing_of_logging_in() -> None:
    assert measured([move(0, 5, 100 * MB), *(move(10 + n, 10.1 + n, 1000) for n in range(4))]).login_s is None
    assert measured([move(0, 1.1, 1000), *(move(10 + n, 10.1 + n, 1000) for n in range(4))]).login_s == pytest.approx(1.0)
    # The small one ended first, and the large one had been waiting before it began.
    behind = [move(0, 5, 100 * MB), move(0.5, 1.1, 1000), *(move(10 + n, 10.1 + n, 1000) for n in range(4))]
    assert measured(behind).login_s == pytest.approx(1.0)


def test_a_crowd_in_which_the_next_begin_a_little_late_is_one() -> None:
    """Sixteen at a time, and the scheduler hears of it 40 ms later."""
    moves = [move(0.24 * wave, 0.24 * wave + 0.2, 1000, is_fetch=False) for wave in range(10) for _ in range(16)]
    assert measured(moves).upload_file_s == pytest.approx(0.24 / 16, rel=0.01)
    # Where they stop for as long as one takes nobody waited.
    apart = [move(0.4 * wave, 0.4 * wave + 0.2, 1000, is_fetch=False) for wave in range(10) for _ in range(16)]
    assert measured(apart).upload_file_s is None
    assert measured(apart).upload_latency_s == pytest.approx(0.2)


def test_a_cost_is_never_negative() -> None:
    """As quick as twice the rate that is assumed of the line would be."""
    moves = [move(number * 1e-4, 0.01 + number * SMALL_BYTES / DEFAULT_WAN_BYTES_PER_S / 2, SMALL_BYTES) for number in range(100)]
    assert measured(moves).fetch_file_s == 0.0


def test_a_simulated_line_is_found_to_be_what_it_is() -> None:
    dear = OriginLink("lab", 10e6, 10e6, 0.05, fetch_file_s=0.03, upload_file_s=0.1)
    found = measured(simulated_over(dear, lab(), "w-1", [1000] * 300, [1000] * 300))
    assert (found.fetch_file_s, found.upload_file_s) == (pytest.approx(0.03, rel=0.1), pytest.approx(0.1, rel=0.1))
    # Where files cost nothing but their latency, which 256 of them wait for at once, it is a part of that.
    free = replace(dear, fetch_file_s=None, upload_file_s=None)
    found = measured(simulated_over(free, lab(), "w-1", [1000] * 600, [1000] * 600))
    assert max(found.fetch_file_s or 0.0, found.upload_file_s or 0.0) < 1.3 * 0.05 / 256


@pytest.mark.parametrize("rate", [0.6e6, 2.5e6, 12.5e6])
@pytest.mark.parametrize(("small", "file_s"), [(338, 0.0), (600, 0.0), (338, 0.001)])
def test_a_narrow_line_that_small_and_large_files_crowd_together_is_found_to_be_narrow(rate: float, small: int, file_s: float) -> None:
    """338 files of 12 kB and two of some MB over 20 Mbit/s: the line seemed to be as fast as is assumed, and each file to cost 14 ms."""
    sizes = [6_650_000, 1_580_000, *[12_469] * small] * (2 if rate > 1e7 else 1)
    link = OriginLink("lab", rate, rate, 0.005, fetch_file_s=file_s)
    found = measured(simulated_over(link, lab(), "w-1", sizes, []))
    assert found.fetch_bytes_per_s is not None and 0.7 * rate <= found.fetch_bytes_per_s <= 1.02 * rate, "at least"
    assert (found.fetch_file_s or 0.0) <= file_s + 0.2 * 12_469 / rate
    predicted_s = sum(found.of("lab").fetch_weighs(size) for size in sizes) / (found.fetch_bytes_per_s or 1)
    assert predicted_s == pytest.approx(sum(sizes) / rate + file_s * len(sizes), rel=0.1)


@pytest.mark.parametrize(("rate", "file_s"), [(2.5e6, 0.0006), (2.5e6, 0.0), (12.5e6, 0.0003)])
def test_a_narrow_line_that_only_small_files_crowd_is_found_to_be_narrow(rate: float, file_s: float) -> None:
    """500 files of 1 byte were predicted to take 5 ms each, which was what the line took for the bytes of 500 larger ones."""
    crowd = burst(400, 24, 0.005, file_s, 40_000, rate=rate)
    quiet = [each for number in range(6) for each in burst(1, 1, 0.005, file_s, 10, at=100.0 + number, rate=rate)]
    found = measured(crowd + quiet)
    assert found.upload_bytes_per_s == pytest.approx(rate, rel=0.15)
    assert found.upload_file_s == pytest.approx(file_s, abs=0.0005)
    assert predicted_s(found, crowd) == pytest.approx(took_s(crowd), rel=0.1)


def test_small_files_that_hardly_wait_for_each_other_tell_no_rate() -> None:
    """Eight at once over a long way: the larger ones have more ways there and back, and the line would have carried others meanwhile."""
    random = Random(1)
    moves, free_at = [], [0.0] * 8
    for number in range(800):
        begun_at = free_at.pop(0)
        size_bytes = random.randrange(1, 60_000 if number // 48 % 2 else 2_000)
        moves.append(Move("r", False, begun_at, begun_at + 0.08 + size_bytes / 1e6, size_bytes))
        free_at = sorted([*free_at, moves[-1].ended_at])
    quiet = [Move("r", False, 1e3 + number, 1e3 + number + 0.08, 10) for number in range(6)]
    assert measured(moves + quiet).upload_bytes_per_s is None


def test_small_files_that_are_most_of_what_crowds_a_narrow_line_hide_it_from_nobody() -> None:
    """A run of bwa over 20 Mbit/s: nobody knew the rate, 50 MB/s were taken for it, and the run to take half as long as it did."""
    rate, small_bytes, large_bytes, large_end = 2.5e6, 57_427, 3_800_000, 6.1
    moves = [move(0.0, large_end, large_bytes), move(0.0, large_end, large_bytes)]
    ends: list[float] = []
    for number in range(250):
        begun_at = ends[-64] if number >= 64 else 0.0
        share = 1 - 2 * large_bytes / large_end / rate if ends and ends[-1] < large_end else 1.0
        ends.append((ends[-1] if ends else 0.05) + small_bytes / (share * rate))
        moves.append(move(begun_at, ends[-1], small_bytes))
    found = measured(moves)
    assert found.fetch_bytes_per_s is not None and 0.8 * rate <= found.fetch_bytes_per_s <= 1.1 * rate


def test_a_line_is_no_slower_than_what_has_passed_it() -> None:
    """Files that came while the account logged in took a second. Then hundreds passed in waves, each too short to tell anything alone."""
    moves = [move(0.0, 1.2, 400_000, run="w-0") for _ in range(13)]
    assert measured(moves).fetch_bytes_per_s == pytest.approx(13 * 400_000 / 1.15, rel=0.05)
    for wave in range(20):
        begun_at, sizes = 60 + 0.132 * wave, [400_000] * 4 + [15] * 50
        moves += [move(begun_at, begun_at + 0.1 + 0.0005 * at, size, run="w-1") for at, size in enumerate(sizes)]
    found = measured(moves)
    passes = 4 * 400_000 / 0.132
    assert found.fetch_bytes_per_s is not None and 0.9 * passes <= found.fetch_bytes_per_s <= 1.1 * passes


def test_a_slow_account_that_sends_a_large_file_beside_many_small_ones_is_no_narrow_line() -> None:
    """The large one alone went 50 times as quickly as all together: what the others took is their cost."""
    found = measured([*burst(1000, 16, 0.05, 0.1, 16_384), move(1.0, 3.0, 30 * MB, is_fetch=False)])
    assert found.upload_bytes_per_s is None
    assert found.upload_file_s == pytest.approx(0.1, rel=0.15)


def test_files_that_come_as_jobs_have_room_for_them_tell_nothing_of_the_line() -> None:
    """Three under way at a time, without a pause, as long as the jobs took: a run with little room was predicted to take twice as long."""
    moves = [move(at / 3, at / 3 + 1.0, 200_000 if at % 5 == 0 else 12_000) for at in range(300)]
    assert measured(moves).fetch_bytes_per_s is None


def one_by_one(every_s: float, waited_s: float | None, latency_s: float = 0.28, file_s: float = 0.001) -> list[Move]:
    """360 finals, each sent when its job ended, over a line that could take eight times as many."""
    line_at, moves = 0.0, []
    for number in range(360):
        begun_at = number * every_s
        line_at = max(line_at, begun_at + latency_s) + file_s
        moves.append(Move("r", False, begun_at, line_at, 144, waited_s=waited_s))
    return moves


def test_how_fast_files_came_is_not_what_they_cost() -> None:
    """35 were under way at a time, and none waited for another: 2.8 s too many were predicted for a run that took 10.4."""
    kept_up = measured(one_by_one(0.008, 0.003))
    assert kept_up.upload_file_s is None
    assert kept_up.upload_latency_s == pytest.approx(0.281, abs=0.001)
    assert measured(one_by_one(0.008, 0.2)).upload_file_s == pytest.approx(0.008, rel=0.05), "each began when a place was free"
    assert measured(one_by_one(0.008, None)).upload_file_s == pytest.approx(0.008, rel=0.05), "nobody noted whether it waited"
    assert measured(one_by_one(0.0001, 0.003, latency_s=0.05)).upload_file_s == pytest.approx(0.001, rel=0.05), (
        "the line was slower than they came"
    )
    assert measured(one_by_one(0.004, 0.003, file_s=0.005)).upload_file_s == pytest.approx(0.005, rel=0.05)


@pytest.mark.parametrize("together", [1, 20])
def test_files_that_wait_for_room_and_for_the_line_cost_what_they_cost(together: int) -> None:
    """A small node has room for sixty. As some have come, a job reads them and ends, and as many more come. None waits for its turn."""
    moves: list[Move] = []
    line_at, begun_at = 0.0, [0.0] * 60
    for number in range(960):
        line_at = max(line_at, begun_at[number] + 0.05) + 0.004
        moves.append(Move("r", True, begun_at[number], line_at, 8, waited_s=0.001))
        if len(begun_at) < 960 and (number + 1) % together == 0:
            begun_at += [line_at + 0.001] * together
    assert measured(moves).fetch_file_s == pytest.approx(0.004, rel=0.05)


def jobs_end_now_and_then(late: int, slowed_s: float) -> list[Move]:
    """120 finals of jobs that end one by one, sometimes sooner than usual. What comes in meanwhile slows most of them, and the `late` last
    ones much.
    """
    random, begun_at, moves = Random(f"{late} {slowed_s}"), 0.0, []
    for number in range(120):
        begun_at += 0.02 if number // 40 % 2 else 0.04
        slowed = 1.0 if number >= 120 - late else random.choice([0.0, 0.0, slowed_s, slowed_s, slowed_s])
        moves.append(Move("r", False, begun_at, begun_at + 0.27 + slowed, 8, waited_s=0.0015))
    return moves


@pytest.mark.parametrize(("late", "slowed_s"), [(9, 0.02), (0, 0.1)])
def test_files_that_take_no_longer_for_those_beside_them_cost_nothing(late: int, slowed_s: float) -> None:
    """A run of 11 s was predicted to take 20: in one crowd the last few files came late, in another most took longer for what came in."""
    assert measured(jobs_end_now_and_then(late, slowed_s)).upload_file_s is None


@pytest.mark.parametrize("own_s", [0.114, 0.03])
def test_files_that_come_one_at_a_time_show_what_one_gets(own_s: float) -> None:
    """A node with room for one of 0.9 MB: 25 s were predicted to be 35, by the stretch at the beginning in which many came at once."""
    latency_s, size = 0.052, 900_000
    moves = [move(0.0, 0.45, size), move(0.0, 0.45, size), *(move(0.0, 0.1 + 0.02 * number, 60_000) for number in range(14))]
    moves += [move(0.6 + 0.1 * number, 0.6 + 0.1 * number + latency_s, 1) for number in range(20)]
    for number in range(100):
        moves.append(move(3.0 + 0.2 * number, 3.0 + 0.2 * number + latency_s + own_s, size))
    found = measured(moves)
    assert found.latency_s == pytest.approx(latency_s, rel=0.05)
    assert found.fetch_bytes_per_s == pytest.approx(size / own_s, rel=0.05)


def test_a_narrow_line_under_crowds_has_the_latency_that_files_beside_nobody_show() -> None:
    """Nothing was said of it, and 50 ms taken for 11: with little room each job waits for it, 33 s were predicted to be 40."""
    moves, at = [], 0.0
    for _ in range(20):
        for rate, sizes in ((8e6, [200_000, 200_000, *[30_000] * 10]), (16e6, [30_000] * 30), (16e6, [30_000] * 30)):
            moves += [move(at, at + 0.011 + sum(sizes[: number + 1]) / rate, size) for number, size in enumerate(sizes)]
            at += 0.5
        moves.append(move(at, at + 0.011, 8))
        at += 0.5
    assert measured(moves).latency_s == pytest.approx(0.011, rel=0.2)


def test_what_files_cost_is_not_taken_for_the_time_of_their_bytes_as_well() -> None:
    """Forty at a time over a long way, where most are tiny: a run of 7.5 s was predicted to take 9.7, its files and then its bytes."""
    free_at, moves = [0.0] * 40, []
    for number in range(900):
        if number == 300:
            free_at = [10.0] * 40
        begun_at, size_bytes = free_at.pop(0), 2_000_000 if number >= 300 and number % 3 == 0 else 3
        moves.append(Move("r", True, begun_at, begun_at + 0.128 + size_bytes / 4e6, size_bytes, waited_s=0.5))
        free_at = sorted([*free_at, moves[-1].ended_at])
    found = measured(moves)
    link = found.of("lab")
    predicted_s = sum(link.fetch_weighs(each.moved_bytes) for each in moves) / (found.fetch_bytes_per_s or 1)
    assert predicted_s == pytest.approx(took_s(moves[:300]) + took_s(moves[300:]), rel=0.1)
