"""WorkflowSpec -> Workflow: foreach and globs become jobs and files, once and for all.

May know: spec, catalog, model. One rule: sorted and bounded; the same spec and the same listing give the same workflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from stager.model.files import Destination, File, FileKind
from stager.model.scatter import Rows
from stager.model.units import counted
from stager.model.workflow import CONDA_PATH, IMAGE_PATH, VENV_PATH, Job, JobInput, JobOutput, Origin, Workflow
from stager.readers.lines import Findings, Place, nearest
from stager.readers.native_catalog import Catalog, destination_of, moved
from stager.readers.native_foreach import rows_of, unknown_set
from stager.readers.native_images import notes_on
from stager.readers.native_left_out import left_out_match
from stager.readers.native_references import rendered_path
from stager.readers.native_scattering import Scattering, is_told_later, may_be_empty, scattered_rows
from stager.readers.native_spec import (
    CONDA_NUMBER,
    IMAGE_NUMBER,
    VENV_NUMBER,
    Axis,
    DestinationSpec,
    InputSpec,
    JobSettings,
    JobSpec,
    OutputSpec,
    Reference,
    WorkflowSpec,
)
from stager.readers.native_template import Template
from stager.readers.paths import clean_path, escape_wildcards, fixed_directory
from stager.readers.shells import STRICT_SH, in_image, strict_shell

LINKS_MAX = 5_000_000
ID_LENGTH_MAX = 160
ALONE = re.compile(
    r"(?:name|engine|origins|io_hints|on_failure|on_exists|spill|notify|budget|finish_by|objective|defaults|finals)\b"
    r"|jobs\.[^.]+\.(?:run|shell|inputs|after|env|env_pass|cores|memory|memory_limit|retries|timeout|type|stdin)\b"
    r"|jobs\.[^.]+\.(?:isolate|container|venv|conda|idempotent|deterministic|reuse)\b"
)


def memory_limit(settings: JobSettings) -> int | None:
    """What a job declares binds it, unless it says otherwise."""
    return settings.memory_bytes if settings.memory_limit_bytes is None else settings.memory_limit_bytes or None


@dataclass(slots=True)
class JobEntry:
    """One entry of `jobs:` and what it became; `rows`, `ids` and `outputs` go in step. `values`: of each axis. `lists`: by
    name of a scatter that the entry has, the output that it goes over; `scatters`: of each row, its scatter, if it has one.
    """

    spec: JobSpec
    values: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    outputs: list[tuple[JobOutput, ...]] = field(default_factory=list)
    constant_inputs: dict[int, tuple[JobInput, ...]] = field(default_factory=dict)
    id_tuple: tuple[str, ...] = ()
    lists: dict[str, str] = field(default_factory=dict)
    scatters: list[str] = field(default_factory=list)


class Expansion:
    """Two passes: first what every job makes, then what it reads, since a glob may match what is made further down."""

    def __init__(self, spec: WorkflowSpec, catalog: Catalog, findings: Findings, jobs_max: int) -> None:
        self.spec, self.catalog, self.findings, self.jobs_max = spec, catalog, findings, jobs_max
        # An output that could not be read is missed by its readers; saying so of each would bury what to mend.
        self.broken = any(not ALONE.match(finding.key) for finding in findings.found)
        self.entries: dict[str, JobEntry] = {}
        self.entry_of_job: dict[str, JobEntry] = {}
        self.destinations: dict[str, DestinationSpec] = {}
        self.shared_inputs: dict[tuple[str, str], JobInput] = {}
        self.links = 0
        self.strict_shell = strict_shell()
        # Members that are known by now, and others that are to stand for those that are not, by name of the scatter.
        self.known: Mapping[str, Rows] = {}
        self.assumed: Mapping[str, Rows] = {}
        # Above 0, those are numbered from here on.
        self.strange_from = 0
        self.scattering, self.is_again = Scattering(), False
        # Jobs that are there already, by entry.
        self.stay: dict[str, dict[str, Job]] = {}

    def workflow(self, source_path: str) -> Workflow:
        self.catalog.add_written()
        for spec in self.spec.jobs.values():
            enter(self, spec)
        self.add_finals()
        self.scattering = Scattering.of(self)
        jobs: dict[str, Job] = {}
        for entry in self.entries.values():
            jobs |= jobs_of(self, entry)
        used = {lfn for job in jobs.values() for lfn in job.lfns}
        return Workflow(
            name=self.spec.name,
            files={lfn: file for lfn, file in self.catalog.files.items() if lfn in used},
            jobs=jobs,
            origins=self.used_origins(used),
            on_failure=self.spec.on_failure,
            spill_origin=self.spec.spill_origin,
            hints={name: hint for name, (hint, _, _) in self.spec.hints.items()},
            source_path=source_path,
            notes=tuple(self.unused(used)),
            engine=self.spec.engine,
            params=self.spec.params,
            notify=self.spec.notify,
            bounds=self.spec.bounds,
        )

    def unused(self, used: set[str]) -> Iterator[str]:
        for spec in self.spec.files.values():
            if used.isdisjoint(self.catalog.sets.get(spec.name, [spec.name])):
                yield f"{spec.key} is read by no job, and is not fetched"
        yield from notes_on(self.spec.images)
        for job in self.spec.left_out.values():
            yield f"job {job.name!r} is left out by its 'when' ({job.when})"
        for name in self.spec.unused_params:
            yield f"params.{name} is used nowhere"
        for origin in self.spec.origins.values():
            if dict(origin.options).get("mount_point"):
                yield f"origins.{origin.name}.mount_point is not used: bytes move over sftp, never through a mount"
        strict = [spec.name for spec in self.spec.jobs.values() if spec.shell and not spec.settings.shell]
        if strict and self.strict_shell == STRICT_SH:
            yield f"there is no bash here, so the text of job {strict[0]!r} is run by sh -eu, which overlooks what fails inside a pipeline"

    def used_origins(self, used: set[str]) -> dict[str, Origin]:
        """`here` is there without being written, and leaves unless something uses it."""
        touched = {self.spec.spill_origin}
        for lfn in used:
            file = self.catalog.files[lfn]
            touched.update(source.location.origin for source in file.sources)
            if file.destination:
                touched.add(file.destination.location.origin)
        return {name: origin for name, origin in self.spec.origins.items() if name in touched}

    def make_rows(self, entry: JobEntry) -> None:
        spec = entry.spec
        values = entry.values
        for position, axis in enumerate(spec.outer):
            reference = axis.reference
            values[position] = list(axis.rows) if reference is None else self.axis_rows(entry, axis, reference)
            if not values[position]:
                return
        formatted = [hole for hole in spec.holes if hole.format]
        rows_max = self.jobs_max - len(self.entry_of_job)
        try:
            rows = list(rows_of(spec.outer, values, rows_max))
            entry.rows = rows if spec.scatter is None else scattered_rows(self, entry, spec.scatter, rows, rows_max)
        except ValueError as error:
            self.findings.note(spec.axes[0].place, f"{spec.key}.foreach", str(error))
            return
        try:
            for row in entry.rows:
                for hole in formatted:
                    hole.value(row)
        except ValueError as error:
            self.findings.note(spec.axes[0].place, f"{spec.key}.foreach", str(error))
            entry.rows = []
            return
        called: dict[tuple[str, ...], str] = {}
        for position, row in enumerate(entry.rows):
            job_id, written = job_id_of(spec.name, row, position), tuple(row.values())
            if job_id in self.entry_of_job and written not in called:
                # Of other values, with commas in them.
                job_id = numbered_id(spec.name, position)
            if job_id in self.entry_of_job:
                told = f"two rows make the same job {called.get(written, job_id)!r}; leave the repeated value out"
                self.findings.note(spec.place, f"{spec.key}.foreach", told)
            called.setdefault(written, job_id)
            self.entry_of_job[job_id] = entry
            entry.ids.append(job_id)
        entry.id_tuple = tuple(entry.ids)

    def axis_rows(self, entry: JobEntry, axis: Axis, reference: Reference) -> list[tuple[str, ...]]:
        """Names of files, or what stands in them."""
        if axis.wildcards is None:
            return [(lfn,) for lfn in self.axis_values(entry, axis, reference)]
        if reference.origin:
            place, key = axis.place, axis.key
            listed = self.catalog.listing.match(reference.origin, axis.wildcards.glob, glob=True, place=place, key=key)
            found = [each for each in listed if axis.wildcards.pattern.fullmatch(each.path)]
            # So that a job that names one need not ask for it once more.
            self.catalog.listed |= {(reference.origin, each.path): each for each in found}
            names = [each.path for each in found]
            missing = f"of {counted(len(listed), 'file')} none has the same text in both places of one word" if listed else ""
        else:
            self.catalog.index = None
            names = self.catalog.matching(axis.wildcards.glob, entry.spec.name)
            missing = f"{axis.wildcards.glob!r} matches no file of 'files:' and no output of the jobs above"
            missing += left_out_match(self.spec, axis.wildcards.glob)
        rows = axis.wildcards.rows(names)
        if not rows and missing and not self.broken and not may_be_empty(self, entry, axis.wildcards.glob):
            self.findings.note(axis.place, axis.key, missing)
        return rows

    def axis_values(self, entry: JobEntry, axis: Axis, reference: Reference) -> list[str]:
        """Names of the files a foreach goes over: a set, a pattern at an origin, or outputs of the jobs above."""
        name = reference.path.pieces[0]
        if not isinstance(name, str):
            self.findings.note(axis.place, axis.key, "a foreach cannot use another foreach key")
            return []
        if reference.origin:
            if not reference.glob and not reference.directory:
                self.findings.note(
                    axis.place,
                    axis.key,
                    f"{reference.source!r} is one file; write a pattern, as in {reference.origin}:data/*.txt, or a list",
                )
                return []
            entries = self.catalog.listing.match(reference.origin, name, glob=reference.glob, place=axis.place, key=axis.key)
            return self.catalog.add_listed(reference.origin, entries, axis.place, axis.key)
        if not reference.glob:
            if name not in self.catalog.sets and not self.broken:
                self.findings.note(axis.place, axis.key, unknown_set(name, self.catalog.sets))
            return self.catalog.sets.get(name, [])
        self.catalog.index = None
        try:
            found = self.catalog.matching(name, entry.spec.name)
        except ValueError as error:
            self.findings.note(axis.place, axis.key, str(error))
            return []
        if not found and not self.broken and not may_be_empty(self, entry, name):
            missing = f"{name!r} matches no file of 'files:' and no output of the jobs above"
            self.findings.note(axis.place, axis.key, missing + left_out_match(self.spec, name))
        return found

    def make_outputs(self, entry: JobEntry) -> None:
        for row in entry.rows:
            outputs = []
            for spec in entry.spec.outputs:
                try:
                    lfn = rendered_path(spec.path, row)
                    self.catalog.add_output(lfn, self.output_file(lfn, spec, entry.spec, row), entry.spec.name)
                except ValueError as error:
                    self.findings.note(spec.place, spec.key, str(error))
                    continue
                if lfn in self.catalog.sets:
                    self.findings.note(spec.place, spec.key, f"{lfn!r} is the name of a set under 'files:' as well; rename one of them")
                outputs.append(JobOutput(lfn, lfn, spec.optional))
            entry.outputs.append(tuple(outputs))

    def output_file(self, lfn: str, spec: OutputSpec, job: JobSpec, row: Mapping[str, str]) -> File:
        destination = None
        if spec.destination:
            self.destinations.setdefault(lfn, spec.destination)
            destination = self.destination(lfn, spec.destination, job, row)
        kind = FileKind.DIRECTORY if spec.directory else FileKind.FILE
        return File(lfn, kind, spec.size_bytes, destination=destination, executable=spec.executable)

    def destination(self, lfn: str, spec: DestinationSpec, job: JobSpec, row: Mapping[str, str]) -> Destination:
        on_exists = spec.on_exists or job.settings.on_exists or self.spec.on_exists
        path = "" if spec.path.pieces == ("",) else rendered_path(spec.path, row)
        return destination_of(spec.origin, path, spec.into, lfn, on_exists)

    def add_finals(self) -> None:
        """Destinations said apart from the jobs."""
        produced = self.catalog.entry_of
        for spec in self.spec.finals:
            self.catalog.index = None
            try:
                found = self.catalog.matching(spec.name, "") if spec.glob else [spec.name]
            except ValueError as error:
                self.findings.note(spec.place, spec.key, str(error))
                continue
            found = [lfn for lfn in found if lfn in produced and produced[lfn] not in self.stay]
            glob = spec.name if spec.glob else escape_wildcards(spec.name)
            if not found and not self.broken and not self.is_again and not left_out_match(self.spec, glob):
                self.findings.note(spec.place, spec.key, f"no job makes {spec.name!r}{nearest(spec.name, list(produced)[:2000])}")
            for lfn in found:
                file = self.catalog.files[lfn]
                if file.destination is not None:
                    self.findings.note(
                        spec.place, spec.key, f"{lfn!r} has a destination already, under the job or an earlier entry; keep one"
                    )
                    continue
                job = self.entries[produced[lfn]].spec
                self.destinations[lfn] = spec.destination
                self.catalog.files[lfn] = replace(file, destination=self.destination(lfn, spec.destination, job, {}))
        self.catalog.index = None

    def job(self, entry: JobEntry, position: int) -> Job:
        spec, row = entry.spec, entry.rows[position]
        settings = spec.settings
        inputs: tuple[JobInput, ...] = ()
        for number, item in enumerate(spec.inputs):
            inputs += self.inputs(entry, number, item, row)
        inputs += self.surroundings(entry, row)
        after = tuple(dict.fromkeys(job_id for each in spec.after for job_id in self.waits(entry, each, row)))
        maker = self.scattering.makers.get(entry.scatters[position]) if entry.scatters else None
        if maker is not None and maker not in after:
            after = (*after, maker)
        self.links += len(inputs) + len(after)
        stdin, stdout, stderr = (None if stream is None else stream.render(row) for stream in spec.streams)
        return Job(
            id=entry.ids[position],
            job_type=spec.job_type,
            argv=tuple([template.render(row) for template in spec.argv]),
            shell=spec.shell,
            kept_by="" if spec.type_is_shared else f"{self.spec.name}/{spec.job_type}",
            interpreter=self.interpreter(settings) if spec.shell else (),
            inputs=inputs,
            outputs=entry.outputs[position],
            after=after,
            cores=settings.cores,
            memory_bytes=settings.memory_bytes,
            isolate=settings.isolate and not self.spec.engine,
            memory_limit_bytes=memory_limit(settings),
            retries=settings.retries,
            timeout_s=settings.timeout_s,
            env=environment(spec, row),
            env_pass=settings.env_pass,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            idempotent=settings.idempotent,
            deterministic=settings.deterministic,
            reuse=settings.reuse,
        )

    def interpreter(self, settings: JobSettings) -> tuple[str, ...]:
        """In a container it is the image's."""
        if settings.container is None:
            return settings.shell or self.strict_shell
        return in_image(settings.shell)

    def surroundings(self, entry: JobEntry, row: Mapping[str, str]) -> tuple[JobInput, ...]:
        """The image of its container or the lock file of its environment, if it has one."""
        found: tuple[JobInput, ...] = ()
        for number, path in ((IMAGE_NUMBER, IMAGE_PATH), (VENV_NUMBER, VENV_PATH), (CONDA_NUMBER, CONDA_PATH)):
            item = entry.spec.input_at(number)
            if item is not None:
                found += tuple(self.shared(each.lfn, path) for each in self.inputs(entry, number, item, row))
        return found

    def waits(self, entry: JobEntry, each: tuple[Template, Place, str], row: Mapping[str, str]) -> tuple[str, ...]:
        """All jobs of an entry by its name, or one by its id."""
        template, place, key = each
        name = template.render(row)
        if name.partition("[")[0] in self.spec.left_out:
            return ()
        if name in self.entries:
            if self.entries[name] is entry:
                self.findings.note(place, key, f"{name!r} would wait for itself")
                return ()
            return self.entries[name].id_tuple
        if name not in self.entry_of_job:
            if not self.broken:
                self.findings.note(place, key, f"there is no job {name!r}{nearest(name, self.entries)}")
            return ()
        return (name,)

    def inputs(self, entry: JobEntry, number: int, item: InputSpec, row: Mapping[str, str]) -> tuple[JobInput, ...]:
        """The inputs that one line of `inputs:` stands for in this job; lines without foreach keys are looked up once."""
        if number in entry.constant_inputs:
            return entry.constant_inputs[number]
        try:
            found = tuple([self.shared(lfn, path) for lfn, path in self.matches(entry, item, row)])
        except ValueError as error:
            self.findings.note(item.place, item.key, str(error))
            found = ()
        if item.executable:
            for each in found:
                self.catalog.files[each.lfn] = replace(self.catalog.files[each.lfn], executable=True)
        if item.reference.path.constant is not None and (item.put_at is None or item.put_at.constant is not None):
            entry.constant_inputs[number] = found
        return found

    def shared(self, lfn: str, path: str) -> JobInput:
        known = self.shared_inputs.get((lfn, path))
        if known is None:
            known = self.shared_inputs[lfn, path] = JobInput(lfn, path)
        return known

    def matches(self, entry: JobEntry, item: InputSpec, row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """(lfn, path in the sandbox) of each file. Raises ValueError."""
        reference, catalog = item.reference, self.catalog
        put_at = rendered_path(item.put_at, row) if item.put_at else ""
        path = "" if reference.path.pieces == ("",) else rendered_path(reference.path, row, escape_wildcards if reference.glob else None)
        top = fixed_directory(path) if reference.glob else path
        if reference.origin and (reference.glob or reference.directory):
            for listed in catalog.listing.match(reference.origin, path, glob=reference.glob, place=item.place, key=item.key):
                yield (
                    catalog.claim(reference.origin, listed.path, item.place, item.key, listed),
                    clean_path(moved(listed.path, top, put_at)),
                )
        elif reference.origin:
            yield catalog.claim(reference.origin, path, item.place, item.key), put_at or path
        elif reference.glob:
            found = catalog.matching(path, entry.spec.name)
            if not found and not self.broken and not is_told_later(self, entry, item, row) and not may_be_empty(self, entry, path):
                missing = f"{path!r} matches no file of 'files:' and no output of another job"
                raise ValueError(missing + left_out_match(self.spec, path))
            yield from ((lfn, moved(lfn, top, put_at)) for lfn in found)
        elif path in catalog.files:
            if reference.directory and catalog.files[path].kind is FileKind.FILE:
                raise ValueError(f"{path!r} is a file; write it without '/' at the end")
            yield path, put_at or path
        elif path in catalog.sets:
            yield from ((lfn, f"{put_at}/{lfn}" if put_at else lfn) for lfn in catalog.sets[path])
        elif not self.broken and not is_told_later(self, entry, item, row):
            raise ValueError(catalog.why_missing(path))

    def place_of(self, job_id: str, role: str, path: str, lfn: str) -> tuple[Place, str]:
        """Where in the file a finding about an expanded job belongs: the line that made it so."""
        entry = self.entry_of_job.get(job_id)
        if entry is None:
            spec = self.destinations.get(lfn)
            return (spec.place, spec.key) if spec else self.catalog.places.get(lfn, (Place(), ""))
        row = entry.rows[entry.ids.index(job_id)]
        if role == "output":
            for output in entry.spec.outputs:
                if rendered_path(output.path, row) == path:
                    return output.place, output.key
        if role == "input":
            for number, item in enumerate(entry.spec.inputs):
                if any(found.path == path and found.lfn == lfn for found in self.inputs(entry, number, item, row)):
                    return item.place, item.key
        return entry.spec.place, entry.spec.key


def enter(expansion: Expansion, spec: JobSpec) -> None:
    expansion.entries[spec.name] = entry = JobEntry(spec)
    expansion.make_rows(entry)
    expansion.make_outputs(entry)


def jobs_of(expansion: Expansion, entry: JobEntry) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for position, job_id in enumerate(entry.ids):
        jobs[job_id] = expansion.job(entry, position)
        if expansion.links > LINKS_MAX:
            text = f"more than {LINKS_MAX:,} inputs and waits in all; let one job gather them"
            expansion.findings.note(entry.spec.place, entry.spec.key, text)
            expansion.findings.raise_if_any()
    return jobs


def job_id_of(name: str, row: Mapping[str, str], position: int) -> str:
    """`project[raw/a.fits]`; rows whose values do not make a readable name are numbered."""
    if not row:
        return name
    values = ",".join(row.values())
    return f"{name}[{values}]" if values.isprintable() and 0 < len(values) <= ID_LENGTH_MAX else numbered_id(name, position)


def numbered_id(name: str, position: int) -> str:
    return f"{name}[#{position}]"


def environment(spec: JobSpec, row: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The foreach values under their own names, the parts and parameters that the shell text uses, then what `env:` says."""
    env = dict(row) | {hole.variable: hole.value(row) for hole in spec.shell_holes} | dict(spec.shell_params)
    env |= {name: template.render(row) for name, template in spec.settings.env}
    return tuple(env.items())
