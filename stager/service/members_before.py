"""The members that a job named in an earlier run, where that run stands for it: then jobs of a scatter are known before the run begins.

May know: the results store, the planner. One rule: they are taken only where the job that named them is reused; a job that runs says
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stager.adapters.results_store import ResultsStore
from stager.model.scatter import Rows, unknown
from stager.model.workflow import Workflow
from stager.planning.reuse import as_far_as
from stager.ports import OriginAccess
from stager.readers.native_scatter import expanded
from stager.service.destinations import at_destinations
from stager.service.prepare import SubmitOptions, found_before
from stager.service.reusing import Remembered
from stager.service.settings import Settings


def with_members_before(
    workflow: Workflow,
    settings: Settings,
    access: OriginAccess,
    options: SubmitOptions,
    tenant: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Workflow:
    """Raises what would stop the submit."""

    def found_of(asked: Workflow) -> Remembered | None:
        return found_before(replace(asked, scatters=()), settings, options, at_destinations(asked, access), tenant, env)

    before: dict[str, Rows] = {}
    while unknown(workflow.scatters):
        found = found_of(workflow)
        if found is None or found.store is None:
            break
        rows = remembered_rows(workflow, found, tenant or "")
        before |= rows_before(workflow, found.store, tenant or "")
        found.store.close()
        grown = as_far_as(expanded(workflow, rows), workflow.until) if rows else workflow
        again = found_of(grown) if rows else None
        if again is None:
            break
        stand = {each.name for each in grown.scatters if each.name in rows and each.maker in again.reuse.reused}
        if again.store is not None:
            again.store.close()
        if not stand:
            break
        workflow = grown if len(stand) == len(rows) else as_far_as(expanded(workflow, {name: rows[name] for name in stand}), workflow.until)
    assumed = {each.name: before[each.name] for each in unknown(workflow.scatters) if not each.said and before.get(each.name)}
    return as_far_as(expanded(workflow, {}, assumed), workflow.until) if assumed else workflow


def rows_before(workflow: Workflow, store: ResultsStore, tenant: str) -> dict[str, Rows]:
    """What the run before named, of the same input or of another: it stands for what is not known."""
    found = {each.name: store.members_before(tenant, workflow.name, each.maker, each) for each in unknown(workflow.scatters)}
    return {name: rows for name, rows in found.items() if rows is not None}


def remembered_rows(workflow: Workflow, found: Remembered, tenant: str) -> dict[str, Rows]:
    rows = {}
    for each in unknown(workflow.scatters):
        key = found.reuse.keys.get(each.maker)
        known = found.store.members(tenant, key.digest, each.over, each.form, each.keys) if key is not None and found.store else None
        if known is not None:
            rows[each.name] = known
    return rows
