"""From what single attempts measured to the profile of their job type.

May know: the model. One rule: a quantity speaks of the samples that saw it; what was measured here silences what was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stager.model.ids import digest_of
from stager.model.profile import FileProfile, Profile, Quantity, pattern_of
from stager.model.robust import better_line, median, quantile, spread_factor, weight_of_age

HIGH_SHARE = 0.95
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
    """One attempt that ended well. `store` is the profiles store that measured it: with the attempt's id it names the sample everywhere."""

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


@dataclass(frozen=True, slots=True)
class Seen:
    """One sample's word on one quantity. `high` differs from `value` where the sample knows a largest beside a mean."""

    sample: Sample
    value: float
    high: float


Look = Callable[[Sample], "tuple[float, float] | None"]


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
    ordered = sorted(samples, key=lambda sample: digest_of(sample.store, sample.attempt))

    def quantity(look: Look, *, scaled: bool = True) -> Quantity | None:
        return quantity_of(ordered, own_store, look, scaled=scaled)

    return Profile(
        job_type,
        samples=len(samples),
        runs=len({(sample.store, sample.run) for sample in samples}),
        wall_s=quantity(plain("wall_s")),
        cpu_s=quantity(plain("cpu_s")),
        memory_peak_bytes=quantity(plain("memory_peak_bytes")),
        input_bytes=quantity(plain("input_bytes"), scaled=False),
        input_files=quantity(plain("input_files"), scaled=False),
        read_bytes=quantity(plain("read_bytes")),
        reread_bytes=quantity(plain("reread_bytes")),
        read_fraction=quantity(read_fraction, scaled=False),
        written_bytes=quantity(plain("written_bytes")),
        output_bytes=quantity(plain("output_bytes")),
        output_files=quantity(plain("output_files"), scaled=False),
        inputs=file_profiles(ordered, own_store, Side.INPUT),
        outputs=file_profiles(ordered, own_store, Side.OUTPUT),
    )


def plain(name: str) -> Look:
    def look(sample: Sample) -> tuple[float, float] | None:
        value = getattr(sample, name)
        return None if value is None else (value, value)

    return look


def read_fraction(sample: Sample) -> tuple[float, float] | None:
    if sample.touched_bytes is None or not sample.input_bytes:
        return None
    share = min(1.0, sample.touched_bytes / sample.input_bytes)
    return share, share


def quantity_of(samples: Sequence[Sample], own_store: str, look: Look, *, scaled: bool) -> Quantity | None:
    """None where no sample saw it. `scaled`: a line over the job's input bytes is tried."""
    everything = [Seen(sample, *found) for sample in samples if (found := look(sample)) is not None]
    own = [seen for seen in everything if seen.sample.store == own_store]
    found = newest_first(own or everything)
    if not found:
        return None
    entries, weights = [seen for seen, _ in found], [weight for _, weight in found]
    values, highs = [seen.value for seen in entries], [seen.high for seen in entries]
    middle, high = median(values, weights), quantile(highs, weights, HIGH_SHARE)
    sized = [(seen, weight) for seen, weight in found if seen.sample.input_bytes is not None] if scaled else []
    xs = [float(seen.sample.input_bytes or 0) for seen, _ in sized]
    line = better_line(xs, [seen.value for seen, _ in sized], [weight for _, weight in sized])
    if line is None:
        spread = spread_factor(values, [middle] * len(values), weights)
        return Quantity(middle, high, spread, len(entries), imported=not own)
    expected = [line.at(x) for x in xs]
    about = [weight for _, weight in sized]
    ratios = [(seen.high / e, weight) for (seen, weight), e in zip(sized, expected, strict=True) if e > 0]
    factor = max(1.0, quantile(*map(list, zip(*ratios, strict=True)), HIGH_SHARE)) if ratios else 1.0  # type: ignore[misc]
    spread = spread_factor([seen.value for seen, _ in sized], expected, about)
    return Quantity(middle, high, spread, len(entries), line, factor, imported=not own)


def newest_first(found: Sequence[Seen]) -> list[tuple[Seen, float]]:
    """With the weight of each: age counts in runs that saw the quantity, so that a large run is not older in itself."""
    last: dict[tuple[str, str], float] = {}
    for seen in found:
        key = (seen.sample.store, seen.sample.run)
        last[key] = max(last.get(key, seen.sample.at), seen.sample.at)
    age = {key: place for place, key in enumerate(sorted(last, key=lambda key: (-last[key], key)))}
    ages = [age[seen.sample.store, seen.sample.run] for seen in found]
    order = sorted(range(len(found)), key=ages.__getitem__)
    return [(found[index], weight_of_age(ages[index])) for index in order]


def file_profiles(samples: Sequence[Sample], own_store: str, side: Side) -> dict[str, FileProfile]:
    """By pattern, the most frequent first."""
    by_attempt = [{group.pattern: group for group in sample.files if group.side is side} for sample in samples]
    counts: dict[str, int] = {}
    for groups in by_attempt:
        for pattern in groups:
            counts[pattern] = counts.get(pattern, 0) + 1
    places = {(sample.store, sample.attempt): groups for sample, groups in zip(samples, by_attempt, strict=True)}
    made = {}
    for pattern in sorted(counts, key=lambda pattern: (-counts[pattern], pattern))[:PATTERNS_MAX]:

        def look_with(measure: Callable[[FileGroup], tuple[float, float] | None], pattern: str = pattern) -> Look:
            def look(sample: Sample) -> tuple[float, float] | None:
                group = places[sample.store, sample.attempt].get(pattern)
                return None if group is None else measure(group)

            return look

        files = quantity_of(samples, own_store, look_with(lambda group: (group.files, group.files)), scaled=False)
        assert files is not None, "a pattern that was counted was seen"
        made[pattern] = FileProfile(
            pattern,
            files,
            size_bytes=quantity_of(samples, own_store, look_with(size_of_one), scaled=side is Side.OUTPUT),
            touched_fraction=quantity_of(samples, own_store, look_with(touched_fraction), scaled=False),
            reads_per_byte=quantity_of(samples, own_store, look_with(reads_per_byte), scaled=False),
            sequential_fraction=quantity_of(samples, own_store, look_with(sequential_fraction), scaled=False),
        )
    return made


def size_of_one(group: FileGroup) -> tuple[float, float] | None:
    if group.size_bytes is None or group.largest_bytes is None:
        return None
    return group.size_bytes / group.files, group.largest_bytes


def touched_fraction(group: FileGroup) -> tuple[float, float] | None:
    return share_of(group.touched_bytes, group.size_bytes)


def reads_per_byte(group: FileGroup) -> tuple[float, float] | None:
    return share_of(group.read_bytes, group.touched_bytes)


def sequential_fraction(group: FileGroup) -> tuple[float, float] | None:
    return share_of(group.sequential_bytes, group.read_bytes)


def share_of(part: int | None, whole: int | None) -> tuple[float, float] | None:
    return (part / whole, part / whole) if part is not None and whole else None
