"""In which order to run the jobs: by rank where there is room, by what keeps the live bytes few where there is not.

May know: planning's shape. One rule: every order is topological and a function of the shape alone; ties fall by place in the workflow.

Finding the order of smallest peak is hard in general, so some cheap candidates are made and measured:
  rank        highest upward rank first: best for time, holds most
  deep        depth first from the sinks, the parent that needs most room first: good for trees and for fan-in by groups
  deep_eager  the same, but a job that frees at least what it makes goes as soon as it can
  greedy      always the ready job that adds least
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import accumulate

from stager.planning.shape import Shape


def upward_ranks(shape: Shape) -> list[float]:
    """Seconds of predicted computing and I/O on the longest way from the start of a job to the end of the workflow, its finals' upload
    included.
    """
    ranks = [0.0] * len(shape.jobs)
    for job in range(len(ranks) - 1, -1, -1):
        below = shape.upload_s[job]
        for child in shape.children[job]:
            if ranks[child] > below:
                below = ranks[child]
        ranks[job] = shape.compute_s[job] + shape.fetch_s[job] + shape.local_s[job] + below
    return ranks


def sooner_first(shape: Shape, ranks: list[float], slots: int) -> list[float]:
    """The ranks to order by where jobs that wait for nobody fit the cores at once: then they compete for the line alone. Of two of which
    nobody knows how long they compute, the one with the smaller fetch goes first. It begins sooner, and the other one no later.
    """
    first = [job for job, above in enumerate(shape.parents) if not above]
    if len(first) < 2 or sum([shape.cores[job] for job in first]) > slots:
        return ranks
    unsure = [job for job in first if shape.unsure[job]]
    # Once without its fetch, which is in its rank; and once for the wait that its fetch would be to the others.
    sooner = sorted(unsure, key=lambda job: ranks[job] - 2 * shape.fetch_s[job], reverse=True)
    found = list(ranks)
    for job, rank in zip(sooner, sorted([ranks[job] for job in unsure], reverse=True), strict=True):
        found[job] = max([rank, *[ranks[child] for child in shape.children[job]]])
    return found


def rank_order(ranks: list[float]) -> list[int]:
    """By rank, which never rises along an edge: nothing takes less than no time. So it is the order in which ready jobs are taken, too."""
    return sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True)


def deep_order(shape: Shape, ranks: list[float]) -> list[int]:
    """Depth first over parents. Need and residue are those of a tree, which is exact where no file has two readers and a fair guess
    elsewhere.
    """
    count = len(shape.jobs)
    need = [0] * count
    residue = shape.lasting
    first = list(shape.parents)
    for job, above in enumerate(shape.parents):
        if len(above) > 1:
            above = first[job] = sorted(above, key=lambda parent: (residue[parent] - need[parent], -ranks[parent], parent))
        running = highest = 0
        for parent in above:
            if running + need[parent] > highest:
                highest = running + need[parent]
            running += residue[parent]
        need[job] = max(highest, shape.footprint[job])
    done = [False] * count
    order: list[int] = []
    # Of equal ranks, in the order of writing: a sort keeps it.
    sinks = sorted([job for job in range(count) if not shape.children[job]], key=lambda job: -ranks[job])
    for sink in sinks:
        stack = [(sink, iter(first[sink]))]
        while stack:
            job, rest = stack[-1]
            for parent in rest:
                if not done[parent]:
                    stack.append((parent, iter(first[parent])))
                    break
            else:
                done[job] = True
                order.append(job)
                stack.pop()
    return order


def eager_order(shape: Shape, order: list[int], greedy: bool) -> list[int]:
    """List scheduling that knows what running a job would free now: its inputs of which it is the last reader.

    A job that frees at least what it makes goes first, most freed first. The others go in `order`, or with `greedy` by the bytes they add.
    """
    size, readers, external, count = shape.size, shape.readers, shape.external, len(order)
    waiting = [len(above) for above in shape.parents]
    unread = [len(reads) for reads in readers]
    adds = list(shape.lasting)
    for file, reads in enumerate(readers):
        if len(reads) == 1 and not external[file]:
            adds[reads[0]] -= size[file]
    done, place = [False] * count, places(order)

    def key(job: int) -> int:
        """Orders by bytes, then by place: one number is compared quicker than two."""
        return (adds[job] if adds[job] <= 0 or greedy else 1) * count + place[job]

    ready = [key(job) for job, above in enumerate(waiting) if not above]
    heapify(ready)
    eager: list[int] = []
    while ready:
        # One that frees more by now stands before it once more.
        job = order[heappop(ready) % count]
        if done[job]:
            continue
        done[job] = True
        eager.append(job)
        for file in shape.inputs[job]:
            unread[file] -= 1
            if unread[file] == 1 and not external[file]:
                last = next(reader for reader in readers[file] if not done[reader])
                adds[last] -= size[file]
                if waiting[last] == 0:
                    heappush(ready, key(last))
        for child in shape.children[job]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heappush(ready, key(child))
    return eager


def places(order: list[int]) -> list[int]:
    position = [0] * len(order)
    for place, job in enumerate(order):
        position[job] = place
    return position


class Usage:
    """How many bytes are in use while each job of an order runs, where files that stay are kept from producer (externals: first reader)
    to last reader, and others only while a job runs. Facts that are the same for all orders are found once.
    """

    __slots__ = ("_by_more", "_by_two", "_footprint")

    def __init__(self, shape: Shape, stays: list[bool]) -> None:
        used_by = zip(shape.size, shape.producer, shape.readers, stays, strict=True)
        self._footprint = shape.footprint
        self._by_two: list[tuple[int, int, int]] = []
        self._by_more: list[tuple[int, list[int]]] = []
        for size, producer, reads, lasts in used_by:
            if not lasts or not size or not reads:
                continue
            users = reads if producer < 0 else [producer, *reads]
            # What one job alone has open is in its footprint.
            if len(users) == 2:
                self._by_two.append((size, users[0], users[1]))
            elif len(users) > 2:
                self._by_more.append((size, users))

    def along(self, order: list[int]) -> list[int]:
        """Of a topological order, by position."""
        position, used = places(order), [self._footprint[job] for job in order]
        between = [0] * (len(order) + 1)
        for size, one, other in self._by_two:
            first, last = position[one], position[other]
            if first > last:
                first, last = last, first
            between[first + 1] += size
            between[last] -= size
        for size, jobs in self._by_more:
            at = [position[job] for job in jobs]
            first, last = min(at), max(at)
            between[first + 1] += size
            between[last] -= size
            # The footprints of all users count it already.
            for place in at:
                if first < place < last:
                    used[place] -= size
        return [now + beside for now, beside in zip(used, accumulate(between), strict=False)]


def unspillable(shape: Shape) -> list[bool]:
    """Files with no second home unless a spill origin gives them one: produced and not final."""
    return [not external and not final for external, final in zip(shape.external, shape.final, strict=True)]
