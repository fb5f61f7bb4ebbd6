"""The requests of clients about runs, checked before they become events: submit, resume, drain, stop, cancel.

May know: the Machine's state (read only), the run records. One rule: on the driving thread, between two batches, so that two clients
cannot both be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from stager import wire
from stager.adapters.run_records import RunRecord, RunRecords
from stager.model.errors import InvalidInput, Refused
from stager.model.places import overlaps
from stager.model.scatter import standing_jobs, unknown
from stager.model.tenants import Tenant
from stager.model.units import format_money, format_size, parse_money
from stager.model.workflow import CycleFound, Workflow, final_places, graph_of
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.ports import Put
from stager.runtime.credentials import CredentialBook
from stager.scheduler import events as ev
from stager.scheduler.amendment import changes_of, conflicts_of, with_known_shells
from stager.scheduler.budget import BUDGET_CODE
from stager.scheduler.commands import Command, RunOutcome
from stager.scheduler.spending import owed_money, spent_money
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import RunState
from stager.service.known_runs import KnownRuns
from stager.service.placing import placed_here

NAME_LENGTH_MAX = 40
CONFLICTS_SHOWN = 5
RUNS_SHOWN = 3
SUBMIT_ADVICE = "end the scheduler (stager shutdown) and submit with a larger --capacity or STAGER_CAPACITY, or name a spill origin"
OVER = (RunOutcome.SUCCEEDED, RunOutcome.CANCELLED)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a submit. A tenant's ids of submits are its own."""

    tenant: str = ""
    request_digest: str = ""

    def submit_id(self, submit_id: str) -> str:
        return f"{self.tenant}/{submit_id}" if self.tenant else submit_id


OWNER = Sender()


class RunService:
    def __init__(
        self,
        runs: KnownRuns,
        records: RunRecords,
        book: CredentialBook,
        put: Put,
        tenants: dict[str, str] | None = None,
        tenant_named: Callable[[str], Tenant] = Tenant,
        tell_shares: Callable[[], object] = lambda: None,
        passed: Callable[[Mapping[str, str], Iterable[str]], dict[str, str]] = lambda env, names: {},
    ) -> None:
        """`tenants`: whose run is whose, for those who resolve origins on other threads; added to here. `tenant_named` raises where there
        is none. `tell_shares`: has the Machine hear of the tenants of now. `passed`: of variables of a submitter digests of their values.
        """
        self.tell_shares, self.passed = tell_shares, passed
        self.runs, self.records, self.book, self.put, self.tenant_named = runs, records, book, put, tenant_named
        self.tenants = {} if tenants is None else tenants
        # Taken, but the Machine has not seen it yet.
        self.accepted: dict[str, Workflow] = {}
        # Of active runs, so that each is worked out once.
        self.finals: dict[str, list[str]] = {}

    def submit(self, request: wire.SubmitRequest, now: float, on_durable: Callable[[], None], sender: Sender = OWNER) -> str:
        """The run's id; `on_durable` is called once it is in the journal. Raises InvalidInput or Refused, and nothing has begun then."""
        earlier = self.earlier(request.submit_id, sender) if request.submit_id else None
        if earlier is not None and self._is_taken(earlier):
            on_durable()
            return earlier.run
        workflow, plan = request.workflow, placed_here(request.plan, self.runs.state.nodes)
        self._check_space(workflow, plan, SUBMIT_ADVICE)
        self._check_destinations(workflow, tenant=sender.tenant)
        self._check_quotas(sender.tenant, plan)
        if earlier is None:
            slug = slug_of(workflow.name)
            run = f"{slug}-{self.records.next_number(slug)}"
            # No key has a space in it.
            submit_id = sender.submit_id(request.submit_id or f"run {run}")
            record = RunRecord(
                run,
                submit_id,
                workflow.name,
                workflow.source_path,
                now,
                len(workflow.jobs),
                tenant=sender.tenant,
                request_digest=sender.request_digest,
                part_of=request.part_of,
            )
            self.records.add(record)
        else:
            run = earlier.run
        if sender.tenant:
            self.tenants[run] = sender.tenant
            # On whose hosts its jobs run is known before any of them can begin.
            self.tell_shares()
        self.book.bring(run, request.credentials.origins, request.credentials.env)
        sharing = self._sharing(request, sender.tenant)
        self.accepted[run] = workflow
        self.put(
            ev.RunSubmitted(
                at=0.0,
                cause="submit",
                run=run,
                workflow=workflow,
                plan=plan,
                ids=ev.IDS,
                tenant=sender.tenant,
                priority=request.priority,
                reused=request.reused,
                budget=request.budget,
                sharing=sharing,
                passed=self._passed(workflow, request.credentials),
            ),
            on_durable,
        )
        return run

    def _sharing(self, request: wire.SubmitRequest, tenant: str) -> Sharing | None:
        """Of less use where no other run of the same tenant goes on and nothing is guessed; None: reuse was not asked for."""
        going_on = {**self.runs.state.active, **dict.fromkeys(self.accepted)}
        beside = any(self.tenants.get(run, "") == tenant for run in going_on)
        if request.sharing is None or beside or request.sharing.guessed:
            return request.sharing
        return Sharing()

    def _passed(self, workflow: Workflow, credentials: wire.Credentials) -> dict[str, str]:
        return self.passed(credentials.env, {name for job in workflow.jobs.values() for name in job.env_pass})

    def earlier(self, submit_id: str, sender: Sender) -> RunRecord | None:
        """The run that the same sender submitted under this id before. Raises Refused if that was another request."""
        found = self.records.by_submit_id(sender.submit_id(submit_id))
        if found is not None and found.request_digest != sender.request_digest:
            text = f"the idempotency key {submit_id!r} was used for another request, which made the run {found.run}"
            raise Refused(f"{text}; use a key once for each workflow", code="key_used", subject=submit_id)
        return found

    def taken_before(self, submit_id: str, sender: Sender) -> RunRecord | None:
        """The run that this submit has made already. Raises Refused if it was another request."""
        found = self.earlier(submit_id, sender)
        return found if found is not None and self._is_taken(found) else None

    def add_key(self, submit_id: str, run: str, tenant: str) -> None:
        """`made_by` finds the run under this one too. Raises Refused if a submit has made another run with it."""
        self.records.add_key(Sender(tenant).submit_id(submit_id), run)

    def made_by(self, submit_id: str, tenant: str) -> RunRecord | None:
        """The run that any submit of this tenant under this id has made."""
        found = self.records.by_submit_id(Sender(tenant).submit_id(submit_id))
        return found if found is not None and self._is_taken(found) else None

    def _is_taken(self, record: RunRecord) -> bool:
        """False after a crash between the record and the journal."""
        ended = record.summary is not None or record.removed
        return ended or record.run in self.runs.state.runs or record.run in self.accepted

    def saw(self, events: Sequence[ev.Event], commands: Sequence[Command]) -> None:
        """Of each batch: what the Machine has by now."""
        for event in events:
            if type(event) is ev.RunSubmitted:
                self.took(event.run)

    def workflow_of(self, run: str) -> Workflow | None:
        """Of a run that the Machine has, or is about to."""
        entry = self.runs.state.runs.get(run)
        return entry.workflow if entry is not None else self.accepted.get(run)

    def took(self, run: str) -> None:
        """The Machine has it."""
        self.accepted.pop(run, None)

    def _check_space(self, workflow: Workflow, plan: Plan, advice: str) -> None:
        """An engine runs its jobs in an order of its own: of its calls one that finds no room is refused by itself."""
        for node_id in sorted({job.node for job in plan.jobs}):
            node = self.runs.state.nodes.get(node_id)
            if node is None:
                raise InvalidInput(f"the plan places jobs on {node_id!r}, which is no node here; plan again", subject=node_id)
            if plan.smallest_node_bytes > node.capacity_bytes and not workflow.engine:
                text = f"the workflow needs at least {format_size(plan.smallest_node_bytes)} and the node {node_id!r} has"
                raise Refused(f"{text} {format_size(node.capacity_bytes)}; {advice}", code="no_space_node", subject=node_id)

    def _check_quotas(self, tenant: str, plan: Plan) -> None:
        """Of cores and bytes in use the Machine takes care: there jobs wait."""
        if not tenant:
            return
        said = self.tenant_named(tenant)
        active = [run for run in {**self.runs.state.active, **dict.fromkeys(self.accepted)} if self.tenants.get(run) == tenant]
        if said.quota_runs is not None and len(active) >= said.quota_runs:
            have = f"{len(active)} run{'s are' if len(active) > 1 else ' is'} active ({', '.join(active[:RUNS_SHOWN])})"
            text = f"the tenant {tenant} may have {said.quota_runs} active at a time, and {have}"
            raise Refused(f"{text}; wait for one (stager wait {active[0]}), or cancel one", code="quota_runs", subject=tenant)
        least_bytes = plan.peak_live_bytes if plan.spill_origin is None else 0
        if said.quota_bytes is not None and least_bytes > said.quota_bytes:
            text = f"the workflow holds {format_size(least_bytes)} of what it makes at a time, and the tenant {tenant} may hold"
            advice = "name a spill origin, or ask the administrator of the service for more"
            raise Refused(f"{text} {format_size(said.quota_bytes)}; {advice}", code="quota_bytes", subject=tenant)

    def _check_destinations(self, workflow: Workflow, run: str = "", tenant: str = "") -> None:
        """Two runs that write to one place would take turns to destroy each other's work."""
        mine = {place: lfn for lfn, place in final_places(workflow)}
        others = {other: self.runs.state.runs[other].workflow for other in self.runs.state.active} | self.accepted
        self.finals = {other: self.finals.get(other) or [place for _, place in final_places(theirs)] for other, theirs in others.items()}
        for other, theirs in self.finals.items():
            shared = sorted(overlaps(mine, theirs)) if other != run else []
            if shared:
                own, place = shared[0]
                how = "too" if own == place else f"and this workflow to {own}, one inside the other"
                theirs_too = not tenant or self.tenants.get(other) == tenant
                who = f"the active run {other}" if theirs_too else "an active run of somebody else"
                text = f"{who} writes to {place} {how} ({mine[own]!r} of this workflow)"
                more = f", and likewise for {len(shared) - 1} more of its destinations" if len(shared) > 1 else ""
                advice = f"wait for it (stager wait {other}), cancel it, or write elsewhere" if theirs_too else "write elsewhere"
                raise Refused(f"{text}{more}; {advice}", code="destination_shared", subject=other if theirs_too else mine[own])

    def resume(self, run: str, request: wire.ResumeRequest, on_durable: Callable[[], None]) -> list[str]:
        """The differences from now on, where the request brings another definition of a run that has ended."""
        entry = self.runs.known(run)
        if entry.outcome is RunOutcome.SUCCEEDED:
            # After a crash a run goes on by itself, so it may have ended before anybody asked for it.
            on_durable()
            return []
        if entry.outcome is RunOutcome.CANCELLED:
            raise Refused(f"run {run} was cancelled for good; submit the workflow again", code="run_over", subject=run)
        if entry.state in (RunState.STOPPING, RunState.CANCELLING):
            text = f"run {run} is {entry.state.value}; resume it when that has ended (stager wait {run})"
            raise Refused(text, code="run_ending", subject=run)
        amount = amount_to_go_on(self.runs.state, entry, request.budget)
        mended = replace(self._mended(entry, request), budget=amount)
        self._check_destinations(mended.workflow or entry.workflow, run, self.tenants.get(run, ""))
        if entry.state is RunState.FINISHED:
            self._check_quotas(self.tenants.get(run, ""), mended.plan or entry.plan)
        if run in self.tenants:
            self.tell_shares()
        self.book.bring(run, request.credentials.origins, request.credentials.env)
        self.records.reopen(run, len(mended.workflow.jobs) if mended.workflow else None)
        self.put(mended, on_durable)
        return list(mended.notes)

    def _mended(self, entry: RunEntry, request: wire.ResumeRequest) -> ev.RunResumed:
        """With the definition that the request brings, where that is another one. Raises Refused if what is done would not stand."""
        passed = self._passed(request.workflow or entry.workflow, request.credentials)
        plain = ev.RunResumed(at=0.0, cause="resume", run=entry.id, passed=passed)
        if request.workflow is None or request.plan is None or entry.state is not RunState.FINISHED or entry.is_engines:
            return plain
        workflow = with_known_shells(entry.workflow, request.workflow)
        notes = changes_of(self.runs.state, entry, workflow)
        conflicts = conflicts_of(self.runs.state, entry, workflow)
        if conflicts:
            more = f"\n  and {len(conflicts) - CONFLICTS_SHOWN} more" if len(conflicts) > CONFLICTS_SHOWN else ""
            listed = "\n  ".join(conflicts[:CONFLICTS_SHOWN]) + more
            advice = f"submit the workflow anew, or go on as it was submitted (stager resume {entry.id} --as-submitted)"
            text = f"run {entry.id} cannot go on with the workflow as it is now:\n  {listed}\n{advice}"
            raise Refused(text, code="workflow_changed", subject=entry.id)
        if not notes:
            return plain
        self._check_space(workflow, request.plan, f"give it more with `stager resume {entry.id} --capacity SIZE`, or name a spill origin")
        return replace(plain, workflow=workflow, plan=request.plan, notes=tuple(notes))

    def require_room(self, entry: RunEntry, workflow: Workflow, plan: Plan) -> None:
        """For a run that goes on with more jobs. Raises InvalidInput or Refused."""
        self._check_space(workflow, plan, f"give it more with `stager resume {entry.id} --capacity SIZE`, or name a spill origin")
        self.finals.pop(entry.id, None)
        self._check_destinations(workflow, entry.id, entry.tenant)
        self.records.reopen(entry.id, len(workflow.jobs))

    def end(self, run: str, event: type, on_durable: Callable[[], None], by: str = ev.BY_REQUEST) -> None:
        """Drain, stop or cancel. Of a run that has ended only a cancel of a resumable one means anything."""
        entry = self.runs.known(run)
        resumable = entry.state is RunState.FINISHED and entry.outcome not in OVER
        if entry.state is RunState.FINISHED and not (event is ev.RunCancelled and resumable):
            ended_as = entry.outcome.value if entry.outcome else "over"
            raise Refused(f"run {run} has ended already: it is {ended_as}", code="run_over", subject=run)
        who = {} if event is ev.RunCancelled else {"by": by}
        self.put(event(at=0.0, cause="client", run=run, **who), on_durable)


def amount_to_go_on(state: State, run: RunEntry, text: str) -> float | None:
    """What it may cost in all; None: what it might before. Raises InvalidInput for what is no amount, Refused for too little."""
    budget, spent = run.budget, run.spent
    if budget is None or spent is None or budget.amount is None:
        if text:
            told = f"run {run.id} was submitted without a budget, so nobody knows what its nodes cost"
            raise InvalidInput(f"{told}; leave --budget out", code="no_budget", subject=run.id)
        return None
    least = spent_money(run, state.now) + (owed_money(state, run, state.now) if run.state is not RunState.FINISHED else 0.0)
    if not text and spent.paused is None:
        return None
    need = f"{format_money(least)} {budget.currency} are spent" + (" or set aside" if run.state is not RunState.FINISHED else "")
    if not text:
        told = f"run {run.id} was paused before its budget of {format_money(budget.amount)} {budget.currency} was used up, and {need}"
        raise Refused(f"{told}; go on with: stager resume {run.id} --budget AMOUNT", code=BUDGET_CODE, subject=run.id)
    try:
        amount, currency = parse_money(text)
    except ValueError as problem:
        raise InvalidInput(f"the budget {problem}", code="bad_budget", subject="budget") from None
    if currency != budget.currency:
        told = f"the budget is in {currency}, and run {run.id} was submitted with one in {budget.currency}"
        raise InvalidInput(f"{told}; write it in {budget.currency}", code="other_currency", subject="budget")
    if amount <= least:
        told = f"a budget of {format_money(amount)} {currency} is for all of run {run.id}, and {need}"
        raise Refused(f"{told}; name more", code=BUDGET_CODE, subject=run.id)
    return amount


def check_whole(workflow: Workflow, plan: Plan) -> None:
    """The guarantees of a reader and the planner, checked again at the door: the Machine takes them for granted. Raises InvalidInput."""
    try:
        graph = graph_of(workflow)
    except (CycleFound, ValueError, KeyError) as problem:
        raise InvalidInput(f"the workflow {workflow.name!r} does not hold together: {problem}", subject=workflow.name) from problem
    if not workflow.jobs:
        raise InvalidInput(f"the workflow {workflow.name!r} has no jobs", subject=workflow.name)
    for job in workflow.jobs.values():
        if workflow.engine and (job.argv or job.shell):
            text = f"job {job.id!r} has a command, and {workflow.engine} is to run the jobs of this workflow: leave the command out"
            raise InvalidInput(text, subject=job.id)
        for lfn in job.lfns:
            if lfn not in workflow.files:
                raise InvalidInput(f"job {job.id!r} names the file {lfn!r}, which the workflow does not have", subject=lfn)
    for lfn, file in workflow.files.items():
        places = [source.location.origin for source in file.sources] + ([file.destination.location.origin] if file.destination else [])
        if any(origin not in workflow.origins for origin in places):
            raise InvalidInput(f"file {lfn!r} is at an origin that the workflow does not name", subject=lfn)
        if file.is_external == (lfn in graph.producer):
            raise InvalidInput(f"file {lfn!r} must have either a source or a job that makes it", subject=lfn)
    if {job.job for job in plan.jobs} != set(workflow.jobs) or {file.lfn for file in plan.files} != set(workflow.files):
        raise InvalidInput("the plan is not a plan of this workflow; plan again", subject=workflow.name)


def check_reused(workflow: Workflow, reused: Sequence[ReusedJob]) -> None:
    """What a job that runs reads can be had, and what is final lies at its destination or can go there. Raises InvalidInput."""
    graph, at_hand, done = graph_of(workflow), set[str](), {each.job for each in reused}
    if not done:
        return
    for scatter in unknown(workflow.scatters):
        if scatter.maker in done:
            raise InvalidInput(f"job {scatter.maker!r} is to be reused, and nobody knows what it named; plan again", subject=scatter.maker)
    if len(done) < len(reused) or not done <= workflow.jobs.keys() or workflow.engine:
        raise InvalidInput("the jobs to be reused are not jobs of this workflow; plan again", subject=workflow.name)
    for each in reused:
        made = {output.lfn: output for output in each.outputs}
        declared = {output.lfn: output for output in workflow.jobs[each.job].outputs}
        whole = made.keys() <= declared.keys() and all(lfn in made or output.optional for lfn, output in declared.items())
        home = all((output.token != "") != (output.kept != "") or not workflow.files[lfn].is_final for lfn, output in made.items() if whole)
        if not whole or not home or not all(output.blake3 for output in made.values()):
            text = f"what is to be reused of job {each.job!r} is not what it makes, or not where that is wanted"
            raise InvalidInput(f"{text}; plan again", subject=each.job)
        at_hand |= {lfn for lfn, output in made.items() if output.token or (output.kept and not workflow.files[lfn].is_final)}
    for job_id in workflow.jobs.keys() - done:
        for entry in workflow.jobs[job_id].inputs:
            if graph.producer.get(entry.lfn) in done and entry.lfn not in at_hand:
                raise InvalidInput(f"job {job_id!r} reads {entry.lfn!r}, which is nowhere; plan again", subject=entry.lfn)


def check_guessed(workflow: Workflow, sharing: Sharing | None) -> None:
    """They are jobs of the workflow, and what they need others of it make. Raises InvalidInput."""
    standing = standing_jobs(workflow.scatters)
    for each in sharing.guessed if sharing is not None else ():
        job, producer = workflow.jobs.get(each.reused.job), graph_of(workflow).producer
        made, read = (
            {output.lfn for output in job.outputs} if job else set[str](),
            {entry.lfn for entry in job.inputs} if job else set[str](),
        )
        needs = set(each.needs) <= read & producer.keys() and (each.needs or each.reused.job in standing)
        if not {output.lfn for output in each.reused.outputs} <= made or not needs:
            raise InvalidInput(f"what is guessed of {each.reused.job!r} is of no job of this workflow; plan again", subject=workflow.name)


def slug_of(name: str) -> str:
    """Part of a run's id: also a directory's name and a word on a command line."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:NAME_LENGTH_MAX].strip("-") or "run"
