"""Entries whose jobs follow from what another job makes: what is kept to expand them by, and their expansion once the members are known.

May know: spec, catalog, expansion. One rule: no origin is asked: all that was listed at the submit is in the workflow, and what was not is
an error by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from stager.model.files import File, OnExists
from stager.model.scatter import Rows, Scatter, form_of, unknown
from stager.model.workflow import Job, JobInput, Workflow, graph_of
from stager.ports import OriginEntry
from stager.readers.graph_check import check_graph
from stager.readers.lines import Findings, Place
from stager.readers.native_catalog import Catalog, Listing
from stager.readers.native_expand import Expansion, JobEntry, enter, jobs_of
from stager.readers.native_scattering import Scattering, closure_of, open_entries, with_waits
from stager.readers.native_spec import FinalSpec, JobSpec, WorkflowSpec

JOBS_MAX = 100_000
NOTHING: Mapping[str, Rows] = {}


@dataclass(frozen=True, slots=True)
class Book:
    """`order`: of all entries as they are written. `entries`: those that are expanded again, what they go over at origins written out.
    `inputs`: by entry and number of a line, what it stands for whatever the members are. `shell`: the strict one of the submitter.
    `hidden`: external files that no pattern over names matches. `files`: external files that no job reads yet, and a member may name.
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
    """By entry, the members that stand for those that are not known."""
    waiting = {each.name for each in unknown(workflow.scatters)}
    return {each.name: each.axes[0].rows for each in read_back(workflow.scatter_book).entries if each.name in waiting} if waiting else {}


def entry_name(job_id: str) -> str:
    return job_id.partition("[")[0]


def with_scatters(workflow: Workflow, expansion: Expansion) -> Workflow:
    """Of a workflow that is right but for what nobody can know yet."""
    scattering = expansion.scattering
    workflow = with_waits(workflow, expansion)
    reached = closure_of((job_id for entry, _ in scattering.open.values() for job_id in entry.ids), graph_of(workflow).children)
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
    scatters = []
    for name, maker in scattering.makers.items():
        spec = expansion.entries[name].spec
        assert spec.scatter is not None
        keys = spec.axes[0].keys
        form = form_of(spec.scatter.over, keys, directory=spec.scatter.directory)
        jobs = expansion.entries[name].id_tuple
        scatters.append(Scatter(name, spec.scatter.over, keys, maker, form, jobs, said=spec.scatter.said))
    return replace(workflow, scatters=tuple(scatters), scatter_book=written(book), notes=(*workflow.notes, *map(assumed_note, scatters)))


def assumed_note(scatter: Scatter) -> str:
    count = len(scatter.jobs)
    what = "1 job is assumed" if count == 1 else f"{count} jobs are assumed"
    return f"jobs.{scatter.name}: {what}; how many there are is known when job {scatter.maker!r} has made {scatter.over!r}"


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
        names = tuple(each.name for each in self.before.scatters)
        self.scattering = Scattering(names, open_entries(self), {each.name: each.maker for each in self.before.scatters})
        jobs: dict[str, Job] = {}
        for name in self.book.order:
            jobs |= self.stay.get(name, {})
            jobs |= jobs_of(self, self.entries[name]) if name in self.entries else {}
        return jobs


def standing(spec: JobSpec, rows: Rows | None) -> JobSpec:
    return spec if rows is None or spec.scatter is None else replace(spec, axes=(replace(spec.axes[0], rows=rows),))


def expanded(workflow: Workflow, known: Mapping[str, Rows], assumed: Mapping[str, Rows] = NOTHING) -> Workflow:
    """With the jobs that these members make, by the entry that scatters over them, and all that follows from them. Of those that are not
    known, what is to stand for them, if not what does already. Raises WorkflowInvalid, that names what is wrong with them.
    """
    wanted = {each.name for each in workflow.scatters}
    rows = {each.name: each.rows for each in workflow.scatters if each.rows is not None}
    rows |= {name: members for name, members in known.items() if name in wanted}
    if not rows and not assumed:
        return workflow
    book = read_back(workflow.scatter_book)
    if assumed:
        book = replace(book, entries=tuple(standing(each, assumed.get(each.name)) for each in book.entries))
    findings = Findings(workflow.source_path or workflow.name)
    expansion = Expanded(workflow, book, rows, findings)
    jobs = expansion.grown()
    used = {lfn for job in jobs.values() for lfn in job.lfns}
    files = {lfn: file for lfn, file in expansion.catalog.files.items() if lfn in used}
    scatters = tuple(
        msgspec.structs.replace(each, rows=rows[each.name], jobs=())
        if each.name in rows
        else msgspec.structs.replace(each, jobs=expansion.entries[each.name].id_tuple)
        for each in workflow.scatters
    )
    told = {assumed_note(each) for each in workflow.scatters}
    notes = (*[note for note in workflow.notes if note not in told], *map(assumed_note, unknown(scatters)))
    text = written(book) if assumed else workflow.scatter_book
    found = replace(workflow, jobs=jobs, files=files, scatters=scatters, scatter_book=text, notes=notes)
    if not findings:
        for each in check_graph(found):
            place, key = expansion.place_of(each.job, each.role, each.path, each.lfn)
            findings.note(place, key, each.message)
    findings.raise_if_any()
    return with_waits(found, expansion)
