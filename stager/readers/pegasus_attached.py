"""A planned Pegasus workflow as stager sees it: its jobs as calls of an engine, with the files that are worth to be staged for them.

May know: the planner's lists, the model. One rule: a file is taken up only where stager-transfer can use it; of all else Pegasus looks
after as before, and what was left out is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from stager.model.errors import InvalidInput
from stager.model.files import Destination, File, OnExists, Source
from stager.model.units import counted
from stager.model.workflow import Job, JobInput, JobOutput, OriginKind, Workflow
from stager.readers.pegasus_places import NotServed, Pfn, Places, parse_pfn
from stager.readers.pegasus_planned import ListedTransfer, Planned, PlannedJob, PlannedKind

ENGINE = "pegasus"
BEGUN = "their jobs have begun already"
HERE = (OriginKind.FILE,)
READ_ONLY = (OriginKind.HTTP,)


class Sorting:
    """Decides of each file of the lists what it is to stager: an external, a final, exchanged between jobs, or none of its business."""

    def __init__(self, planned: Planned, past: Collection[str]) -> None:
        self.planned = planned
        self.left_out: Counter[str] = Counter()
        to_run = [job for job in planned.jobs.values() if job.id not in past]
        begun = sum(len(job.transfers) for job in planned.jobs.values() if job.id in past)
        self.left_out.update({BEGUN: begun} if begun else {})
        # Each external's sources, each final's destination, by lfn.
        self.sources: dict[str, list[tuple[str, Pfn]]] = {}
        self.homes: dict[str, Pfn] = {}
        self.inputs: dict[str, dict[str, None]] = {name: {} for name in planned.jobs}
        self.outputs: dict[str, dict[str, None]] = {name: {} for name in planned.jobs}
        lists = [job.transfers for job in planned.jobs.values() if job.kind is PlannedKind.STAGE_IN]
        self.listed = {entry.lfn for transfers in lists for entry in transfers}
        self.made = {lfn: job.id for job in to_run if job.kind is PlannedKind.COMPUTE for lfn in job.outputs}
        for job in to_run:
            if job.kind is PlannedKind.STAGE_IN:
                for entry in job.transfers:
                    self.stage_in(job, entry)
        for job in to_run:
            if job.kind is PlannedKind.COMPUTE:
                self.exchange(job)
        for job in to_run:
            if job.kind is PlannedKind.STAGE_OUT:
                for entry in job.transfers:
                    self.stage_out(job, entry)

    def is_away(self, lfn: str) -> bool:
        """The planner keeps it on another machine: jobs read and write it over a line, or in a cache of stager's."""
        url = self.planned.staged.get(lfn, "")
        found = self.pfn_of(url) if url else None
        return bool(url) and (found is None or found.kind not in HERE)

    def pfn_of(self, url: str) -> Pfn | None:
        """None where stager does not reach it. Raises InvalidInput on a URL with a secret."""
        try:
            return parse_pfn(url, self.planned.directory)
        except NotServed as reason:
            self.left_out[str(reason)] += 1
        except ValueError as problem:
            raise InvalidInput(f"a list of {self.planned.directory} has a URL that cannot be used: {problem}") from None
        return None

    def stage_in(self, job: PlannedJob, entry: ListedTransfer) -> None:
        if not entry.lfn or entry.lfn in self.made:
            return
        found = [(source.site, pfn) for source in entry.sources if "$" not in source.url and (pfn := self.pfn_of(source.url)) is not None]
        if not found:
            return
        if found[0][1].kind in HERE and not self.is_away(entry.lfn):
            self.left_out["their inputs are on this machine already"] += 1
            return
        self.sources.setdefault(entry.lfn, found)
        self.inputs[job.id][entry.lfn] = None

    def exchange(self, job: PlannedJob) -> None:
        """Notes the job's inputs and outputs that are kept on another machine."""
        for lfn in job.inputs:
            if lfn not in self.made and lfn not in self.listed and is_lite(job):
                self.bypassed(job, lfn)
            elif self.is_away(lfn) and (lfn in self.sources or lfn in self.made):
                self.inputs[job.id][lfn] = None
        for lfn in job.outputs:
            if self.is_away(lfn):
                self.outputs[job.id][lfn] = None

    def bypassed(self, job: PlannedJob, lfn: str) -> None:
        """No list stages it in (`pegasus.transfer.bypass.input.staging`): the job takes it from where the replica catalog says."""
        found = [(url.site, pfn) for url in self.planned.replicas.get(lfn, ()) if (pfn := self.pfn_of(url.url)) is not None]
        if found and found[0][1].kind not in HERE:
            self.sources.setdefault(lfn, found)
            self.inputs[job.id][lfn] = None

    def stage_out(self, job: PlannedJob, entry: ListedTransfer) -> None:
        """A job that made it on this machine is not one of ours: then the one that sends it home publishes it."""
        home = self.pfn_of(entry.destination.url) if "$" not in entry.destination.url else None
        if not entry.lfn or home is None or entry.lfn in self.sources or entry.lfn in self.homes:
            return
        if home.kind in READ_ONLY:
            self.left_out[f"{home.kind.value} can only be read"] += 1
            return
        if self.is_away(entry.lfn) and entry.lfn not in self.made:
            self.left_out["no job that is still to run makes them"] += 1
            return
        exchanged = entry.lfn in self.outputs.get(self.made.get(entry.lfn, ""), ())
        if home.kind in HERE and not exchanged:
            self.left_out["their outputs stay on this machine"] += 1
            return
        self.homes[entry.lfn] = home
        (self.inputs if exchanged else self.outputs)[job.id][entry.lfn] = None

    def roots(self) -> list[Pfn]:
        """Directories of outputs need not be there: they are made below the root, as Pegasus makes them."""
        return [replace(home, path="/any") for home in self.homes.values() if not home.path.startswith("/~")]


def is_lite(job: PlannedJob) -> bool:
    """Whether the script around its task transfers files."""
    return job.path.with_name(f"{job.path.name}.sh").is_file()


def attached_workflow(planned: Planned, past: Collection[str] = ()) -> Workflow:
    """`past`: jobs that have begun without stager, and do without it to their end. Raises InvalidInput where nothing is left that stager
    could do.
    """
    sorting, parents = Sorting(planned, past), Ancestors(planned)
    places = Places([*(pfn for found in sorting.sources.values() for _, pfn in found), *sorting.homes.values(), *sorting.roots()])
    files = {
        lfn: File(lfn, sources=tuple(Source(places.locate(pfn), site=site, priority=rank) for rank, (site, pfn) in enumerate(found)))
        for lfn, found in sorting.sources.items()
    }
    for lfn in dict.fromkeys(lfn for made in sorting.outputs.values() for lfn in made):
        home = sorting.homes.get(lfn)
        files[lfn] = File(lfn, destination=None if home is None else Destination(places.locate(home), OnExists.REPLACE))
    if not files:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in sorting.left_out.most_common(5)) or "its lists are empty"
        raise InvalidInput(f"stager has nothing to do for {planned.directory}: {reasons}", code="nothing_to_stage")
    jobs = {job.id: job_of(job, sorting, parents.of(job.id)) for job in planned.jobs.values() if job.kind is not PlannedKind.OTHER}
    notes = tuple(f"left to Pegasus: {reason} ({counted(count, 'file')})" for reason, count in sorted(sorting.left_out.items()))
    notes += tuple(f"sub-workflow {name}: attach to {place} when that is planned" for name, place in planned.nested.items())
    return Workflow(planned.label, files, jobs, places.origins, source_path=str(planned.directory), notes=notes, engine=ENGINE)


def job_of(job: PlannedJob, sorting: Sorting, parents: tuple[str, ...]) -> Job:
    """Names of files may hold anything, so their places are numbers."""
    inputs = tuple(JobInput(lfn, f"in/{number}") for number, lfn in enumerate(sorting.inputs[job.id]))
    outputs = tuple(JobOutput(lfn, f"out/{number}") for number, lfn in enumerate(sorting.outputs[job.id]))
    job_type = job.transformation or (f"pegasus-{job.kind.value}" if job.kind is not PlannedKind.COMPUTE else job.id)
    return Job(job.id, job_type, inputs=inputs, outputs=outputs, after=parents)


class Ancestors:
    """The nearest jobs above each that are stager's business: those between, which make directories and remove files, are passed over."""

    def __init__(self, planned: Planned) -> None:
        self.jobs = planned.jobs
        self.found: dict[str, tuple[str, ...]] = {}
        for name in self.from_the_top():
            above: dict[str, None] = {}
            for parent in self.jobs[name].parents:
                shown = (parent,) if self.jobs[parent].kind is not PlannedKind.OTHER else self.found[parent]
                above |= dict.fromkeys(shown)
            self.found[name] = tuple(above)

    def from_the_top(self) -> list[str]:
        """Raises InvalidInput on a cycle."""
        left = {name: len(set(job.parents)) for name, job in self.jobs.items()}
        below: dict[str, list[str]] = {name: [] for name in self.jobs}
        for name, job in self.jobs.items():
            for parent in dict.fromkeys(job.parents):
                below[parent].append(name)
        order = [name for name, count in left.items() if count == 0]
        for name in order:
            for child in below[name]:
                left[child] -= 1
                if left[child] == 0:
                    order.append(child)
        if len(order) < len(self.jobs):
            raise InvalidInput("the DAG has a cycle: its jobs wait for each other; plan again")
        return order

    def of(self, name: str) -> tuple[str, ...]:
        return self.found[name]
