"""`--plan FILE`: the plan that somebody looked at, run instead of a new one.

May know: the planner. One rule: it is refused, with the differences, once anything that it rests on has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stager.model.errors import Refused
from stager.model.profile import Profiles
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.planning.plan_json import diff, from_json
from stager.service.prepare import SubmitOptions, plan_as_asked
from stager.service.settings import Settings


def as_approved(path: Path, fresh: Plan, workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions) -> Plan:
    """The plan in the file. Where nobody asked for the capacity, that of the file is as good as the one there is."""

    def plan_at(capacity_bytes: int) -> Plan:
        return plan_as_asked(workflow, replace(settings, capacity_bytes=capacity_bytes), profiles, options)

    return approved_plan(path, fresh, None if settings.capacity_given else plan_at)


def approved_plan(path: Path, fresh: Plan, plan_at: Callable[[int], Plan] | None) -> Plan:
    """The plan in a file, if nothing it rests on has changed since, and never another one. Raises Refused with what did. `plan_at` plans
    again for a capacity, where nobody asked for the one there is: free disk may have moved it.
    """
    approved = from_json(path.read_bytes(), str(path))
    moved = approved.capacity_bytes != fresh.capacity_bytes
    changes = diff(approved, plan_at(approved.capacity_bytes) if moved and plan_at is not None else fresh)
    same_order = [job.job for job in approved.jobs] == [job.job for job in fresh.jobs]
    if not changes and not same_order and fresh.capacity_bytes < approved.peak_live_bytes:
        # An order that was chosen for more room may not fit in less.
        need = f"the order of its jobs was chosen for {format_size(approved.capacity_bytes)} and may need {approved.peak_live_bytes} bytes"
        changes = [*diff(approved, fresh), f"{need}: make room on the disk, or ask for as much with --capacity"]
    if changes:
        listed = "\n  ".join(changes)
        raise Refused(
            f"{path} is not the plan of what is there now:\n  {listed}\nlook at it and write it again with `stager plan --output {path}`",
            code="plan_changed",
        )
    return approved
