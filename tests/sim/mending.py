"""A run of a simulated world that is resumed as a mended workflow file says."""

from __future__ import annotations

from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.scheduler import events as ev
from stager.sim.world import SimWorld, enter


def resume_with(world: SimWorld, run: str, workflow: Workflow, plan: Plan, at: float) -> None:
    """Once it has ended. Its inputs are at their origins as the new definition has them."""

    def mended(now: float) -> ev.RunResumed:
        world.runs[run].workflow, world.runs[run].plan, world.runs[run].derived = workflow, plan, None
        enter(world, run, workflow, plan, plan, mended=True)
        return ev.RunResumed(at=now, run=run, workflow=workflow, plan=plan, notes=("mended",))

    world.tell_at(at, mended)
