"""What lies beside a workflow file and goes with it to a service: the files that the workflow takes, and its finals that come back.

May know: the native reader, the client. One rule: nothing outside the directories that the workflow names leaves this machine, and nothing
is written outside them.

A `file:` origin that is written relative to the workflow file, `here` among them, is such a directory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stager import rest
from stager.adapters.content_hash import blake3_of
from stager.cli.ignore_rules import NAME, IgnoreRules
from stager.client import RestClient
from stager.model.errors import Corrupt, ErrorClass, Fault, InvalidInput, Refused, StagerError
from stager.model.files import OnExists
from stager.model.units import counted, format_size
from stager.model.workflow import Origin, Workflow
from stager.ports import DirectoryListing, OriginEntry, Probe
from stager.readers import native
from stager.readers.lines import Node, compose, read_lines, read_text
from stager.readers.native_beside import Beside
from stager.readers.native_template import template_of
from stager.wire import LedgerEntry

PART_BYTES = 4 << 20
NAMED_MAX = 5
HOME = ("durable", "written")


class NotKnownHere(StagerError):
    """What is to be read lies at an origin that the service asks, not this command."""

    error_class = ErrorClass.TRANSIENT


@dataclass(frozen=True, slots=True)
class LocalFile:
    origin: str
    path: str
    place: Path
    size_bytes: int
    executable: bool

    @property
    def name(self) -> str:
        return f"{self.origin}:{self.path}"


class Directory:
    """Of one origin. Raises InvalidInput where it is no directory."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place = name, Path(os.path.realpath(place))
        rules = self.place / NAME
        self.rules = IgnoreRules(read_lines(rules, str(rules)) if rules.is_file() else ())

    def file(self, path: str) -> LocalFile | None:
        """None where there is none that may leave. Raises Refused for a link that leads out."""
        place = self.place / path
        if self.rules.ignores(path) or not place.is_file():
            return None
        if not Path(os.path.realpath(place)).is_relative_to(self.place):
            text = f"{self.name}:{path} is a link that leads out of {self.place}, and only what is in there goes along"
            raise Refused(f"{text}; copy the file, or name an origin that the service reaches", code="link_leads_out", subject=path)
        found = place.stat()
        return LocalFile(self.name, path, place, found.st_size, bool(found.st_mode & 0o100))

    def below(self, prefix: str) -> Iterator[LocalFile]:
        """Links to directories are not followed."""
        for root, directories, names in os.walk(self.place / prefix):
            inside = os.path.relpath(root, self.place)
            here = "" if inside == "." else f"{inside}/"
            directories[:] = sorted(each for each in directories if not self.rules.ignores(here + each, is_directory=True))
            for name in sorted(names):
                if (found := self.file(here + name)) is not None:
                    yield found

    def target(self, path: str) -> Path:
        """Where a final goes. Raises Refused for a place outside."""
        place = self.place / path
        plain = not path.startswith("/") and not any(part in ("", ".", "..") for part in path.split("/"))
        if not plain or not Path(os.path.realpath(place)).is_relative_to(self.place):
            text = f"the service names {self.name}:{path[:200]!r} as the place of a final, which leads out of {self.place}"
            raise Refused(f"{text}; nothing was written", code="link_leads_out", subject=path)
        return place


class LocalAccess:
    """The OriginAccess port for a workflow whose directories are here, and whose other origins only the service asks."""

    def __init__(self, directories: dict[str, Directory]) -> None:
        self.directories = directories

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        directory = self.directories.get(origin.name)
        if directory is None:
            return [OriginEntry(path, 0, "unknown") for path in paths]
        return [entry_of(directory.file(path)) or absent(path) for path in paths]

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        directory = self.directories.get(origin.name)
        if directory is None:
            raise NotKnownHere(f"the files of {origin.name} are the service's to list", code="unknown")
        files = [entry for each in directory.below(prefix) if (entry := entry_of(each)) is not None]
        return DirectoryListing(sorted(files, key=lambda entry: entry.path), [])

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        raise NotKnownHere("nothing is tried here", code="unknown")


def entry_of(file: LocalFile | None) -> OriginEntry | None:
    return OriginEntry(file.path, file.size_bytes, f"s={file.size_bytes}") if file is not None else None


def absent(path: str) -> Fault:
    return Fault(ErrorClass.INVALID_INPUT, "not_found", f"there is no file {path}", path)


class SentDirectories:
    """Of one native workflow, read with these `values` of its parameters. `files`: what goes along. `beside`: what is part of
    the text. `environ` says where the program is that compares what comes back.
    """

    def __init__(self, file: Path, environ: Mapping[str, str], values: Mapping[str, Node] | None = None) -> None:
        self.environ, self.values, self.beside = environ, values or {}, Beside()
        base = file.absolute().parent
        urls = origin_urls(file, self.values)
        self.by_origin = {name: Directory(name, base / url.removeprefix("file:")) for name, url in urls.items() if is_relative(url)}
        self.workflow = self._read(file, whole=len(self.by_origin) == len(urls))
        if self.workflow is not None:
            used = used_origins(self.workflow)
            self.by_origin = {name: each for name, each in self.by_origin.items() if name in used}
        self.unproven = False
        self.files = list(self._taken(self.workflow) if self.workflow is not None else self._all())

    def _read(self, file: Path, *, whole: bool) -> Workflow | None:
        """None where only the service can tell what the workflow takes. `whole`: there is no origin that only the service asks."""
        try:
            return native.read(file, access=LocalAccess(self.by_origin), given=self.values, beside=self.beside)
        except NotKnownHere:
            return None
        except InvalidInput:
            if whole:
                raise
            return None

    def _taken(self, workflow: Workflow) -> Iterator[LocalFile]:
        places = {(source.location.origin, source.location.path) for each in workflow.files.values() for source in each.sources}
        for origin, path in sorted(places):
            found = self.by_origin[origin].file(path) if origin in self.by_origin else None
            if found is not None:
                yield found

    def _all(self) -> Iterator[LocalFile]:
        for directory in self.by_origin.values():
            yield from directory.below("")

    def sent(self, client: RestClient, say: Callable[[str], None]) -> dict[str, list[rest.SentFile]]:
        """For the submission, after all contents are there."""
        if len(self.files) > rest.SENT_FILES_MAX:
            text = f"{len(self.files)} files would go along with the workflow, and a service takes {rest.SENT_FILES_MAX}"
            raise Refused(f"{text}; leave some out with {NAME}", code="directory_too_large", subject=NAME)
        digests = {each.name: digest_of(each.place) for each in self.files}
        contents = {digests[each.name]: each for each in self.files}
        asked = [rest.Content(sha256=sha256, size_bytes=each.size_bytes) for sha256, each in contents.items()]
        answer = client.contents.missing(asked)
        self.check_size(answer.bytes_max)
        missing_bytes = sum(contents[each.sha256].size_bytes - each.received_bytes for each in answer.missing)
        count = f"{len(answer.missing) or 'none'} of {counted(len(self.files), 'file')}"
        say(f"sends {count} ({format_size(missing_bytes)}): the service has the others" if self.files else "no files go along")
        for number, each in enumerate(answer.missing, 1):
            send(client, each, contents[each.sha256], lambda text, number=number: say(f"{number}/{len(answer.missing)} {text}"))  # type: ignore[misc]
        listed: dict[str, list[rest.SentFile]] = {name: [] for name in self.by_origin}
        for file in self.files:
            sha256 = digests[file.name]
            listed[file.origin].append(rest.SentFile(path=file.path, sha256=sha256, size_bytes=file.size_bytes, executable=file.executable))
        return listed

    def check_size(self, bytes_max: int) -> None:
        size_bytes = sum(each.size_bytes for each in self.files)
        if size_bytes > bytes_max:
            largest = sorted(self.files, key=lambda each: -each.size_bytes)[:NAMED_MAX]
            named = ", ".join(f"{each.name} ({format_size(each.size_bytes)})" for each in largest)
            text = f"{len(self.files)} files with {format_size(size_bytes)} would go along, and the service takes {format_size(bytes_max)}"
            text += f"; the largest are {named}; leave files out with {NAME}, put them at an origin that the service reaches"
            text += ", or ask its administrator for more (stager serve --directory-max)"
            raise Refused(text, code="directory_too_large", subject=largest[0].name)

    def bring_home(self, client: RestClient, run: str, entries: Sequence[LedgerEntry], say: Callable[[str], None]) -> int:
        """The finals whose place is here. How many could not be put there, since other content is there."""
        ours = [each for each in entries if each.final and each.state in HOME and each.origin in self.by_origin]
        left, unproven = 0, 0
        for each in ours:
            left += not self.bring(client, run, each, say)
            unproven += self.unproven
        if unproven:
            text = "was compared in parts with what the service sent, and not as a whole with its ledger"
            say(f"{counted(unproven, 'final')} {text}: no stager-ionode here tells BLAKE3")
        return left

    def bring(self, client: RestClient, run: str, entry: LedgerEntry, say: Callable[[str], None]) -> bool:
        place = self.by_origin[entry.origin].target(entry.path)
        self.unproven = False
        if entry.blake3 and place.is_file() and blake3_of(place, self.environ) == entry.blake3:
            return True
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{run}.stager-part")
        fetch(client, run, entry, beside)
        self.unproven = not is_of_ledger(entry, beside, self.environ)
        if place.exists() and digest_of(place) == digest_of(beside):
            beside.unlink()
            return True
        if place.exists() and not self.replaces(entry.lfn):
            beside.unlink()
            say(f"{place} is there with other content and was kept: remove or rename it, and call `stager bring-home {run}` again")
            return False
        beside.replace(place)
        say(f"{entry.lfn} is at {place}")
        return True

    def replaces(self, lfn: str) -> bool:
        found = self.workflow.files.get(lfn) if self.workflow is not None else None
        return found is not None and found.destination is not None and found.destination.on_exists is OnExists.REPLACE


def origin_urls(file: Path, values: Mapping[str, Node]) -> dict[str, str]:
    """By name, as they are written, with the values of parameters. A text that is no workflow has its errors told by whoever reads it."""
    try:
        root = compose(read_text(file, str(file)), str(file))
        params = native.values_read(file, values)
    except InvalidInput:
        return {}
    urls = {"here": "file:."}
    origins = named(root, "origins")
    for name, value in origins.items if origins is not None and origins.kind == "mapping" else ():
        node = named(value, "url") if value.kind == "mapping" else value
        url = "" if node is None else node.text
        urls[name.text] = filled(url, params) if params else url
    return urls


def named(node: Node, key: str) -> Node | None:
    return next((value for name, value in node.items if name.text == key), None) if node.kind == "mapping" else None


def filled(url: str, params: Mapping[str, str]) -> str:
    try:
        return template_of(url, params, strict=True).bound(params).source
    except ValueError:
        return url


def is_relative(url: str) -> bool:
    return url.startswith("file:") and url[5:6] not in ("/", "~")


def used_origins(workflow: Workflow) -> set[str]:
    used = {source.location.origin for file in workflow.files.values() for source in file.sources}
    return used | {file.destination.location.origin for file in workflow.files.values() if file.destination is not None}


def send(client: RestClient, missing: rest.ContentReceived, file: LocalFile, say: Callable[[str], None]) -> None:
    """From where it broke off."""
    content = rest.Content(sha256=missing.sha256, size_bytes=file.size_bytes)
    offset = missing.received_bytes
    say(f"{file.name} ({format_size(file.size_bytes)})")
    with file.place.open("rb") as source:
        while True:
            source.seek(offset)
            part = source.read(PART_BYTES)
            if not part and offset < file.size_bytes:
                raise InvalidInput(
                    f"{file.place} became shorter while it was sent; submit again", code="content_differs", subject=file.path
                )
            received = client.contents.send_part(content, offset, part)
            if received.complete:
                return
            offset = received.received_bytes


def fetch(client: RestClient, run: str, entry: LedgerEntry, place: Path) -> None:
    """Whole, and on the disk. What an earlier call left is not believed: nobody knows of which content it is. Raises Corrupt."""
    with place.open("wb") as file:
        offset, size_bytes = 0, None
        while size_bytes is None or offset < size_bytes:
            part = client.contents.result_part(run, entry.lfn, offset)
            is_another = size_bytes not in (None, part.size_bytes)
            if is_another or not part.content and offset < part.size_bytes or hashlib.sha256(part.content).hexdigest() != part.sha256:
                raise Corrupt(f"what came of {entry.lfn} is not what the service has; fetch it again", subject=entry.lfn)
            file.write(part.content)
            offset, size_bytes = offset + len(part.content), part.size_bytes
        file.flush()
        os.fsync(file.fileno())


def is_of_ledger(entry: LedgerEntry, place: Path, environ: Mapping[str, str]) -> bool:
    """The whole file is the one that was made. False: nobody here can tell. Raises Corrupt, and removes what is not."""
    found = blake3_of(place, environ) if entry.blake3 else None
    if found is not None and found != entry.blake3:
        place.unlink()
        raise Corrupt(f"what came of {entry.lfn} is not what the ledger says; fetch it again", subject=entry.lfn)
    return found is not None


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
