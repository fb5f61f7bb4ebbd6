"""Cases in which jobs are decided at run time: a job names members, and the run goes on with a job for each, and what gathers them. The
job of a member may name members, too.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from stager.model.files import Destination, File, Location, OnExists
from stager.model.scatter import Rows, Scatter, ScatterForm
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.scheduler.scatter import continued, pending
from stager.sim.world import SimWorld, enter

if TYPE_CHECKING:
    from tests.sim.cases import Case

ASSUMED: tuple[Rows, ...] = ((("a",),), (("a",), ("b",)), (("1",), ("2",), ("3",)))


@dataclass(frozen=True)
class Scattered:
    """One scatter: members of `over`, each with `steps` jobs one after the other, read what `reads` names; `sizes_bytes` of each that they
    make. `rows`: as they turn out. `within`: by member, what its own first job names, over which others scatter; None: nothing.
    """

    name: str
    over: str
    maker: str
    reads: tuple[str, ...]
    steps: int
    size_bytes: int
    finals: bool
    assumed: Rows
    rows: Rows
    within: Mapping[str, Rows] | None = None
    assumed_within: Rows = ()

    @property
    def scatter(self) -> str:
        return f"{self.name}0"

    def scatter_of(self, value: str) -> str:
        """That over what the job of a member names."""
        return f"{self.name}n[{value}]"

    def all_rows(self) -> dict[str, Rows]:
        return {self.scatter: self.rows} | {self.scatter_of(value): rows for value, rows in (self.within or {}).items()}


@dataclass(frozen=True)
class ScatterCase:
    """`edit`: of a run that was submitted again, by which some of its jobs have another comment, and all finals another place."""

    base: Workflow
    each: tuple[Scattered, ...]
    edit: str = ""

    def workflow(self, known: Mapping[str, Rows]) -> Workflow:
        """As it is when the members of these scatters are known."""
        files, jobs, scatters = dict(self.base.files), dict(self.base.jobs), []
        for one in self.each:
            rows = known.get(one.scatter)
            made: list[str] = []
            firsts: list[str] = []
            for (value,) in one.assumed if rows is None else rows:
                reads = one.reads
                for step in range(one.steps):
                    job_id, lfn = f"{one.name}{step}[{value}]", f"{self.base.name}.{one.name}{step}.{value}"
                    files[lfn] = self._made(lfn, one.size_bytes, one.finals and step == one.steps - 1)
                    after = (one.maker,) if not step else ()
                    jobs[job_id] = work(job_id, reads, (lfn,), after)
                    firsts += [job_id] if not step else []
                    reads = (lfn,)
                made += reads
                if one.within is not None:
                    first, lfn = f"{one.name}0[{value}]", f"{self.base.name}.{one.name}0.{value}"
                    scatter, names = self._within(one, value, first, lfn, known.get(one.scatter_of(value)))
                    made += [self._member(files, jobs, one, job_id, lfn, first) for job_id in names]
                    scatters.append(scatter)
            gathered = f"{self.base.name}.{one.name}.all"
            files[gathered] = self._made(gathered, one.size_bytes, True)
            jobs[one.name] = work(one.name, tuple(made), (gathered,), ())
            jobs[f"{one.name}-end"] = work(f"{one.name}-end", (gathered,), (), ())
            standing = tuple(firsts) if rows is None else ()
            scatters.append(Scatter(one.scatter, one.over, ("value",), one.maker, ScatterForm.LINES, standing, rows))
        found = replace(self.base, files=files, jobs=jobs, scatters=tuple(scatters))
        return edited(found, self.edit) if self.edit else found

    @staticmethod
    def _within(one: Scattered, value: str, maker: str, over: str, rows: Rows | None) -> tuple[Scatter, tuple[str, ...]]:
        """And the jobs of its members."""
        names = tuple(f"{one.name}n[{value},{each}]" for (each,) in (one.assumed_within if rows is None else rows))
        standing = names if rows is None else ()
        return Scatter(one.scatter_of(value), over, ("value",), maker, ScatterForm.LINES, standing, rows), names

    def _member(self, files: dict[str, File], jobs: dict[str, Job], one: Scattered, job_id: str, reads: str, maker: str) -> str:
        lfn = f"{self.base.name}.{job_id}"
        files[lfn] = self._made(lfn, one.size_bytes, False)
        jobs[job_id] = work(job_id, (reads,), (lfn,), (maker,))
        return lfn

    def known(self, workflow: Workflow) -> dict[str, Rows]:
        return {each.name: each.rows for each in workflow.scatters if each.rows is not None}

    def all_rows(self) -> dict[str, Rows]:
        return {name: rows for each in self.each for name, rows in each.all_rows().items()}

    def members(self) -> dict[str, dict[str, Rows]]:
        """By job, what its outputs name."""
        found: dict[str, dict[str, Rows]] = {}
        for one in self.each:
            found.setdefault(one.maker, {})[one.scatter] = one.rows
            for value, rows in (one.within or {}).items():
                found[f"{one.name}0[{value}]"] = {one.scatter_of(value): rows}
        return found

    @staticmethod
    def _made(lfn: str, size_bytes: int, final: bool) -> File:
        return File(lfn, size_bytes=size_bytes, destination=Destination(Location("home", f"out/{lfn}")) if final else None)


def work(job_id: str, reads: Sequence[str], makes: Sequence[str], after: tuple[str, ...]) -> Job:
    inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in dict.fromkeys(reads)), tuple(JobOutput(lfn, lfn) for lfn in makes)
    return Job(job_id, "scattered", ("work",), inputs=inputs, outputs=outputs, after=after, compute_s=0.5)


def scatter_case(random: Random, base: Workflow) -> ScatterCase:
    """One or two scatters, the second over what the first one's gathering job makes or beside it."""
    makers = [job for job in base.jobs.values() if job.outputs]
    found: list[Scattered] = []
    for number in range(random.choice((1, 1, 2)) if makers else 0):
        maker = random.choice(makers)
        maker_id, over = maker.id, maker.outputs[0].lfn
        reads = tuple(random.sample([output.lfn for output in maker.outputs], random.randint(0, len(maker.outputs))))
        if found and random.random() < 0.5:
            over = f"{base.name}.{found[0].name}.all"
            maker_id, reads = found[0].name, random.choice(((), (over,)))
        elif random.random() < 0.4:
            reads += (random.choice(list(base.files)),)
        names = random.sample("abcdefgh123", random.choice((0, 1, 2, 3, 6)))
        facts = (random.choice((1, 1, 2)), random.choice((0, 10, 100, 300)), random.random() < 0.3)
        rows = tuple((name,) for name in names)
        assumed, within = random.choice(ASSUMED), None
        if random.random() < 0.4:
            within = {name: tuple((each,) for each in random.sample("uvwxyz12", random.choice((0, 1, 2, 4)))) for name in names}
        found.append(Scattered(f"s{number}", over, maker_id, reads, *facts, assumed, rows, within, random.choice(ASSUMED)))
    return ScatterCase(base, tuple(found))


def edited(workflow: Workflow, edit: str) -> Workflow:
    files = dict(workflow.files)
    for lfn, file in files.items():
        if file.destination is not None:
            where = file.destination.location
            files[lfn] = replace(file, destination=Destination(Location(where.origin, f"again/{where.path}"), OnExists.REPLACE))
    commented = (job for job in workflow.jobs.values() if Random(f"{edit}/{job.id}").random() < 0.15)
    jobs = {job.id: replace(job, env=(*job.env, ("COMMENT", edit))) for job in commented}
    return replace(workflow, jobs=workflow.jobs | jobs, files=files)


def scattered_again(case: Case) -> Case:
    """A run that knew its members, and the same once more: some of its jobs were edited, and make the same. Most of the members that stand
    for those that are not known are those that will be.
    """
    # Both import this.
    from tests.sim.cut_off_cases import guessed_part
    from tests.sim.kept_cases import MUCH, distinct

    random = Random(f"scattered again/{case.seed}")
    base, spill = distinct(case.workflows[0]), case.plans[0].spill_origin
    drawn = scatter_case(random, base)
    first = replace(drawn.workflow(drawn.all_rows()), scatters=())

    def before(rows: Rows) -> Rows:
        left = tuple(row for row in rows if random.random() < 0.9)
        return (*left, ("gone",)) if random.random() < 0.2 or not left else left

    def now(rows: Rows) -> Rows:
        return tuple(row for row in rows if random.random() < 0.85)

    each = tuple(replace(each, assumed=before(each.rows), rows=now(each.rows)) for each in drawn.each)
    part = ScatterCase(base, each, f"edit {case.seed}")
    edit, whole = part.workflow({}), part.workflow(part.all_rows())
    sized = [make_plan(each, case.topology, spill_origin=spill) for each in (first, edit, whole)]
    least, is_roomy = max(plan.smallest_capacity_bytes for plan in sized), random.random() < 0.8
    most = 12 * max(entry.footprint_bytes for plan in sized for entry in plan.jobs)
    least = 1 + 4 * sum(file.size_bytes for plan in sized for file in plan.files) if is_roomy else max(least, most)
    topology = replace(
        case.topology, nodes=tuple(replace(node, capacity_bytes=max(least, node.capacity_bytes)) for node in case.topology.nodes)
    )
    case = replace(case, topology=topology)
    plan, jobs, sharing = guessed_part(random, case, first, edit, spill, "")
    first_plan = make_plan(first, topology, spill_origin=spill)
    return replace(
        case,
        workflows=[first, edit],
        plans=[first_plan, plan],
        reused=((), jobs),
        sharing=(None, sharing),
        starts_s=(0.0, random.choice((0.5, 1.5, 2.5)) * (first_plan.makespan_s + 1) + 0.01),
        policy=replace(case.policy, keep_results_bytes=random.choice((0, MUCH, MUCH)), keep_results_s=1e9),
        interrupts=tuple(each for each in case.interrupts if each[1] == 0),
        tenants=(),
        scatters=(ScatterCase(base, ()), part),
        slack_s=case.slack_s + 60.0 + 40 * sum(each.makespan_s for each in sized) * max(case.spread.durations, 1.0),
        must_succeed=case.must_succeed and case.spread.sizes == 1.0 and not case.spread.contents_vary and (spill is not None or is_roomy),
        resumes_max=case.resumes_max + 30 if case.resumes_max else 0,
    )


def scattered(case: Case) -> Case:
    """The runs of a case, some of whose jobs are decided while they go on. Room is found for all that there will be."""
    random = Random(f"scatter/{case.seed}")
    parts = [scatter_case(random, workflow) for workflow in case.workflows]
    wholes = [part.workflow(part.all_rows()) for part in parts]
    firsts = [part.workflow({}) for part in parts]
    spill = case.plans[0].spill_origin
    everything = sum(file.size_bytes or 0 for workflow in (*wholes, *firsts) for file in workflow.files.values())
    every = [make_plan(workflow, case.topology) for workflow in (*wholes, *firsts)]
    most = max(entry.footprint_bytes for plan in every for entry in plan.jobs)
    tight = random.random() < 0.4
    # With a place to spill to each job has to fit. Without one nothing is promised once others have begun.
    least = 12 * most if spill is not None else 1.5 * max(plan.smallest_capacity_bytes for plan in every)
    capacity = int(case.spread.sizes * (least if tight else 12 * everything)) + 1
    topology = replace(case.topology, nodes=tuple(replace(node, capacity_bytes=capacity) for node in case.topology.nodes))
    plans = [make_plan(workflow, topology, spill_origin=spill) for workflow in firsts]
    whole_s = sum(make_plan(workflow, topology, spill_origin=spill).makespan_s for workflow in wholes)
    slack_s = case.slack_s + 60.0 + 20 * len(parts) * whole_s * max(case.spread.durations, 1.0)
    return replace(
        case,
        workflows=firsts,
        plans=plans,
        topology=topology,
        slack_s=slack_s,
        scatters=tuple(parts),
        must_succeed=not case.spread.contents_vary and (spill is not None or not tight),
        resumes_max=case.resumes_max + 30 if case.resumes_max else 0,
    )


class ScatterWatch:
    """Says what the members are made into, a while after they are known."""

    def __init__(self, world: SimWorld, case: Case) -> None:
        self.world, self.random = world, Random(f"scatter watch/{case.seed}")
        self.cases = {f"r{number}": part for number, part in enumerate(case.scatters)}
        self.told: set[str] = set()
        self.machine: Machine | None = None
        for run, part in self.cases.items():
            for maker, members in part.members().items():
                world.executor.members[run, maker] = members

    def __call__(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        self.machine = machine
        if not self.cases:
            return
        again = {event.run for event in events if isinstance(event, ev.RunResumed | ev.RunScattered | ev.RunSubmitted)}
        self.told -= again
        if any(isinstance(event, ev.SchedulerStarted) for event in events):
            self.told.clear()
        for run in machine.state.runs.values():
            names = [each.name for each in pending(run)]
            if names and run.id not in self.told:
                self.told.add(run.id)
                at = self.world.clock.now + self.random.choice((0.0, 0.01, 1.0))
                together = tuple(names[: self.random.choice((1, len(names), len(names)))])
                self.world.tell_at(at, lambda now, run=run.id, together=together: self.grown(now, run, together))

    def grown(self, now: float, run_id: str, names: tuple[str, ...]) -> Any:
        assert self.machine is not None
        run, part = self.machine.state.runs[run_id], self.cases[run_id]
        facts = {"at": now, "run": run_id, "scatter": names[0], "also": names[1:]}
        if not {each.name for each in pending(run)}.issuperset(names):
            return ev.RunScattered(**facts)
        rows = {name: run.members[name] for name in names}
        workflow = part.workflow(part.known(run.workflow) | rows)
        plan: Plan = continued(run, workflow, make_plan(workflow, self.world.topology, spill_origin=run.plan.spill_origin))
        told = self.world.runs[run_id]
        told.workflow, told.plan, told.derived = workflow, plan, None
        enter(self.world, run_id, workflow, plan, plan)
        return ev.RunScattered(**facts, members=sum(map(len, rows.values())), workflow=workflow, plan=plan)
