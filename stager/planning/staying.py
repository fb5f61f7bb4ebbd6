"""How far ahead a file may come and still be there when it is read, where room is short: what is used before it may need its room.

May know: the workflow, the plan, and how large a node is. One rule: it counts as if whatever is used last goes first, and as if all that is
read before the file has come before it: so what is used before stands in its way, and what is used later only where it cannot be put
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from stager.model.workflow import Workflow
from stager.planning.plan import Access, Plan
from stager.planning.same_place import first_names
from stager.planning.space import SpaceProfile

Files = dict[str, int]


@dataclass(frozen=True, slots=True)
class Use:
    """The files that one job reads and makes, with their sizes."""

    reads: Files
    makes: Files


def stays_from(workflow: Workflow, plan: Plan, node: str, capacity_bytes: int, at_once: int) -> list[int]:
    """By place in the plan's order: the first place from which on what its job reads may come to this node. `at_once`: so many of the jobs
    there run side by side. 0 for jobs of other nodes: nothing is known of those.
    """
    here = sorted([entry for entry in plan.jobs if entry.node == node], key=lambda entry: entry.order)
    uses = uses_of(workflow, plan, [entry.job for entry in here])
    found = [0] * len(plan.jobs)
    for index, first in enumerate(first_places(uses, capacity_bytes, at_once, bound_here(workflow, plan, uses))):
        found[here[index].order] = here[first].order if first else 0
    return found


def bound_here(workflow: Workflow, plan: Plan, uses: Sequence[Use]) -> set[str]:
    """What is made there and can be had nowhere else, so that it stays until its last use."""
    if plan.spill_origin is not None:
        return set()
    return {lfn for use in uses for lfn in use.makes if workflow.files[lfn].destination is None}


def uses_of(workflow: Workflow, plan: Plan, jobs: Sequence[str]) -> list[Use]:
    """Of each job, on its node."""
    sizes = {entry.lfn: entry.size_bytes for entry in plan.files if entry.access is not Access.DIRECT}
    specs, same_as = [workflow.jobs[job] for job in jobs], first_names(workflow)
    return [
        Use(
            {same_as.get(entry.lfn, entry.lfn): sizes[entry.lfn] for entry in spec.inputs if entry.lfn in sizes},
            {entry.lfn: sizes[entry.lfn] for entry in spec.outputs if entry.lfn in sizes},
        )
        for spec in specs
    ]


def first_places(uses: Sequence[Use], capacity_bytes: int, at_once: int, bound: Set[str] = frozenset()) -> list[int]:
    """The same of jobs in a row: the first place from which on all that is used before fits. A file that is used from place k to k +
    at_once - 1 is in use at k. One that is used before and after k, or read after it and never used before, waits there as far as it is
    used again before the file; of what is `bound` wherever it is used again.
    """
    steps = [0] * (len(uses) + 1)
    waits: list[list[tuple[int, int, int]]] = [[] for _ in uses]
    used_at: dict[str, int] = {}
    for place, use in enumerate(uses):
        begins = max(0, place - at_once + 1)
        for lfn, size_bytes in (use.makes | use.reads).items():
            after = used_at.get(lfn, -1) + 1
            stays = after > 0 and lfn in bound
            steps[after if stays else max(after, begins)] += size_bytes
            steps[place + 1] -= size_bytes
            if after < begins and not stays and (after or lfn in use.reads):
                waits[place].append((after, begins, size_bytes))
            used_at[lfn] = place
    profile = SpaceProfile(list(accumulate(steps))[: len(uses)])
    first = 0
    found: list[int] = []
    for place, waiting in enumerate(waits):
        for begin, end, size_bytes in waiting:
            if end > first:
                profile.add(max(begin, first), end, size_bytes)
        last = max(0, place - at_once + 1)
        while first < last and profile.max(first, last) > capacity_bytes:
            first += 1
        found.append(first)
    return found
