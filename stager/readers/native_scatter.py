"""Entries whose jobs follow from what another job makes: what is kept to expand them by, and their expansion once the members are known.

May know: spec, catalog, expansion. One rule: no origin is asked: all that was listed at the submit is in the workflow, and what was not is
an error by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from stager.model.files import File, OnExists
from stager.model.scatter import Rows, Scatter, entry_name, form_of, unknown
from stager.model.units import counted
from stager.model.workflow import Job, JobInput, Workflow, graph_of
from stager.ports import OriginEntry
from stager.readers.graph_check import check_graph
from stager.readers.lines import Findings, Place, WorkflowInvalid
from stager.readers.native_catalog import Catalog, Listing
from stager.readers.native_expand import Expansion, JobEntry, enter, jobs_of
from stager.readers.native_scattering import Scattering, closure_of, jobs_by_scatter, with_waits
from stager.readers.native_spec import FinalSpec, JobSpec, WorkflowSpec

JOBS_MAX = 100_000
# No list is expected to name members like these.
STRANGE_FROM = 1_000_000_001
NOTHING: Mapping[str, Rows] = {}


@dataclass(frozen=True, slots=True)
class Book:
    """`order`: of all entries as they are written. `entries`: those that are expanded again, what they go over at origins written out.
    `inputs`: by entry and number of a line, what it stands for whatever the members are. `shell`: the strict one of the submitter.
    `hidden`: external files that no pattern over names matches. `files`: external files that no job reads yet, and a member may name.
    `assumed`: by scatter, what stands for its members, where that is not what the entry says.
    """

    name: str
    order: tuple[str, ...]
    entries: tuple[JobSpec, ...]
    inputs: dict[str, dict[int, tuple[JobInput, ...]]]
    finals: tuple[FinalSpec, ...]
    on_exists: OnExists
    shell: tuple[str, ...]
    hidden: tuple[str, ...]
    files: dict[str, File]
    assumed: dict[str, Rows] = field(default_factory=dict)


def pattern_written(value: Any) -> Any:
    if isinstance(value, re.Pattern):
        return value.pattern
    raise NotImplementedError


def pattern_read(kind: type, value: Any) -> Any:
    if kind is re.Pattern or getattr(kind, "__origin__", None) is re.Pattern:
        return re.compile(value, re.DOTALL)
    raise NotImplementedError


def written(book: Book) -> str:
    return msgspec.json.encode(book, enc_hook=pattern_written).decode()


def read_back(text: str) -> Book:
    return msgspec.json.decode(text, type=Book, dec_hook=pattern_read)


def assumed_rows(workflow: Workflow) -> dict[str, Rows]:
    """By scatter, the members that stand for those that are not known."""
    waiting = {each.name for each in unknown(workflow.scatters)}
    if not waiting:
        return {}
    book = read_back(workflow.scatter_book)
    said = {each.name: each.axes[-1].rows for each in book.entries if each.scatter is not None and each.scatter.each is None}
    return {name: rows for name, rows in (said | book.assumed).items() if name in waiting}


def with_scatters(workflow: Workflow, expansion: Expansion) -> Workflow:
    """Of a workflow that is right but for what nobody can know yet."""
    scattering, workflow = expansion.scattering, with_waits(workflow, expansion)
    scatters = scatters_of(expansion, workflow)
    reached = closure_of((job_id for each in scattering.open.values() for job_id in each.entry.ids), graph_of(workflow).children)
    again = {*scattering.open, *map(entry_name, reached)}
    entries = [entry for name, entry in expansion.entries.items() if name in again]
    book = Book(
        expansion.spec.name,
        tuple(expansion.entries),
        tuple(written_out(entry, expansion) for entry in entries),
        {entry.spec.name: kept_inputs(entry, expansion) for entry in entries},
        tuple(expansion.spec.finals),
        expansion.spec.on_exists,
        expansion.strict_shell,
        hidden_files(workflow, expansion),
        more_files(workflow, expansion, [entry.spec for entry in entries]),
    )
    return replace(workflow, scatters=scatters, scatter_book=written(book), notes=(*workflow.notes, *assumed_notes(scatters)))


def scatters_of(expansion: Expansion, workflow: Workflow) -> tuple[Scatter, ...]:
    found, children = [], graph_of(workflow).children
    for entry in expansion.entries.values():
        spec, positions = entry.spec.scatter, jobs_by_scatter(entry)
        for name, over in entry.lists.items() if spec is not None else ():
            maker, keys, rows = expansion.scattering.makers.get(name), entry.spec.axes[-1].keys, expansion.known.get(name)
            if maker is None or spec is None:
                continue
            form = form_of(over, keys, directory=spec.directory)
            jobs = tuple(entry.ids[position] for position in positions.get(name, ())) if rows is None else ()
            follow = following(expansion, name, jobs, children) if jobs else ()
            found.append(Scatter(name, over, keys, maker, form, jobs, rows, spec.said, follow))
    return tuple(found)


def following(expansion: Expansion, name: str, jobs: Sequence[str], children: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Jobs of entries that go over what these make, and are there because of these."""
    entries = {entry for entry, each in expansion.scattering.open.items() if name in each.above}
    found, waiting = dict.fromkeys(jobs), list(jobs) if entries else []
    while waiting:
        more = [other for other in children[waiting.pop()] if other not in found and entry_name(other) in entries]
        found |= dict.fromkeys(more)
        waiting += more
    return tuple(list(found)[len(jobs) :])


def assumed_notes(scatters: Sequence[Scatter]) -> list[str]:
    """One for each entry."""
    by_entry: dict[str, list[Scatter]] = {}
    for each in unknown(scatters):
        by_entry.setdefault(each.entry, []).append(each)
    notes = []
    for name, lists in by_entry.items():
        count, first = sum(len(each.jobs) for each in lists), lists[0]
        what = f"{counted(count, 'job', 'is', 'are')} assumed"
        more = {1: "", 2: ", and 1 more list is there"}.get(len(lists), f", and {len(lists) - 1} more lists are there")
        notes.append(f"jobs.{name}: {what}; how many there are is known when job {first.maker!r} has made {first.over!r}{more}")
    return notes


def written_out(entry: JobEntry, expansion: Expansion) -> JobSpec:
    """Its axes over what is at origins as the rows that they were, and without what it waits for in vain."""
    axes = tuple(
        replace(axis, rows=tuple(entry.values.get(position, ())), reference=None, wildcards=None)
        if axis.reference is not None and (axis.reference.origin or not axis.reference.glob)
        else axis
        for position, axis in enumerate(entry.spec.axes)
    )
    after = tuple(each for each in entry.spec.after if each[0].source.partition("[")[0] not in expansion.spec.left_out)
    return replace(entry.spec, axes=axes, after=after)


def kept_inputs(entry: JobEntry, expansion: Expansion) -> dict[int, tuple[JobInput, ...]]:
    """Of lines that are the same for all its jobs, and are of origins or of sets."""
    kept = {}
    for number, found in entry.constant_inputs.items():
        item = entry.spec.input_at(number)
        if item is not None and (item.reference.origin or item.reference.path.source in expansion.catalog.sets):
            kept[number] = found
    return kept


def hidden_files(workflow: Workflow, expansion: Expansion) -> tuple[str, ...]:
    """Written where they are read, so they are names of nobody else."""
    if expansion.catalog.index is None:
        return ()
    shown = set(expansion.catalog.index.forward)
    return tuple(lfn for lfn, file in workflow.files.items() if file.is_external and lfn not in shown)


def more_files(workflow: Workflow, expansion: Expansion, specs: Sequence[JobSpec]) -> dict[str, File]:
    """Those that were listed, where a job names files by what is not known yet."""
    if not any(item.reference.path.keys and not item.reference.origin for spec in specs for item in spec.inputs):
        return {}
    files = expansion.catalog.files
    return {lfn: file for lfn, file in files.items() if file.sources and file.sources[0].token is not None and lfn not in workflow.files}


class KnownCatalog(Catalog):
    """Of files that the workflow has already."""

    hidden: frozenset[str] = frozenset()

    def matching(self, glob: str, own: str) -> list[str]:
        return [lfn for lfn in super().matching(glob, own) if lfn not in self.hidden]

    def claim(self, origin: str, path: str, place: Place, key: str, entry: OriginEntry | None = None) -> str:
        lfn = self.by_location.get((origin, path))
        if lfn is None:
            raise ValueError(f"{origin}:{path} was not named at the submit, and nothing is looked up while a run goes on")
        return lfn


class Expanded(Expansion):
    """The entries of a book, beside the jobs of a workflow that stay as they are."""

    def __init__(self, workflow: Workflow, book: Book, known: Mapping[str, Rows], findings: Findings) -> None:
        spec = WorkflowSpec(
            name=book.name,
            origins=dict(workflow.origins),
            jobs={each.name: each for each in book.entries},
            finals=list(book.finals),
            on_failure=workflow.on_failure,
            on_exists=book.on_exists,
            spill_origin=workflow.spill_origin,
        )
        stay: dict[str, dict[str, Job]] = {}
        for job_id, job in workflow.jobs.items():
            if entry_name(job_id) not in spec.jobs:
                stay.setdefault(entry_name(job_id), {})[job_id] = job
        count = sum(map(len, stay.values()))
        catalog = KnownCatalog(spec, Listing(None, spec.origins, findings), findings)
        super().__init__(spec, catalog, findings, JOBS_MAX - count)
        catalog.hidden = frozenset(book.hidden)
        self.before, self.book, self.known, self.is_again, self.stay = workflow, book, known, True, stay
        self.assumed = book.assumed
        self.strict_shell = book.shell

    def waits(self, entry: JobEntry, each: tuple[Any, Place, str], row: Mapping[str, str]) -> tuple[str, ...]:
        name = each[0].render(row)
        if name in self.stay:
            return tuple(self.stay[name])
        return (name,) if name in self.stay.get(entry_name(name), {}) else super().waits(entry, each, row)

    def grown(self) -> dict[str, Job]:
        """All jobs, in the order of the entries."""
        catalog = self.catalog
        for lfn, file in (self.before.files | self.book.files).items():
            if file.is_external:
                catalog.files[lfn] = file
                for source in file.sources:
                    catalog.by_location.setdefault((source.location.origin, source.location.path), lfn)
        for name in self.book.order:
            if name in self.spec.jobs:
                enter(self, self.spec.jobs[name])
                self.entries[name].constant_inputs |= self.book.inputs.get(name, {})
            for job in self.stay.get(name, {}).values():
                for output in job.outputs:
                    catalog.add_output(output.lfn, self.before.files[output.lfn], name)
            catalog.index = None
        self.add_finals()
        self.scattering = Scattering.of(self)
        jobs: dict[str, Job] = {}
        for name in self.book.order:
            jobs |= self.stay.get(name, {})
            jobs |= jobs_of(self, self.entries[name]) if name in self.entries else {}
        return jobs


def expanded(workflow: Workflow, known: Mapping[str, Rows], assumed: Mapping[str, Rows] = NOTHING) -> Workflow:
    """With the jobs that these members make, by the scatter over them, and all that follows from them. Of those that are not known, what is
    to stand for them, if not what does already. Raises WorkflowInvalid, that names what is wrong with them.
    """
    wanted = {each.name for each in workflow.scatters}
    rows = {each.name: each.rows for each in workflow.scatters if each.rows is not None}
    rows |= {name: members for name, members in known.items() if name in wanted}
    if not rows and not assumed:
        return workflow
    book = read_back(workflow.scatter_book)
    if assumed:
        book = replace(book, assumed=book.assumed | dict(assumed))
    if workflow.until:
        # What nobody asked for has no jobs, and is to have none.
        there = set(map(entry_name, workflow.jobs))
        book = replace(book, entries=tuple(each for each in book.entries if each.name in there))
    text = written(book) if assumed else workflow.scatter_book
    try:
        return replace(made_of(workflow, book, rows), scatter_book=text)
    except WorkflowInvalid as wrong:
        # What stands for members that are not known may only be in the way of those that are.
        try:
            return replace(made_of(workflow, book, rows, STRANGE_FROM), scatter_book=text)
        except WorkflowInvalid:
            raise wrong from None


def made_of(workflow: Workflow, book: Book, rows: Mapping[str, Rows], strange_from: int = 0) -> Workflow:
    findings = Findings(workflow.source_path or workflow.name)
    expansion = Expanded(workflow, book, rows, findings)
    expansion.strange_from = strange_from
    jobs = expansion.grown()
    used = {lfn for job in jobs.values() for lfn in job.lfns}
    files = {lfn: file for lfn, file in expansion.catalog.files.items() if lfn in used}
    found = replace(workflow, jobs=jobs, files=files)
    if not findings:
        for each in check_graph(found):
            place, key = expansion.place_of(each.job, each.role, each.path, each.lfn)
            findings.note(place, key, each.message)
    findings.raise_if_any()
    found = with_waits(found, expansion)
    scatters, told = scatters_of(expansion, found), set(assumed_notes(workflow.scatters))
    notes = (*[note for note in workflow.notes if note not in told], *assumed_notes(scatters))
    return replace(found, scatters=scatters, notes=notes)
