"""The program of a Pegasus job: its transformation, found at a site, installed there or staged as an input.

May know: transformation catalogs. One rule: nothing is guessed; a transformation that is not there is named with the jobs that want it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from stager.readers.lines import nearest
from stager.readers.paths import REGISTRY
from stager.readers.pegasus_catalogs import Catalogs, Container, Key, Profiles, Transformation, TransformationSite, key_from, name_of
from stager.readers.pegasus_form import Reports
from stager.readers.pegasus_jobs import PegasusJob

LOCAL_SITES = ("local", "condorpool")


@dataclass(frozen=True, slots=True)
class Executable:
    """A file to be staged under the name Pegasus gives it: namespace-name-version."""

    lfn: str
    pfns: tuple[tuple[str, str], ...]
    sha256: str | None
    transformation: Transformation


@dataclass(slots=True)
class Program:
    argv0: str
    executables: list[Executable] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    layers: list[Profiles] = field(default_factory=list)
    container: Container | None = None


class Programs:
    """One answer for each transformation, given once."""

    def __init__(self, reports: Reports, catalogs: Catalogs, site: str | None, *, pulls: bool = False) -> None:
        self.reports, self.catalogs, self.site, self.pulls = reports, catalogs, site, pulls
        self.known: dict[Key, Program | None] = {}

    def program_of(self, job: PegasusJob) -> Program | None:
        """None when there is none, which is reported."""
        transformation = self.catalogs.transformations.get(job.key)
        if transformation is None:
            self.reports.wrong_in(job.id, job.place, "jobs.name", self.missing(job.key))
            return None
        needed = [transformation, *self.required(job, transformation)]
        for each in needed:
            self.refuse_unserved(job, each)
        if job.key not in self.known:
            self.known[job.key] = self.find(transformation, needed)
        return self.known[job.key]

    def find(self, transformation: Transformation, needed: list[Transformation]) -> Program | None:
        picked = self.pick(transformation)
        if picked is None:
            return None
        program = Program(self.argv0(transformation, picked))
        program.container = self.catalogs.containers.get(picked.container)
        own = [program.container.profiles] if program.container is not None else []
        program.layers = [self.catalogs.site_profiles.get(picked.name, {}), *own, transformation.profiles, picked.profiles]
        program.files = [word for each in needed for word in each.requires if self.is_file(word)]
        for each in needed:
            choice = self.pick(each)
            if choice is not None and choice.stageable:
                pfns = tuple((site.name, site.pfn) for site in each.sites if site.stageable)
                program.executables.append(Executable(staged_name(each.key), pfns, choice.sha256, each))
        return program

    def argv0(self, transformation: Transformation, picked: TransformationSite) -> str:
        if picked.stageable:
            return f"./{staged_name(transformation.key)}"
        path = unquote(picked.pfn.removeprefix("file://")) if picked.pfn.startswith("file:///") else picked.pfn
        if "://" in path or "\0" in path or not path:
            name = name_of(transformation.key)
            message = f"{name!r} is installed at {picked.pfn!r}, which is no path; make it stageable, or write the path"
            self.reports.wrong(transformation.file, transformation.place, "transformations.sites.pfn", message)
        return path

    def pick(self, transformation: Transformation) -> TransformationSite | None:
        """The site asked for, else this machine as Pegasus calls it, else the first listed. A staged program can come from any site."""
        for name in (self.site,) if self.site else LOCAL_SITES:
            for site in transformation.sites:
                if site.name == name:
                    return site
        if not self.site and transformation.sites:
            first = transformation.sites[0]
            if not first.stageable:
                self.reports.note(
                    f"programs installed at site {first.name!r} are taken to be installed here: {name_of(transformation.key)}"
                )
            return first
        stageable = next((site for site in transformation.sites if site.stageable), None)
        if stageable is None:
            listed = ", ".join(site.name for site in transformation.sites) or "no site"
            message = f"{name_of(transformation.key)!r} is not at site {self.site!r}; choose one of {listed}, or make it stageable"
            self.reports.wrong(transformation.file, transformation.place, "transformations.sites", message)
        return stageable

    def required(self, job: PegasusJob, transformation: Transformation) -> Iterator[Transformation]:
        """All that it requires, and what those require."""
        seen, waiting = {transformation.key}, list(transformation.requires)
        while waiting:
            key = key_from(waiting.pop(0))
            found = self.catalogs.transformations.get(key)
            if found is None and not self.is_file(name_of(key)):
                self.reports.wrong_in(job.id, transformation.place, "transformations.requires", self.missing(key))
            elif found is not None and key not in seen:
                seen.add(key)
                waiting += found.requires
                yield found

    def is_file(self, word: str) -> bool:
        return word in self.catalogs.replicas and key_from(word) not in self.catalogs.transformations

    def refuse_unserved(self, job: PegasusJob, transformation: Transformation) -> None:
        name = name_of(transformation.key)
        if transformation.has_hooks:
            message = f"hooks of transformations are not run; take them out of {name!r}"
            self.reports.refuse_in(job.id, transformation.place, "transformations.hooks", message)
        picked = self.pick(transformation)
        if picked is not None and picked.container:
            self.refuse_unserved_container(job, name, picked.container)

    def refuse_unserved_container(self, job: PegasusJob, name: str, asked: str) -> None:
        found = self.catalogs.containers.get(asked)
        key = "transformations.sites.container"
        if found is None:
            hint = nearest(asked, self.catalogs.containers)
            self.reports.wrong_in(job.id, job.place, key, f"{name!r} runs in {asked!r}, which is not among the containers{hint}")
        elif found.mounts:
            message = f"a container finds the job's files alone, and {asked!r} mounts {found.mounts[0]!r}; make it an input"
            self.reports.refuse_in(job.id, job.place, "containers.mounts", message)
        elif (scheme := REGISTRY.match(found.image)) is not None and not (self.pulls and scheme[0] == "docker://"):
            message = f"no {scheme[0]} image is pulled here, and {name!r} runs in {asked!r}; bring it once as a file, and name that"
            self.reports.refuse_in(job.id, job.place, "containers.image", message)

    def missing(self, key: Key) -> str:
        listed = {name_of(each): each for each in self.catalogs.transformations}
        names = self.catalogs.looked_for.get("transformations", [])
        if not listed and names:
            return (
                f"transformation {name_of(key)!r} is in no catalog: there is none in the workflow, and none of {', '.join(names)} beside it"
            )
        same = next((word for word, each in listed.items() if each[1] == key[1]), None)
        hint = f"; did you mean {same!r}?" if same else nearest(name_of(key), listed)
        return f"transformation {name_of(key)!r} is not in the transformation catalog{hint}"


def staged_name(key: Key) -> str:
    return "-".join(part.replace("/", "_") for part in key if part)
