"""Profiles without a scheduler: read for planning, and taken in from files. One rule: reading them changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stager.adapters import moves, overheads
from stager.adapters.profiles_json import is_profiles, profiles_from_json
from stager.adapters.profiles_store import ProfilesStore, needs_upgrade, read_profiles, read_samples
from stager.model.copying import Copying, copying_of
from stager.model.deleting import Deleting, deleting_of
from stager.model.errors import InvalidInput, Refused
from stager.model.link import Move, measured_of
from stager.model.overhead import Overhead, overhead_of
from stager.model.profile import FILE_QUANTITIES, QUANTITIES, Profile, Profiles, Quantity
from stager.model.profiling import Sample
from stager.model.topology import OriginLink
from stager.model.workflow import Workflow
from stager.readers import wfcommons_profiles
from stager.service.settings import Settings
from stager.service.state_dir import LockHeld, StateDir

IMPORT_WAITS_S = 30.0


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The yield of one file: samples in it, those of them that were not there yet and are kept, and the parts of the file that were not
    taken.
    """

    source: str
    samples: int
    fresh: int
    job_types: int
    notes: tuple[str, ...] = ()


def load_profiles(settings: Settings) -> Profiles:
    return read_profiles(StateDir(settings.state_dir).profiles)


def load_overhead(settings: Settings, links: Sequence[OriginLink] = ()) -> Overhead:
    """`links`: as runs from this node alone measured them."""
    rates = [link.fetch_bytes_per_s for link in links if link.measured]
    return overhead_of(overheads.read(StateDir(settings.state_dir).profiles), max(rates, default=0.0))


def load_links(settings: Settings, workflow: Workflow) -> tuple[OriginLink, ...]:
    """Of the workflow's origins those of which something was measured, as their transfers told; also those of before links were known by
    their servers.
    """
    seen = moves.read(StateDir(settings.state_dir).profiles)
    found = {
        name: [move for link in dict.fromkeys((origin.link, origin.link_of_place)) for move in seen.get(link, ())]
        for name, origin in sorted(workflow.origins.items())
    }
    return tuple(measured_of(workflow.origins[name], told).of(name) for name, told in found.items() if told)


def load_copying(settings: Settings) -> Copying:
    return copying_of(moves_over(settings, moves.BETWEEN_NODES))


def load_deleting(settings: Settings) -> Deleting:
    return deleting_of(moves_over(settings, moves.DELETES))


def moves_over(settings: Settings, link: str) -> Sequence[Move]:
    return moves.read(StateDir(settings.state_dir).profiles, link).get(link, ())


def load_samples(state_dir: Path) -> Sequence[Sample]:
    return read_samples(StateDir(state_dir).profiles)[0]


def import_profiles(state_dir: Path, paths: Sequence[Path]) -> list[TakenIn]:
    """All files are read before the first sample is taken. Raises InvalidInput that names the file and the place in it."""
    found = [(path, *samples_of(path)) for path in paths]
    taken = []
    with OpenProfiles(state_dir) as store:
        for path, samples, notes in found:
            types = len({sample.job_type for sample in samples})
            taken.append(TakenIn(str(path), len(samples), store.take_in(samples), types, notes))
    return taken


def samples_of(path: Path) -> tuple[list[Sample], tuple[str, ...]]:
    try:
        said = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(
            f"{path} is neither exported profiles nor a WfCommons instance, which are JSON: {problem}", subject=str(path)
        ) from None
    if is_profiles(said):
        return profiles_from_json(said, str(path)), ()
    if isinstance(said, dict) and "schemaVersion" in said:
        return wfcommons_profiles.read_samples(path)
    text = f"{path} is neither exported profiles (`stager profile export`) nor a WfCommons instance ('schemaVersion')"
    raise InvalidInput(text, subject=str(path))


def profile_to_dict(profile: Profile) -> dict[str, Any]:
    """docs/formats/profiles.md."""
    said: dict[str, Any] = {"job_type": profile.job_type, "samples": profile.samples, "runs": profile.runs}
    said |= {name: quantity_to_dict(getattr(profile, name)) for name in QUANTITIES}
    for side, files in (("inputs", profile.inputs), ("outputs", profile.outputs)):
        said[side] = {
            pattern: {name: quantity_to_dict(getattr(found, name)) for name in FILE_QUANTITIES} for pattern, found in files.items()
        }
    return said


def quantity_to_dict(quantity: Quantity | None) -> dict[str, Any] | None:
    return None if quantity is None else asdict(quantity)


class OpenProfiles:
    """The store of a state directory, opened to write beside a scheduler that may live there. Only who holds the lock may upgrade it."""

    def __init__(self, state_dir: Path) -> None:
        self.place = StateDir(state_dir)

    def __enter__(self) -> ProfilesStore:
        self.place.make()
        old = needs_upgrade(self.place.profiles)
        try:
            with self.place.held() if old else nullcontext():
                self.store = ProfilesStore(self.place.profiles, busy_s=IMPORT_WAITS_S)
        except LockHeld as problem:
            text = f"{problem.message} and uses profiles of an older format; end it with `stager shutdown` first"
            raise Refused(text, code="profiles_older", subject=str(self.place.profiles)) from None
        return self.store

    def __exit__(self, *problem: object) -> None:
        self.store.close()
