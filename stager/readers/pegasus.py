"""Reads Pegasus 5 workflows with their catalogs as native workflows (docs/formats/pegasus.md).

May know: the model, Pegasus' YAML, the OriginAccess port.
One rule: it runs as written or not at all; what stager does not do is refused by name, all findings at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from stager.model.files import Destination, File, Location, Source
from stager.model.units import counted
from stager.model.workflow import IMAGE_PATH, Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.ports import ImageAccess, OriginAccess, OriginEntry
from stager.readers.graph_check import check_graph
from stager.readers.lines import Place, WorkflowInvalid, compose, read_text
from stager.readers.native_images import Unasked, entry_of, notes_on
from stager.readers.paths import REGISTRY
from stager.readers.pegasus_catalogs import Catalogs, Container, name_of, profiles_of, read_catalogs
from stager.readers.pegasus_form import CheckedMapping, Reports, collection_paused, in_order
from stager.readers.pegasus_jobs import Jobs, PegasusJob, Use, read_jobs
from stager.readers.pegasus_places import NotServed, Pfn, Places, parse_pfn
from stager.readers.pegasus_profiles import settings_of
from stager.readers.pegasus_programs import Program, Programs
from stager.readers.resolve import resolve

KNOWN_KEYS = frozenset(
    "pegasus name version siteCatalog replicaCatalog transformationCatalog jobs jobDependencies profiles hooks metadata".split()
)
CATALOG_WORDS = {"replicas": "replica", "transformations": "transformation", "sites": "site"}


@dataclass(slots=True)
class External:
    """A file that no job makes, before its places have become origins."""

    lfn: str
    file: str
    place: Place
    pfns: list[tuple[str, str]]
    sha256: str | None = None
    size_bytes: int | None = None
    executable: bool = False
    # Of an image that is not there yet.
    entry: OriginEntry | None = None


def read(
    path: Path | str,
    *,
    access: OriginAccess | None = None,
    output_origin: Origin | None = None,
    site: str | None = None,
    images: ImageAccess | None = None,
) -> Workflow:
    """With access, every external file has size and token. `site` is the execution site whose programs and profiles count. `images`:
    asks registries. Raises PegasusRefused or WorkflowInvalid with all findings.
    """
    path = Path(path)
    with collection_paused():
        reports = Reports(str(path))
        workflow = CheckedMapping(reports, str(path), compose(read_text(path, str(path)), str(path)), "")
        check_head(reports, workflow)
        catalogs = read_catalogs(reports, workflow, path)
        jobs = read_jobs(reports, workflow)
        assembly = Assembly(reports, catalogs, jobs, path, output_origin, site, Unasked() if access is None else images)
        found = assembly.build(workflow)
    return found if access is None else located(found, access, assembly.externals)


def located(workflow: Workflow, access: OriginAccess, externals: dict[str, External]) -> Workflow:
    """A file that is missing is told with its place in the catalog that names it, which may be another file."""
    where = {lfn: (external.place, f"pfn of {lfn!r}") for lfn, external in externals.items()}
    try:
        return resolve(workflow, access, where=where)
    except WorkflowInvalid as error:
        files = {where[lfn][1]: external.file for lfn, external in externals.items()}
        findings = [replace(finding, file=files.get(finding.key, finding.file)) for finding in error.findings]
        raise WorkflowInvalid(workflow.source_path, in_order(findings)) from None


def check_head(reports: Reports, workflow: CheckedMapping) -> None:
    for word, what in CATALOG_WORDS.items():
        if word in workflow.members and "jobs" not in workflow.members:
            message = f"this is a {what} catalog, not a workflow; name the file that has 'jobs', and it is found beside that"
            reports.wrong(workflow.file, workflow.members[word].place, word, message)
            reports.raise_if_any()
    version = workflow.text("pegasus", required=True)
    if version and version.split(".")[0] != "5":
        reports.wrong(workflow.file, workflow.members["pegasus"].place, "pegasus", f"format {version} is not read; Pegasus 5 is")
    workflow.text("name", required=True)
    for key in workflow.members:
        if key not in KNOWN_KEYS and not key.startswith("x-"):
            reports.note(f"key {key!r} is not used")


class Assembly:
    """Puts jobs and catalogs together."""

    def __init__(
        self,
        reports: Reports,
        catalogs: Catalogs,
        jobs: Jobs,
        path: Path,
        output_origin: Origin | None,
        site: str | None,
        images: ImageAccess | None = None,
    ) -> None:
        self.reports, self.catalogs, self.jobs, self.path = reports, catalogs, jobs, path
        self.output_origin, self.site, self.images = output_origin, site, images
        self.programs = Programs(reports, catalogs, site, pulls=images is not None)
        self.made = {lfn: job for job in jobs.by_id.values() for lfn in job.outputs}
        self.externals: dict[str, External] = {}

    def build(self, workflow: CheckedMapping) -> Workflow:
        programs = {job.id: self.programs.program_of(job) for job in self.jobs.by_id.values()}
        for job in self.jobs.by_id.values():
            self.add_externals(job, programs[job.id])
        shared = profiles_of(workflow)
        made = [self.job_of(job, program, shared) for job in self.jobs.by_id.values() if (program := programs[job.id])]
        files, origins = self.external_files()
        self.add_produced(files)
        if self.output_origin is not None:
            origins[self.output_origin.name] = self.output_origin
        # Edges of a file with half its findings would only repeat them.
        self.reports.raise_if_any()
        name = workflow.text("name")
        found = Workflow(name, files, {job.id: job for job in made}, origins, source_path=str(self.path), notes=self.reports.all_notes())
        for finding in check_graph(found):
            place = self.jobs.by_id[finding.job].place if finding.job in self.jobs.by_id else Place()
            self.reports.wrong(str(self.path), place, f"job {finding.job!r}" if finding.job else "", finding.message)
        self.reports.raise_if_any()
        return found

    def add_externals(self, job: PegasusJob, program: Program | None) -> None:
        for executable in program.executables if program else ():
            owner = executable.transformation
            wanted = External(executable.lfn, owner.file, owner.place, list(executable.pfns), executable.sha256, executable=True)
            known = self.externals.setdefault(executable.lfn, wanted)
            if executable.lfn in self.made or known.pfns != wanted.pfns:
                program_name = name_of(owner.key)
                message = f"{program_name!r} is staged as {executable.lfn!r}, which is another file of the workflow too; rename that file"
                self.reports.wrong(owner.file, owner.place, "transformations", message)
        if program is not None and program.container is not None:
            self.add_image(program.container)
        for use in [*job.inputs.values(), *(Use(word, word, job.place) for word in (program.files if program else ()))]:
            self.add_external(job, use)

    def add_image(self, container: Container) -> None:
        """One file for all jobs in it."""
        lfn = image_lfn(container)
        wanted = External(lfn, container.file, container.place, [(container.site, container.image)], container.sha256)
        if REGISTRY.match(container.image):
            # Nobody is asked for a workflow that is refused.
            if lfn in self.externals or self.images is None or self.reports.invalid or self.reports.refused:
                return
            image = self.images.image(container.image)
            entry, pfn = entry_of(image), f"file://{quote(image.directory)}/{image.file_name}"
            wanted = External(lfn, container.file, container.place, [(self.site or "local", pfn)], entry=entry)
            for note in notes_on({image.file_name: image}):
                self.reports.note(note)
        known = self.externals.setdefault(lfn, wanted)
        if lfn in self.made or known.pfns != wanted.pfns:
            message = f"the image of container {container.name!r} is called {lfn!r}, as another file of the workflow is; rename that"
            self.reports.wrong(container.file, container.place, "containers", message)

    def add_external(self, job: PegasusJob, use: Use) -> None:
        replica = self.catalogs.replicas.get(use.lfn)
        if use.lfn in self.made:
            if replica is not None:
                self.reports.note(f"the replica of {use.lfn!r} is not used, because job {self.made[use.lfn].id!r} makes the file")
        elif replica is not None and replica.pfns:
            size_bytes = use.size_bytes if replica.size_bytes is None else replica.size_bytes
            entry = External(use.lfn, replica.file, replica.place, replica.pfns, replica.sha256 or use.sha256, size_bytes)
            known = self.externals.setdefault(use.lfn, entry)
            known.executable = known.executable or use.executable
            known.size_bytes = size_bytes if known.size_bytes is None else known.size_bytes
        elif use.lfn in self.externals or use.lfn in self.jobs.excused:
            return
        elif use.optional:
            self.reports.note(f"the optional input {use.lfn!r} is nowhere and left out", job.id)
        else:
            names = self.catalogs.looked_for.get("replicas", [])
            looked = (
                f"; there is no replica catalog in the workflow, and none of {', '.join(names)}"
                if names and not self.catalogs.replicas
                else ""
            )
            message = f"input {use.lfn!r} is made by no job and is not in the replica catalog{looked}"
            self.reports.wrong_in(job.id, use.place, "jobs.uses.lfn", message)

    def external_files(self) -> tuple[dict[str, File], dict[str, Origin]]:
        pfns = {lfn: self.pfns_of(external) for lfn, external in self.externals.items()}
        taken = [self.output_origin.name] if self.output_origin else []
        places = Places((pfn for found in pfns.values() for _, pfn in found), taken)
        files = {}
        for lfn, external in self.externals.items():
            sources = tuple(
                seen(Source(places.locate(pfn), site=site, priority=0 if site == (self.site or "local") else 1), external.entry)
                for site, pfn in pfns[lfn]
            )
            files[lfn] = File(lfn, size_bytes=external.size_bytes, sources=sources, executable=external.executable, sha256=external.sha256)
        return files, places.origins

    def pfns_of(self, external: External) -> list[tuple[str, Pfn]]:
        """The places that can be reached. A place that cannot be is an error only when there is no other."""
        found, elsewhere = [], []
        for site, text in external.pfns:
            try:
                found.append((site, parse_pfn(text, self.path.absolute().parent)))
            except NotServed as reason:
                elsewhere.append(str(reason))
            except ValueError as error:
                self.reports.wrong(external.file, external.place, f"pfn of {external.lfn!r}", str(error))
                return found
        for why in elsewhere if not found else ():
            self.reports.refuse(external.file, external.place, f"pfn of {external.lfn!r}", why)
        for why in elsewhere if found else ():
            self.reports.note(f"a source of {external.lfn!r} is left out: {why}")
        return self.nearer(external, found)

    def nearer(self, external: External, found: list[tuple[str, Pfn]]) -> list[tuple[str, Pfn]]:
        """A web server is asked only where nothing else holds the file: one that nobody runs for us would hold up the whole run."""
        others = [(site, pfn) for site, pfn in found if pfn.kind is not OriginKind.HTTP]
        if others and len(others) < len(found):
            self.reports.note(f"web sources of {external.lfn!r} are left out, because it has another")
        return others or found

    def add_produced(self, files: dict[str, File]) -> None:
        homeless = []
        sizes = {use.lfn: use.size_bytes for job in self.jobs.by_id.values() for use in job.inputs.values() if use.size_bytes is not None}
        for job in self.jobs.by_id.values():
            for use in job.outputs.values():
                destination = None
                if use.stage_out and self.output_origin is not None:
                    destination = Destination(Location(self.output_origin.name, use.path))
                elif use.stage_out:
                    homeless.append(use.lfn)
                size_bytes = sizes.get(use.lfn) if use.size_bytes is None else use.size_bytes
                files.setdefault(use.lfn, File(use.lfn, size_bytes=size_bytes, destination=destination, executable=use.executable))
        if homeless:
            some = ", ".join(homeless[:3]) + (", …" if len(homeless) > 3 else "")
            what = counted(len(homeless), "output", "is", "are")
            message = f"{what} to be staged out ({some}), and nothing says where to; add --output-origin URL"
            self.reports.refuse(str(self.path), Place(), "", message)

    def job_of(self, job: PegasusJob, program: Program, shared: dict[str, dict[str, str]]) -> Job:
        settings = settings_of(self.reports, job, [shared, *program.layers, job.profiles])
        paths = {lfn: use.path for lfn, use in job.inputs.items() if lfn in self.externals or lfn in self.made}
        for lfn in (*(each.lfn for each in program.executables), *program.files):
            paths.setdefault(lfn, lfn)
        if program.container is not None:
            paths[image_lfn(program.container)] = IMAGE_PATH
        parents = {self.made[lfn].id for lfn in paths if lfn in self.made}
        return Job(
            id=job.id,
            job_type=name_of(job.key),
            argv=(program.argv0, *job.arguments),
            inputs=tuple(JobInput(lfn, path) for lfn, path in paths.items()),
            outputs=tuple(JobOutput(use.lfn, use.path, use.optional) for use in job.outputs.values()),
            after=tuple(parent for parent in job.after if parent not in parents),
            cores=settings.cores,
            memory_bytes=settings.memory_bytes,
            retries=settings.retries,
            env=tuple(sorted(settings.env.items())),
            env_pass=tuple(settings.env_pass),
            stdin=job.streams.get("stdin"),
            stdout=job.streams.get("stdout"),
            stderr=job.streams.get("stderr"),
            compute_s=settings.compute_s,
        )


def seen(source: Source, entry: OriginEntry | None) -> Source:
    return source if entry is None else replace(source, size_bytes=entry.size_bytes, token=entry.token)


def image_lfn(container: Container) -> str:
    return f"{container.name}.image"
