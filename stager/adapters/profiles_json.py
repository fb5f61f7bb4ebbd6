"""Profiles as a file that travels: the samples of job types as JSON (docs/formats/profiles.md).

May know: the model, msgspec. One rule: what is written is read back equal, and a file that says what cannot be is refused with the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from stager.model.errors import InvalidInput
from stager.model.profiling import Sample
from stager.model.units import SIZE_BYTES_MAX

FORMAT = "stager-profiles"
VERSION = 1


def profiles_to_json(samples: Iterable[Sample]) -> str:
    """One line per sample, sorted, so that two exports can be compared by line."""
    by_type: dict[str, list[str]] = {}
    for sample in sorted(samples, key=lambda sample: (sample.job_type, sample.at, sample.store, sample.attempt)):
        said = asdict(sample)
        by_type.setdefault(said.pop("job_type"), []).append("   " + json.dumps(said, sort_keys=True))
    types = ",\n".join(f"  {json.dumps(job_type)}: [\n{(',' + chr(10)).join(lines)}\n  ]" for job_type, lines in by_type.items())
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "job_types": {{\n{types}\n}}}}\n'


def is_profiles(said: Any) -> bool:
    return isinstance(said, dict) and said.get("format") == FORMAT


def profiles_from_json(said: dict[str, Any], source: str) -> list[Sample]:
    """`said` is what `is_profiles` is true of. Raises InvalidInput."""
    version = said.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        text = f"{source} has profiles of version {version!r}, this stager knows up to {VERSION}; use a newer stager or export again"
        raise InvalidInput(text, code="profiles_newer", subject=source)
    types = said.get("job_types")
    if not isinstance(types, dict):
        raise InvalidInput(f'{source}: "job_types" must be an object of lists of samples', subject=source)
    return [
        sample_of(entry, job_type, f"{source}: {place}")
        for job_type, entries in types.items()
        for place, entry in placed(job_type, entries, source)
    ]


def placed(job_type: str, entries: Any, source: str) -> list[tuple[str, Any]]:
    if not job_type:
        raise InvalidInput(f"{source}: a job type has a name, and one of job_types has none", subject=source)
    if not isinstance(entries, list):
        raise InvalidInput(f"{source}: job_types.{job_type} must be a list of samples", subject=source)
    return [(f"job_types.{job_type}[{number}]", entry) for number, entry in enumerate(entries)]


def sample_of(entry: Any, job_type: str, place: str) -> Sample:
    try:
        sample = msgspec.convert({**entry, "job_type": job_type} if isinstance(entry, dict) else entry, Sample)
    except msgspec.ValidationError as problem:
        raise InvalidInput(f"{place}: {problem}", subject=place) from None
    # Written so that what is no number fails as well.
    wrong: list[tuple[str, Any]] = [(name, value) for name, value in numbers_of(sample) if not 0 <= value <= SIZE_BYTES_MAX]
    wrong += [("files", group.files) for group in sample.files if group.files < 1]
    wrong += [(name, getattr(sample, name)) for name in ("store", "attempt") if not getattr(sample, name)]
    if wrong:
        name, value = wrong[0]
        raise InvalidInput(f"{place}: {name} is {value!r}, which it cannot be", subject=place)
    return sample


def numbers_of(sample: Sample) -> Iterable[tuple[str, float]]:
    for name, value in asdict(sample).items():
        if isinstance(value, (int, float)):
            yield name, value
    for group in sample.files:
        yield from ((name, value) for name, value in asdict(group).items() if isinstance(value, int))
