"""Cases in which a foreign engine runs the jobs: of one run or of several, alone or beside a run of ours, with tasks that fail, are
cleared, are called too early or are lost.

May know: the other cases. One rule: everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.sim.engine import Habits
from stager.sim.faults import ALL_TROUBLES, NO_FAULTS, WITH_LOSSES, sampled_faults
from stager.sim.sampling import Spread
from tests.sim.drawn import sample_shared, sample_workflow

SILENT_UNTIL_S = 3_000.0
# Of retries with growing pauses, of calls that wait for what is to be published, of tasks that are cleared.
SLACK_S = 900.0


def engines(workflow: Workflow) -> Workflow:
    """The same, run by an engine: no command is ours."""
    jobs = {name: replace(job, argv=(), shell="") for name, job in workflow.jobs.items()}
    return replace(workflow, jobs=jobs, engine="airflow")


def habits_of(random: Random, seed: int, until_s: float, retries: int) -> Habits:
    return Habits(
        seed=seed,
        slots=random.choice((1, 1, 2, 4)),
        retries=retries,
        until_s=until_s,
        fail_share=random.choice((0.0, 0.0, 0.2)),
        lost_share=random.choice((0.0, 0.0, 0.2)),
        early_share=random.choice((0.0, 0.0, 0.1)),
        pins_share=random.choice((0.0, 0.3, 1.0)),
        clears=random.choice((0, 1, 3)),
        silent=random.choice((None, None, None, None, None, None, None, None, 0, 3)),
    )


def engine_case(seed: int, make: Callable[..., Any], tools: Any, kinds: tuple[str, ...] = ()) -> Any:
    """With a place to spill to and room for the largest job, or room for everything twice, no run fails. Else an engine may have to give
    up a task, and a run of ours beside it may find no room.
    """
    random = Random(f"engine/{seed}/{bool(kinds)}")
    shared = sample_shared(random)
    drawn = [sample_workflow(random, f"w{number}", shared, jobs_max=10) for number in range(random.choice((1, 1, 2)))]
    workflows = [engines(workflow) if number == 0 or random.random() < 0.5 else workflow for number, workflow in enumerate(drawn)]
    spill = random.choice((None, "home"))
    vary = random.random() < 0.4
    spread = Spread(seed, sizes=random.choice((1.0, 1.0, 10.0)), durations=2.0, contents_vary=vary)
    enough = max(tools.true_footprint(workflow, f"r{number}", spread) for number, workflow in enumerate(workflows))
    enough = max([enough, *(tools.smallest(each, spill).smallest_capacity_bytes for each in workflows if not each.engine)])
    everything = sum(tools.true_size(w, f"r{number}", lfn, spread) for number, w in enumerate(workflows) for lfn in w.files)
    roomy = random.random() < 0.4
    capacity = 3 * everything + enough if roomy else tools.tight_capacity(random, enough)
    node = tools.topology_of(max(1, capacity), random.choice((1, 2, 4))).nodes[0]
    nodes = tuple(replace(node, id=f"node{number}") for number in range(random.choice((1, 1, 1, 2, 3))))
    topology = replace(tools.topology_of(1, 1), nodes=nodes)
    plans = [make_plan(workflow, topology, spill_origin=spill) for workflow in workflows]
    span = 3.0 * sum(plan.makespan_s for plan in plans) + 10.0
    faults = sampled_faults(seed, span, kinds) if kinds else NO_FAULTS
    # An upload that a node ended when it was gone may stand in the way of another making for ever.
    retries = 1_000_000 if (roomy or spill) and not (vary and "gone" in kinds) else 4
    habits = tuple(habits_of(random, seed, span, retries) if workflow.engine else None for workflow in workflows)
    interrupts = []
    for number in range(len(workflows)):
        if random.random() < 0.25:
            interrupts += [
                (random.random() * span, number, random.choice(("drain", "stop", "stop", "cancel"))),
                (2 * span, number, "resume"),
            ]
    interrupts += [(SILENT_UNTIL_S, number, "cancel") for number, each in enumerate(habits) if each is not None and each.silent is not None]
    resumes = (int(span) + 30 if roomy or spill else 3) if kinds or interrupts else 0
    must = (roomy or spill is not None) and not (vary and kinds) and not (vary and len(drawn) > sum(bool(w.engine) for w in workflows))
    starts = tuple(random.random() * span / 8 for _ in workflows)
    parts = {"faults": faults, "resumes_max": resumes, "must_succeed": must, "starts_s": starts, "interrupts": tuple(sorted(interrupts))}
    return make(seed, workflows, plans, topology, spread, habits=habits, slack_s=SLACK_S, **parts)


def troubles_of(seed: int) -> tuple[str, ...]:
    return WITH_LOSSES if seed % 3 == 0 else ALL_TROUBLES
