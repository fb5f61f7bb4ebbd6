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
    if not isinstance(version, int) or version > VERSION:
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
    if not isinstance(entries, list):
        raise InvalidInput(f"{source}: job_types.{job_type} must be a list of samples", subject=source)
    return [(f"job_types.{job_type}[{number}]", entry) for number, entry in enumerate(entries)]


def sample_of(entry: Any, job_type: str, place: str) -> Sample:
    try:
        sample = msgspec.convert({**entry, "job_type": job_type} if isinstance(entry, dict) else entry, Sample)
    except msgspec.ValidationError as problem:
        raise InvalidInput(f"{place}: {problem}", subject=place) from None
    wrong = [name for name, value in numbers_of(sample) if value is not None and value < 0]
    wrong += ["files"] if any(group.files < 1 for group in sample.files) else []
    wrong += [name for name in ("store", "attempt") if not getattr(sample, name)]
    if wrong:
        raise InvalidInput(f"{place}: {wrong[0]} cannot be what it is here", subject=place)
    return sample


def numbers_of(sample: Sample) -> Iterable[tuple[str, float | None]]:
    for name, value in asdict(sample).items():
        if isinstance(value, (int, float)):
            yield name, value
    for group in sample.files:
        yield from ((name, value) for name, value in asdict(group).items() if isinstance(value, int))
