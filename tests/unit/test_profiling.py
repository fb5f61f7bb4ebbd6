"""Profiles from samples: which samples speak, how loud, and of what."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from stager.model.profile import pattern_of
from stager.model.profiling import PATTERNS_MAX, FileGroup, Kind, Sample, Side, group_files, profile_of


def sample(attempt: str, run: str = "r1", store: str = "here", at: float = 1.0, kind: Kind = Kind.RUN, **more: Any) -> Sample:
    return Sample(store=store, attempt=attempt, job_type="t", run=run, kind=kind, at=at, **more)


@pytest.mark.parametrize(
    ("lfn", "pattern"),
    [
        ("p_017_area.fits", "p_*_area.fits"),
        ("tile/03/12.png", "tile/*/*.png"),
        ("mosaic.fits", "mosaic.fits"),
        ("out-3fa9c01be7.bin", "out-*.bin"),
        ("deadbeef.txt", "deadbeef.txt"),
        ("a[1]?.txt", "a[*]?.txt"),
    ],
)
def test_names_that_differ_in_numbers_are_files_of_one_kind(lfn: str, pattern: str) -> None:
    assert pattern_of(lfn) == pattern


def test_what_was_not_seen_is_none_and_a_zero_that_was_seen_is_zero() -> None:
    profile = profile_of("t", [sample("a", wall_s=2.0, written_bytes=0)], "here")
    assert profile.wall_s is not None and profile.wall_s.median == 2.0
    assert profile.written_bytes is not None and profile.written_bytes.median == 0
    assert (profile.cpu_s, profile.read_bytes, profile.reread_bytes, profile.read_fraction, profile.inputs) == (None, None, None, None, {})


def test_newer_runs_weigh_more_and_a_large_run_is_not_older_in_itself() -> None:
    old = [sample(f"o{i}", "old", at=1.0 + i, wall_s=10.0) for i in range(4)]
    new = [sample(f"n{i}", "new", at=100.0 + i, wall_s=20.0) for i in range(4)]
    assert profile_of("t", old + new, "here").wall_s.median == 20.0  # type: ignore[union-attr]
    swapped = [sample(f"o{i}", "old", at=200.0 + i, wall_s=10.0) for i in range(4)]
    assert profile_of("t", swapped + new, "here").wall_s.median == 10.0  # type: ignore[union-attr]
    one_run = [sample(f"x{i}", at=float(i), wall_s=10.0 if i < 51 else 20.0) for i in range(100)]
    assert profile_of("t", one_run, "here").wall_s.median == 10.0  # type: ignore[union-attr]


def test_what_was_measured_here_silences_what_was_imported_per_quantity() -> None:
    imported = [sample(f"i{i}", "rec", "there", at=1e9, wall_s=500.0, memory_peak_bytes=10**9) for i in range(50)]
    profile = profile_of("t", [*imported, sample("own", wall_s=3.0)], "here")
    assert profile.wall_s is not None and (profile.wall_s.median, profile.wall_s.samples, profile.wall_s.imported) == (3.0, 1, False)
    assert profile.memory_peak_bytes is not None and profile.memory_peak_bytes.imported
    assert (profile.samples, profile.runs) == (51, 2)


def test_space_is_reserved_for_nearly_all_and_expected_is_what_each_takes_of_the_whole() -> None:
    samples = [sample(f"a{i}", output_bytes=100 + i) for i in range(100)]
    found = profile_of("t", samples, "here").output_bytes
    assert found is not None and (found.median, found.high, found.at(None), found.high_at(10**9)) == (149, 194, 149.5, 194)


def test_too_few_values_say_nothing_of_their_spread() -> None:
    two, three = ([sample(f"a{i}", wall_s=1.0 + i) for i in range(count)] for count in (2, 3))
    assert profile_of("t", two, "here").wall_s.spread is None  # type: ignore[union-attr]
    assert profile_of("t", three, "here").wall_s.spread > 1  # type: ignore[union-attr,operator]


def test_a_quantity_that_follows_the_input_is_scaled_by_it() -> None:
    rng = Random(1)
    samples = [
        sample(
            f"a{i}", input_bytes=x, wall_s=1 + x / 1e6 * rng.uniform(0.95, 1.05), output_bytes=2 * x, memory_peak_bytes=rng.randint(50, 60)
        )
        for i, x in enumerate(range(10**6, 3 * 10**7, 10**6))
    ]
    profile = profile_of("t", samples, "here")
    assert profile.output_bytes is not None and profile.output_bytes.at(5_000_000) == pytest.approx(10**7)
    assert profile.wall_s is not None and profile.wall_s.at(2 * 10**7) == pytest.approx(21, rel=0.03)
    assert profile.wall_s.spread is not None and 1.01 < profile.wall_s.spread < 1.08
    assert profile.wall_s.high_at(2 * 10**7) > profile.wall_s.at(2 * 10**7)
    assert profile.memory_peak_bytes is not None and profile.memory_peak_bytes.line is None
    assert profile.wall_s.at(None) == profile.wall_s.each


def test_jobs_that_are_not_alike_add_up_to_what_they_take_together() -> None:
    """Three quick tiles for each slow one, whose time is most of the whole; and a run in which one hung, among three that went well."""
    times = [1.0, 1.0, 1.0, 9.0]
    usual = [
        sample(f"{run}{n}", run=run, at=float(place), wall_s=wall_s) for place, run in enumerate("abc") for n, wall_s in enumerate(times)
    ]
    hung = [sample(f"d{n}", run="d", at=9.0, wall_s=wall_s) for n, wall_s in enumerate([1.0, 1.0, 1.0, 900.0])]
    found = profile_of("t", [*usual, *hung], "here").wall_s
    assert found is not None
    assert (found.median, found.at(None)) == (1.0, 3.0)


def test_outputs_are_known_by_the_pattern_of_their_names() -> None:
    samples = [
        sample(f"a{i}", files=group_files(Side.OUTPUT, [(f"p{i}.fits", 1000 + i), (f"p{i}b.fits", 9), ("log", None)])) for i in range(10)
    ]
    profile = profile_of("t", samples, "here")
    assert set(profile.outputs) == {"p*.fits", "p*b.fits", "log"}
    fits = profile.output("p77.fits")
    assert fits is not None and fits.size_bytes is not None and (fits.size_bytes.median, fits.size_bytes.high) == (1004, 1009)
    assert profile.output("q1.fits") is None and profile.outputs["log"].size_bytes is None


def test_of_several_files_of_one_kind_the_largest_is_reserved_for() -> None:
    groups = group_files(Side.OUTPUT, [("t1.png", 10), ("t2.png", 20), ("t3.png", 60)])
    assert groups == (FileGroup(Side.OUTPUT, "t*.png", 3, 90, 60),)
    found = profile_of("t", [sample("a", files=groups)], "here").outputs["t*.png"]
    assert found.files.median == 3 and found.size_bytes is not None and (found.size_bytes.median, found.size_bytes.high) == (30, 60)


def test_names_without_a_pattern_are_not_kept_one_by_one() -> None:
    names = [(f"{chr(97 + i // 26)}{chr(97 + i % 26)}.txt", 1) for i in range(PATTERNS_MAX + 1)]
    assert group_files(Side.INPUT, names) == () and len(group_files(Side.INPUT, names[1:])) == PATTERNS_MAX


def test_what_a_trace_saw_of_an_input() -> None:
    half = FileGroup(Side.INPUT, "half_*", 1, 1000, 1000, touched_bytes=500, read_bytes=500, sequential_bytes=500)
    twice = FileGroup(Side.INPUT, "twice", 1, 100, 100, touched_bytes=100, read_bytes=200, sequential_bytes=150)
    mapped = FileGroup(Side.INPUT, "mapped", 1, 10, 10)
    traced = sample("t", "trace", kind=Kind.TRACE, input_bytes=1110, files=(half, twice, mapped))
    profile = profile_of("t", [traced, sample("r", wall_s=1.0)], "here")
    assert profile.read_fraction is None, "one of the inputs could not be followed"
    found = profile.input("half_3")
    assert found is not None and found.touched_fraction is not None and found.touched_fraction.median == 0.5
    again = profile.inputs["twice"]
    assert again.reads_per_byte is not None and again.sequential_fraction is not None
    assert (again.reads_per_byte.median, again.sequential_fraction.median) == (2.0, 0.75)
    assert profile.inputs["mapped"].touched_fraction is None
    whole = sample("w", "trace2", kind=Kind.TRACE, input_bytes=1000, touched_bytes=250)
    assert profile_of("t", [whole], "here").read_fraction.median == 0.25  # type: ignore[union-attr]


def test_samples_in_any_order_make_the_same_profile() -> None:
    rng = Random(7)
    samples = [
        sample(
            f"a{i}", f"r{i % 5}", at=float(i), input_bytes=(x := rng.randint(1, 10**9)), wall_s=x / 1e8 + rng.random(), cpu_s=rng.random()
        )
        for i in range(300)
    ]
    first = profile_of("t", samples, "here")
    rng.shuffle(samples)
    assert profile_of("t", samples, "here") == first and first.wall_s is not None and first.wall_s.line is not None
