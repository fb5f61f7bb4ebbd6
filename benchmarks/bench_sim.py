"""How fast the Machine runs in the virtual world: events per second (goal 40,000) with room for everything, and where space is short."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.made_up import made_up_workflow
from stager.model.topology import Topology, embedded
from stager.planning.make_plan import make_plan
from stager.scheduler.machine import Machine
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld

JOBS = (1_000, 10_000, 30_000)
GOAL_PER_S = 40_000


def run(jobs: int, tight: bool) -> tuple[SimWorld, float, float]:
    """(the world at its end, seconds to plan, seconds to run), of processor time: other work on the machine does not count."""
    workflow = made_up_workflow(jobs)
    topology = embedded(10**15, cores=16)
    begun = time.process_time()
    plan = make_plan(workflow, topology, spill_origin="home")
    if tight:
        topology = Topology((embedded(plan.peak_live_bytes // 2, cores=16).nodes[0],))
        plan = make_plan(workflow, topology, spill_origin="home")
    planned_s = time.process_time() - begun
    world = SimWorld(topology)
    world.submit("run", workflow, plan)
    begun = time.process_time()
    machine: Machine = simulate(world)
    took_s = time.process_time() - begun
    assert str(world.runs["run"].outcome) == "succeeded", world.runs["run"].fault
    assert machine.state.runs["run"].unended == 0
    return world, planned_s, took_s


def main() -> None:
    print(f"{'jobs':>8} {'space':>6} {'events':>8} {'commands':>9} {'seconds':>8} {'events/s':>9} {'goal':>7} {'virtual s':>10}")
    for tight in (False, True):
        for jobs in JOBS:
            world, _, took_s = run(jobs, tight)
            rate = world.event_count / took_s
            space = "half" if tight else "all"
            counts = f"{world.event_count:>8} {world.command_count:>9}"
            print(f"{jobs:>8} {space:>6} {counts} {took_s:>8.2f} {rate:>9.0f} {GOAL_PER_S:>7} {world.clock.now:>10.0f}")


if __name__ == "__main__":
    main()
