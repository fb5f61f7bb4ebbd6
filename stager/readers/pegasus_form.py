"""Reads Pegasus YAML node by node: what is there, what is wrong, what is refused, what is noted.

May know: lines. One rule: nothing stops at the first finding; what concerns many jobs is told once, with their ids.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from stager.model.errors import Refused
from stager.model.units import SIZE_BYTES_MAX
from stager.readers.lines import FINDINGS_MAX, Finding, Node, Place, WorkflowInvalid, shortened

IDS_SHOWN = 10
FINDINGS_SHOWN = 60
DIGITS_MAX = 20
TRUE, FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
NOTHING = Node("mapping", Place())
# The ids of jobs by what is said of them: file, place, key, message.
Groups = dict[tuple[str, Place, str, str], list[str]]


class PegasusRefused(Refused):
    """All that stager does not run, with the errors found beside it."""

    def __init__(self, file: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(told(self.findings), code="unsupported", subject=file)


def told(findings: tuple[Finding, ...]) -> str:
    shown = [str(finding) for finding in findings[:FINDINGS_SHOWN]]
    if len(findings) > FINDINGS_SHOWN:
        shown.append(f"… and {len(findings) - FINDINGS_SHOWN} more like these")
    return "\n".join(shown)


class Reports:
    """The findings in a workflow and its catalogs. `about` groups: one message for all jobs it is about."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.invalid: Groups = {}
        self.refused: Groups = {}
        self.first: dict[tuple[str, str], Place] = {}
        self.notes: dict[str, list[str]] = {}

    def wrong(self, file: str, place: Place, key: str, message: str) -> None:
        self.group(self.invalid, (file, place, key, message))

    def wrong_in(self, job: str, place: Place, key: str, message: str) -> None:
        self.group(self.invalid, (self.file, self.first_place(key, message, place), key, message)).append(job)

    def refuse(self, file: str, place: Place, key: str, message: str) -> None:
        self.group(self.refused, (file, place, key, message))

    def refuse_in(self, job: str, place: Place, key: str, message: str) -> None:
        self.group(self.refused, (self.file, self.first_place(key, message, place), key, message)).append(job)

    def group(self, groups: Groups, key: tuple[str, Place, str, str]) -> list[str]:
        if key not in groups and len(self.invalid) + len(self.refused) >= FINDINGS_MAX:
            self.raise_if_any()
        return groups.setdefault(key, [])

    def first_place(self, key: str, message: str, place: Place) -> Place:
        return self.first.setdefault((key, message), place)

    def note(self, message: str, job: str = "") -> None:
        self.notes.setdefault(message, []).extend([job] if job else [])

    def all_notes(self) -> tuple[str, ...]:
        return tuple(message + ids_of(jobs) for message, jobs in self.notes.items())

    def raise_if_any(self) -> None:
        invalid, refused = findings_of(self.invalid), findings_of(self.refused)
        if refused:
            raise PegasusRefused(self.file, in_order(refused + invalid))
        if invalid:
            raise WorkflowInvalid(self.file, in_order(invalid))


def findings_of(groups: Groups) -> list[Finding]:
    return [Finding(file, place, key, message + ids_of(jobs)) for (file, place, key, message), jobs in groups.items()]


def in_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.file, finding.place.line, finding.place.column))


def ids_of(jobs: list[str]) -> str:
    """` (jobs: a, b and 3 more)`."""
    if not jobs:
        return ""
    unique = list(dict.fromkeys(jobs))
    more = f" and {len(unique) - IDS_SHOWN} more" if len(unique) > IDS_SHOWN else ""
    return f" ({'job' if len(unique) == 1 else 'jobs'}: {', '.join(unique[:IDS_SHOWN])}{more})"


class CheckedMapping:
    """A mapping whose values are asked for by key and kind; what has another kind is reported and counts as absent."""

    __slots__ = ("reports", "file", "node", "members", "where")

    def __init__(self, reports: Reports, file: str, node: Node, where: str) -> None:
        self.reports, self.file, self.node, self.where = reports, file, node, where
        self.members: dict[str, Node] = {}
        if node.kind == "mapping":
            self.members = {key.text: value for key, value in node.items}
        elif not node.is_null:
            reports.wrong(file, node.place, where, "must be a mapping of keys to values")

    @property
    def place(self) -> Place:
        return self.node.place

    def key(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        return name in self.members and not self.members[name].is_null

    def text(self, name: str, default: str = "", required: bool = False) -> str:
        node = self.members.get(name)
        if node is not None and node.kind == "scalar" and not node.is_null:
            return node.text
        if node is not None and not node.is_null:
            self.reports.wrong(self.file, node.place, self.key(name), "must be a text")
        elif required:
            self.reports.wrong(self.file, self.place, self.key(name), "is missing")
        return default

    def flag(self, name: str, default: bool) -> bool:
        word = self.text(name).lower()
        if word and word not in TRUE and word not in FALSE:
            self.reports.wrong(self.file, self.members[name].place, self.key(name), f"{word!r} is not true or false")
        return default if word not in TRUE and word not in FALSE else word in TRUE

    def list_of(self, name: str) -> Sequence[Node]:
        node = self.members.get(name)
        if node is None or node.is_null:
            return []
        if node.kind != "sequence":
            self.reports.wrong(self.file, node.place, self.key(name), "must be a list")
            return []
        return node.items

    def texts(self, name: str) -> list[str]:
        nodes = self.list_of(name)
        for node in nodes:
            if node.kind != "scalar":
                self.reports.wrong(self.file, node.place, self.key(name), "must be a list of texts")
        return [node.text for node in nodes if node.kind == "scalar"]

    def entry(self, name: str) -> CheckedMapping:
        return CheckedMapping(self.reports, self.file, self.members.get(name, NOTHING), self.key(name))

    def entries(self, name: str) -> Iterator[CheckedMapping]:
        where = self.key(name)
        for node in self.list_of(name):
            yield CheckedMapping(self.reports, self.file, node, where)

    def size_bytes(self) -> int | None:
        """`size`, a number or a text, or the one in `metadata`."""
        for owner in (self, self.entry("metadata") if self.has("metadata") else None):
            word = owner.text("size") if owner is not None and owner.has("size") else ""
            if word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX and int(word) <= SIZE_BYTES_MAX:
                return int(word)
            if word and owner is not None:
                told = f"{shortened(word, DIGITS_MAX)!r} is not a number of bytes"
                self.reports.wrong(self.file, owner.members["size"].place, owner.key("size"), told)
        return None


@contextmanager
def collection_paused() -> Iterator[None]:
    """A tree of a million nodes holds no garbage, and looking for it takes twice the time of reading it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
