"""The members that a job named in an earlier run, where that run stands for it: then jobs of a scatter are known before the run begins.

May know: the results store, the planner. One rule: they are taken only where the job that named them is reused; a job that runs says
itself.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from stager.adapters.results_store import ResultsStore
from stager.model.scatter import Rows, Scatter, assumed_jobs, unknown
from stager.model.workflow import Workflow, graph_of
from stager.planning.reuse import as_far_as, closure, jobs_named
from stager.readers.native_scatter import expanded
from stager.service.destinations import at_destinations
from stager.service.prepare import SubmitContext, SubmitOptions, found_before
from stager.service.reusing import Remembered


def with_members_before(workflow: Workflow, context: SubmitContext) -> Workflow:
    """Raises what would stop the submit."""
    tenant = context.tenant

    def found_of(asked: Workflow) -> Remembered | None:
        known = replace(context, options=as_far_as_known(context.options, asked))
        return found_before(replace(asked, scatters=()), known, at_destinations(asked, context.access))

    while unknown(workflow.scatters):
        found = found_of(workflow)
        if found is None or found.store is None:
            return workflow
        with closing(found.store) as store:
            rows = remembered_rows(workflow, found, tenant or "")
            grown = as_far_as(expanded(workflow, rows), workflow.until) if rows else workflow
            again = found_of(grown) if rows else None
            if again is not None and again.store is not None:
                again.store.close()
            stand = {each.name: rows[each.name] for each in grown.scatters if each.name in rows and stands(each, found, again)}
            if not stand:
                return standing_for_unknown(workflow, store, tenant or "")
        workflow = grown if len(stand) == len(rows) else as_far_as(expanded(workflow, stand), workflow.until)
    return workflow


def as_far_as_known(options: SubmitOptions, workflow: Workflow) -> SubmitOptions:
    """What is to run again, of the jobs that there are yet. Jobs of members may be named that are not known before, and whether the run can
    begin so is told when they are.
    """
    again, _ = jobs_named(workflow, options.rerun)
    begin, _ = jobs_named(workflow, options.begin)
    again |= closure(begin, graph_of(workflow).children)
    by_name = True if options.reuse is None and options.reuse_by_name else options.reuse
    return replace(options, rerun=tuple(sorted(again)), begin=(), reuse=by_name)


def stands(each: Scatter, found: Remembered, again: Remembered | None) -> bool:
    """What names the members is reused, and is what it was when they were looked up."""
    if again is None or each.maker not in again.reuse.reused:
        return False
    return again.reuse.contents.get(each.over) == found.reuse.contents.get(each.over)


def standing_for_unknown(workflow: Workflow, store: ResultsStore, tenant: str) -> Workflow:
    """With what the run before named, of the same input or of another, in the place of what is not known."""
    asked: set[str] = set()
    while left := [each for each in unknown(workflow.scatters) if each.name not in asked]:
        asked.update(each.name for each in left)
        rows = {each.name: store.members_before(tenant, workflow.name, each.maker, each) for each in left}
        known = {name: found for name, found in rows.items() if found}
        # Of what stands there others may follow, whose jobs named something, too.
        workflow = as_far_as(expanded(workflow, {}, known), workflow.until) if known else workflow
    return workflow


def remembered_rows(workflow: Workflow, found: Remembered, tenant: str) -> dict[str, Rows]:
    """Of those whose maker is known itself, and not only assumed."""
    rows = {}
    doubtful = closure(assumed_jobs(workflow.scatters), graph_of(workflow).children)
    for each in unknown(workflow.scatters):
        if each.maker in doubtful:
            continue
        key, made = found.reuse.keys.get(each.maker), found.reuse.contents.get(each.over)
        known = found.store.members(tenant, key.digest, each, made) if key is not None and made is not None and found.store else None
        if known is not None:
            rows[each.name] = known
    return rows
