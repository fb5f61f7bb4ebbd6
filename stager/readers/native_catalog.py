"""The files of a native workflow while it is expanded: single ones, sets, what stands at origins, what jobs make.

May know: spec, paths, the OriginAccess port. One rule: a name stands for one file; a place at an origin has one name.
"""

from __future__ import annotations

from collections.abc import Iterable

from stager.model.errors import InvalidInput
from stager.model.files import Destination, File, FileKind, Location, OnExists, Source
from stager.model.places import ancestors
from stager.model.workflow import Origin
from stager.ports import DirectoryListing, LeftOut, OriginAccess, OriginEntry
from stager.readers.lines import Findings, Place, nearest
from stager.readers.native_left_out import left_out_maker
from stager.readers.native_spec import FileSpec, WorkflowSpec
from stager.readers.paths import RESERVED_PREFIX, NameIndex, clean_path, fixed_directory, may_match_below, pattern_of

SUGGESTIONS_MAX = 10
SUGGESTION_POOL = 2_000
LEFT_OUT_SHOWN = 100
WHY_LEFT_OUT = {
    "link_leads_out": "a link that leads out of the origin",
    "link_leads_nowhere": "a link that leads nowhere",
    "link_to_directory": "a link to a directory, which is not followed",
    "link_denied": "a link to what may not be looked at",
    "link_not_followed": "a link, and this kernel cannot follow it safely",
    "not_utf8": "a name that is not UTF-8",
    "special_file": "a pipe, socket or device",
}


class Listing:
    """The listings of origins; each directory is listed once."""

    def __init__(self, access: OriginAccess | None, origins: dict[str, Origin], findings: Findings) -> None:
        self.access, self.origins, self.findings = access, origins, findings
        self.seen: dict[tuple[str, str, bool], DirectoryListing] = {}

    def match(self, origin: str, path: str, *, glob: bool, place: Place, key: str) -> list[OriginEntry]:
        """Files that a pattern matches, or all below a directory; nothing found is a finding."""
        shown = f"{origin}:{path}" if glob else f"{origin}:{path}/" if path else f"{origin}:"
        if self.access is None:
            self.findings.note(place, key, f"{shown!r} must be listed at its origin, and this command has no access to origins")
            return []
        try:
            directory = fixed_directory(path) if glob else path
            recursive = not glob or "/" in path[len(directory) :].strip("/") or path.endswith("**")
            pattern = pattern_of(path) if glob else None
            listed = self.below(self.access, origin, directory, recursive)
        except (ValueError, InvalidInput) as error:
            self.findings.note(place, key, str(error))
            return []
        found = [entry for entry in listed.files if pattern is None or pattern.fullmatch(entry.path)]
        left = [each for each in listed.left_out if pattern is None or touches(path, each)]
        if left:
            self.findings.note(place, key, left_out_text(shown, origin, left))
        elif not found:
            what = "matches no file" if glob else "holds no file"
            self.findings.note(place, key, f"{shown!r} {what}; looked at {self.origins[origin].url}/{directory}")
        return found

    def below(self, access: OriginAccess, origin: str, directory: str, recursive: bool) -> DirectoryListing:
        key = (origin, directory, recursive)
        if key not in self.seen:
            files, left_out = access.list(self.origins[origin], directory, recursive=recursive)
            files = [entry for entry in files if entry.kind == "file" and not is_ours(entry.path)]
            self.seen[key] = DirectoryListing(files, [each for each in left_out if not is_ours(each.path)])
        return self.seen[key]


def touches(glob: str, left: LeftOut) -> bool:
    """The pattern matches it, or could match files below it. A directory is nothing that a pattern takes, however one gets there."""
    return may_match_below(glob, left.path) if left.directory else bool(pattern_of(glob).fullmatch(left.path))


def left_out_text(shown: str, origin: str, left: list[LeftOut]) -> str:
    """A file that a pattern means and that is not taken would be missing from a result without a word."""
    by_reason: dict[str, list[str]] = {}
    for each in left[:LEFT_OUT_SHOWN]:
        by_reason.setdefault(WHY_LEFT_OUT.get(each.why, each.why), []).append(f"'{origin}:{each.path}'")
    told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    more = f" and {len(left) - LEFT_OUT_SHOWN} more" if len(left) > LEFT_OUT_SHOWN else ""
    advice = "make each a file, name an origin where the links lead to, or write a pattern that leaves them out"
    return f"{shown!r} takes in what cannot be read as files: {told}{more}; {advice}"


def is_ours(path: str) -> bool:
    """Temporary files that a run left at an origin."""
    return path.startswith(RESERVED_PREFIX) or f"/{RESERVED_PREFIX}" in path


class Catalog:
    """Names -> files, in the order of writing. Templates under `files:` have no holes: there is no foreach."""

    def __init__(self, spec: WorkflowSpec, listing: Listing, findings: Findings) -> None:
        self.spec, self.listing, self.findings = spec, listing, findings
        self.files: dict[str, File] = {}
        self.sets: dict[str, list[str]] = {}
        self.by_location: dict[tuple[str, str], str] = {}
        self.listed: dict[tuple[str, str], OriginEntry] = {}
        self.places: dict[str, tuple[Place, str]] = {}
        self.entry_of: dict[str, str] = {}
        self.index: NameIndex | None = None
        self.suggestions_left = SUGGESTIONS_MAX

    def add_written(self) -> None:
        """Everything under `files:`."""
        for spec in self.spec.files.values():
            if not spec.is_set:
                self.add_single(spec)
        for spec in self.spec.files.values():
            if spec.is_set:
                self.sets[spec.name] = self.add_set(spec)

    def add_single(self, spec: FileSpec) -> None:
        places = [Location(source.reference.origin, source.reference.path.source) for source in spec.sources]
        sources = tuple(Source(at, site=source.site, priority=source.priority) for at, source in zip(places, spec.sources, strict=True))
        self.files[spec.name] = File(spec.name, size_bytes=spec.size_bytes, sources=sources, executable=spec.executable, sha256=spec.sha256)
        self.places[spec.name] = (spec.sources[0].place, spec.sources[0].key)
        for at in places:
            self.by_location.setdefault((at.origin, at.path), spec.name)

    def add_set(self, spec: FileSpec) -> list[str]:
        source = spec.sources[0]
        reference, path = source.reference, source.reference.path.source
        entries = self.listing.match(reference.origin, path, glob=reference.glob, place=source.place, key=source.key)
        top = fixed_directory(path) if reference.glob else path
        return self.add_listed(reference.origin, entries, source.place, source.key, put_at=spec.put_at, top=top, executable=spec.executable)

    def add_listed(
        self,
        origin: str,
        entries: Iterable[OriginEntry],
        place: Place,
        key: str,
        *,
        put_at: str = "",
        top: str = "",
        executable: bool = False,
    ) -> list[str]:
        """Members of a set are called by their path at the origin, or by where `as` puts them."""
        lfns = []
        for entry in entries:
            try:
                name = clean_path(moved(entry.path, top, put_at))
            except ValueError as error:
                self.findings.note(place, key, f"at {origin}: {error}")
                continue
            known = self.by_location.get((origin, entry.path))
            if known is None and name in self.files:
                other = self.files[name]
                where = ", ".join(f"{source.location.origin}:{source.location.path}" for source in other.sources) or "a job"
                self.findings.note(
                    place,
                    key,
                    f"two files are called {name!r}: {origin}:{entry.path} and that of {where}; move this set with as: DIRECTORY",
                )
                continue
            if known is None:
                self.add_entry(name, origin, entry, executable)
                self.places[name] = (place, key)
            lfns.append(known or name)
        return lfns

    def add_entry(self, lfn: str, origin: str, entry: OriginEntry, executable: bool) -> None:
        source = Source(Location(origin, entry.path), entry.size_bytes, entry.token, settled=entry.settled)
        self.files[lfn] = File(lfn, size_bytes=entry.size_bytes, sources=(source,), executable=executable)
        self.by_location[origin, entry.path] = lfn

    def claim(self, origin: str, path: str, place: Place, key: str, entry: OriginEntry | None = None) -> str:
        """The name of a file written in place as origin:path: its path, or the whole text where that name is taken."""
        lfn = self.by_location.get((origin, path))
        if lfn is None:
            lfn = path if path not in self.files and path not in self.sets else f"{origin}:{path}"
            self.places[lfn] = (place, key)
            entry = entry or self.listed.get((origin, path))
            if entry is not None:
                self.add_entry(lfn, origin, entry, False)
            else:
                self.files[lfn] = File(lfn, sources=(Source(Location(origin, path)),))
                self.by_location[origin, path] = lfn
        return lfn

    def add_output(self, lfn: str, file: File, entry: str) -> None:
        """The first of a name stays; that there is a second is found when the graph is checked."""
        if lfn not in self.files:
            self.files[lfn] = file
            self.entry_of[lfn] = entry

    def matching(self, glob: str, own: str) -> list[str]:
        """Names of `files:` and outputs, without what the asking entry makes itself. Raises ValueError."""
        if self.index is None:
            self.index = NameIndex(self.files)
        return [lfn for lfn in self.index.match(glob) if self.entry_of.get(lfn) != own]

    def why_missing(self, name: str) -> str:
        """The message for a name that stands for nothing."""
        if left := left_out_maker(self.spec, name):
            return f"{name!r} is made by {left}"
        for above in ancestors(name):
            if above in self.files and self.files[above].kind is FileKind.DIRECTORY:
                return (
                    f"{name!r} lies in the directory output {above + '/'!r}, which is taken as a whole; write {above + '/'!r} as the input"
                )
        close = ""
        if self.suggestions_left:
            self.suggestions_left -= 1
            close = nearest(name, [*self.sets, *list(self.files)[:SUGGESTION_POOL]])
        return f"no job makes {name!r} and 'files:' does not name it{close}; a file at an origin is written origin:path"


def moved(path: str, top: str, put_at: str) -> str:
    """The path with its fixed directory exchanged for another."""
    if not put_at:
        return path
    return f"{put_at}/{path[len(top) :].lstrip('/')}" if path.startswith(top) else f"{put_at}/{path}"


def destination_of(origin: str, path: str, into: bool, lfn: str, on_exists: OnExists) -> Destination:
    whole = f"{path}/{lfn}" if into and path else lfn if into else path
    return Destination(Location(origin, whole), on_exists)
