"""The catalogs of a Pegasus workflow: replicas, transformations, sites; inline, or in files beside the workflow.

May know: Pegasus 5 catalogs. One rule: an inline catalog is the catalog; only without one is a file looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stager.readers.lines import Place, compose, read_text
from stager.readers.pegasus_form import CheckedMapping, Reports

Profiles = dict[str, dict[str, str]]
Key = tuple[str, str, str]


@dataclass(slots=True)
class Replica:
    file: str
    place: Place
    pfns: list[tuple[str, str]] = field(default_factory=list)
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TransformationSite:
    name: str
    pfn: str
    stageable: bool
    container: str
    profiles: Profiles
    sha256: str | None = None


@dataclass(slots=True)
class Transformation:
    file: str
    place: Place
    key: Key
    sites: list[TransformationSite]
    profiles: Profiles
    requires: list[str]
    has_hooks: bool


@dataclass(frozen=True, slots=True)
class Container:
    """`image`: where it is, at `site`. `mounts`: directories of the host that it asks for."""

    file: str
    place: Place
    name: str
    image: str
    site: str
    profiles: Profiles
    mounts: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(slots=True)
class Catalogs:
    replicas: dict[str, Replica] = field(default_factory=dict)
    transformations: dict[Key, Transformation] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    site_profiles: dict[str, Profiles] = field(default_factory=dict)
    looked_for: dict[str, list[str]] = field(default_factory=dict)


def read_catalogs(reports: Reports, workflow: CheckedMapping, path: Path) -> Catalogs:
    catalogs = Catalogs()
    for entry in catalog(reports, workflow, path, "replicaCatalog", "replicas", catalogs):
        read_replica(entry, catalogs)
    for entry in catalog(reports, workflow, path, "transformationCatalog", "transformations", catalogs):
        read_transformation(entry, catalogs)
    for entry in catalog(reports, workflow, path, "transformationCatalog", "containers", catalogs, beside="transformations"):
        read_container(entry, catalogs)
    for entry in catalog(reports, workflow, path, "siteCatalog", "sites", catalogs):
        catalogs.site_profiles[entry.text("name", required=True)] = profiles_of(entry)
    return catalogs


def catalog(
    reports: Reports, workflow: CheckedMapping, path: Path, inline: str, word: str, catalogs: Catalogs, beside: str = ""
) -> Iterator[CheckedMapping]:
    """The entries of one catalog. `beside`: what its files are called by, where that is another word."""
    if workflow.has(inline):
        return workflow.entry(inline).entries(word)
    names = names_beside(path, beside or word)
    catalogs.looked_for[word] = names
    found = next((path.parent / name for name in names if (path.parent / name).is_file()), None)
    if found is None:
        return iter(())
    root = compose(read_text(found, found.name), found.name)
    return CheckedMapping(reports, found.name, root, "").entries(word)


def names_beside(path: Path, word: str) -> list[str]:
    """`a-b.yml`: a-b-replicas.yml, a-replicas.yml, replicas.yml; generators put a number or a size behind the name they share."""
    stems, stem = [], path.stem
    while stem:
        stems.append(f"{stem}-{word}")
        stem = stem.rpartition("-")[0]
    return [f"{stem}{suffix}" for stem in (*stems, word) for suffix in (".yml", ".yaml")]


def read_replica(entry: CheckedMapping, catalogs: Catalogs) -> None:
    lfn = entry.text("lfn", required=True)
    if entry.flag("regex", False):
        message = f"regex replica {lfn!r}: which files it stands for is not known before the run; list each file with its pfn"
        entry.reports.refuse(entry.file, entry.place, entry.where, message)
        return
    replica = catalogs.replicas.setdefault(lfn, Replica(entry.file, entry.place))
    for pfn in entry.entries("pfns"):
        replica.pfns.append((pfn.text("site"), pfn.text("pfn", required=True)))
    if entry.has("pfn"):
        replica.pfns.append((entry.text("site"), entry.text("pfn")))
    replica.sha256 = replica.sha256 or sha256_of(entry)
    size_bytes = entry.size_bytes()
    replica.size_bytes = size_bytes if replica.size_bytes is None else replica.size_bytes


def sha256_of(entry: CheckedMapping) -> str | None:
    if not entry.has("checksum"):
        return None
    checksum = entry.entry("checksum")
    word = checksum.text("sha256").lower()
    if word and (len(word) != 64 or word.strip("0123456789abcdef")):
        entry.reports.wrong(entry.file, checksum.place, checksum.key("sha256"), "is not 64 hexadecimal digits")
        return None
    if not word:
        entry.reports.note(f"a checksum that is not sha256 is not used ({entry.file}:{entry.place.line})")
    return word or None


def read_transformation(entry: CheckedMapping, catalogs: Catalogs) -> None:
    key = key_of(entry)
    profiles, sha256 = profiles_of(entry), sha256_of(entry)
    sites = []
    for site in entry.entries("sites"):
        kind = site.text("type", required=True)
        if kind not in ("installed", "stageable", ""):
            site.reports.wrong(site.file, site.place, site.key("type"), f"{kind!r} is not installed or stageable")
        pfn = site.text("pfn", required=True)
        own = profiles_of(site)
        sites.append(
            TransformationSite(site.text("name"), pfn, kind == "stageable", site.text("container"), own, sha256_of(site) or sha256)
        )
    if key in catalogs.transformations:
        first = catalogs.transformations[key].place.line
        entry.reports.wrong(
            entry.file, entry.place, entry.where, f"{name_of(key)!r} is listed twice, first in line {first}; put its sites together"
        )
        return
    requires = entry.texts("requires")
    catalogs.transformations[key] = Transformation(entry.file, entry.place, key, sites, profiles, requires, has_hooks(entry))


def read_container(entry: CheckedMapping, catalogs: Catalogs) -> None:
    name = entry.text("name", required=True)
    if name in catalogs.containers:
        first = catalogs.containers[name].place.line
        entry.reports.wrong(entry.file, entry.place, entry.where, f"the container {name!r} is listed twice, first in line {first}")
        return
    image, mounts = entry.text("image", required=True), tuple(entry.texts("mounts"))
    catalogs.containers[name] = Container(
        entry.file, entry.place, name, image, entry.text("image_site") or "local", profiles_of(entry), mounts, sha256_of(entry)
    )


def has_hooks(entry: CheckedMapping) -> bool:
    """Hooks that name nothing to run are none."""
    return entry.has("hooks") and any(value.items for value in entry.entry("hooks").members.values() if value.kind == "sequence")


def key_of(entry: CheckedMapping) -> Key:
    return entry.text("namespace"), entry.text("name", required=True), entry.text("version")


def key_from(word: str) -> Key:
    """`namespace::name:version`, where the first and the last may be missing."""
    namespace, colons, rest = word.partition("::")
    if not colons:
        namespace, rest = "", word
    name, _, version = rest.partition(":")
    return namespace, name, version


def name_of(key: Key) -> str:
    namespace, name, version = key
    return (f"{namespace}::" if namespace else "") + name + (f":{version}" if version else "")


def profiles_of(entry: CheckedMapping) -> Profiles:
    """Namespace -> key -> value as written."""
    if not entry.has("profiles"):
        return {}
    profiles = entry.entry("profiles")
    found: Profiles = {}
    for namespace in profiles.members:
        if not namespace.startswith("x-"):
            owner = profiles.entry(namespace)
            found[namespace] = {key: owner.text(key) for key in owner.members if not key.startswith("x-")}
    return found
