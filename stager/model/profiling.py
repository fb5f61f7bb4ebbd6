"""From what single attempts measured to the profile of their job type.

May know: the model. One rule: a quantity speaks of the samples that saw it; what was measured here silences what was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Any, TypeVar

from stager.model.ids import digest_of
from stager.model.profile import FileProfile, Profile, Quantity, pattern_of
from stager.model.robust import better_line, median, quantile, spread_factor, weight_of_age

HIGH_SHARE = 0.95
# Fewer values say nothing of how far they lie apart.
SPREAD_SAMPLES_MIN = 3
# Names that follow no pattern would each be one.
PATTERNS_MAX = 32


class Kind(StrEnum):
    """RUN: an attempt of a run here or elsewhere. TRACE: one under the tracer, whose times are not its own. RECORD: read from a record of a
    run that another system made.
    """

    RUN = "run"
    TRACE = "trace"
    RECORD = "record"


class Side(StrEnum):
    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files of one attempt and one pattern together. `touched_bytes`, `read_bytes` and `sequential_bytes` only from traces; None where
    any of them was mapped or could not be followed.
    """

    side: Side
    pattern: str
    files: int
    size_bytes: int | None = None
    largest_bytes: int | None = None
    touched_bytes: int | None = None
    read_bytes: int | None = None
    sequential_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One attempt that ended well. `store` is the profiles store that measured it: with the attempt's id it names the sample everywhere.
    `also`: another type that it speaks for, of one from before types belonged to workflows.
    """

    store: str
    attempt: str
    job_type: str
    run: str
    kind: Kind
    at: float
    wall_s: float | None = None
    cpu_s: float | None = None
    memory_peak_bytes: int | None = None
    input_bytes: int | None = None
    input_files: int | None = None
    read_bytes: int | None = None
    reread_bytes: int | None = None
    touched_bytes: int | None = None
    written_bytes: int | None = None
    output_bytes: int | None = None
    output_files: int | None = None
    files: tuple[FileGroup, ...] = ()
    also: str = ""


# What is said of one quantity: its value, and the largest beside it where the value is a mean.
Said = tuple[float, float] | None
T = TypeVar("T")


def group_files(side: Side, files: Iterable[tuple[str, int | None]]) -> tuple[FileGroup, ...]:
    """(lfn, size) of the files of one side, by pattern. Nothing where there are more patterns than can mean something."""
    sizes: dict[str, list[int | None]] = {}
    for lfn, size_bytes in files:
        sizes.setdefault(pattern_of(lfn), []).append(size_bytes)
    if len(sizes) > PATTERNS_MAX:
        return ()
    groups = []
    for pattern, found in sorted(sizes.items()):
        known = [size_bytes for size_bytes in found if size_bytes is not None]
        whole = len(known) == len(found)
        groups.append(FileGroup(side, pattern, len(found), sum(known) if whole else None, max(known) if whole else None))
    return tuple(groups)


def profile_of(job_type: str, samples: Sequence[Sample], own_store: str) -> Profile:
    """In whatever order the samples come."""
    seen = Samples(samples, own_store)
    return Profile(
        job_type,
        samples=len(samples),
        runs=len({(sample.store, sample.run) for sample in samples}),
        wall_s=seen.quantity(plain("wall_s")),
        cpu_s=seen.quantity(plain("cpu_s")),
        memory_peak_bytes=seen.quantity(plain("memory_peak_bytes")),
        input_bytes=seen.quantity(plain("input_bytes"), scaled=False),
        input_files=seen.quantity(plain("input_files"), scaled=False),
        read_bytes=seen.quantity(plain("read_bytes")),
        reread_bytes=seen.quantity(plain("reread_bytes")),
        read_fraction=seen.quantity(read_fraction, scaled=False),
        written_bytes=seen.quantity(plain("written_bytes")),
        output_bytes=seen.quantity(plain("output_bytes")),
        output_files=seen.quantity(plain("output_files"), scaled=False),
        inputs=file_profiles(seen, Side.INPUT),
        outputs=file_profiles(seen, Side.OUTPUT),
    )


def plain(name: str) -> Callable[[Sample], Said]:
    def values(sample: Sample) -> Said:
        value = getattr(sample, name)
        return None if value is None else (value, value)

    return values


def read_fraction(sample: Sample) -> Said:
    if sample.touched_bytes is None or not sample.input_bytes:
        return None
    share = min(1.0, sample.touched_bytes / sample.input_bytes)
    return share, share


class Samples:
    """Those of one type, and the order and weight of each part of them that saw the same: most quantities share it."""

    def __init__(self, samples: Sequence[Sample], own_store: str) -> None:
        self.samples = sorted(samples, key=lambda sample: digest_of(sample.store, sample.attempt))
        self.by_place = dict(enumerate(self.samples))
        self.own_store = own_store
        self.weighed: dict[tuple[int, ...], list[tuple[int, float]]] = {}

    def quantity(self, look: Callable[[T], Said], *, among: Mapping[int, T] | None = None, scaled: bool = True) -> Quantity | None:
        """None where none of them saw it. `among`: what to look at instead of whole samples, by their places. `scaled`: a line over the
        job's input bytes is tried.
        """
        subjects: Mapping[int, Any] = self.by_place if among is None else among
        seen = {place: said for place, subject in subjects.items() if (said := look(subject)) is not None}
        own = tuple(index for index in seen if self.samples[index].store == self.own_store)
        chosen = own or tuple(seen)
        if not chosen:
            return None
        order = self._newest_first(chosen)
        entries = [(self.samples[index].input_bytes, *seen[index], weight) for index, weight in order]
        return replace(quantity_of(entries, scaled=scaled, imported=not own), each=self._each(seen, order))

    def _each(self, seen: Mapping[int, tuple[float, float]], order: Sequence[tuple[int, float]]) -> float:
        """The median of the runs' means: one run in which a job hung does not move it."""
        runs: dict[tuple[str, str], tuple[list[float], float]] = {}
        for index, weight in order:
            sample = self.samples[index]
            runs.setdefault((sample.store, sample.run), ([], weight))[0].append(seen[index][0])
        return median([fmean(values) for values, _ in runs.values()], [weight for _, weight in runs.values()])

    def _newest_first(self, chosen: tuple[int, ...]) -> list[tuple[int, float]]:
        """With the weight of each: age counts in runs that saw the quantity, so that a large run is not older in itself."""
        if chosen not in self.weighed:
            last: dict[tuple[str, str], float] = {}
            for sample in (self.samples[index] for index in chosen):
                key = (sample.store, sample.run)
                last[key] = max(last.get(key, sample.at), sample.at)
            age = {key: place for place, key in enumerate(sorted(last, key=lambda key: (-last[key], key)))}
            ages = {index: age[self.samples[index].store, self.samples[index].run] for index in chosen}
            self.weighed[chosen] = [(index, weight_of_age(ages[index])) for index in sorted(chosen, key=ages.__getitem__)]
        return self.weighed[chosen]


def quantity_of(entries: Sequence[tuple[int | None, float, float, float]], *, scaled: bool, imported: bool) -> Quantity:
    """`entries`: input bytes, value, the largest beside it, weight; the newest first."""
    _, values, highs, weights = zip(*entries, strict=True)
    middle, high = median(values, weights), quantile(highs, weights, HIGH_SHARE)
    sized = [entry for entry in entries if entry[0] is not None] if scaled else []
    line = None
    if sized and high > 0:
        xs, ys, tops, about = zip(*sized, strict=True)
        line = better_line(xs, ys, about)
    if line is None:
        spread = spread_factor(values, [middle] * len(values), weights) if len(entries) >= SPREAD_SAMPLES_MIN else None
        return Quantity(middle, high, spread, len(entries), imported=imported)
    expected = [line.at(x) for x in xs]
    ratios = [(top / e, weight) for top, e, weight in zip(tops, expected, about, strict=True) if e > 0]
    factor = max(1.0, quantile([ratio for ratio, _ in ratios], [weight for _, weight in ratios], HIGH_SHARE)) if ratios else 1.0
    return Quantity(middle, high, spread_factor(ys, expected, about), len(entries), line, factor, imported=imported)


def file_profiles(seen: Samples, side: Side) -> dict[str, FileProfile]:
    """By pattern, the most frequent first."""
    groups: dict[str, dict[int, FileGroup]] = {}
    for index, sample in enumerate(seen.samples):
        for group in sample.files:
            if group.side is side:
                groups.setdefault(group.pattern, {})[index] = group
    made = {}
    for pattern in sorted(groups, key=lambda pattern: (-len(groups[pattern]), pattern))[:PATTERNS_MAX]:
        among = groups[pattern]
        files = seen.quantity(count_of, among=among, scaled=False)
        assert files is not None, "a pattern that is there was seen"
        made[pattern] = FileProfile(
            pattern,
            files,
            size_bytes=seen.quantity(size_of_one, among=among, scaled=side is Side.OUTPUT),
            touched_fraction=seen.quantity(touched_fraction, among=among, scaled=False),
            reads_per_byte=seen.quantity(reads_per_byte, among=among, scaled=False),
            sequential_fraction=seen.quantity(sequential_fraction, among=among, scaled=False),
        )
    return made


def count_of(group: FileGroup) -> tuple[float, float]:
    return group.files, group.files


def size_of_one(group: FileGroup) -> Said:
    if group.size_bytes is None or group.largest_bytes is None:
        return None
    return group.size_bytes / group.files, group.largest_bytes


def touched_fraction(group: FileGroup) -> Said:
    return share_of(group.touched_bytes, group.size_bytes)


def reads_per_byte(group: FileGroup) -> Said:
    return share_of(group.read_bytes, group.touched_bytes)


def sequential_fraction(group: FileGroup) -> Said:
    return share_of(group.sequential_bytes, group.read_bytes)


def share_of(part: int | None, whole: int | None) -> Said:
    return (part / whole, part / whole) if part is not None and whole else None
