"""Makes jobs of the members that a job has named, and a plan with them, while their run goes on.

May know: the state of the Machine (read only), the reader's book, the planner. One rule: what is pending follows from the state alone, so
whatever is killed, the next scheduler finds it; and what was made is put only where the run is still what it was made of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from stager.model.errors import Fault, Refused, StagerError
from stager.model.scatter import Rows, Scatter
from stager.model.units import counted
from stager.model.workflow import Workflow
from stager.planning.plan import Access, Plan
from stager.runtime.inbox import Inbox
from stager.scheduler import events as ev
from stager.scheduler.commands import Command
from stager.scheduler.scatter import continued, pending, told, why_not
from stager.scheduler.state import RunEntry, State
from stager.service.placing import placed_here
from stager.service.run_service import RunService
from stager.service.settings import Settings
from stager.service.threads import Threads

log = logging.getLogger(__name__)
MAY_BRING = (ev.AttemptEnded, ev.RunResumed, ev.RunScattered, ev.RunSubmitted)


class Scattering:
    """`saw` is called on the driving thread. What takes long is done on a thread of its own, one run after the other."""

    def __init__(self, settings: Settings, state: State, inbox: Inbox, run_service: RunService) -> None:
        self.settings, self.state, self.inbox, self.run_service = settings, state, inbox, run_service
        self.threads: Threads | None = None
        self.under_way: set[str] = set()
        self.caught_up = False

    def saw(self, events: Sequence[ev.Event], commands: Sequence[Command]) -> None:
        runs: Iterable[str] = {event.run: None for event in events if isinstance(event, MAY_BRING)}
        if not self.caught_up:
            self.caught_up, runs = True, list(self.state.active)
        for run_id in runs:
            self._look_at(run_id)

    def close(self) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)

    def _look_at(self, run_id: str) -> None:
        run = self.state.runs.get(run_id)
        found = pending(run) if run is not None and run.members and run_id not in self.under_way else []
        if run is None or not found:
            return
        self._begin(run, found)

    def _begin(self, run: RunEntry, scatters: Sequence[Scatter]) -> None:
        self.under_way.add(run.id)
        if self.threads is None:
            self.threads = Threads("scatter", 1)
        self.threads.submit(self._make, run.id, run.workflow, run.plan, scatters, {each.name: run.members[each.name] for each in scatters})

    def _make(self, run_id: str, workflow: Workflow, plan: Plan, scatters: Sequence[Scatter], rows: Mapping[str, Rows]) -> None:
        """Of all that are known by now, so that many lists make few definitions."""
        first, *more = scatters
        made: tuple[Workflow, Plan] | StagerError
        try:
            made = grown(self.settings, workflow, plan, rows)
        except StagerError as problem:
            made = problem
        except Exception as problem:
            log.exception("no jobs could be made of the members of %s of run %s", first.name, run_id)
            made = StagerError(f"a defect of stager: {problem!r}", code="scatter_failed")
        also, members = tuple(each.name for each in more), sum(map(len, rows.values()))
        facts = ev.RunScattered(at=0.0, cause="scatter", run=run_id, scatter=first.name, also=also, members=members)
        # Nobody waits for it where the scheduler ends meanwhile: the next one does it again.
        self.inbox.ask(lambda: self._put(workflow, facts, first, made))

    def _put(self, base: Workflow, facts: ev.RunScattered, scatter: Scatter, made: tuple[Workflow, Plan] | StagerError) -> None:
        """On the driving thread."""
        self.under_way.remove(facts.run)
        run = self.state.runs.get(facts.run)
        if run is None or run.workflow is not base or not told(run, facts):
            self._look_at(facts.run)
            return
        try:
            workflow, plan = self._continued(run, scatter, made)
        except StagerError as problem:
            if facts.also:
                # One by one, so that it is said of which.
                self._begin(run, [scatter])
                return
            text = f"no jobs can be made of the {counted(facts.members, 'member')} in {scatter.what}: {problem.message}"
            self.inbox.put(replace(facts, fault=Fault(problem.error_class, problem.code, text, problem.subject)))
            return
        self.inbox.put(replace(facts, workflow=workflow, plan=plan))

    def _continued(self, run: RunEntry, scatter: Scatter, made: tuple[Workflow, Plan] | StagerError) -> tuple[Workflow, Plan]:
        """Raises StagerError, whatever it was: nobody hears of anything else, and the run would wait for ever."""
        try:
            if isinstance(made, StagerError):
                raise made
            workflow, plan = made
            if why := why_not(run, workflow):
                raise Refused(why, code="scatter_failed", subject=scatter.name)
            plan = continued(run, workflow, placed_here(plan, self.state.nodes))
            self.run_service.require_room(run, workflow, plan)
            return workflow, plan
        except StagerError:
            raise
        except Exception as problem:
            log.exception("run %s cannot go on with the members of %s", run.id, scatter.name)
            raise StagerError(f"a defect of stager: {problem!r}", code="scatter_failed") from problem


def grown(settings: Settings, workflow: Workflow, before: Plan, rows: Mapping[str, Rows]) -> tuple[Workflow, Plan]:
    """The workflow with the jobs of these members, by scatter, and a plan by the choices of the one before. Raises StagerError."""
    # Few runs scatter, and a scheduler starts sooner without these.
    from stager.planning.make_plan import check_capacity
    from stager.planning.reuse import as_far_as
    from stager.readers.native_scatter import expanded
    from stager.service.prepare import SubmitOptions, plan_as_asked
    from stager.service.profiles import load_profiles

    made = as_far_as(expanded(workflow, rows), workflow.until)
    spill = before.spill_origin if workflow.spill_origin is None and before.spill_origin in workflow.origins else None
    direct = any(file.access is Access.DIRECT for file in before.files)
    asked = SubmitOptions(spill, before.profiles_ignored, not direct, before.copies)
    plan = plan_as_asked(made, settings, load_profiles(settings), asked)
    check_capacity(plan)
    return made, plan
