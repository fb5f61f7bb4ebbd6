"""The questions about one run and its parts, for whichever API asks: its definition, summary, ledger, jobs.

May know: the Machine's state (read only), the run records, views. One rule: asking changes nothing; an answer is of one moment between two
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from stager import wire
from stager.adapters.run_records import RunRecord, RunRecords
from stager.model.errors import InvalidInput, Refused
from stager.model.scatter import standing_jobs
from stager.model.workflow import Graph, Workflow
from stager.planning.plan import Plan
from stager.scheduler.ledger import ledger_of
from stager.scheduler.state import RunEntry
from stager.scheduler.states import JobState
from stager.service.counters import Counters
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.views import job_view, ledger_entry, losses


@dataclass(frozen=True, slots=True)
class Definition:
    """A run's workflow, with the plan and the graph that were made of it. Any thread may read it."""

    workflow: Workflow
    plan: Plan
    graph: Graph


class RunQueries:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, records: RunRecords) -> None:
        self.inquiry, self.runs, self.records = inquiry, runs, records

    async def record(self, run: str) -> RunRecord | None:
        return await self.inquiry.ask(lambda: self.records.get(run))

    async def definition(self, run: str) -> Definition:
        """All of it at one moment: a resume may replace it at the next. Raises InvalidInput if there is no such run."""

        def read() -> Definition:
            entry = self.runs.known(run)
            return Definition(entry.workflow, entry.plan, entry.graph)

        return await self.inquiry.ask(read)

    async def needs(self, run: str) -> wire.RunNeeds:
        """The origins and variables that a resume has to bring."""

        def read() -> wire.RunNeeds:
            workflow = self.runs.known(run).workflow
            names = sorted({name for job in workflow.jobs.values() for name in job.env_pass})
            origins = [wire.builtins_of(origin) for origin in workflow.origins.values()]
            return wire.RunNeeds(run=run, origins=origins, env_pass=names)

        return await self.inquiry.ask(read)

    async def summary(self, run: str) -> wire.RunSummary:
        record = await self.record(run)
        if record is None:
            raise InvalidInput(f"there is no run {run!r}; `stager runs` lists them", code="not_found", subject=run)
        if record.summary is None or record.finished_at is None:
            raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
        return wire.RunSummary.model_validate_json(record.summary)

    async def losses(self, run: str) -> wire.Losses:
        return await self.inquiry.ask(lambda: losses(self.runs.state, self.runs.known(run)))

    async def ledger(self, run: str, lfn: str | None = None) -> list[wire.LedgerEntry]:
        def read() -> list[wire.LedgerEntry]:
            if self.runs.is_folded(run):
                return self.runs.archive.ledger(run, lfn)
            entry = self.runs.known(run)
            files = [ledger_entry(entry.workflow, each) for each in ledger_of(self.runs.state, run) if lfn in (None, each.lfn)]
            if lfn is not None and not files:
                raise InvalidInput(f"run {run} makes no file {lfn!r}", code="not_found", subject=lfn)
            return files

        return await self.inquiry.ask(read)


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The jobs of a run that are not excluded. `text`: in the name or the type, whatever its case."""

    state: str | None = None
    job_type: str | None = None
    job: str | None = None
    text: str = ""

    def of(self, entry: RunEntry) -> list[str]:
        """In the order of the workflow."""
        jobs, text = entry.workflow.jobs, self.text.casefold()
        named: Iterable[str] = ([self.job] if self.job in jobs else []) if self.job is not None else jobs
        of_type = (job for job in named if self.job_type in (None, jobs[job].job_type))
        found = (job for job in of_type if not text or text in job.casefold() or text in jobs[job].job_type.casefold())
        return [job for job in found if self.state in (None, entry.jobs[job].state.value)]


class JobQueries:
    """On the event loop's thread. `kept`: the jobs whose sandbox is kept, each with its run."""

    def __init__(
        self, inquiry: Inquiry, runs: KnownRuns, counters: Counters, kept: Container[tuple[str, str]], clock: Callable[[], float]
    ) -> None:
        self.inquiry, self.runs, self.counters, self.kept, self.clock = inquiry, runs, counters, kept, clock

    async def views(self, run: str, start: int, limit: int, choice: JobChoice) -> tuple[list[wire.JobView], int]:
        """(from `start` on, how many there are in all)"""

        def read() -> tuple[list[wire.JobView], int]:
            entry = self.runs.known(run)
            chosen, now = choice.of(entry), self.clock()
            shown = chosen[start : start + limit]
            standing = standing_jobs(entry.workflow.scatters)
            views = [job_view(entry, job, self.counters, (run, job) in self.kept, now, assumed=job in standing) for job in shown]
            return views, len(chosen)

        return await self.inquiry.ask(read)

    async def states(self, run: str) -> tuple[list[JobState], Sequence[str]]:
        """In the order of the graph, and that order."""

        def read() -> tuple[list[JobState], Sequence[str]]:
            entry = self.runs.known(run)
            return [entry.jobs[job].state for job in entry.graph.order], entry.graph.order

        return await self.inquiry.ask(read)
