"""What a run may cost and when it is to have ended, as values: the budget that it runs under, and how long that lasts.

May know: plans, and requests to buckets. One rule: money is reckoned as in the bill of an estimate (planning/cost.py), of the usage so far
and of what is still to come. Every scheduler imports this, so it holds plain numbers, and no table of prices.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil, floor, inf

from stager.model.record import Record, StateEntry
from stager.planning.plan import JobPlan
from stager.planning.requests import LOOKS_PER_WRITE, reads_of, writes_of

GB_BYTES = 2**30
# A rate that JSON can hold.
AT_ONCE = 1e18
# Where nothing is billed in steps.
STEP_S, STEPS_MAX = 1e-3, 1 << 53


class PaidNodes(Record):
    """As a provider bills them: in steps, and not less than the least."""

    count: int
    per_hour: float
    billed_every_s: float
    billed_at_least_s: float


class Moved(StateEntry):
    """Bytes that left the cloud, and requests to buckets."""

    egress_bytes: int = 0
    reads: int = 0
    writes: int = 0

    def add(self, other: Moved, sign: int = 1) -> None:
        self.egress_bytes += sign * other.egress_bytes
        self.reads += sign * other.reads
        self.writes += sign * other.writes


class Budget(Record, kw_only=True):
    """`amount` None: the run may cost whatever it does. `finish_by` None: it may end whenever it does, else seconds since 1970.

    `nodes` are paid for as long as the run goes on, `volumes_per_s` is for disks beside them. `egress`: (up to so many bytes, price of a
    GB), ascending; None: all the rest. `per_read` and `per_write` are of one request. Origins by name: those whose fetched or uploaded
    bytes leave a cloud (`fetch_charged`, `upload_charged`), and `buckets`, whose requests are paid.

    `egress_bytes`, `reads` and `writes`: what the plan expects in all. `home_bytes_per_s`: how fast finals are expected to go home,
    `home_bytes_per_s_least` and `home_file_s_most`: how slow that may be. `compute_most`, by basis, and `beside_most`: how many times as
    long as planned a program may take, and all that an attempt takes beside it.
    """

    currency: str
    amount: float | None = None
    finish_by: float | None = None
    nodes: tuple[PaidNodes, ...] = ()
    volumes_per_s: float = 0.0
    egress: tuple[tuple[int | None, float], ...] = ()
    per_read: float = 0.0
    per_write: float = 0.0
    fetch_charged: tuple[str, ...] = ()
    upload_charged: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    egress_bytes: int = 0
    reads: int = 0
    writes: int = 0
    home_bytes_per_s: float = AT_ONCE
    home_bytes_per_s_least: float = AT_ONCE
    home_file_s_most: float = 0.0
    compute_most: dict[str, float] = {}
    beside_most: float = 1.0

    @property
    def charges_fetches(self) -> bool:
        return bool(self.fetch_charged or self.buckets)

    @property
    def planned(self) -> Moved:
        return Moved(self.egress_bytes, self.reads, self.writes)


def fetch_of(budget: Budget, origin: str, size_bytes: int) -> Moved:
    charged, paid = origin in budget.fetch_charged, origin in budget.buckets
    return Moved(size_bytes if charged else 0, reads_of(size_bytes) if paid else 0, 0)


def upload_of(budget: Budget, origin: str, size_bytes: int) -> Moved:
    charged, paid = origin in budget.upload_charged, origin in budget.buckets
    return Moved(size_bytes if charged else 0, LOOKS_PER_WRITE if paid else 0, writes_of(size_bytes) if paid else 0)


def moved_money(budget: Budget, moved: Moved) -> float:
    """Each byte at the price of the tier it falls into."""
    money, below = moved.reads * budget.per_read + moved.writes * budget.per_write, 0
    for up_to_bytes, per_gb in budget.egress:
        above = moved.egress_bytes if up_to_bytes is None else min(up_to_bytes, moved.egress_bytes)
        money += max(0, above - below) / GB_BYTES * per_gb
        below = above
    return money


def time_money(budget: Budget, wall_s: float) -> float:
    nodes = sum([each.count * billed_s(each, wall_s) / 3600 * each.per_hour for each in budget.nodes])
    return nodes + budget.volumes_per_s * wall_s


def billed_s(nodes: PaidNodes, wall_s: float) -> float:
    every_s = nodes.billed_every_s
    return max(nodes.billed_at_least_s, ceil(round(wall_s / every_s, 9)) * every_s if every_s > 0 else wall_s)


def money_of(budget: Budget, moved: Moved, wall_s: float) -> float:
    return moved_money(budget, moved) + time_money(budget, wall_s)


def lasts_s(budget: Budget, moved: Moved) -> float:
    """For how long the run may go on in all before its bill, with so much moved, is above the amount. Negative: it is above already."""
    if budget.amount is None:
        return inf
    left = budget.amount - moved_money(budget, moved)
    per_s = sum([each.count * each.per_hour / 3600 for each in budget.nodes]) + budget.volumes_per_s
    if left < time_money(budget, 0.0):
        return -inf
    if per_s <= 0:
        return inf
    step_s = max([each.billed_every_s for each in budget.nodes if each.count and each.per_hour], default=0.0) or STEP_S
    steps = floor(min(left / per_s / step_s, STEPS_MAX))
    # The longest of them that is paid for: what is billed in other steps, or at least, may come to more than its time.
    return (bisect_right(range(steps + 1), left, key=lambda count: time_money(budget, count * step_s)) - 1) * step_s


def most_s(budget: Budget, planned: JobPlan) -> float:
    """What one attempt of a job may take, from its start to the word of its end."""
    compute_s = planned.compute_s * max(budget.compute_most.get(planned.compute_basis, 1.0), planned.compute_spread or 1.0)
    return compute_s + max(0.0, planned.finish_s - planned.start_s - planned.compute_s) * budget.beside_most


def home_s_most(budget: Budget, files: int, size_bytes: int) -> float:
    """Until so many finals are home, at the slowest."""
    return size_bytes / budget.home_bytes_per_s_least + files * budget.home_file_s_most
